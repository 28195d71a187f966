//! Reports that are more than a completion, or that were not expected.
//!
//! The runs that are spoken of are read and locked, the reports are applied to them in memory, in order, and what came of
//! each run is written once: one statement for each kind of outcome, all sent together with the commit. A transaction must
//! be open; it is committed here.

use std::collections::HashMap;

use convoke_core::jobs::lifecycle::{self, Budget, Next};
use convoke_core::jobs::run::{NewLog, RunEnd};
use convoke_core::jobs::run_log::{RunLog, Taken};
use convoke_core::jobs::{ExecutionStatus, Outcome, Ownership, Progress, RetryPolicy, RunReport, Status};
use convoke_core::ports::store::{Change, Recorded};
use convoke_core::{ExecutionId, Json, NodeId, WorkerId};
use jiff::Timestamp;
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    Run,
    /// Cannot know whether the run opened channels.
    Leader,
}

/// A run that is spoken of: as it was, as it is now.
pub(super) struct Run<'r> {
    pub(super) id: Uuid,
    pub(super) execution: ExecutionId,
    pub(super) seq: i64,
    pub(super) queue: i32,
    pub(super) job_type: i32,
    pub(super) attempt: u32,
    attempt_base: u32,
    due_at: Timestamp,
    timeout: Option<std::time::Duration>,
    max_retries: u32,
    policy: RetryPolicy,
    pub(super) was: Status,
    pub(super) started_at: Option<Timestamp>,
    pub(super) deadline: Option<Timestamp>,
    pub(super) worker: Option<WorkerId>,
    pub(super) owner: Option<NodeId>,
    pub(super) ownership: Ownership,
    pub(super) progress: Option<Progress>,
    pub(super) by_channel: bool,
    pub(super) log_seq: i64,
    pub(super) log: RunLog,
    pub(super) logs: Vec<(i64, Taken, &'r NewLog)>,
    pub(super) noted: bool,
    pub(super) end: Option<(&'r RunEnd, Next)>,
}

fn read_run<'r>(row: &Row) -> failure::Result<Run<'r>> {
    let started_at = instant_option(row, 9)?;
    Ok(Run {
        id: get(row, 0)?,
        execution: ExecutionId(get(row, 1)?),
        seq: get(row, 2)?,
        queue: get(row, 3)?,
        job_type: get(row, 4)?,
        attempt: small(row, 5)?,
        due_at: instant(row, 6)?,
        timeout: duration_option(row, 8)?,
        was: if started_at.is_some() { Status::Running } else { Status::Dispatched },
        started_at,
        deadline: instant_option(row, 10)?,
        worker: worker_id_option(row, 11)?,
        owner: node_id_option(row, 12)?,
        ownership: code(row, 13, Ownership::from_code)?,
        progress: progress(row, 14)?,
        by_channel: get(row, 16)?,
        log_seq: get(row, 17)?,
        attempt_base: small(row, 18)?,
        max_retries: small(row, 19)?,
        policy: retry_policy(row, 20)?,
        log: RunLog { next: number(row, 24)?, kept: number(row, 25)? },
        logs: Vec::new(),
        noted: false,
        end: None,
    })
}

impl<'r> Run<'r> {
    pub(super) fn status(&self) -> Status {
        match self.end {
            Some((_, Next::Final(status))) => status,
            Some((end, Next::Again { due_at, .. })) if due_at > end.at => Status::Scheduled,
            Some((_, Next::Again { .. })) => Status::Pending,
            None if self.started_at.is_some() => Status::Running,
            None => Status::Dispatched,
        }
    }

    fn apply(&mut self, report: &'r RunReport, source: Source) {
        self.noted = true;
        self.started_at = self.started_at.or(report.started_at);
        if let Some(worker) = &report.worker {
            self.worker = Some(worker.clone());
        }
        if let Some(claim) = &report.owner
            && self.owner.as_ref() != Some(claim.node())
        {
            // An owner that is named again leaves a handoff in progress as it is.
            self.owner = Some(claim.node().clone());
            self.ownership = Ownership::Owned;
        }
        if let Some(progress) = &report.progress {
            self.progress = Some(progress.clone());
        }
        // A run that says nothing new of its times keeps its deadline.
        if let (Some(from), Some(timeout)) = (self.started_at.or(report.handed_out_at), self.timeout) {
            self.deadline = Some(from.saturating_add(timeout).unwrap_or(Timestamp::MAX));
        }
        self.by_channel |= report.by_channel || (source == Source::Leader && report.end.is_some());
        for line in &report.logs {
            if let Some(taken) = self.log.take(line) {
                self.log_seq = self.log_seq.saturating_add(1);
                self.logs.push((self.log_seq, taken, line));
            }
        }
        if let Some(end) = &report.end {
            let tries = self.attempt.saturating_sub(self.attempt_base);
            let budget = Budget { tries, max_retries: self.max_retries, policy: &self.policy };
            self.end = Some((end, lifecycle::after(&end.outcome, budget, end.at, end.roll)));
        }
    }

    fn change(&self, queues: &Queues, types: &Types) -> failure::Result<Change> {
        let retry_at = match self.end {
            Some((_, Next::Again { due_at, .. })) => Some(due_at),
            _ => None,
        };
        Ok(Change {
            status: self.status(),
            job_type: names::of(types, self.job_type)?,
            queue: names::of(queues, self.queue)?,
            attempt: self.attempt,
            due_at: self.due_at,
            started_at: self.started_at,
            retry_at,
        })
    }
}

type Queues = HashMap<i32, convoke_core::QueueName>;
type Types = HashMap<i32, convoke_core::JobType>;

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
        match runs.get_mut(&report.job.0).filter(|run| run.execution == report.execution) {
            Some(Run { end: Some((end, _)), .. }) => answers[*at] = Some(again(report, &end.outcome)),
            Some(run) if report.owner.as_ref().is_some_and(|claim| claim.yields_to(run.owner.as_ref())) => {
                answers[*at] = Some(Recorded::NotOwner);
            }
            Some(run) => {
                run.apply(report, source);
                answers[*at] = Some(Recorded::Applied(run.change(&queues, &types)?));
            }
            None if report.end.is_none() => answers[*at] = Some(Recorded::Stale),
            None => late.push((*at, *report)),
        }
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

/// A report of a run that ended in the same breath.
fn again(report: &RunReport, ended: &Outcome) -> Recorded {
    let result = match ended {
        Outcome::Completed { result } => result.as_ref().map(Json::as_str),
        _ => None,
    };
    match &report.end {
        Some(end) if end.outcome.repeats(ended.ended_as(), ended.error(), result) => Recorded::Repeated,
        _ => Recorded::Stale,
    }
}

/// Ends of runs that are not in flight: said again, or too late.
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
        let (ended, error, result): (ExecutionStatus, Option<&str>, Option<&str>) =
            (execution_status(&row, 1)?, get(&row, 2)?, get(&row, 3)?);
        if report.end.as_ref().is_some_and(|end| end.outcome.repeats(ended, error, result)) {
            answers[*at] = Some(Recorded::Repeated);
        }
    }
    Ok(())
}

/// For the commit at the end of a transaction.
pub(super) async fn commit(hot: &Hot) -> failure::Result<()> {
    hot.client.batch_execute("commit").await.map_err(Failure::of_commit)
}
