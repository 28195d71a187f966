//! Closes the channels of finished jobs, after a delay in which their last events may still be read.
//!
//! A job may run again at any time, and a leader may be paused at any line and be a former leader when it continues. So
//! the ends of the channels are read first; then a fenced write returns which of the jobs have still ended; then the
//! channels of those are closed up to these ends. Entries of a later run come after them, and stay. A leader that dies
//! between the write and the close leaves stray channels.
//!
//! The owner of a run removes the channels of a job that ended for good after the commit, so that there is mostly
//! nothing to close: such jobs are marked many at a time.
//!
//! A worker that was cut off may report long after that, and open the channel again. A walk over the bus finds such
//! strays now and then; it also finds entries that workers have acknowledged and not deleted, and the channels of
//! queues whose workers have gone.

use std::collections::BTreeSet;
use std::sync::Arc;

use convoke_core::jobs::Job;
use convoke_core::mutant::mutant;
use convoke_core::ports::QueueEnd;
use convoke_core::{JobId, Result};
use jiff::Timestamp;
use tracing::debug;

use super::LeaderState;
use super::group_readers::GroupReaders;
use crate::election::Term;
use crate::jobs::duty::{DutyRun, Every};
use crate::jobs::node::NodeBase;

/// How many jobs are marked by one write. Jobs with open channels are limited by `channels.batch_size` as well.
const MARKED_MAX: usize = 2_000;
/// The number of scans for finished jobs between two walks over the bus.
const WALK_EVERY: u32 = 6;

pub async fn run(leader: Arc<LeaderState>, mut run: DutyRun<Every>) -> Result<()> {
    let mut scans = 0;
    while run.next().await {
        scans += 1;
        if mutant("channels of ended jobs are closed") {
            continue;
        }
        let cleaned = async {
            clean(&leader.node, &leader.term).await?;
            if scans % WALK_EVERY == 0 { walk(&leader).await } else { Ok(()) }
        };
        if let Err(error) = cleaned.await {
            run.failed("channel cleanup", &error);
        }
    }
    Ok(())
}

/// Repeats until nothing is due: one batch per scan could not keep up.
async fn clean(node: &NodeBase, term: &Term) -> Result<()> {
    let before = node.now() - node.settings.channels.cleanup_delay;
    while !term.is_over() {
        let jobs = node.store().uncleaned(before, MARKED_MAX).await?;
        if jobs.is_empty() {
            return Ok(());
        }
        let ends = node.bus().ends(&node.channels.of_jobs(&jobs)).await?;
        mark_and_close(node, term, before, &jobs, ends).await?;
        if jobs.len() < MARKED_MAX {
            return Ok(());
        }
    }
    Ok(())
}

/// Marks these jobs as cleaned: those whose owner has removed their channels by one write, the others in batches, each
/// of which is closed.
async fn mark_and_close(
    node: &NodeBase,
    term: &Term,
    before: Timestamp,
    jobs: &[JobId],
    ends: Vec<QueueEnd>,
) -> Result<()> {
    let open: BTreeSet<JobId> = ends.iter().filter_map(|end| Some(node.channels.job_of(&end.queue)?.0)).collect();
    let (open, removed): (Vec<JobId>, Vec<JobId>) = jobs.iter().partition(|job| open.contains(job));
    if !removed.is_empty() {
        node.store().mark_cleaned(term.fence(), before, &removed).await?;
    }
    for jobs in open.chunks(node.settings.channels.batch_size) {
        if term.is_over() {
            return Ok(());
        }
        let marked = node.store().mark_cleaned(term.fence(), before, jobs).await?;
        node.close_channels(ends.clone(), &marked).await?;
    }
    Ok(())
}

async fn walk(LeaderState { node, term, group_readers, .. }: &LeaderState) -> Result<()> {
    let open = node.bus().queues(&node.channels.jobs()).await?;
    close_strays(node, term, &open).await?;
    tidy(node, group_readers, open).await
}

/// Deletes acknowledged entries of the channels of queues, and closes those of queues that no worker serves any more:
/// clients choose the names of queues.
async fn tidy(node: &NodeBase, readers: &GroupReaders, open: Vec<String>) -> Result<()> {
    let queue_of = |name: &String| node.channels.queue_of(name);
    let mut dispatch: Vec<String> = open.into_iter().filter(|name| queue_of(name).is_some()).collect();
    dispatch.iter().filter_map(queue_of).for_each(|queue| readers.watch(&queue));
    node.bus().trim(&dispatch).await?;
    let served = super::served(node).await?;
    dispatch.retain(|name| queue_of(name).is_some_and(|queue| !served.contains(&queue)));
    node.bus().forget_unread(&dispatch, node.settings.worker.stale_after).await
}

/// Closes channels of jobs that were cleaned before, or that no longer exist.
async fn close_strays(node: &NodeBase, term: &Term, open: &[String]) -> Result<()> {
    let of_jobs = open.iter().filter_map(|name| node.channels.job_of(name));
    let jobs: Vec<JobId> = of_jobs.map(|(job, _)| job).collect::<BTreeSet<_>>().into_iter().collect();
    for jobs in jobs.chunks(node.settings.channels.batch_size) {
        if term.is_over() {
            return Ok(());
        }
        let ends = node.bus().ends(&node.channels.of_jobs(jobs)).await?;
        let stored = node.store().get(jobs).await?;
        let is_stray = |job: &Option<Job>| job.as_ref().is_none_or(|job| job.channels_cleaned);
        let strays = jobs.iter().zip(stored).filter(|(_, job)| is_stray(job));
        let strays: Vec<JobId> = strays.map(|(id, _)| *id).collect();
        if !strays.is_empty() {
            debug!(jobs = strays.len(), "closing channels that were opened after their job had ended");
            node.close_channels(ends, &strays).await?;
        }
    }
    Ok(())
}
