//! The library for applications: enqueues and runs jobs, elects a leader ([`Elector`]), and calls the other instances
//! of the application ([`mesh`]).
//!
//! ```no_run
//! use convoke::{Client, Context, Job, Worker};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize)]
//! struct SendEmail { to: String }
//! impl Job for SendEmail { const TYPE: &'static str = "email.send"; type Output = (); }
//!
//! async fn send(cx: Context, job: SendEmail) -> convoke::Result<()> {
//!     cx.log(format!("to {}", job.to)).await?;
//!     cx.progress(100, "sent").await
//! }
//!
//! # async fn both() -> convoke::Result<()> {
//! Worker::connect("http://127.0.0.1:3000").await?.queues(["email"]).concurrency(10).handle(send).run().await?;
//!
//! let client = Client::connect("http://127.0.0.1:3000").await?;
//! let handle = client.enqueue(SendEmail { to: "a@b.c".into() }).queue("email").await?;
//! handle.wait().await?;
//! # Ok(())
//! # }
//! ```
//!
//! ```no_run
//! use convoke::Elector;
//!
//! # async fn reindex(epoch: convoke::Epoch) {}
//! # async fn lead() -> convoke::Result<()> {
//! let elector = Elector::connect("redis://127.0.0.1").await?.namespace("production").start().await?;
//! while let Some(term) = elector.lead().await {             // waits until elected
//!     term.run(|term| reindex(term.epoch())).await;         // cancelled the moment the term ends
//! }
//! # Ok(())
//! # }
//! ```
//!
//! With the feature `coordinator` an application can be a node itself: `Coordinator::builder()`.
//!
//! A job runs at least once: make handlers idempotent. It is recorded as ended exactly once.

#![cfg_attr(not(test), warn(unused_crate_dependencies))]
#![warn(missing_docs)]

mod client;
pub mod connect;
mod context;
#[cfg(feature = "coordinator")]
pub mod coordinator;
mod elector;
mod enqueue;
mod error;
mod handle;
mod identity;
mod job;
pub mod mesh;
#[cfg(feature = "zmq")]
mod shard_worker;
mod signals;
#[cfg(test)]
mod tests;
mod unreachable;
mod worker;

/// Enqueueing inside an application's own PostgreSQL transaction.
#[cfg(feature = "postgres")]
pub mod transaction {
    pub use crate::connect::enqueue_in;
    pub use convoke_core::jobs::JobSpec;
    pub use convoke_core::jobs::link::Enqueued;
    pub use convoke_core::{JobType, Json};
}

pub use client::Client;
pub use connect::{EventStream, Http, ServerEvent, encode};
pub use context::Context;
#[cfg(feature = "coordinator")]
pub use coordinator::{Coordinator, CoordinatorBuilder};
pub use elector::{Candidate, Elector};
pub use enqueue::{Enqueue, EnqueueAll};
pub use error::{Error, Result};
pub use handle::Handle;
pub use identity::fresh_id;
pub use job::Job;
pub use mesh::{Broadcast, HandlerError, Mesh, MeshContext, Request};
#[cfg(feature = "zmq")]
pub use shard_worker::{ShardWorker, ShardWorkerBuilder};
pub use unreachable::Unreachable;
pub use worker::Worker;

/// The settings, events and terms of an [`Elector`].
pub mod election {
    pub use convoke_core::election::{
        BreakerSettings, BreakerState, BreakerStatus, ContentionSettings, ElectionEvent, EpochGate, Event, Metrics,
        Percentiles, Policy, Settings,
    };
    pub use convoke_runtime::election::{Events, Subscriber, Tenure as Term};
}

pub use convoke_core::jobs::{Jitter, Job as JobView, LogLevel, Priority, RetryPolicy, Status};
pub use convoke_core::mesh::{EpochFloor, InstanceId, MeshError, MeshNode};
pub use convoke_core::shards::{Shard, Version as ShardVersion};
pub use convoke_core::{Epoch, ExecutionId, JobId, QueueName};
pub use convoke_runtime::shards::{Change as ShardChange, Changes as ShardChanges};
