//! The methods of a recording store about runs: dispatch, claims, ends, ownership.

use async_trait::async_trait;
use convoke_core::decisions::{ClaimKind, Decision, Mark, Outcome, What};
use convoke_core::jobs::{Claim, RunReport};
use convoke_core::ports::store::*;
use convoke_core::{JobId, Result};
use jiff::Timestamp;

use super::store::RecordingStore;

/// Returns the record of a report, without its result.
fn reported(report: &RunReport, what: What) -> Decision {
    let (claim, after) = match &report.owner {
        None => (None, None),
        Some(Claim::Take(node)) => (Some(ClaimKind::Take), Some(Mark::from(node))),
        Some(Claim::IfFree(node)) => (Some(ClaimKind::IfFree), Some(Mark::from(node))),
    };
    Decision {
        job: Some(report.job),
        run: Some(report.execution),
        worker: report.worker.clone(),
        end: report.end.as_ref().map(|end| end.outcome.ended_as()),
        claim,
        after,
        ..Decision::of(what, Outcome::Accepted)
    }
}

/// Sets the results of reports.
fn finish(decisions: &mut [Decision], result: &Result<Vec<Recorded>>) {
    match result {
        Err(error) => decisions.iter_mut().for_each(|decision| decision.outcome = error.into()),
        Ok(recorded) => {
            for (decision, recorded) in decisions.iter_mut().zip(recorded) {
                match recorded {
                    Recorded::Applied(change) => {
                        (decision.status, decision.attempt) = (Some(change.status), Some(change.attempt));
                    }
                    Recorded::Duplicate => decision.outcome = Outcome::Duplicate,
                    Recorded::NotOwner => decision.outcome = Outcome::NotOwner,
                    Recorded::Stale => decision.outcome = Outcome::Stale,
                }
            }
        }
    }
}

/// Returns the records of a dispatch: one for each run, with the node that its window names.
fn dispatched(order: &[Window], dispatched: &Dispatched, fence: Fence) -> Vec<Decision> {
    let mut owners = Vec::with_capacity(dispatched.runs.len());
    for (window, queue) in order.iter().zip(&dispatched.queues) {
        owners.extend(window.owner_of_each().take(queue.taken));
    }
    let runs = dispatched.runs.iter().zip(owners.into_iter().chain(std::iter::repeat(None)));
    runs.map(|(run, owner)| Decision {
        epoch: Some(fence.epoch()),
        job: Some(run.job_id),
        run: Some(run.execution_id),
        attempt: Some(run.attempt),
        attempts_max: Some(run.input.max_retries.saturating_add(1)),
        after: owner.map(Mark::from),
        ..Decision::of(What::JobsDispatch, Outcome::Accepted)
    })
    .collect()
}

/// Returns the record of a change of owner, without its result.
fn reassigned(change: &Reassign) -> Decision {
    let (what, after) = match &change.to {
        Handover::Offer => (What::RunOffer, None),
        Handover::Keep => (What::RunKeep, None),
        Handover::Orphan => (What::RunOrphan, None),
        Handover::Take(node) => (What::RunTake, Some(Mark::from(node))),
    };
    Decision {
        job: Some(change.job),
        run: Some(change.execution),
        before: Some(Mark::from(&change.from)),
        after,
        ..Decision::of(what, Outcome::Accepted)
    }
}

#[async_trait]
impl RunStore for RecordingStore {
    async fn promote(&self, fence: Fence, now: Timestamp, limit: usize) -> Result<Promoted> {
        let since = self.recorder.since();
        let result = self.inner.promote(fence, now, limit).await;
        self.record_write(since, What::JobsPromote, fence, &result, |promoted| promoted.count as u64);
        result
    }

    async fn dispatch(&self, fence: Fence, order: DispatchOrder) -> Result<Dispatched> {
        let since = self.recorder.since();
        let windows = order.windows.clone();
        let result = self.inner.dispatch(fence, order).await;
        let decisions = match &result {
            Ok(runs) => dispatched(&windows, runs, fence),
            Err(error) => {
                let refused = Decision::of(What::JobsDispatch, error.into());
                vec![Decision { epoch: Some(fence.epoch()), ..refused }]
            }
        };
        self.recorder.record(since, decisions);
        result
    }

    async fn record(&self, reports: Vec<RunReport>) -> Result<Vec<Recorded>> {
        let what = |report: &RunReport| if report.end.is_some() { What::RunReport } else { What::RunClaim };
        let requested = reports.iter().map(|report| reported(report, what(report))).collect();
        let unfinished = self.recorder.unfinished(requested);
        let result = self.inner.record(reports).await;
        unfinished.finish(|decisions| {
            finish(decisions, &result);
            // News of a run that claim nothing and end nothing compare the run alone: an accepted one shows nothing.
            decisions.retain(|it| it.end.is_some() || it.claim.is_some() || !it.is_accepted());
        });
        result
    }

    async fn end_as_leader(&self, fence: Fence, reports: Vec<RunReport>) -> Result<Vec<Recorded>> {
        let of = |report| Decision { epoch: Some(fence.epoch()), ..reported(report, What::RunEnd) };
        let unfinished = self.recorder.unfinished(reports.iter().map(of).collect());
        let result = self.inner.end_as_leader(fence, reports).await;
        unfinished.finish(|decisions| finish(decisions, &result));
        result
    }

    async fn reassign(&self, changes: Vec<Reassign>) -> Result<Vec<Reassigned>> {
        let unfinished = self.recorder.unfinished(changes.iter().map(reassigned).collect());
        let result = self.inner.reassign(changes).await;
        unfinished.finish(|decisions| match &result {
            Err(error) => decisions.iter_mut().for_each(|decision| decision.outcome = error.into()),
            Ok(reassigned) => {
                for (decision, reassigned) in decisions.iter_mut().zip(reassigned) {
                    match reassigned {
                        Reassigned::Done => {}
                        Reassigned::OwnedBy(owner) => {
                            decision.outcome = Outcome::NotOwner;
                            decision.before = owner.as_ref().map(Mark::from);
                        }
                        Reassigned::Over => decision.outcome = Outcome::Stale,
                    }
                }
            }
        });
        result
    }

    async fn in_flight(&self, filter: InFlightFilter, after: Option<JobId>, limit: usize) -> Result<Vec<InFlight>> {
        self.inner.in_flight(filter, after, limit).await
    }

    async fn holders(&self) -> Result<Holders> {
        self.inner.holders().await
    }

    async fn overdue(&self, now: Timestamp, limit: usize) -> Result<Overdue> {
        self.inner.overdue(now, limit).await
    }

    async fn uncleaned(&self, before: Timestamp, limit: usize) -> Result<Vec<JobId>> {
        self.inner.uncleaned(before, limit).await
    }

    async fn mark_cleaned(&self, fence: Fence, before: Timestamp, ids: &[JobId]) -> Result<Vec<JobId>> {
        let since = self.recorder.since();
        let result = self.inner.mark_cleaned(fence, before, ids).await;
        self.record_write(since, What::JobsClean, fence, &result, |cleaned| cleaned.len() as u64);
        result
    }

    async fn expire(&self, fence: Fence, cutoffs: Cutoffs, rows_max: usize) -> Result<Expired> {
        let since = self.recorder.since();
        let result = self.inner.expire(fence, cutoffs, rows_max).await;
        self.record_write(since, What::JobsExpire, fence, &result, |expired| expired.jobs);
        result
    }
}
