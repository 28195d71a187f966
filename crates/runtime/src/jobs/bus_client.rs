//! A client over the bus: it can enqueue, and nothing else.
//!
//! An enqueue is acknowledged when the bus has it, so it is as durable as the bus; the node that reads it inserts it.
//! No reply is sent: only the HTTP interface returns the state of a job. A job that a node rejects is set aside on
//! `poison`, so every check that is possible here is made before it is sent.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use convoke_core::jobs::channels::Channels;
use convoke_core::jobs::link::{ClientLink, Enqueued, ScheduleCall};
use convoke_core::jobs::wire::{self, Enqueue};
use convoke_core::jobs::{Job, JobSpec, RetrySettings};
use convoke_core::ports::{Bus, Clock};
use convoke_core::{Error, Invalid, JobId, Json, Result};

use crate::machine;

/// A client that enqueues over the bus. It is a [`ClientLink`]; every other call is rejected.
pub struct BusClient {
    bus: Arc<dyn Bus>,
    channels: Channels,
    clock: Arc<dyn Clock>,
}

impl BusClient {
    /// Creates a client that publishes on `job.enqueue` under the prefix of `channels`.
    pub fn new(bus: Arc<dyn Bus>, channels: Channels, clock: Arc<dyn Clock>) -> Self {
        BusClient { bus, channels, clock }
    }

    fn entry(&self, index: usize, spec: JobSpec) -> Result<(JobId, Bytes), Invalid> {
        let id = spec.id.unwrap_or_else(|| JobId(machine::id()));
        let spec = JobSpec { id: Some(id), ..spec };
        let checked = spec.clone().into_job(id, self.clock.now(), &RetrySettings::default());
        checked.map_err(|invalid| invalid.within(format_args!("jobs[{index}]")))?;
        Ok((id, wire::encode(&Enqueue { spec })))
    }
}

#[async_trait]
impl ClientLink for BusClient {
    /// The client does not learn whether a unique key was taken: `created` is always true.
    async fn enqueue(&self, jobs: Vec<JobSpec>) -> Result<Vec<Enqueued>> {
        let queue = self.channels.enqueue();
        let (mut entries, mut enqueued) = (Vec::with_capacity(jobs.len()), Vec::with_capacity(jobs.len()));
        for (index, spec) in jobs.into_iter().enumerate() {
            let (id, body) = self.entry(index, spec)?;
            entries.push((queue.clone(), body));
            enqueued.push(Enqueued { id, created: true });
        }
        self.bus.push(entries).await?;
        Ok(enqueued)
    }

    async fn job(&self, _: JobId, _: Option<Duration>) -> Result<Job> {
        Err(needs_http("to read a job or to wait for it"))
    }

    async fn cancel(&self, _: JobId, _: Option<String>) -> Result<Job> {
        Err(needs_http("to cancel a job"))
    }

    async fn retry(&self, _: JobId) -> Result<Job> {
        Err(needs_http("to retry a job"))
    }

    async fn schedule(&self, _: ScheduleCall) -> Result<Json> {
        Err(needs_http("for schedules"))
    }
}

fn needs_http(what: &str) -> Error {
    Invalid::new("url", format!("expected an http:// or https:// address {what}: by the bus a client can only enqueue"))
        .into()
}
