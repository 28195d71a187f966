//! Records the reports that workers send over the bus: the status and the logs of the jobs this node owns.
//!
//! Three stages overlap, so that the bus is read while the store commits:
//!
//! | stage | does |
//! | --- | --- |
//! | read | takes the entries that have arrived; at most [`READ_AHEAD`] batches wait |
//! | record | folds all waiting entries into one report per run, and commits them in one write |
//! | acknowledge | deletes the entries after the commit, so that a node that dies before it leaves them for the next owner |
//!
//! The second stage is one after the other, so that the reports of a run are committed in order. The channels of a job
//! that has ended for good are removed whole; those of other jobs may hold entries of the next run, and only what was
//! read is deleted.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use convoke_core::jobs::channels::JobChannel;
use convoke_core::jobs::fold::EventFold;
use convoke_core::jobs::link::Event;
use convoke_core::jobs::wire::{Bell, LogMessage, StatusMessage};
use convoke_core::jobs::{Claim, RunReport};
use convoke_core::ports::Entry;
use convoke_core::ports::store::Recorded;
use convoke_core::{Result, WorkerId};
use jiff::Timestamp;
use serde::de::Error;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::claims;
use crate::jobs::duty::{DutyRun, WokenBy};
use crate::jobs::node::Node;
use crate::jobs::{recorder, telemetry};

const RETRY_AFTER: Duration = Duration::from_millis(250);
/// How many batches wait for the store, and how many for their acknowledgement. Each has the bytes of one read at most.
const READ_AHEAD: usize = 2;

/// Entries of each queue, as they were read.
type Batch = Vec<(String, Vec<Entry>)>;

/// Reads the channels of owned jobs.
pub async fn record_channel_events(node: Arc<Node>, mut run: DutyRun<WokenBy>) -> Result<()> {
    let stop = run.stop();
    let (read, mut batches) = mpsc::channel(READ_AHEAD);
    let (recorded, mut done) = mpsc::channel(READ_AHEAD);
    let recording = async {
        while let Some(Some(batch)) = run.wait(batches.recv()).await {
            let waiting = std::iter::from_fn(|| batches.try_recv().ok());
            let all = std::iter::once(batch).chain(waiting).flatten().collect();
            match record(&node, all).await {
                Ok(done) => _ = recorded.send(done).await,
                Err(error) => {
                    run.failed("job events", &error);
                    run.sleep(RETRY_AFTER).await;
                }
            }
        }
    };
    tokio::select! {
        biased;
        () = stop.due() => {}
        () = recording => {}
        () = read_channels(&node, read) => {}
        () = acknowledge(&node, &mut done) => {}
    }
    Ok(())
}

async fn read_channels(node: &Node, batches: mpsc::Sender<Batch>) {
    loop {
        match node.ownership.job_channels.next().await {
            Ok(batch) => {
                node.ownership.claims.mark_channel_read(Instant::now());
                node.ownership.claims.set_behind(batches.capacity() == 0);
                if batches.send(batch).await.is_err() {
                    return;
                }
            }
            Err(error) => {
                node.outages.failed("job events", &error);
                tokio::time::sleep(RETRY_AFTER).await;
            }
        }
    }
}

/// Entries that are recorded, by what is done with their queues.
#[derive(Default)]
struct Done {
    /// Of jobs that have ended for good.
    finished: Vec<(String, Vec<String>)>,
    others: Vec<(String, Vec<String>)>,
}

/// Deletes what is recorded. Entries that could not be deleted are closed by the leader's cleanup.
async fn acknowledge(node: &Node, recorded: &mut mpsc::Receiver<Done>) {
    while let Some(Done { finished, others }) = recorded.recv().await {
        let channels = &node.ownership.job_channels;
        let (finished, others) = tokio::join!(channels.finish(&finished), channels.ack(&others));
        if let Err(error) = finished.and(others) {
            node.outages.failed("job events", &error);
        }
    }
}

/// Commits the events of a batch. Entries that were read must not be dropped because the store is unavailable for a
/// while.
async fn record(node: &Node, batch: Batch) -> Result<Done> {
    let events = decode(node, batch).await;
    let mut pause = Duration::from_millis(50);
    let recorded = loop {
        match recorder::record(node, events.reports.clone()).await {
            Err(error) if error.is_transient() => {
                node.outages.failed("job events", &error);
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_secs(2));
            }
            other => break other?,
        }
    };
    let jobs = events.reports.iter().map(|report| report.job).zip(&recorded);
    let foreign = jobs.filter(|(_, recorded)| **recorded == Recorded::NotOwner).map(|(job, _)| job);
    claims::drop_claims_of_jobs(node, &node.ownership, foreign.collect::<Vec<_>>()).await;
    Ok(events.done(&recorded))
}

/// The ids of entries, each with the index of its report; without one if it could not be read.
type ReadEntries = Vec<(String, Option<usize>)>;

/// The reports of a batch, and the entries of each queue that they are made of.
struct Events {
    reports: Vec<RunReport>,
    queues: Vec<(String, ReadEntries)>,
}

impl Events {
    /// Returns the entries to delete, after `recorded` became of the reports.
    fn done(self, recorded: &[Recorded]) -> Done {
        let has_ended =
            |report: usize| matches!(&recorded[report], Recorded::Applied(change) if !change.status.is_live());
        let mut done = Done::default();
        for (queue, entries) in self.queues {
            // Entries of jobs that another node owns are left for it to read.
            let is_ours = |report: &Option<usize>| report.is_none_or(|report| recorded[report] != Recorded::NotOwner);
            let is_finished = entries.iter().all(|(_, report)| report.is_some_and(has_ended));
            let ids = entries.into_iter().filter(|(_, report)| is_ours(report)).map(|(id, _)| id);
            let ids: Vec<String> = ids.collect();
            if !ids.is_empty() {
                let list = if is_finished { &mut done.finished } else { &mut done.others };
                list.push((queue, ids));
            }
        }
        done
    }
}

/// Folds the entries of a batch. Sets entries aside that cannot be read.
async fn decode(node: &Node, mut batch: Batch) -> Events {
    let now = node.now();
    let mut fold = EventFold::with_capacity(batch.len());
    let mut queues = Vec::with_capacity(batch.len());
    // Log lines first: a line that came with the end of its run is part of the run.
    let kind = |queue: &str| node.channels.job_of(queue).map(|(_, kind)| kind);
    batch.sort_by_cached_key(|(queue, _)| kind(queue) != Some(JobChannel::Logs));
    for (queue, entries) in batch {
        let kind = kind(&queue);
        let mut read = Vec::with_capacity(entries.len());
        for Entry { id, body } in entries {
            let report = match event(kind, &body) {
                Ok((worker, event)) => {
                    let event = event.cut_to_limits();
                    Some(fold.add(worker.as_ref(), event, Timestamp::MIN, now, || node.fraction()).report)
                }
                Err(error) => {
                    telemetry::poison(node, queue.clone(), body, &error).await;
                    None
                }
            };
            read.push((id, report));
        }
        queues.push((queue, read));
    }
    let mut reports = fold.into_reports();
    for report in &mut reports {
        (report.owner, report.by_channel) = (Some(Claim::IfFree(node.id.clone())), true);
    }
    Events { reports, queues }
}

/// Returns the event of an entry, and the worker that it names.
fn event(kind: Option<JobChannel>, body: &Bytes) -> serde_json::Result<(Option<WorkerId>, Event)> {
    match kind {
        Some(JobChannel::Status) => {
            let (worker, event) = serde_json::from_slice::<StatusMessage>(body)?.into_event();
            Ok((Some(worker), event))
        }
        Some(JobChannel::Logs) => Ok((None, serde_json::from_slice::<LogMessage>(body)?.into_event())),
        // The reader passes a bell on only if it could not read it.
        None => {
            serde_json::from_slice::<Bell>(body)?;
            Err(serde_json::Error::custom("a bell is no event"))
        }
    }
}
