//! Reports of runs: claims, starts, progress, logs and ends.
//!
//! The fence of every write here is the run's `ExecutionId`, in the `where` of the statement that writes. A run that simply
//! completes is one such statement. For everything else the run is read first, and [`RunState`] decides.

use convoke_core::election::Fence;
use convoke_core::jobs::job::{ExecutionStatus, Ownership};
use convoke_core::jobs::run::RunEnd;
use convoke_core::jobs::run_log::RunLog;
use convoke_core::jobs::run_state::{
    AppendedLog, RecordedEnd, RunState, Source, Verdict, Write, is_duplicate, present_status,
};
use convoke_core::jobs::{Outcome, RunReport, Status};
use convoke_core::ports::store::{Change, Recorded};
use convoke_core::{ExecutionId, Json, NodeId, WorkerId};
use jiff::Timestamp;
use rusqlite::{CachedStatement, OptionalExtension, Row, params};

use super::archive::{archive, run_end};
use super::books::{Ledger, QueueId};
use super::epoch;
use super::failure::Result;
use super::rows::{
    code, duration_option, execution_id_option, execution_status, instant, instant_option, micros, node_id_option,
    number, progress, retry_policy, status, worker_id_option,
};
use super::writer::BYTES_PER_ROW;

pub(super) fn judge(ledger: &mut Ledger<'_>, fence: Fence, reports: &[RunReport]) -> Result<Vec<Recorded>> {
    epoch::hold(ledger, fence, "judge")?;
    record_all(ledger, reports, Source::Leader)
}

/// What these reports count as in a group of writes.
pub(super) fn rows(reports: &[RunReport]) -> usize {
    let of = |report: &RunReport| {
        let lines: usize = report.logs.iter().map(|line| 1 + line.message.len() / BYTES_PER_ROW).sum();
        let result = report.end.as_ref().and_then(|end| end.outcome.result()).map_or(0, |result| result.as_str().len());
        1 + lines + result / BYTES_PER_ROW
    };
    reports.iter().map(of).sum()
}

pub(super) fn record(ledger: &mut Ledger<'_>, reports: &[RunReport]) -> Result<Vec<Recorded>> {
    record_all(ledger, reports, Source::Run)
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

/// Records a completion by one statement, as [`RunState::apply`] would. `None` if the run is not in flight, or not the
/// claimant's.
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
        report.by_channel || source == Source::Leader,
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

/// A job's present run.
struct Run {
    seq: i64,
    queue: QueueId,
    job_type: i64,
    run_end: Option<ExecutionStatus>,
    state: RunState,
}

fn read_run(row: &Row<'_>) -> rusqlite::Result<Run> {
    Ok(Run {
        seq: row.get(0)?,
        queue: QueueId(row.get(4)?),
        job_type: row.get(5)?,
        run_end: run_end(row, 3)?,
        state: RunState {
            execution: execution_id_option(row, 1)?,
            status: status(row, 2)?,
            attempt: number(row, 6)?,
            attempt_base: number(row, 7)?,
            due_at: instant(row, 8)?,
            started_at: instant_option(row, 9)?,
            timeout: duration_option(row, 10)?,
            max_retries: number(row, 11)?,
            retry_policy: retry_policy(row, 12)?,
            log_seq: number(row, 16)?,
            owner: node_id_option(row, 17)?,
            log: RunLog { next: number(row, 18)?, kept: number(row, 19)? },
            deadline: instant_option(row, 20)?,
            worker: worker_id_option(row, 21)?,
            ownership: code(row, 22, Ownership::from_code)?,
            progress: progress(row, 23)?,
            by_channel: row.get(25)?,
            has_history: row.get(26)?,
        },
    })
}

fn record_one(ledger: &mut Ledger<'_>, report: &RunReport, source: Source) -> Result<Recorded> {
    let mut statement = ledger.db.prepare_cached(include_str!("sql/run.sql"))?;
    let run = statement.query_row([report.job.0.as_bytes()], read_run).optional()?;
    let Some(mut run) = run else { return Ok(Recorded::Stale) };
    let was = run.state.status;
    let applied = match run.state.apply(report, source) {
        Verdict::Applied(applied) => applied,
        Verdict::NotOwner => return Ok(Recorded::NotOwner),
        Verdict::Late => return late(ledger, report, &run),
    };
    append_logs(ledger, run.seq, report.execution, &applied.logs)?;
    write(ledger, &run, report.execution, &applied.write)?;
    ledger.books.moved(run.queue, Some(was), Some(run.state.status));
    let job_type = ledger.books.job_type(ledger.db, run.job_type)?;
    let queue = ledger.books.queue(run.queue).name.clone();
    Ok(Recorded::Applied(run.state.change(&applied.write, job_type, queue)))
}

/// Compares the report with the recorded end of its run.
fn late(ledger: &Ledger<'_>, report: &RunReport, run: &Run) -> Result<Recorded> {
    if report.end.is_none() {
        return Ok(Recorded::Stale);
    }
    let recorded: Option<(ExecutionStatus, Option<String>, Option<String>)> = if run.state.execution
        == Some(report.execution)
    {
        let mut statement = ledger.db.prepare_cached("select error, result from jobs where seq = ?1")?;
        let status = present_status(run.state.status, run.run_end);
        Some(statement.query_row([run.seq], |row| Ok((status, row.get(0)?, row.get(1)?)))?)
    } else {
        let mut statement =
            ledger.db.prepare_cached("select status, error from executions where job = ?1 and execution_id = ?2")?;
        // A job that completed is not run again: no run in the history has a result.
        let read = |row: &Row<'_>| Ok((execution_status(row, 0)?, row.get(1)?, None));
        statement.query_row(params![run.seq, report.execution.0.as_bytes()], read).optional()?
    };
    let recorded = recorded.as_ref().map(|(status, error, result)| RecordedEnd {
        status: *status,
        error: error.as_deref(),
        result: result.as_deref(),
    });
    Ok(if is_duplicate(report, recorded) { Recorded::Repeated } else { Recorded::Stale })
}

fn append_logs(ledger: &Ledger<'_>, seq: i64, execution: ExecutionId, logs: &[AppendedLog<'_>]) -> Result<()> {
    if logs.is_empty() {
        return Ok(());
    }
    let mut statement = ledger.db.prepare_cached(include_str!("sql/append_log.sql"))?;
    for line in logs {
        let (number, level) = (count(line.seq), line.level.code());
        statement.execute(params![seq, number, micros(line.at), level, execution.0.as_bytes(), line.message])?;
    }
    Ok(())
}

/// Writes the state of the run and, if it ended, what follows.
fn write(ledger: &Ledger<'_>, run: &Run, execution: ExecutionId, write: &Write<'_>) -> Result<()> {
    let state = &run.state;
    // The job's status is indexed: it changes once, with all that the index covers.
    let in_flight = if state.started_at.is_some() { Status::Running } else { Status::Dispatched };
    ledger.db.prepare_cached(include_str!("sql/note.sql"))?.execute(params![
        run.seq,
        execution.0.as_bytes(),
        in_flight.code(),
        state.worker.as_ref().map(WorkerId::as_str),
        state.owner.as_ref().map(NodeId::as_str),
        state.ownership.code(),
        state.started_at.map(micros),
        state.deadline.map(micros),
        state.progress.as_ref().map(|progress| progress.percent),
        state.progress.as_ref().and_then(|progress| progress.message.as_deref()),
        state.by_channel,
        count(state.log_seq),
        count(state.log.next),
        count(state.log.kept),
    ])?;
    match *write {
        Write::InFlight => {}
        Write::Final { at, result, error, run_end, channels_cleaned } => {
            ledger.db.prepare_cached(include_str!("sql/finish.sql"))?.execute(params![
                run.seq,
                state.status.code(),
                micros(at),
                error,
                result.map(Json::as_str),
                run_end.map(ExecutionStatus::code),
                channels_cleaned,
            ])?;
        }
        Write::Again { due_at, attempt, error, ended_as, ended_at } => {
            archive(ledger.db, run.seq, ended_as, micros(ended_at), error)?;
            let again = params![run.seq, state.status.code(), micros(due_at), attempt, error];
            ledger.db.prepare_cached(include_str!("sql/again.sql"))?.execute(again)?;
        }
    }
    Ok(())
}

fn count(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
