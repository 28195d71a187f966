//! Reports that are more than a completion, or that are late.
//!
//! The runs that the reports name are read and locked, the reports are applied to them in order by [`RunState`], and each
//! run is written once: one statement for each kind of write, all sent together with the commit. A transaction must be open;
//! it is committed here.

use std::collections::BTreeMap;

use convoke_core::jobs::run_log::RunLog;
use convoke_core::jobs::run_state::{AppendedLog, RecordedEnd, RunState, Source, Verdict, Write, is_duplicate};
use convoke_core::jobs::{JobDefinition, Outcome, Ownership, Status};
use convoke_core::ports::store::Recorded;
use convoke_core::{ExecutionId, NodeId, WorkerId};
use tokio_postgres::Row;
use uuid::Uuid;

use super::failure;
use super::outcome;
use super::record::Numbered;
use super::rows::{
    Definitions, code, execution_id, execution_status, get, instant, instant_option, name_option, number, progress,
    small,
};
use super::server::Hot;
use super::sql::{column, params};
use crate::statement::statement;

/// A run that is reported on.
pub(super) struct Run<'r> {
    pub(super) id: Uuid,
    pub(super) execution: ExecutionId,
    pub(super) seq: i64,
    pub(super) queue: i32,
    definition: JobDefinition,
    /// The job's status before the reports.
    pub(super) was: Status,
    pub(super) state: RunState,
    pub(super) logs: Vec<AppendedLog<'r>>,
    /// The write of the last report that was applied. None if none was.
    pub(super) write: Option<Write<'r>>,
    /// The end that was applied.
    end: Option<&'r Outcome>,
}

fn read_run<'r>(row: &Row, definitions: &mut Definitions) -> failure::Result<Run<'r>> {
    let (execution, definition) = (execution_id(row, "execution_id")?, definitions.alone(row)?.clone());
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
        definition,
        logs: Vec::new(),
        write: None,
        end: None,
    })
}

/// Answers all of `reports` and commits.
pub(super) async fn settle<'r>(
    hot: &mut Hot,
    source: Source,
    reports: &Numbered<'r>,
    answers: &mut [Option<Recorded>],
) -> failure::Result<()> {
    let mut runs = read_runs(hot, reports).await?;
    let mut late = Numbered::new();
    for (at, report) in reports {
        let run = runs.get_mut(&report.job.0).filter(|run| run.execution == report.execution);
        let Some(run) = run else {
            if report.end.is_some() {
                late.push((*at, *report));
            }
            continue;
        };
        answers[*at] = Some(match run.state.apply(report, source) {
            Verdict::Applied(applied) => {
                let JobDefinition { job_type, queue, .. } = &run.definition;
                let change = run.state.change(&applied.write, job_type.clone(), queue.clone());
                run.logs.extend(applied.logs);
                run.write = Some(applied.write);
                run.end = report.end.as_ref().map(|end| &end.outcome);
                Recorded::Applied(change)
            }
            Verdict::NotOwner => Recorded::NotOwner,
            // The run ended with an earlier report of this batch.
            Verdict::Late if is_duplicate(report, run.end.map(RecordedEnd::from)) => Recorded::Repeated,
            Verdict::Late => Recorded::Stale,
        });
    }
    compare_late(hot, &late, answers).await?;
    // In the order of their ids, as everybody writes them.
    outcome::write(hot, &runs.into_values().filter(|run| run.write.is_some()).collect::<Vec<_>>()).await
}

/// Reads and locks the runs of the reports' jobs, by id.
async fn read_runs<'r>(hot: &mut Hot, reports: &Numbered<'r>) -> failure::Result<BTreeMap<Uuid, Run<'r>>> {
    let statement = hot.prepared(statement!("sql/runs_to_record.sql")).await?;
    let mut ids: Vec<Uuid> = reports.iter().map(|(_, report)| report.job.0).collect();
    ids.sort_unstable();
    ids.dedup();
    let rows = hot.client.query(&statement, &[&ids]).await?;
    let mut definitions = Definitions::default();
    rows.iter().map(|row| read_run(row, &mut definitions).map(|run| (run.id, run))).collect()
}

/// Compares late reports with the recorded ends of their runs.
async fn compare_late(hot: &mut Hot, late: &Numbered<'_>, answers: &mut [Option<Recorded>]) -> failure::Result<()> {
    if late.is_empty() {
        return Ok(());
    }
    for (at, _) in late {
        answers[*at] = Some(Recorded::Stale);
    }
    let statement = hot.prepared(statement!("sql/over_runs.sql")).await?;
    let columns = [column(late, |(_, report)| report.job.0), column(late, |(_, report)| report.execution.0)];
    for row in hot.client.query(&statement, &params(&columns)).await? {
        let place = number::<usize>(&row, "ord")?.saturating_sub(1);
        let Some((at, report)) = late.get(place) else { continue };
        let recorded =
            RecordedEnd { status: execution_status(&row)?, error: get(&row, "error")?, result: get(&row, "result")? };
        if is_duplicate(report, Some(recorded)) {
            answers[*at] = Some(Recorded::Repeated);
        }
    }
    Ok(())
}
