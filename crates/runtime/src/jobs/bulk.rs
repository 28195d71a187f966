//! Actions on all jobs that match a filter: a slice at a time, so that no request takes long.
//!
//! Each call acts on one page of the list and returns where the next begins; the caller repeats it until there is none.
//! Nothing is kept on the server in between. Jobs that are stored after the first call are not contained.

use std::time::Duration;

use convoke_core::jobs::listing::ROWS_READ_MAX;
use convoke_core::jobs::wire::{Cancel, V1};
use convoke_core::jobs::{Job, Status};
use convoke_core::ports::store::{Cancelled, JobQuery, Redriven};
use convoke_core::{Invalid, JobId, Result};
use tokio::time::Instant;

use super::coordinator::Coordinator;
use super::{recorder, requests, telemetry};

/// Jobs of one slice.
const SLICE: usize = 500;
/// How many jobs a preview counts.
pub const COUNT_MAX: u64 = 10_000;

/// An act on many jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BulkAction {
    /// End live jobs.
    Cancel,
    /// Make failed, timed-out and cancelled jobs pending again.
    Retry,
    /// Delete ended jobs.
    Delete,
}

impl BulkAction {
    fn name(self) -> &'static str {
        match self {
            BulkAction::Cancel => "cancelled",
            BulkAction::Retry => "retried",
            BulkAction::Delete => "deleted",
        }
    }

    fn applies_to(self, status: Status) -> bool {
        match self {
            BulkAction::Cancel => status.is_live(),
            BulkAction::Retry => !status.is_live() && status.to(Status::Pending).is_ok(),
            BulkAction::Delete => !status.is_live(),
        }
    }

    /// Restricts the statuses of a query to those that the action applies to. `Invalid` if none is left.
    fn restrict(self, query: JobQuery) -> Result<JobQuery> {
        let asked = if query.statuses.is_empty() { Status::ALL.to_vec() } else { query.statuses.clone() };
        let statuses: Vec<Status> = asked.into_iter().filter(|status| self.applies_to(*status)).collect();
        if statuses.is_empty() {
            let possible: Vec<&str> =
                Status::ALL.into_iter().filter(|status| self.applies_to(*status)).map(Status::as_str).collect();
            let message = format!("expected one of {}: no other job can be {}", possible.join(", "), self.name());
            return Err(Invalid::unprocessable("filter.status", message).into());
        }
        Ok(JobQuery { statuses, ..query })
    }
}

/// How many jobs an action would change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BulkCount {
    /// The jobs that were counted.
    pub count: u64,
    /// Whether there may be more.
    pub is_at_least: bool,
}

/// The result of one slice.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BulkSlice {
    /// Jobs that were changed.
    pub done: u64,
    /// Jobs that matched and were not changed: they changed meanwhile, or their unique key is taken.
    pub skipped: u64,
    /// The cursor of the next slice; `None` if this was the last.
    pub next_cursor: Option<String>,
}

impl Coordinator {
    /// Counts the jobs that an action would change, up to ten thousand and for about `patience`. No job is read: the store
    /// walks down an index, a bounded number of rows at a time.
    pub async fn bulk_count(&self, action: BulkAction, query: JobQuery, patience: Duration) -> Result<BulkCount> {
        let query = action.restrict(query)?;
        let only_counted = JobQuery {
            queue: query.queue.clone(),
            statuses: query.statuses.clone(),
            limit: query.limit,
            ..JobQuery::default()
        };
        if query == only_counted {
            // The queues have these counts.
            let queues = self.store().queues().await?;
            let queues = queues.iter().filter(|queue| query.queue.as_ref().is_none_or(|name| *name == queue.name));
            let of_queue = |counts: &convoke_core::jobs::QueueCounts| {
                query.statuses.iter().map(|status| counts.get(*status)).sum::<u64>()
            };
            let count = queues.map(|queue| of_queue(&queue.counts)).sum();
            return Ok(BulkCount { count, is_at_least: false });
        }
        let (mut query, mut count) = (query, 0);
        let deadline = Instant::now() + patience;
        loop {
            query.limit = ROWS_READ_MAX.min((COUNT_MAX - count) as usize);
            let counted = self.store().count(query.clone()).await?;
            count += counted.jobs;
            query.cursor = counted.next_cursor;
            if query.cursor.is_none() || count >= COUNT_MAX || Instant::now() >= deadline {
                return Ok(BulkCount { count, is_at_least: query.cursor.is_some() });
            }
        }
    }

    /// Acts on the next slice of the jobs that match. `query.cursor` is that of the slice before.
    pub async fn bulk(&self, action: BulkAction, query: JobQuery, reason: Option<&str>) -> Result<BulkSlice> {
        let query = JobQuery { limit: SLICE, ..action.restrict(query)? };
        let page = self.store().list(query.clone()).await?;
        let ids: Vec<JobId> = page.jobs.iter().map(|job| job.id).collect();
        drop(page.jobs);
        let done = match action {
            _ if ids.is_empty() => 0,
            BulkAction::Cancel => self.cancel_all(&ids, reason).await?,
            BulkAction::Retry => self.retry_all(&ids).await?,
            BulkAction::Delete => self.purge_jobs(&ids, &query.statuses).await?,
        };
        Ok(BulkSlice { done, skipped: ids.len() as u64 - done.min(ids.len() as u64), next_cursor: page.next_cursor })
    }

    async fn cancel_all(&self, ids: &[JobId], reason: Option<&str>) -> Result<u64> {
        let node = self.node();
        let mut done = 0;
        let mut stopped = Vec::new();
        for cancelled in self.store().cancel(ids, reason, node.now()).await? {
            let Cancelled::Now { job, run } = cancelled else { continue };
            done += 1;
            if let Some(execution_id) = run {
                let reason = reason.map(str::to_owned);
                recorder::publish_cancellation(node, Cancel { v: V1, job_id: job.id, execution_id, reason }).await;
                stopped.push((job.id, execution_id));
            }
            telemetry::count_jobs(job.status, &job.definition.queue, &job.definition.job_type, 1);
            node.gateway.waiters.wake(job.id);
            self.announce_change(&job);
        }
        recorder::forget(node, &stopped).await;
        Ok(done)
    }

    async fn retry_all(&self, ids: &[JobId]) -> Result<u64> {
        let node = self.node();
        let mut done = 0;
        for outcome in self.store().redrive(ids, node.now()).await? {
            if let Redriven::Pending(job) = outcome {
                done += 1;
                node.gateway.hints.ready(&job.definition.queue);
                self.announce_change(&job);
            }
        }
        Ok(done)
    }

    fn announce_change(&self, job: &Job) {
        self.node().views.cache.job_changed(job.id);
        requests::announce(self.node(), job);
    }

    /// Deletes jobs that ended with one of these statuses, and closes their channels. Returns their number.
    pub(super) async fn purge_jobs(&self, ids: &[JobId], statuses: &[Status]) -> Result<u64> {
        let node = self.node();
        // Their ends are read first, so that a job that was retried meanwhile loses nothing.
        let ends = node.bus().ends(&node.channels.of_jobs(ids)).await?;
        let purged = self.store().purge(ids, statuses).await?;
        let mut gone = Vec::with_capacity(ids.len());
        for ids in ids.chunks(requests::DEAD_IDS_BATCH) {
            let stored = self.store().get(ids).await?;
            gone.extend(ids.iter().zip(stored).filter(|(_, job)| job.is_none()).map(|(id, _)| *id));
        }
        if let Err(error) = node.close_channels(ends, &gone).await {
            tracing::debug!(%error, "closing the channels of purged jobs failed: the leader's next walk over the bus closes them");
        }
        ids.iter().for_each(|id| node.views.cache.job_changed(*id));
        Ok(purged)
    }
}
