//! Reports that are more than a completion, or that are late.
//!
//! The runs that the reports name are read and locked, the reports are applied to them in order by [`RunState`], and each
//! run is written once: one statement for each kind of write, all sent together with the commit. A transaction must be open;
//! it is committed here.

use std::collections::HashMap;

use convoke_core::ExecutionId;
use convoke_core::jobs::run_log::RunLog;
use convoke_core::jobs::run_state::{AppendedLog, RecordedEnd, RunState, Source, Verdict, Write, is_duplicate};
use convoke_core::jobs::{Outcome, Ownership, RunReport, Status};
use convoke_core::ports::store::Recorded;
use tokio_postgres::Row;
use uuid::Uuid;

use super::failure::{self, Failure};
use super::names::{self, Names};
use super::outcome;
use super::rows::{
    code, duration_option, execution_status, get, instant, instant_option, node_id_option, number, progress,
    retry_policy, small, worker_id_option,
};
use super::server::Hot;

/// A run that is reported on.
pub(super) struct Run<'r> {
    pub(super) id: Uuid,
    pub(super) execution: ExecutionId,
    pub(super) seq: i64,
    pub(super) queue: i32,
    pub(super) job_type: i32,
    /// The job's status before the reports.
    pub(super) was: Status,
    pub(super) state: RunState,
    pub(super) logs: Vec<AppendedLog<'r>>,
    /// The write of the last report that was applied. None if none was.
    pub(super) write: Option<Write<'r>>,
    /// The end that was applied.
    end: Option<&'r Outcome>,
}

fn read_run<'r>(row: &Row) -> failure::Result<Run<'r>> {
    let execution = ExecutionId(get(row, 1)?);
    let started_at = instant_option(row, 9)?;
    let status = if started_at.is_some() { Status::Running } else { Status::Dispatched };
    Ok(Run {
        id: get(row, 0)?,
        execution,
        seq: get(row, 2)?,
        queue: get(row, 3)?,
        job_type: get(row, 4)?,
        was: status,
        state: RunState {
            execution: Some(execution),
            status,
            attempt: small(row, 5)?,
            due_at: instant(row, 6)?,
            timeout: duration_option(row, 8)?,
            started_at,
            deadline: instant_option(row, 10)?,
            worker: worker_id_option(row, 11)?,
            owner: node_id_option(row, 12)?,
            ownership: code(row, 13, Ownership::from_code)?,
            progress: progress(row, 14)?,
            by_channel: get(row, 16)?,
            log_seq: number(row, 17)?,
            attempt_base: small(row, 18)?,
            max_retries: small(row, 19)?,
            retry_policy: retry_policy(row, 20)?,
            log: RunLog { next: number(row, 24)?, kept: number(row, 25)? },
            has_history: get(row, 26)?,
        },
        logs: Vec::new(),
        write: None,
        end: None,
    })
}

/// Answers all of `reports` and commits.
pub(super) async fn settle<'r>(
    hot: &mut Hot,
    names: &Names,
    source: Source,
    reports: &[(usize, &'r RunReport)],
    answers: &mut [Option<Recorded>],
) -> failure::Result<()> {
    let mut runs: HashMap<Uuid, Run<'r>> = HashMap::new();
    for row in read_runs(hot, reports).await? {
        let run = read_run(&row)?;
        runs.insert(run.id, run);
    }
    let queues = names.queues.named(&hot.client, &runs.values().map(|run| run.queue).collect::<Vec<_>>()).await?;
    let types = names.types.named(&hot.client, &runs.values().map(|run| run.job_type).collect::<Vec<_>>()).await?;
    let mut late = Vec::new();
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
                let (queue, job_type) = (names::of(&queues, run.queue)?, names::of(&types, run.job_type)?);
                let change = run.state.change(&applied.write, job_type, queue);
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
    refuse(hot, &late, answers).await?;
    outcome::write(hot, &runs).await
}

async fn read_runs(hot: &mut Hot, reports: &[(usize, &RunReport)]) -> failure::Result<Vec<Row>> {
    let statement = hot.prepared(include_str!("sql/runs_to_record.sql")).await?;
    let mut ids: Vec<Uuid> = reports.iter().map(|(_, report)| report.job.0).collect();
    ids.sort_unstable();
    ids.dedup();
    Ok(hot.client.query(&statement, &[&ids]).await?)
}

/// Compares late reports with the recorded ends of their runs.
async fn refuse(hot: &mut Hot, late: &[(usize, &RunReport)], answers: &mut [Option<Recorded>]) -> failure::Result<()> {
    if late.is_empty() {
        return Ok(());
    }
    let statement = hot.prepared(include_str!("sql/over_runs.sql")).await?;
    let ids: Vec<Uuid> = late.iter().map(|(_, report)| report.job.0).collect();
    let executions: Vec<Uuid> = late.iter().map(|(_, report)| report.execution.0).collect();
    for (at, _) in late {
        answers[*at] = Some(Recorded::Stale);
    }
    for row in hot.client.query(&statement, &[&ids, &executions]).await? {
        let place = usize::try_from(get::<i64>(&row, 0)?).unwrap_or(1).saturating_sub(1);
        let Some((at, report)) = late.get(place) else { continue };
        let recorded = RecordedEnd { status: execution_status(&row, 1)?, error: get(&row, 2)?, result: get(&row, 3)? };
        if is_duplicate(report, Some(recorded)) {
            answers[*at] = Some(Recorded::Repeated);
        }
    }
    Ok(())
}

/// For the commit at the end of a transaction.
pub(super) async fn commit(hot: &Hot) -> failure::Result<()> {
    hot.client.batch_execute("commit").await.map_err(Failure::of_commit)
}
