//! Applies reports that are more than a completion, or that are late.
//!
//! The runs that the reports name are read and locked, the reports are applied to them in order by [`RunState`], and
//! each run is written once: one statement for each kind of write, all sent together with the commit. The caller has
//! opened the transaction, after [`give_rows`]; it is committed here.

use std::collections::{BTreeMap, HashMap};

use convoke_core::jobs::run_log::RunLog;
use convoke_core::jobs::run_state::{AppendedLog, Effect, RecordedEnd, RunState, Source, Write};
use convoke_core::jobs::{Documents, Execution, ExecutionStatus, Outcome, Ownership, RunReport, Status};
use convoke_core::ports::store::Recorded;
use convoke_core::{ExecutionId, NodeId, WorkerId};
use tokio_postgres::Row;
use uuid::Uuid;

use super::failure;
use super::outcome;
use super::record::Numbered;
use super::rows::{
    code, definition, execution_id, execution_status, get, instant, instant_option, name_option, number, progress,
    small,
};
use super::runs::give_rows_sql;
use super::server::Hot;
use super::sql::{column, params};
use crate::statement::sql;

/// A run with reports.
pub(super) struct Run<'r> {
    pub(super) id: Uuid,
    pub(super) execution: ExecutionId,
    pub(super) seq: i64,
    pub(super) queue: i32,
    /// The job's status before the reports.
    pub(super) was: Status,
    pub(super) state: RunState,
    pub(super) logs: Vec<AppendedLog<'r>>,
    /// The write of the last applied report. `None` if none was applied.
    pub(super) write: Option<Write<'r>>,
    /// The run as it moves to the job's history, if another follows it.
    pub(super) history: Option<Box<Execution>>,
    /// The end that was applied.
    end: Option<&'r Outcome>,
}

fn read_run<'r>(row: &Row, documents: &mut Documents) -> failure::Result<Run<'r>> {
    let (execution, definition) = (execution_id(row, "execution_id")?, definition(documents, row, "document")?);
    let started_at = instant_option(row, "started_at")?;
    let status = if started_at.is_some() { Status::Running } else { Status::Dispatched };
    Ok(Run {
        id: get(row, "id")?,
        execution,
        seq: get(row, "seq")?,
        queue: get(row, "queue_id")?,
        was: status,
        state: RunState {
            execution: Some(execution),
            status,
            attempt: small(row, "attempt")?,
            attempt_base: small(row, "attempt_base")?,
            job_type: definition.job_type.clone(),
            queue: definition.queue.clone(),
            max_retries: definition.max_retries,
            retry_policy: definition.retry_policy,
            timeout: definition.timeout,
            due_at: instant(row, "due_at")?,
            started_at,
            deadline: instant_option(row, "deadline")?,
            worker: name_option(row, "worker", WorkerId::new)?,
            owner: name_option(row, "owner", NodeId::new)?,
            ownership: code(row, "ownership", Ownership::from_code)?,
            progress: progress(row)?,
            by_channel: get(row, "by_channel")?,
            has_history: get(row, "has_history")?,
            log: RunLog { next: number(row, "run_log_next")?, kept: number(row, "run_log_kept")? },
            log_seq: number(row, "log_seq")?,
        },
        logs: Vec::new(),
        write: None,
        history: None,
        end: None,
    })
}

/// Applies all of `reports`, commits, and sets their results.
pub(super) async fn apply_reports<'r>(
    hot: &mut Hot,
    source: Source,
    reports: &Numbered<'r>,
    results: &mut [Option<Recorded>],
) -> failure::Result<()> {
    let mut runs = read_runs(hot, reports).await?;
    let ends = recorded_ends(hot, reports, &runs).await?;
    for (at, report) in reports {
        let run = runs.get_mut(&report.job.0).filter(|run| run.execution == report.execution);
        let effect = match run {
            Some(run) => {
                // The run may have ended with an earlier report of this batch.
                let effect = run.state.apply(report, source, run.end.map(RecordedEnd::from));
                if let Effect::Applied(applied) = &effect {
                    run.logs.extend(&applied.logs);
                    run.write = Some(applied.write);
                    run.history.clone_from(&applied.history);
                    run.end = report.end.as_ref().map(|end| &end.outcome);
                }
                effect
            }
            None => Effect::of_ended_run(report, ends.get(at).map(End::as_recorded)),
        };
        results[*at] = Some(effect.into_recorded());
    }
    // In the order of their ids, as every writer does: prevents deadlocks.
    outcome::write(hot, &runs.into_values().filter(|run| run.write.is_some()).collect::<Vec<_>>()).await
}

/// Gives the runs of the reports' jobs that are as they were dispatched rows of their own, and commits: nothing about them
/// changes.
pub(super) async fn give_rows(hot: &mut Hot, reports: &Numbered<'_>) -> failure::Result<()> {
    let statement = hot.prepared(give_rows_sql()).await?;
    hot.client.execute(&statement, &[&job_ids(reports)]).await?;
    Ok(())
}

/// Returns the ids of the reports' jobs in the order in which every writer locks them.
fn job_ids(reports: &Numbered<'_>) -> Vec<Uuid> {
    let mut ids: Vec<Uuid> = reports.iter().map(|(_, report)| report.job.0).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// Reads and locks the runs of the reports' jobs, by id.
async fn read_runs<'r>(hot: &mut Hot, reports: &Numbered<'r>) -> failure::Result<BTreeMap<Uuid, Run<'r>>> {
    let statement = hot.prepared(sql!(include_str!("sql/runs_to_record.sql"))).await?;
    let rows = hot.client.query(&statement, &[&job_ids(reports)]).await?;
    let mut documents = Documents::default();
    rows.iter().map(|row| read_run(row, &mut documents).map(|run| (run.id, run))).collect()
}

/// The end of a run that is not in flight.
struct End {
    status: ExecutionStatus,
    error: Option<String>,
    result: Option<String>,
}

impl End {
    fn as_recorded(&self) -> RecordedEnd<'_> {
        RecordedEnd { status: self.status, error: self.error.as_deref(), result: self.result.as_deref() }
    }
}

/// Reads the recorded ends of the reports whose runs are not in flight, by the places of the reports.
async fn recorded_ends(
    hot: &mut Hot,
    reports: &Numbered<'_>,
    runs: &BTreeMap<Uuid, Run<'_>>,
) -> failure::Result<HashMap<usize, End>> {
    let in_flight = |job: Uuid, execution| runs.get(&job).is_some_and(|run| run.execution == execution);
    let is_late =
        |(_, report): &&(usize, &RunReport)| report.end.is_some() && !in_flight(report.job.0, report.execution);
    let late: Numbered<'_> = reports.iter().filter(is_late).copied().collect();
    if late.is_empty() {
        return Ok(HashMap::new());
    }
    let statement = hot.prepared(sql!(include_str!("sql/ended_runs.sql"))).await?;
    let columns = [column(&late, |(_, report)| report.job.0), column(&late, |(_, report)| report.execution.0)];
    let mut ends = HashMap::with_capacity(late.len());
    for row in hot.client.query(&statement, &params(&columns)).await? {
        let place = number::<usize>(&row, "ord")?.saturating_sub(1);
        let Some((at, _)) = late.get(place) else { continue };
        let end = End { status: execution_status(&row)?, error: get(&row, "error")?, result: get(&row, "result")? };
        ends.insert(*at, end);
    }
    Ok(ends)
}
