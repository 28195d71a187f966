//! Reports of runs: claims, starts, progress, logs and ends.
//!
//! The fence of every write here is the run's `ExecutionId`, in the `where` of the statement that writes. Runs that simply
//! complete are one statement for all that wait. For everything else the runs are read and locked first, and the core
//! decides ([`settle`](super::settle)).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use async_trait::async_trait;
use convoke_core::election::Fence;
use convoke_core::jobs::run::RunEnd;
use convoke_core::jobs::run_state::Source;
use convoke_core::jobs::{Claim, Outcome, RunReport, Status};
use convoke_core::ports::store::{Change, Recorded};
use convoke_core::{Error, JobId, Json, WorkerId};
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::failure::{self, Failure};
use super::lane::{BYTES_PER_WEIGHT, Work};
use super::names::{self, Names};
use super::rows::{get, instant, instant_option, micros, readable, small};
use super::server::Hot;
use super::settle::settle;

pub(super) struct RecordWork {
    pub(super) names: Arc<Names>,
}

#[async_trait]
impl Work for RecordWork {
    type Item = RunReport;
    type Answer = Recorded;

    fn weight(report: &RunReport) -> usize {
        let logs: usize = report.logs.iter().map(|line| 1 + line.message.len() / BYTES_PER_WEIGHT).sum();
        let result = report.end.as_ref().and_then(|end| end.outcome.result()).map_or(0, |result| result.as_str().len());
        1 + logs + result / BYTES_PER_WEIGHT
    }

    async fn run(&self, hot: &mut Hot, reports: &[RunReport]) -> failure::Result<Vec<Recorded>> {
        record(hot, &self.names, reports).await
    }
}

pub(super) struct JudgeWork {
    pub(super) names: Arc<Names>,
}

pub(super) struct Judgement {
    pub(super) fence: Fence,
    pub(super) reports: Vec<RunReport>,
}

#[async_trait]
impl Work for JudgeWork {
    type Item = Judgement;
    type Answer = Vec<Recorded>;

    /// Each is a transaction of its own.
    fn weight(_: &Judgement) -> usize {
        usize::MAX / 2
    }

    async fn run(&self, hot: &mut Hot, judgements: &[Judgement]) -> failure::Result<Vec<Vec<Recorded>>> {
        let mut answers = Vec::with_capacity(judgements.len());
        for judgement in judgements {
            answers.push(judge(hot, &self.names, judgement.fence, &judgement.reports).await?);
        }
        Ok(answers)
    }
}

/// Texts as they can be kept, so that what is said again is known again.
pub(super) fn readable_reports(mut reports: Vec<RunReport>) -> Vec<RunReport> {
    let mend = |text: &mut String| {
        if text.contains('\0') {
            *text = readable(text).into_owned();
        }
    };
    for report in &mut reports {
        report.logs.iter_mut().for_each(|line| mend(&mut line.message));
        if let Some(message) = report.progress.as_mut().and_then(|progress| progress.message.as_mut()) {
            mend(message);
        }
        match report.end.as_mut().map(|end| &mut end.outcome) {
            Some(Outcome::Failed { error, .. } | Outcome::TimedOut { error } | Outcome::Lost { error }) => mend(error),
            Some(Outcome::Cancelled { reason: Some(reason) }) => mend(reason),
            _ => {}
        }
    }
    reports
}

async fn judge(hot: &mut Hot, names: &Names, fence: Fence, reports: &[RunReport]) -> failure::Result<Vec<Recorded>> {
    let fenced = || Failure::from(Error::Fenced { what: "judge" });
    let epoch = i64::try_from(fence.epoch().0).map_err(|_| fenced())?;
    let statement = hot.prepared(include_str!("sql/fence.sql")).await?;
    hot.client.batch_execute("begin").await?;
    hot.client.query_opt(&statement, &[&epoch]).await?.ok_or_else(fenced)?;
    let all: Vec<(usize, &RunReport)> = reports.iter().enumerate().collect();
    let mut answers = vec![None; reports.len()];
    settle(hot, names, Source::Leader, &all, &mut answers).await?;
    Ok(answers.into_iter().map(|answer| answer.unwrap_or(Recorded::Stale)).collect())
}

async fn record(hot: &mut Hot, names: &Names, reports: &[RunReport]) -> failure::Result<Vec<Recorded>> {
    let mut answers = vec![None; reports.len()];
    let (simple, mut rest) = split(reports);
    // Completions alone are a statement that commits by itself.
    let alone = rest.is_empty();
    if !alone {
        hot.client.batch_execute("begin").await?;
    }
    if !simple.is_empty() {
        let completed = complete(hot, names, &simple, &mut answers).await;
        completed.map_err(|failure| if alone { doubtful(failure) } else { failure })?;
        rest.extend(simple.into_iter().filter(|(at, _)| answers[*at].is_none()));
        rest.sort_unstable_by_key(|(at, _)| *at);
    }
    if !rest.is_empty() {
        if alone {
            // The others are recorded already: whatever goes wrong from here on, something has happened.
            hot.client.batch_execute("begin").await.map_err(Failure::of_commit)?;
        }
        let settled = settle(hot, names, Source::Run, &rest, &mut answers).await;
        settled.map_err(|failure| if alone { doubtful(failure) } else { failure })?;
    }
    Ok(answers.into_iter().map(|answer| answer.unwrap_or(Recorded::Stale)).collect())
}

fn doubtful(failure: Failure) -> Failure {
    match failure {
        Failure::Database(error) => Failure::Doubtful(error),
        other => other,
    }
}

type Numbered<'r> = Vec<(usize, &'r RunReport)>;

/// Those that are the first of their job and say no more than that it completed; and the rest.
fn split(reports: &[RunReport]) -> (Numbered<'_>, Numbered<'_>) {
    let mut seen: HashSet<JobId> = HashSet::with_capacity(reports.len());
    reports.iter().enumerate().partition(|(_, report)| {
        let completed = matches!(&report.end, Some(RunEnd { outcome: Outcome::Completed { .. }, .. }));
        seen.insert(report.job) && completed && report.logs.is_empty()
    })
}

/// Records completions by one statement, as [`RunState::apply`](convoke_core::jobs::run_state::RunState::apply) would. Runs
/// that are not in flight, or not the claimant's, have no answer yet.
async fn complete(
    hot: &mut Hot,
    names: &Names,
    reports: &[(usize, &RunReport)],
    answers: &mut [Option<Recorded>],
) -> failure::Result<()> {
    let statement = hot.prepared(include_str!("sql/complete.sql")).await?;
    // In one order, so that two that end the same runs cannot wait for each other.
    let mut said: Vec<(usize, &RunReport)> = reports.to_vec();
    said.sort_unstable_by_key(|(_, report)| report.job);
    fn each<'r, T>(said: &[(usize, &'r RunReport)], get: impl Fn(&'r RunReport) -> T) -> Vec<T> {
        said.iter().map(|(_, report)| get(report)).collect()
    }
    let ids: Vec<Uuid> = each(&said, |report| report.job.0);
    let executions: Vec<Uuid> = each(&said, |report| report.execution.0);
    let ats = each(&said, |report| report.end.as_ref().map(|end| micros(end.at)));
    let results = each(&said, |report| report.end.as_ref().and_then(|end| end.outcome.result()).map(Json::as_str));
    let workers = each(&said, |report| report.worker.as_ref().map(WorkerId::as_str));
    let owners = each(&said, |report| report.owner.as_ref().map(|claim| claim.node().as_str()));
    let if_free = each(&said, |report| matches!(report.owner, Some(Claim::IfFree(_))));
    let starts = each(&said, |report| report.started_at.map(micros));
    let percents = each(&said, |report| report.progress.as_ref().map(|progress| i16::from(progress.percent)));
    let messages = each(&said, |report| report.progress.as_ref().and_then(|progress| progress.message.as_deref()));
    let by_channel = each(&said, |report| report.by_channel);
    let params: [&(dyn ToSql + Sync); 12] = [
        &ids,
        &executions,
        &ats,
        &results,
        &workers,
        &owners,
        &if_free,
        &starts,
        &percents,
        &messages,
        &by_channel,
        &hot.slot,
    ];
    let rows = hot.client.query(&statement, &params).await?;
    let places: HashMap<Uuid, usize> = said.iter().map(|(at, report)| (report.job.0, *at)).collect();
    let mut queues = Vec::with_capacity(rows.len());
    let mut types = Vec::with_capacity(rows.len());
    for row in &rows {
        queues.push(get(row, 1)?);
        types.push(get(row, 2)?);
    }
    let queues = names.queues.named(&hot.client, &queues).await?;
    let types = names.types.named(&hot.client, &types).await?;
    for row in &rows {
        let Some(at) = places.get(&get::<Uuid>(row, 0)?) else { continue };
        answers[*at] = Some(Recorded::Applied(Change {
            status: Status::Completed,
            queue: names::of(&queues, get(row, 1)?)?,
            job_type: names::of(&types, get(row, 2)?)?,
            attempt: small(row, 3)?,
            due_at: instant(row, 4)?,
            started_at: instant_option(row, 5)?,
            retry_at: None,
        }));
    }
    Ok(())
}
