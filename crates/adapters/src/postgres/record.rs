//! Reports of runs: claims, starts, progress, logs and ends.
//!
//! The fence of every write here is the run's `ExecutionId`, in the `where` of the statement that writes. Plain
//! completions are recorded by one statement for all waiting calls. For all other reports the runs are read and locked
//! first, and the core decides ([`apply_reports`](super::apply_reports)).

use std::collections::{HashMap, HashSet};

use async_trait::async_trait;
use convoke_core::election::Fence;
use convoke_core::jobs::run::RunEnd;
use convoke_core::jobs::run_state::Source;
use convoke_core::jobs::{Claim, Documents, Outcome, RunReport, Status};
use convoke_core::ports::store::{Change, Recorded};
use convoke_core::{Error, JobId, Json, WorkerId};

use super::apply_reports::{apply_reports, give_rows};
use super::epoch::FENCE;
use super::failure::{self, Failure};
use super::lane::{BYTES_PER_WEIGHT, Work};
use super::rows::{definition, get, instant, instant_option, micros, places, readable, small};
use super::runs::FLIGHT;
use super::server::Hot;
use super::sql::{column, params};
use crate::statement::sql;

pub(super) struct RecordWork;

#[async_trait]
impl Work for RecordWork {
    type Item = RunReport;
    type Output = Recorded;

    fn weight(report: &RunReport) -> usize {
        let logs: usize = report.logs.iter().map(|line| 1 + line.message.len() / BYTES_PER_WEIGHT).sum();
        let result = report.end.as_ref().and_then(|end| end.outcome.result()).map_or(0, |result| result.as_str().len());
        1 + logs + result / BYTES_PER_WEIGHT
    }

    async fn run(&self, hot: &mut Hot, reports: &[RunReport]) -> failure::Result<Vec<Recorded>> {
        record(hot, reports).await
    }
}

pub(super) struct EndAsLeaderWork;

pub(super) struct EndAsLeaderCall {
    pub(super) fence: Fence,
    pub(super) reports: Vec<RunReport>,
}

#[async_trait]
impl Work for EndAsLeaderWork {
    type Item = EndAsLeaderCall;
    type Output = Vec<Recorded>;

    /// Each is a transaction of its own.
    fn weight(_: &EndAsLeaderCall) -> usize {
        usize::MAX / 2
    }

    async fn run(&self, hot: &mut Hot, judgements: &[EndAsLeaderCall]) -> failure::Result<Vec<Vec<Recorded>>> {
        let mut results = Vec::with_capacity(judgements.len());
        for call in judgements {
            results.push(end_as_leader(hot, call.fence, &call.reports).await?);
        }
        Ok(results)
    }
}

/// Returns the reports with storable texts, so that a repeated report equals the recorded one.
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

async fn end_as_leader(hot: &mut Hot, fence: Fence, reports: &[RunReport]) -> failure::Result<Vec<Recorded>> {
    let fenced = || Failure::from(Error::Fenced { what: "end_as_leader" });
    let epoch = i64::try_from(fence.epoch().0).map_err(|_| fenced())?;
    let statement = hot.prepared(FENCE).await?;
    let all: Numbered<'_> = reports.iter().enumerate().collect();
    give_rows(hot, &all).await?;
    hot.client.batch_execute("begin").await?;
    hot.client.query_opt(&statement, &[&epoch]).await?.ok_or_else(fenced)?;
    let mut results = vec![None; reports.len()];
    apply_reports(hot, Source::Leader, &all, &mut results).await?;
    Ok(results.into_iter().map(|result| result.unwrap_or(Recorded::Stale)).collect())
}

/// The fast path commits by itself, and so do the rows that runs get: a statement that finds a job's row changed keeps it
/// locked, and a transaction that went on to lock runs could meet one that has locked these runs and wants the job.
async fn record(hot: &mut Hot, reports: &[RunReport]) -> failure::Result<Vec<Recorded>> {
    let mut results = vec![None; reports.len()];
    let (simple, mut rest) = split(reports);
    let is_begun = !simple.is_empty();
    if is_begun {
        complete(hot, &simple, &mut results).await.map_err(doubtful)?;
        rest.extend(simple.into_iter().filter(|(at, _)| results[*at].is_none()));
        rest.sort_unstable_by_key(|(at, _)| *at);
    }
    if !rest.is_empty() {
        let applied = apply(hot, &rest, &mut results).await;
        // Some are recorded already: whatever fails here, something has happened.
        applied.map_err(|failure| if is_begun { doubtful(failure) } else { failure })?;
    }
    Ok(results.into_iter().map(|result| result.unwrap_or(Recorded::Stale)).collect())
}

async fn apply(hot: &mut Hot, reports: &Numbered<'_>, results: &mut [Option<Recorded>]) -> failure::Result<()> {
    give_rows(hot, reports).await?;
    hot.client.batch_execute("begin").await?;
    apply_reports(hot, Source::Run, reports, results).await
}

fn doubtful(failure: Failure) -> Failure {
    match failure {
        Failure::Database(error) => Failure::Doubtful(error),
        other => other,
    }
}

/// Reports with their places among the results.
pub(super) type Numbered<'r> = Vec<(usize, &'r RunReport)>;

/// Splits reports into plain completions that are the first of their job, and the rest.
fn split(reports: &[RunReport]) -> (Numbered<'_>, Numbered<'_>) {
    let mut seen: HashSet<JobId> = HashSet::with_capacity(reports.len());
    reports.iter().enumerate().partition(|(_, report)| {
        let completed = matches!(&report.end, Some(RunEnd { outcome: Outcome::Completed { .. }, .. }));
        seen.insert(report.job) && completed && report.logs.is_empty()
    })
}

pub(super) fn complete_sql() -> &'static str {
    sql!(include_str!("sql/complete.sql"), flight = FLIGHT)
}

places!(Completed { id, document, attempt, due_at, started_at });

/// Records completions with one statement, as [`RunState::apply`](convoke_core::jobs::run_state::RunState::apply)
/// would. Runs that are not as they were dispatched, or are not the claimant's, have no result yet.
async fn complete(hot: &mut Hot, reports: &Numbered<'_>, results: &mut [Option<Recorded>]) -> failure::Result<()> {
    let statement = hot.prepared(complete_sql()).await?;
    // In one order, so that two calls that end the same runs cannot deadlock.
    let mut sorted = reports.clone();
    sorted.sort_unstable_by_key(|(_, report)| report.job);
    let columns = [
        column(&sorted, |(_, report)| report.job.0),
        column(&sorted, |(_, report)| report.execution.0),
        column(&sorted, |(_, report)| report.started_at.map(micros)),
        column(&sorted, |(_, report)| report.worker.as_ref().map(WorkerId::as_str)),
        column(&sorted, |(_, report)| report.owner.as_ref().map(|claim| claim.node().as_str())),
        column(&sorted, |(_, report)| report.progress.as_ref().map(|progress| i16::from(progress.percent))),
        column(&sorted, |(_, report)| report.progress.as_ref().and_then(|progress| progress.message.as_deref())),
        column(&sorted, |(_, report)| report.end.as_ref().map(|end| micros(end.at))),
        column(&sorted, |(_, report)| report.end.as_ref().and_then(|end| end.outcome.result()).map(Json::as_str)),
        column(&sorted, |(_, report)| matches!(report.owner, Some(Claim::IfFree(_)))),
        column(&sorted, |(_, report)| report.by_channel),
        Box::new(hot.slot),
    ];
    let rows = hot.client.query(&statement, &params(&columns)).await?;
    let places: HashMap<JobId, usize> = sorted.iter().map(|(at, report)| (report.job, *at)).collect();
    let (column, mut documents) = (Completed::of(&statement)?, Documents::default());
    for row in &rows {
        let Some(at) = places.get(&JobId(get(row, column.id)?)) else { continue };
        let definition = definition(&mut documents, row, column.document)?;
        results[*at] = Some(Recorded::Applied(Change {
            status: Status::Completed,
            queue: definition.queue.clone(),
            job_type: definition.job_type.clone(),
            attempt: small(row, column.attempt)?,
            due_at: instant(row, column.due_at)?,
            started_at: instant_option(row, column.started_at)?,
            retry_at: None,
        }));
    }
    Ok(())
}
