//! A job as it is stored: what readers see of it, and what only the store needs to know.

use convoke_core::jobs::lifecycle::{Budget, Next, after};
use convoke_core::jobs::retention::Rows;
use convoke_core::jobs::run::Outcome;
use convoke_core::jobs::run_log::RunLog;
use convoke_core::jobs::{Execution, ExecutionStatus, Job, LogLine, NewJob, Ownership, RunEnd, RunReport, Status};
use convoke_core::ports::store::{Change, Handover, InFlight, Reassign, Reassigned, Recorded};
use convoke_core::{Json, NodeId};
use jiff::Timestamp;

pub(super) struct Row {
    pub(super) seq: u64,
    pub(super) job: Job,
    /// Since when it can run, or from when on.
    pub(super) due_at: Timestamp,
    pub(super) unique_until: Option<Timestamp>,
    /// When the present run's time is up.
    pub(super) deadline: Option<Timestamp>,
    /// Runs that were followed by another.
    pub(super) history: Vec<Execution>,
    pub(super) logs: Vec<LogLine>,
    /// How far the log of the present run is recorded.
    run_log: RunLog,
    /// Its attempts when it was last enqueued or redriven: the budget of retries begins there.
    attempts_before: u32,
    /// How the present run ended.
    ended: Option<ExecutionStatus>,
    /// Events came by the job's channels.
    by_channel: bool,
}

impl Row {
    pub(super) fn new(seq: u64, new: NewJob) -> Self {
        Row {
            seq,
            due_at: new.due_at(),
            unique_until: new.unique_until,
            job: new.into_stored(),
            deadline: None,
            history: Vec::new(),
            logs: Vec::new(),
            run_log: RunLog::default(),
            attempts_before: 0,
            ended: None,
            by_channel: false,
        }
    }

    /// Asks the table. Callers have looked at the state first, so that it never refuses.
    pub(super) fn become_status(&mut self, to: Status) {
        self.job.status = self.job.status.to(to).expect("a move was not checked before it was made");
    }

    pub(super) fn present_run(&self) -> Option<Execution> {
        let status = match self.ended {
            Some(ended) => ended,
            None if self.job.status == Status::Dispatched => ExecutionStatus::Dispatched,
            None => ExecutionStatus::Running,
        };
        Some(Execution {
            execution_id: self.job.execution_id?,
            attempt: self.job.attempt,
            worker_id: self.job.worker_id.clone(),
            status,
            error: self.ended.and(self.job.error.clone()),
            started_at: self.job.started_at,
            ended_at: self.job.completed_at,
        })
    }

    pub(super) fn in_flight(&self) -> Option<InFlight> {
        Some(InFlight {
            job: self.job.id,
            execution: self.job.execution_id?,
            job_type: self.job.job_type.clone(),
            queue: self.job.queue.clone(),
            attempt: self.job.attempt,
            status: self.job.status,
            worker: self.job.worker_id.clone(),
            owner: self.job.owner_node.clone(),
            ownership: self.job.ownership,
            dispatched_at: self.job.dispatched_at?,
            deadline: None,
        })
    }

    /// Counts the attempts of the present budget.
    pub(super) fn set_attempt(&mut self, attempt: u32) {
        self.job.attempt = attempt;
        self.job.retry_count = self.tries().saturating_sub(1);
    }

    fn tries(&self) -> u32 {
        self.job.attempt - self.attempts_before
    }

    /// The rows that a deletion of the job counts.
    pub(super) fn rows(&self) -> Rows {
        Rows { log_lines: self.logs.len() as u64, runs: self.history.len() as u64 }
    }

    /// Deletes so many log lines, from the last on.
    pub(super) fn trim_logs(&mut self, lines: u64) {
        let left = (self.logs.len() as u64).saturating_sub(lines);
        self.logs.truncate(usize::try_from(left).unwrap_or(usize::MAX));
    }

    pub(super) fn redrive(&mut self, now: Timestamp) {
        self.history.extend(self.present_run());
        self.forget_run();
        self.become_status(Status::Pending);
        self.attempts_before = self.job.attempt;
        self.job.retry_count = 0;
        self.job.completed_at = None;
        self.job.result = None;
        self.job.channels_cleaned = false;
        if self.job.schedule.is_none() {
            self.job.scheduled_at = None;
        }
        self.due_at = now;
    }

    pub(super) fn cancel(&mut self, reason: Option<&str>, now: Timestamp) {
        let in_flight = self.job.status.is_in_flight();
        let never_ran = !in_flight && self.history.is_empty();
        self.finish(Status::Cancelled, now, never_ran);
        self.job.error = reason.map(str::to_owned);
        self.ended = in_flight.then_some(ExecutionStatus::Cancelled);
    }

    fn finish(&mut self, status: Status, at: Timestamp, channels_cleaned: bool) {
        self.become_status(status);
        self.job.completed_at = Some(at);
        self.job.channels_cleaned = channels_cleaned;
        self.job.ownership = Ownership::Unowned;
        self.deadline = None;
    }

    fn forget_run(&mut self) {
        self.job.execution_id = None;
        self.run_log = RunLog::default();
        self.job.ownership = Ownership::Unowned;
        self.job.owner_node = None;
        self.job.worker_id = None;
        self.job.progress = None;
        self.job.dispatched_at = None;
        self.job.started_at = None;
        self.deadline = None;
        self.ended = None;
    }

    /// Whether the report is of a run that can still say something.
    pub(super) fn hears(&self, report: &RunReport) -> bool {
        self.job.status.is_in_flight() && self.job.execution_id == Some(report.execution)
    }

    /// What a run that is over is told.
    pub(super) fn answer_late(&self, report: &RunReport) -> Recorded {
        let Some(end) = &report.end else { return Recorded::Stale };
        let repeated = if self.job.execution_id == Some(report.execution) {
            let (error, result) = (self.job.error.as_deref(), self.job.result.as_ref().map(Json::as_str));
            self.ended.is_some_and(|ended| end.outcome.repeats(ended, error, result))
        } else {
            let past = self.history.iter().find(|run| run.execution_id == report.execution);
            past.is_some_and(|run| end.outcome.repeats(run.status, run.error.as_deref(), None))
        };
        if repeated { Recorded::Repeated } else { Recorded::Stale }
    }

    /// Takes note of what the present run says.
    pub(super) fn hear(&mut self, report: RunReport, judged: bool) -> Change {
        if report.worker.is_some() {
            self.job.worker_id = report.worker;
        }
        if let Some(claim) = report.owner
            && self.job.owner_node.as_ref() != Some(claim.node())
        {
            self.own(claim.node().clone());
        }
        match (report.started_at, report.handed_out_at) {
            (Some(at), _) => self.start(at),
            (None, Some(at)) if self.job.started_at.is_none() => self.time_from(at),
            (None, _) => {}
        }
        if report.progress.is_some() {
            self.job.progress = report.progress;
        }
        for line in &report.logs {
            let Some(taken) = self.run_log.take(line) else { continue };
            let (seq, execution_id) = (self.logs.len() as u64 + 1, report.execution);
            let (level, message) = taken.text(line);
            self.logs.push(LogLine { seq, at: line.at, level, message: message.into(), execution_id });
        }
        self.by_channel |= report.by_channel;
        let (attempt, due_at, started_at) = (self.job.attempt, self.due_at, self.job.started_at);
        let retry_at = report.end.and_then(|end| self.end(end, judged));
        Change {
            status: self.job.status,
            job_type: self.job.job_type.clone(),
            queue: self.job.queue.clone(),
            attempt,
            due_at,
            started_at,
            retry_at,
        }
    }

    /// Whether another node owns the job, and the report is only for the owner.
    pub(super) fn is_anothers(&self, report: &RunReport) -> bool {
        report.owner.as_ref().is_some_and(|claim| claim.yields_to(self.job.owner_node.as_ref()))
    }

    /// Moves the ownership of the present run, where it is as the change expects it.
    pub(super) fn reassign(&mut self, change: Reassign) -> Reassigned {
        let owner = self.job.owner_node.clone();
        let expected = match change.to {
            Handover::Take(_) => owner.is_none() || self.job.ownership == Ownership::OrphanPending,
            Handover::Offer | Handover::Keep | Handover::Orphan => false,
        };
        if !expected && owner.as_ref() != Some(&change.from) {
            return Reassigned::OwnedBy(owner);
        }
        match change.to {
            Handover::Offer => self.job.ownership = Ownership::HandingOff,
            Handover::Keep => self.job.ownership = Ownership::Owned,
            Handover::Orphan => self.job.ownership = Ownership::OrphanPending,
            Handover::Take(node) => self.own(node),
        }
        Reassigned::Done
    }

    fn own(&mut self, node: NodeId) {
        self.job.owner_node = Some(node);
        self.job.ownership = Ownership::Owned;
    }

    fn start(&mut self, at: Timestamp) {
        if self.job.status == Status::Dispatched {
            self.become_status(Status::Running);
        }
        let started_at = *self.job.started_at.get_or_insert(at);
        self.time_from(started_at);
    }

    fn time_from(&mut self, at: Timestamp) {
        self.deadline = self.job.timeout.map(|timeout| at.saturating_add(timeout).unwrap_or(Timestamp::MAX));
    }

    /// Ends the present run; answers when the next one is due, where there is to be one.
    fn end(&mut self, end: RunEnd, judged: bool) -> Option<Timestamp> {
        let budget = Budget { tries: self.tries(), max_retries: self.job.max_retries, policy: &self.job.retry_policy };
        let next = after(&end.outcome, budget, end.at, end.roll);
        self.ended = Some(end.outcome.ended_as());
        let released = end.outcome == Outcome::Released;
        let (result, error) = match end.outcome {
            Outcome::Completed { result } => (result, None),
            Outcome::Failed { error, .. } | Outcome::TimedOut { error } | Outcome::Lost { error } => {
                (None, Some(error))
            }
            Outcome::Cancelled { reason } => (None, reason),
            Outcome::Released => (None, None),
        };
        match next {
            Next::Final(status) => {
                self.job.result = result;
                self.job.error = error;
                self.finish(status, end.at, !judged && !self.by_channel && self.history.is_empty());
                None
            }
            Next::Again { due_at, counted } => {
                let run =
                    self.present_run().map(|run| Execution { error: error.clone(), ended_at: Some(end.at), ..run });
                self.history.extend(run);
                if !released {
                    self.job.error = error;
                }
                self.run_again(due_at, counted, end.at);
                Some(due_at)
            }
        }
    }

    fn run_again(&mut self, due_at: Timestamp, counted: bool, now: Timestamp) {
        let waits = due_at > now;
        self.become_status(if waits { Status::Scheduled } else { Status::Pending });
        self.forget_run();
        if !counted {
            self.set_attempt(self.job.attempt - 1);
        }
        if self.job.schedule.is_none() {
            self.job.scheduled_at = waits.then_some(due_at);
        }
        self.due_at = due_at;
    }
}
