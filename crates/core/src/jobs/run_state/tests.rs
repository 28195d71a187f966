use proptest::collection::vec;
use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::ids::JobId;
use crate::jobs::retry::Jitter;
use crate::jobs::run::{Claim, NewLog};

const MAX_RETRIES: u32 = 2;
const JOB: JobId = JobId(Uuid::from_u128(7));

fn execution(number: u32) -> ExecutionId {
    ExecutionId(Uuid::from_u128(u128::from(number)))
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + second).expect("in range")
}

fn node(name: &str) -> NodeId {
    NodeId::new(name).expect("a name")
}

fn waiting() -> RunState {
    RunState {
        execution: None,
        status: Status::Pending,
        attempt: 0,
        attempt_base: 0,
        job_type: JobType::new("t").expect("a name"),
        queue: QueueName::new("q").expect("a name"),
        max_retries: MAX_RETRIES,
        retry_policy: RetryPolicy {
            initial_delay: Duration::from_secs(10),
            multiplier: 2.0,
            max_delay: Duration::from_secs(600),
            jitter: Jitter::None,
        },
        timeout: Some(Duration::from_secs(30)),
        due_at: at(0),
        started_at: None,
        deadline: None,
        worker: None,
        owner: None,
        ownership: Ownership::Unowned,
        progress: None,
        by_channel: false,
        has_history: false,
        log: RunLog::default(),
        log_seq: 0,
    }
}

/// A job in a store that keeps everything the rules ask for.
struct Stored {
    run: RunState,
    dispatches: u32,
    history: Vec<(ExecutionId, Outcome)>,
    present_end: Option<(ExecutionId, Outcome)>,
    finals: u32,
    lines: Vec<u64>,
}

impl Stored {
    fn new() -> Self {
        let (run, history) = (waiting(), Vec::new());
        Stored { run, dispatches: 0, history, present_end: None, finals: 0, lines: Vec::new() }
    }

    fn dispatch(&mut self) {
        if !matches!(self.run.status, Status::Pending | Status::Scheduled) {
            return;
        }
        self.dispatches += 1;
        self.run = RunState {
            execution: Some(execution(self.dispatches)),
            status: Status::Dispatched,
            attempt: self.run.attempt + 1,
            ..self.run.clone()
        };
    }

    fn record<'r>(&mut self, report: &'r RunReport, source: Source) -> Effect<'r> {
        let mut run = self.run.clone();
        let effect = run.apply(report, source, self.recorded(report.execution));
        self.run = run;
        let Effect::Applied(Applied { change, write, history, logs }) = &effect else { return effect };
        assert_eq!((change.status, change.attempt), (self.run.status, self.run.attempt));
        self.lines.extend(logs.iter().map(|line| line.seq));
        let end = report.end.as_ref().map(|end| (report.execution, end.outcome.clone()));
        assert_eq!(history.is_some(), matches!(write, Write::Again { .. }));
        match *write {
            Write::InFlight => {}
            Write::Final { .. } => {
                self.finals += 1;
                self.present_end = end;
            }
            Write::Again { due_at, attempt, .. } => {
                let past = history.as_ref().expect("a run that is followed by another");
                assert_eq!((past.execution_id, past.attempt), (report.execution, self.run.attempt));
                self.history.extend(end);
                let (by_channel, log_seq) = (self.run.by_channel, self.run.log_seq);
                let status = self.run.status;
                self.run = RunState { status, attempt, due_at, by_channel, log_seq, has_history: true, ..waiting() };
            }
        }
        effect
    }

    fn recorded(&self, execution: ExecutionId) -> Option<RecordedEnd<'_>> {
        let mut ends = self.history.iter().chain(&self.present_end);
        ends.find(|(of, _)| *of == execution).map(|(_, outcome)| outcome.into())
    }
}

fn outcomes() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        Just(Outcome::Completed { result: None }),
        any::<bool>().prop_map(|retry| Outcome::Failed { error: "boom".into(), retry }),
        Just(Outcome::TimedOut { error: "30s".into() }),
        Just(Outcome::Cancelled { reason: None }),
        Just(Outcome::Lost { error: "its worker died".into() }),
        Just(Outcome::Released),
    ]
}

#[derive(Debug, Clone)]
enum Step {
    Dispatch,
    Report { execution: u32, owner: Option<(bool, bool)>, started: bool, lines: u8, end: Option<Outcome>, leader: bool },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let report = (
        1..6_u32,
        proptest::option::of(any::<(bool, bool)>()),
        any::<bool>(),
        0..3_u8,
        proptest::option::of(outcomes()),
        any::<bool>(),
    );
    let report = report.prop_map(|(execution, owner, started, lines, end, leader)| Step::Report {
        execution,
        owner,
        started,
        lines,
        end,
        leader,
    });
    vec(prop_oneof![1 => Just(Step::Dispatch), 3 => report], 1..40)
}

fn report(step: &Step, second: i64) -> Option<(RunReport, Source)> {
    let Step::Report { execution: number, owner, started, lines, end, leader } = step else { return None };
    let mut report = RunReport::of(JOB, execution(*number));
    report.owner = owner.map(|(takes, first)| {
        let node = node(if first { "n1" } else { "n2" });
        if takes { Claim::Take(node) } else { Claim::IfFree(node) }
    });
    report.started_at = started.then(|| at(second));
    let line = |_| NewLog { seq: None, at: at(second), level: LogLevel::Info, message: "line".into() };
    report.logs = (0..*lines).map(line).collect();
    if let Some(outcome) = end {
        report = report.ended(at(second), outcome.clone(), 0.5);
    }
    Some((report, if *leader { Source::Leader } else { Source::Run }))
}

proptest! {
    /// Every history keeps the promises: one end of the job, attempts within the budget, reports of other runs without
    /// effect, log lines numbered without gaps.
    #[test]
    fn whatever_is_reported_a_job_ends_once_and_only_its_present_run_changes_it(steps in steps()) {
        let mut stored = Stored::new();
        for (second, step) in (1..).zip(&steps) {
            let Some((report, source)) = report(step, second) else {
                stored.dispatch();
                continue;
            };
            let before = stored.run.clone();
            let is_present = before.execution == Some(report.execution) && before.status.is_in_flight();
            match stored.record(&report, source) {
                Effect::Applied(_) => prop_assert!(is_present),
                Effect::NotOwner => {
                    prop_assert!(is_present && before.owner.is_some());
                    prop_assert_eq!(&before, &stored.run);
                }
                effect @ (Effect::Duplicate | Effect::Stale) => {
                    prop_assert!(!is_present);
                    prop_assert_eq!(&before, &stored.run);
                    let repeats = stored.recorded(report.execution).zip(report.end.as_ref());
                    let repeats = repeats.is_some_and(|(recorded, end)| recorded.status == end.outcome.ended_as());
                    prop_assert_eq!(effect == Effect::Duplicate, repeats);
                }
            }
            prop_assert!(stored.finals <= 1);
            prop_assert!(stored.run.attempt <= MAX_RETRIES + 1);
            prop_assert_eq!(stored.run.deadline.is_some(), stored.run.status == Status::Running);
            prop_assert!(stored.lines.iter().copied().eq(1..=stored.run.log_seq));
            prop_assert_eq!(stored.finals == 1, !stored.run.status.is_live());
        }
    }

    /// The change of the status is one that the table of the lifecycle has.
    #[test]
    fn every_change_of_the_status_is_in_the_table(steps in steps()) {
        let mut stored = Stored::new();
        for (second, step) in (1..).zip(&steps) {
            let before = stored.run.status;
            match report(step, second) {
                Some((report, source)) => drop(stored.record(&report, source)),
                None => stored.dispatch(),
            }
            let after = stored.run.status;
            // A scheduled job becomes pending before it is dispatched; here both are one step.
            let via = if before == Status::Scheduled && after == Status::Dispatched { Status::Pending } else { before };
            prop_assert!(via == after || via.to(after).is_ok(), "{:?} to {:?}", before, after);
        }
    }
}

fn dispatched() -> RunState {
    RunState { execution: Some(execution(1)), status: Status::Dispatched, attempt: 1, ..waiting() }
}

fn applied<'r>(run: &mut RunState, report: &'r RunReport, source: Source) -> Applied<'r> {
    match run.apply(report, source, None) {
        Effect::Applied(applied) => applied,
        other => panic!("expected it to be applied, got {other:?}"),
    }
}

fn of_run() -> RunReport {
    RunReport::of(JOB, execution(1))
}

#[test]
fn the_first_start_counts_and_times_the_run() {
    let mut run = dispatched();
    let started = RunReport { started_at: Some(at(5)), handed_out_at: Some(at(1)), ..of_run() };
    assert_eq!(applied(&mut run, &started, Source::Run).write, Write::InFlight);
    assert_eq!((run.status, run.started_at, run.deadline), (Status::Running, Some(at(5)), Some(at(35))));
    applied(&mut run, &RunReport { started_at: Some(at(9)), ..of_run() }, Source::Run);
    assert_eq!((run.started_at, run.deadline), (Some(at(5)), Some(at(35))));
}

#[test]
fn a_run_without_a_start_is_timed_from_its_hand_out() {
    let mut run = dispatched();
    applied(&mut run, &RunReport { handed_out_at: Some(at(2)), ..of_run() }, Source::Run);
    assert_eq!((run.status, run.deadline), (Status::Dispatched, Some(at(32))));
    applied(&mut run, &of_run(), Source::Run);
    assert_eq!(run.deadline, Some(at(32)), "a report without times keeps the deadline");
}

#[test]
fn an_owner_that_is_named_again_leaves_a_handoff_in_progress() {
    let mut run = RunState { owner: Some(node("n1")), ownership: Ownership::HandingOff, ..dispatched() };
    let by = |claim| RunReport { owner: Some(claim), ..of_run() };
    applied(&mut run, &by(Claim::IfFree(node("n1"))), Source::Run);
    assert_eq!(run.ownership, Ownership::HandingOff);
    assert_eq!(run.apply(&by(Claim::IfFree(node("n2"))), Source::Run, None), Effect::NotOwner);
    applied(&mut run, &by(Claim::Take(node("n2"))), Source::Run);
    assert_eq!((run.owner, run.ownership), (Some(node("n2")), Ownership::Owned));
}

#[test]
fn channels_need_no_cleaning_only_if_no_run_can_have_opened_one() {
    let completed = || of_run().ended(at(9), Outcome::Completed { result: None }, 0.0);
    let cleaned = |mut run: RunState, report: RunReport, source| match applied(&mut run, &report, source).write {
        Write::Final { channels_cleaned, .. } => channels_cleaned,
        other => panic!("expected the end of the job, got {other:?}"),
    };
    assert!(cleaned(dispatched(), completed(), Source::Run));
    assert!(!cleaned(dispatched(), completed(), Source::Leader));
    assert!(!cleaned(dispatched(), RunReport { by_channel: true, ..completed() }, Source::Run));
    assert!(!cleaned(RunState { by_channel: true, ..dispatched() }, completed(), Source::Run));
    assert!(!cleaned(RunState { has_history: true, ..dispatched() }, completed(), Source::Run));
}

#[test]
fn the_end_of_a_run_is_kept_where_the_status_of_the_job_does_not_imply_it() {
    let ended = |outcome, attempt| {
        let mut run = RunState { attempt, ..dispatched() };
        let report = of_run().ended(at(9), outcome, 0.0);
        match applied(&mut run, &report, Source::Leader).write {
            Write::Final { run_end, .. } => (run.status, run_end),
            other => panic!("expected the end of the job, got {other:?}"),
        }
    };
    let lost = Outcome::Lost { error: "its worker died".into() };
    assert_eq!(ended(lost, MAX_RETRIES + 1), (Status::Failed, Some(ExecutionStatus::Lost)));
    let failed = Outcome::Failed { error: "boom".into(), retry: false };
    assert_eq!(ended(failed, 1), (Status::Failed, None));
}

#[test]
fn a_released_run_gives_its_attempt_back_and_leaves_the_error_of_the_job() {
    let mut run = dispatched();
    let report = of_run().ended(at(9), Outcome::Released, 0.0);
    let Applied { change, write, history, .. } = applied(&mut run, &report, Source::Run);
    assert_eq!(write, Write::Again { due_at: at(9), attempt: 0, error: None });
    assert_eq!((change.status, change.attempt, change.retry_at), (Status::Pending, 1, Some(at(9))));
    let past = history.expect("the run that was released");
    assert_eq!((past.status, past.attempt, past.ended_at), (ExecutionStatus::Released, 1, Some(at(9))));
}
