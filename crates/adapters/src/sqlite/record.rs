//! What is said of runs: claims, starts, progress, logs and ends.
//!
//! The fence of every write here is the run's `ExecutionId`, in the `where` of the statement that writes. A run that simply
//! completes is one such statement. Everything else reads the run first and asks the core what follows.

use convoke_core::election::Fence;
use convoke_core::jobs::job::ExecutionStatus;
use convoke_core::jobs::lifecycle::{self, Budget, Next};
use convoke_core::jobs::run::RunEnd;
use convoke_core::jobs::run_log::RunLog;
use convoke_core::jobs::{Outcome, Progress, RetryPolicy, RunReport, Status};
use convoke_core::ports::store::{Change, Recorded};
use convoke_core::{ExecutionId, Json, NodeId, WorkerId};
use jiff::Timestamp;
use rusqlite::{CachedStatement, OptionalExtension, Row, params};

use super::archive::{archive, present_status, run_end};
use super::books::{Ledger, QueueId};
use super::epoch;
use super::failure::Result;
use super::rows::{duration_option, instant, instant_option, micros, node_id_option, number, retry_policy, status};
use super::writer::BYTES_PER_ROW;

pub(super) fn judge(ledger: &mut Ledger<'_>, fence: Fence, reports: &[RunReport]) -> Result<Vec<Recorded>> {
    epoch::hold(ledger, fence, "judge")?;
    record_all(ledger, reports, Source::Leader)
}

/// What these reports count as in a group of writes.
pub(super) fn rows(reports: &[RunReport]) -> usize {
    let of = |report: &RunReport| {
        let lines: usize = report.logs.iter().map(|line| 1 + line.message.len() / BYTES_PER_ROW).sum();
        let result = match report.end.as_ref().map(|end| &end.outcome) {
            Some(Outcome::Completed { result: Some(result) }) => result.as_str().len(),
            _ => 0,
        };
        1 + lines + result / BYTES_PER_ROW
    };
    reports.iter().map(of).sum()
}

pub(super) fn record(ledger: &mut Ledger<'_>, reports: &[RunReport]) -> Result<Vec<Recorded>> {
    record_all(ledger, reports, Source::Run)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Run,
    /// Cannot know whether the run opened channels.
    Leader,
}

impl Source {
    /// Whether, after this report, the job may have channels to be closed.
    fn may_have_channels(self, report: &RunReport) -> bool {
        report.by_channel || self == Source::Leader
    }
}

fn record_all(ledger: &mut Ledger<'_>, reports: &[RunReport], source: Source) -> Result<Vec<Recorded>> {
    let db = ledger.db;
    // Reading first and writing then costs less than a write that returns what it wrote.
    let mut completion = Completion {
        read: db.prepare_cached(include_str!("sql/run_in_flight.sql"))?,
        write: db.prepare_cached(include_str!("sql/complete.sql"))?,
    };
    let mut recorded = Vec::with_capacity(reports.len());
    for report in reports {
        let done = match &report.end {
            Some(RunEnd { at, outcome: Outcome::Completed { result }, .. }) if report.logs.is_empty() => {
                record_completed(ledger, &mut completion, report, source, *at, result.as_ref())?
            }
            _ => None,
        };
        recorded.push(match done {
            Some(change) => Recorded::Applied(change),
            None => record_one(ledger, report, source)?,
        });
    }
    Ok(recorded)
}

struct Completion<'db> {
    read: CachedStatement<'db>,
    write: CachedStatement<'db>,
}

/// The fast path: `None` where the run is not in flight, or not the claimant's.
fn record_completed(
    ledger: &mut Ledger<'_>,
    statements: &mut Completion<'_>,
    report: &RunReport,
    source: Source,
    at: Timestamp,
    result: Option<&Json>,
) -> Result<Option<Change>> {
    let execution = report.execution.0.as_bytes();
    let mut rows = statements.read.query(params![report.job.0.as_bytes(), execution])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let owner = node_id_option(row, 7)?;
    if report.owner.as_ref().is_some_and(|claim| claim.yields_to(owner.as_ref())) {
        return Ok(None);
    }
    let progress = report.progress.as_ref();
    statements.write.execute(params![
        row.get::<_, i64>(0)?,
        execution,
        micros(at),
        result.map(Json::as_str),
        report.worker.as_ref().map(WorkerId::as_str),
        report.owner.as_ref().map(|claim| claim.node().as_str()),
        report.started_at.map(micros),
        progress.map(|progress| progress.percent),
        progress.and_then(|progress| progress.message.as_deref()),
        source.may_have_channels(report),
    ])?;
    let queue = QueueId(row.get(2)?);
    let change = Change {
        status: Status::Completed,
        job_type: ledger.books.job_type(ledger.db, row.get(3)?)?,
        queue: ledger.books.queue(queue).name.clone(),
        attempt: number(row, 4)?,
        due_at: instant(row, 5)?,
        started_at: instant_option(row, 6)?.or(report.started_at),
        retry_at: None,
    };
    ledger.books.moved(queue, Some(status(row, 1)?), Some(Status::Completed));
    Ok(Some(change))
}

/// A job's present run, as far as a report needs it.
struct Run {
    seq: i64,
    execution: Option<[u8; 16]>,
    state: Status,
    run_end: Option<ExecutionStatus>,
    queue: QueueId,
    job_type: i64,
    attempt: u32,
    attempt_base: u32,
    due_at: Timestamp,
    started_at: Option<Timestamp>,
    timeout: Option<std::time::Duration>,
    max_retries: u32,
    policy: RetryPolicy,
    log_seq: i64,
    owner: Option<NodeId>,
    log: RunLog,
}

fn read_run(row: &Row<'_>) -> rusqlite::Result<Run> {
    Ok(Run {
        seq: row.get(0)?,
        execution: row.get(1)?,
        state: status(row, 2)?,
        run_end: run_end(row, 3)?,
        queue: QueueId(row.get(4)?),
        job_type: row.get(5)?,
        attempt: number(row, 6)?,
        attempt_base: number(row, 7)?,
        due_at: instant(row, 8)?,
        started_at: instant_option(row, 9)?,
        timeout: duration_option(row, 10)?,
        max_retries: number(row, 11)?,
        policy: retry_policy(row, 12)?,
        log_seq: row.get(16)?,
        owner: node_id_option(row, 17)?,
        log: RunLog { next: number(row, 18)?, kept: number(row, 19)? },
    })
}

fn record_one(ledger: &mut Ledger<'_>, report: &RunReport, source: Source) -> Result<Recorded> {
    let mut statement = ledger.db.prepare_cached(include_str!("sql/run.sql"))?;
    let run = statement.query_row([report.job.0.as_bytes()], read_run).optional()?;
    let Some(mut run) = run else { return Ok(Recorded::Stale) };
    if run.execution != Some(*report.execution.0.as_bytes()) || !run.state.is_in_flight() {
        return refuse(ledger, report, &run);
    }
    if report.owner.as_ref().is_some_and(|claim| claim.yields_to(run.owner.as_ref())) {
        return Ok(Recorded::NotOwner);
    }
    let started_at = run.started_at.or(report.started_at);
    let mut change = Change {
        status: run.state,
        job_type: ledger.books.job_type(ledger.db, run.job_type)?,
        queue: ledger.books.queue(run.queue).name.clone(),
        attempt: run.attempt,
        due_at: run.due_at,
        started_at,
        retry_at: None,
    };
    append_logs(ledger, report, &mut run)?;
    note(ledger, report, &run, started_at, source)?;
    match &report.end {
        None if started_at.is_some() => change.status = Status::Running,
        None => {}
        Some(end) => (change.status, change.retry_at) = finish(ledger, end, &run)?,
    }
    ledger.books.moved(run.queue, Some(run.state), Some(change.status));
    Ok(Recorded::Applied(change))
}

/// A run that is not in flight: said again, or too late.
fn refuse(ledger: &Ledger<'_>, report: &RunReport, run: &Run) -> Result<Recorded> {
    let Some(end) = &report.end else { return Ok(Recorded::Stale) };
    let repeated = if run.execution == Some(*report.execution.0.as_bytes()) {
        repeats_present(ledger, &end.outcome, run)?
    } else {
        repeats_archived(ledger, &end.outcome, run.seq, report.execution)?
    };
    Ok(if repeated { Recorded::Repeated } else { Recorded::Stale })
}

fn repeats_present(ledger: &Ledger<'_>, said: &Outcome, run: &Run) -> Result<bool> {
    let mut statement = ledger.db.prepare_cached("select error, result from jobs where seq = ?1")?;
    let (error, result): (Option<String>, Option<String>) =
        statement.query_row([run.seq], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(said.repeats(present_status(run.state, run.run_end), error.as_deref(), result.as_deref()))
}

fn repeats_archived(ledger: &Ledger<'_>, said: &Outcome, seq: i64, execution: ExecutionId) -> Result<bool> {
    let mut statement =
        ledger.db.prepare_cached("select status, error from executions where job = ?1 and execution_id = ?2")?;
    let read = |row: &Row<'_>| Ok((super::rows::execution_status(row, 0)?, row.get::<_, Option<String>>(1)?));
    let found = statement.query_row(params![seq, execution.0.as_bytes()], read).optional()?;
    // What completed is not run again: no run in the history has a result.
    Ok(found.is_some_and(|(ended, error)| said.repeats(ended, error.as_deref(), None)))
}

/// Writes down what the report says of a run that goes on, or is about to end.
fn note(
    ledger: &Ledger<'_>,
    report: &RunReport,
    run: &Run,
    started_at: Option<Timestamp>,
    source: Source,
) -> Result<()> {
    // A run that ends in the same breath needs no deadline to watch. One that says nothing new of its times keeps its own.
    let deadline = match (started_at.or(report.handed_out_at), run.timeout) {
        (Some(from), Some(timeout)) if report.end.is_none() => {
            Some(from.saturating_add(timeout).unwrap_or(Timestamp::MAX))
        }
        _ => None,
    };
    let state = if started_at.is_some() { Status::Running } else { run.state };
    ledger.db.prepare_cached(include_str!("sql/note.sql"))?.execute(params![
        run.seq,
        report.execution.0.as_bytes(),
        state.code(),
        report.worker.as_ref().map(WorkerId::as_str),
        report.owner.as_ref().map(|claim| claim.node().as_str()),
        started_at.map(micros),
        deadline.map(micros),
        report.progress.as_ref().map(|progress| progress.percent),
        report.progress.as_ref().and_then(|Progress { message, .. }| message.as_deref()),
        source.may_have_channels(report) && (report.by_channel || report.end.is_some()),
        run.log_seq,
        i64::try_from(run.log.next).unwrap_or(i64::MAX),
        i64::try_from(run.log.kept).unwrap_or(i64::MAX),
    ])?;
    Ok(())
}

/// Appends the lines that are new, and notes in `run` how far its log is recorded.
fn append_logs(ledger: &Ledger<'_>, report: &RunReport, run: &mut Run) -> Result<()> {
    let mut statement = None;
    for line in &report.logs {
        let Some(taken) = run.log.take(line) else { continue };
        let statement = match &mut statement {
            Some(statement) => statement,
            none => none.insert(ledger.db.prepare_cached(include_str!("sql/append_log.sql"))?),
        };
        let (level, message) = taken.text(line);
        run.log_seq = run.log_seq.saturating_add(1);
        let execution = report.execution.0.as_bytes();
        statement.execute(params![run.seq, run.log_seq, micros(line.at), level.code(), execution, message])?;
    }
    Ok(())
}

/// Ends the run: the job's new state and, where it is to run again, when.
fn finish(ledger: &Ledger<'_>, end: &RunEnd, run: &Run) -> Result<(Status, Option<Timestamp>)> {
    let tries = run.attempt.saturating_sub(run.attempt_base);
    let budget = Budget { tries, max_retries: run.max_retries, policy: &run.policy };
    let error = end.outcome.error();
    match lifecycle::after(&end.outcome, budget, end.at, end.roll) {
        Next::Final(status) => {
            let run_end = Some(end.outcome.ended_as()).filter(|kind| *kind != present_status(status, None));
            let result = match &end.outcome {
                Outcome::Completed { result } => result.as_ref().map(Json::as_str),
                _ => None,
            };
            ledger.db.prepare_cached(include_str!("sql/finish.sql"))?.execute(params![
                run.seq,
                status.code(),
                micros(end.at),
                error,
                result,
                run_end.map(ExecutionStatus::code)
            ])?;
            Ok((status, None))
        }
        Next::Again { due_at, counted } => {
            archive(ledger.db, run.seq, end.outcome.ended_as(), micros(end.at), error)?;
            let status = if due_at > end.at { Status::Scheduled } else { Status::Pending };
            let attempt = if counted { run.attempt } else { run.attempt.saturating_sub(1) };
            ledger.db.prepare_cached(include_str!("sql/again.sql"))?.execute(params![
                run.seq,
                status.code(),
                micros(due_at),
                attempt,
                error
            ])?;
            Ok((status, Some(due_at)))
        }
    }
}
