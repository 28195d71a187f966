//! Reports of runs: claims, starts, progress, logs and ends.
//!
//! The fence of every write here is the run's `ExecutionId`, in the `where` of the statement that writes. A plain
//! completion is one such statement. For all other reports the run is read first, and [`RunState`] decides.

use convoke_core::election::Fence;
use convoke_core::jobs::job::ExecutionStatus;
use convoke_core::jobs::run::RunEnd;
use convoke_core::jobs::run_log::RunLog;
use convoke_core::jobs::run_state::{
    AppendedLog, Applied, Effect, RecordedEnd, RunState, Source, Write, present_status,
};
use convoke_core::jobs::{Documents, Outcome, Priority, RunReport, Status};
use convoke_core::ports::store::{Change, Recorded};
use convoke_core::{ExecutionId, Json, NodeId, WorkerId};
use jiff::Timestamp;
use rusqlite::{CachedStatement, OptionalExtension, Row, params};

use super::archive::archive;
use super::catalog::{QueueId, WriteTx};
use super::columns::columns;
use super::epoch;
use super::failure::Result;
use super::rows::{count, definition, get, micros, progress};
use super::writer::BYTES_PER_ROW;
use crate::statement::sql;

columns!(COMPLETION: CompletionColumns { seq, state, queue_id, type_id, attempt, due_at, started_at, owner });

columns!(RUN: RunColumns {
    seq, execution_id, state, run_end, queue_id, attempt, attempt_base, due_at, started_at, deadline, worker, owner,
    ownership, progress, progress_message, by_channel, superseded, log_seq, run_log_next, run_log_kept, document,
});

pub(super) fn end_as_leader(tx: &mut WriteTx<'_>, fence: Fence, reports: &[RunReport]) -> Result<Vec<Recorded>> {
    epoch::hold(tx, fence, "end_as_leader")?;
    record_all(tx, reports, Source::Leader)
}

/// Returns how many rows these reports count as in a group of writes.
pub(super) fn rows(reports: &[RunReport]) -> usize {
    let of = |report: &RunReport| {
        let lines: usize = report.logs.iter().map(|line| 1 + line.message.len() / BYTES_PER_ROW).sum();
        let result = report.end.as_ref().and_then(|end| end.outcome.result()).map_or(0, |result| result.as_str().len());
        1 + lines + result / BYTES_PER_ROW
    };
    reports.iter().map(of).sum()
}

pub(super) fn record(tx: &mut WriteTx<'_>, reports: &[RunReport]) -> Result<Vec<Recorded>> {
    record_all(tx, reports, Source::Run)
}

fn record_all(tx: &mut WriteTx<'_>, reports: &[RunReport], source: Source) -> Result<Vec<Recorded>> {
    let db = tx.db;
    // A read before the write costs less than a write that returns the row.
    let mut completion = Completion {
        read: db.prepare_cached(sql!(
            "select {run} from jobs where id = ?1 and execution_id = ?2 and state in ({in_flight})",
            run = COMPLETION.list
        ))?,
        write: db.prepare_cached(sql!(include_str!("sql/complete.sql")))?,
    };
    let mut recorded = Vec::with_capacity(reports.len());
    for report in reports {
        let done = match &report.end {
            Some(RunEnd { at, outcome: Outcome::Completed { result }, .. }) if report.logs.is_empty() => {
                record_completed(tx, &mut completion, report, source, *at, result.as_ref())?
            }
            _ => None,
        };
        recorded.push(match done {
            Some(change) => Recorded::Applied(change),
            None => record_one(tx, report, source)?,
        });
    }
    Ok(recorded)
}

struct Completion<'db> {
    read: CachedStatement<'db>,
    write: CachedStatement<'db>,
}

/// Records a completion with one statement, as [`RunState::apply`] would. `None` if the run is not in flight, or is not
/// the claimant's.
fn record_completed(
    tx: &mut WriteTx<'_>,
    statements: &mut Completion<'_>,
    report: &RunReport,
    source: Source,
    at: Timestamp,
    result: Option<&Json>,
) -> Result<Option<Change>> {
    let execution = report.execution.0.as_bytes();
    let mut rows = statements.read.query(params![report.job.0.as_bytes(), execution])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let owner: Option<NodeId> = get(row, COMPLETION.owner)?;
    if report.owner.as_ref().is_some_and(|claim| claim.yields_to(owner.as_ref())) {
        return Ok(None);
    }
    let progress = report.progress.as_ref();
    statements.write.execute(params![
        get::<i64>(row, COMPLETION.seq)?,
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
    let queue = QueueId(get(row, COMPLETION.queue_id)?);
    let change = Change {
        status: Status::Completed,
        job_type: tx.catalog.job_type(tx.db, get(row, COMPLETION.type_id)?)?,
        queue: tx.catalog.queue(queue).name.clone(),
        attempt: get(row, COMPLETION.attempt)?,
        due_at: get(row, COMPLETION.due_at)?,
        started_at: get::<Option<_>>(row, COMPLETION.started_at)?.or(report.started_at),
        retry_at: None,
    };
    tx.catalog.moved(queue, get(row, COMPLETION.state)?, Some(Status::Completed));
    Ok(Some(change))
}

/// A job's present run.
struct Run {
    seq: i64,
    queue: QueueId,
    priority: Priority,
    run_end: Option<ExecutionStatus>,
    state: RunState,
}

fn read_run(row: &Row<'_>) -> rusqlite::Result<Run> {
    let mut documents = Documents::default();
    let definition = definition(&mut documents, row, RUN.document)?;
    let state = RunState {
        execution: get(row, RUN.execution_id)?,
        status: get(row, RUN.state)?,
        attempt: get(row, RUN.attempt)?,
        attempt_base: get(row, RUN.attempt_base)?,
        job_type: definition.job_type.clone(),
        queue: definition.queue.clone(),
        max_retries: definition.max_retries,
        retry_policy: definition.retry_policy,
        timeout: definition.timeout,
        due_at: get(row, RUN.due_at)?,
        started_at: get(row, RUN.started_at)?,
        deadline: get(row, RUN.deadline)?,
        worker: get(row, RUN.worker)?,
        owner: get(row, RUN.owner)?,
        ownership: get(row, RUN.ownership)?,
        progress: progress(row, RUN.progress, RUN.progress_message)?,
        by_channel: get(row, RUN.by_channel)?,
        has_history: get::<u64>(row, RUN.superseded)? > 0,
        log: RunLog { next: get(row, RUN.run_log_next)?, kept: get(row, RUN.run_log_kept)? },
        log_seq: get(row, RUN.log_seq)?,
    };
    let (seq, queue) = (get(row, RUN.seq)?, QueueId(get(row, RUN.queue_id)?));
    Ok(Run { seq, queue, priority: definition.priority, run_end: get(row, RUN.run_end)?, state })
}

fn record_one(tx: &mut WriteTx<'_>, report: &RunReport, source: Source) -> Result<Recorded> {
    let mut statement = tx.db.prepare_cached(sql!("select {run} from jobs where id = ?1", run = RUN.list))?;
    let run = statement.query_row([report.job.0.as_bytes()], read_run).optional()?;
    let Some(mut run) = run else { return Ok(Recorded::Stale) };
    let was = run.state.status;
    let recorded = match run.state.is_in_flight(report.execution) || report.end.is_none() {
        true => None,
        false => recorded_end(tx, report.execution, &run)?,
    };
    let recorded = recorded.as_ref().map(|(status, error, result)| RecordedEnd {
        status: *status,
        error: error.as_deref(),
        result: result.as_deref(),
    });
    let effect = run.state.apply(report, source, recorded);
    if let Effect::Applied(applied) = &effect {
        append_logs(tx, run.seq, report.execution, &applied.logs)?;
        write(tx, &run, report.execution, applied)?;
        tx.catalog.moved(run.queue, Some(was), Some(run.state.status));
    }
    Ok(effect.into_recorded())
}

/// The status, error and result of a run that ended.
type End = (ExecutionStatus, Option<String>, Option<String>);

/// Returns the recorded end of a run, either the job's last one or one of its history.
fn recorded_end(tx: &WriteTx<'_>, execution: ExecutionId, run: &Run) -> Result<Option<End>> {
    if run.state.execution == Some(execution) {
        let mut statement = tx.db.prepare_cached("select error, result from jobs where seq = ?1")?;
        let status = present_status(run.state.status, run.run_end);
        return Ok(Some(statement.query_row([run.seq], |row| Ok((status, get(row, "error")?, get(row, "result")?)))?));
    }
    let mut statement =
        tx.db.prepare_cached("select status, error from executions where job = ?1 and execution_id = ?2")?;
    // A completed job does not run again: no run in the history has a result.
    let read = |row: &Row<'_>| Ok((get(row, "status")?, get(row, "error")?, None));
    Ok(statement.query_row(params![run.seq, execution.0.as_bytes()], read).optional()?)
}

fn append_logs(tx: &WriteTx<'_>, seq: i64, execution: ExecutionId, logs: &[AppendedLog<'_>]) -> Result<()> {
    if logs.is_empty() {
        return Ok(());
    }
    let append = "insert into logs (job, seq, at, level, execution_id, message) values (?1, ?2, ?3, ?4, ?5, ?6)";
    let mut statement = tx.db.prepare_cached(append)?;
    for line in logs {
        let (number, level) = (count(line.seq), line.level.code());
        statement.execute(params![seq, number, micros(line.at), level, execution.0.as_bytes(), line.message])?;
    }
    Ok(())
}

/// Writes the state of the run and, if it ended, the consequences.
fn write(tx: &WriteTx<'_>, run: &Run, execution: ExecutionId, applied: &Applied<'_>) -> Result<()> {
    let state = &run.state;
    // The job's status is indexed: it changes once, with all that the index covers.
    let in_flight = if state.started_at.is_some() { Status::Running } else { Status::Dispatched };
    tx.db.prepare_cached(sql!(include_str!("sql/update_run.sql")))?.execute(params![
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
    match applied.write {
        Write::InFlight => {}
        Write::Final { at, result, error, run_end, channels_cleaned } => {
            tx.db
                .prepare_cached(sql!(
                    "update jobs
                     set state = ?2, completed_at = ?3, error = ?4, result = ?5, run_end = ?6, channels_cleaned = ?7
                     where seq = ?1"
                ))?
                .execute(params![
                    run.seq,
                    state.status.code(),
                    micros(at),
                    error,
                    result.map(Json::as_str),
                    run_end.map(ExecutionStatus::code),
                    channels_cleaned,
                ])?;
        }
        Write::Again { due_at, attempt, error } => {
            if let Some(past) = &applied.history {
                archive(tx.db, run.seq, past.status, past.ended_at.map(micros), error)?;
            }
            let rank = run.priority.rank(due_at);
            let again = params![run.seq, state.status.code(), micros(due_at), rank, attempt, error];
            tx.db.prepare_cached(sql!(include_str!("sql/retry.sql")))?.execute(again)?;
        }
    }
    Ok(())
}
