//! Inserts the jobs that applications enqueue over the bus: every node competes for `job.enqueue`.
//!
//! The waiting entries are inserted as one batch, by the same path and under the same limits as over HTTP, and
//! acknowledged after the commit. If a node dies in between, others may insert them again: the client made the ids.
//! While the store is unavailable nothing is acknowledged and everything is retried. A message that cannot be read, or
//! a job that the store rejects, is set aside with the reason, and does not block others; so is an entry that was
//! delivered too often and never inserted. A job whose unique key is locked by an application's open transaction moves
//! to the end of the channel.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use convoke_core::jobs::NewJob;
use convoke_core::jobs::wire::Enqueue;
use convoke_core::limits::BATCH_BYTES_MAX;
use convoke_core::ports::Delivery;
use convoke_core::{Error, Result};
use futures_util::future::join_all;

use crate::jobs::competition::{Intake, compete};
use crate::jobs::duty::{Consumes, DutyRun};
use crate::jobs::node::{Node, NodeBase};
use crate::jobs::{requests, telemetry};

/// Upper bound of the jobs of one write.
const BATCH_MAX: usize = 500;
/// An entry that was delivered more often than this is not tried: it may crash the nodes that read it.
const DELIVERIES_MAX: u32 = 10;
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// The pause before jobs whose unique keys are locked are retried.
const LOCKED_PAUSE: Duration = Duration::from_millis(100);

/// A job, and the entry that it was read from.
struct Entry {
    job: NewJob,
    body: Bytes,
}

/// Reads `job.enqueue` until the node drains.
pub async fn consume_enqueues(node: Arc<Node>, run: DutyRun<Consumes>) -> Result<()> {
    let run = run.until(node.drain.begun.clone());
    compete(run, Intake { batch_max: BATCH_MAX, open: None }, |deliveries| take_in(&node, deliveries)).await;
    Ok(())
}

async fn take_in(node: &Node, deliveries: Vec<Delivery>) -> Result<()> {
    let mut batch = Vec::with_capacity(deliveries.len());
    let mut bytes = 0;
    for entry in read(node, deliveries).await {
        if bytes + entry.body.len() > BATCH_BYTES_MAX {
            insert(node, std::mem::take(&mut batch)).await?;
            bytes = 0;
        }
        bytes += entry.body.len();
        batch.push(entry);
    }
    insert(node, batch).await
}

/// Returns the jobs in these messages. A message that is not a job is set aside.
async fn read(node: &NodeBase, deliveries: Vec<Delivery>) -> Vec<Entry> {
    let now = node.now();
    let mut entries = Vec::with_capacity(deliveries.len());
    for Delivery { body, deliveries, .. } in deliveries {
        if deliveries > DELIVERIES_MAX {
            poison(node, body, &format!("given to {deliveries} nodes, none of which inserted it")).await;
            continue;
        }
        match serde_json::from_slice::<Enqueue>(&body) {
            Ok(Enqueue { spec }) => match spec.into_job(node.job_id(), now, &node.settings.retry) {
                Ok(job) => entries.push(Entry { job, body }),
                Err(invalid) => poison(node, body, &invalid).await,
            },
            Err(error) => poison(node, body, &error).await,
        }
    }
    entries
}

async fn poison(node: &NodeBase, body: Bytes, reason: &(dyn std::fmt::Display + Sync)) {
    telemetry::poison(node, node.channels.enqueue(), body, reason).await;
}

/// Inserts all of them as one batch; if the store rejects one, each by itself, concurrently. Waits while the store is
/// unavailable.
async fn insert(node: &Node, batch: Vec<Entry>) -> Result<()> {
    if batch.is_empty() {
        return Ok(());
    }
    let jobs: Vec<NewJob> = batch.iter().map(|entry| entry.job.clone()).collect();
    match insert_until_stored(node, jobs).await {
        Err(Error::Invalid(_)) => {}
        Err(error) if error.is_locked() => {}
        done => return done,
    }
    let each = batch.into_iter().map(async |Entry { job, body }| (body, insert_until_stored(node, vec![job]).await));
    let mut locked = Vec::new();
    for (body, inserted) in join_all(each).await {
        match inserted {
            Err(Error::Invalid(invalid)) => poison(node, body, &invalid).await,
            Err(error) if error.is_locked() => locked.push((node.channels.enqueue(), body)),
            done => done?,
        }
    }
    if !locked.is_empty() {
        node.bus().push(locked).await?;
        // They may be the only entries.
        tokio::time::sleep(LOCKED_PAUSE).await;
    }
    Ok(())
}

async fn insert_until_stored(node: &Node, jobs: Vec<NewJob>) -> Result<()> {
    let mut pause = PAUSE_FIRST;
    loop {
        match requests::insert(node, jobs.clone()).await {
            Err(error) if error.is_transient() && !error.is_locked() => {
                node.outages.failed("enqueues over the bus", &error);
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
            other => return other.map(|_| ()),
        }
    }
}
