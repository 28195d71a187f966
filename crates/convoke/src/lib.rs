#![doc = include_str!("../README.md")]
//!
//! ## Leaders
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
//! ## Modules
//!
//! | module | content |
//! | --- | --- |
//! | the root | [`Client`], [`Worker`] and what they need, [`Elector`], [`Mesh`]; `ShardWorker` with the feature `zmq` |
//! | [`handler`] | what a handler is, for the compiler |
//! | [`transaction`] | jobs in an application's own PostgreSQL transaction |
//! | [`election`], [`mesh`] | terms and events of an elector; calls between instances |
//! | `coordinator` | a coordinator in this process, with the feature `coordinator` |
//! | [`connect`] | addresses of engines |

#![cfg_attr(docsrs, feature(doc_cfg))]
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
mod extract;
mod handle;
pub mod handler;
#[cfg(feature = "coordinator")]
pub mod history;
mod identity;
mod job;
mod layer;
pub mod mesh;
mod run;
mod schedule;
#[cfg(feature = "zmq")]
mod shard_worker;
mod signals;
mod state;
#[cfg(feature = "testing")]
pub mod testing;
#[cfg(all(test, feature = "full"))]
mod tests;
pub mod transaction;
mod unreachable;
mod worker;

pub use client::Client;
pub use connect::{EventStream, Http, ServerEvent, encode};
pub use context::Context;
#[cfg(feature = "coordinator")]
pub use coordinator::{Coordinator, CoordinatorBuilder};
pub use elector::{Candidate, Elector};
pub use enqueue::{Enqueue, EnqueueAll};
pub use error::{Error, Result};
pub use extract::{Args, FromRun, State};
pub use handle::Handle;
pub use identity::fresh_id;
pub use job::Job;
pub use layer::{RunFuture, RunService};
pub use mesh::{Broadcast, HandlerError, Mesh, MeshContext, Request};
pub use run::Run;
pub use schedule::{PutSchedule, Schedule};
#[cfg(feature = "zmq")]
pub use shard_worker::{ShardWorker, ShardWorkerBuilder};
pub use state::{MissingState, StateMap};
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

pub use convoke_core::jobs::{
    DayRule, Jitter, Job as JobView, LogLevel, Missed, Overlap, Priority, RetryPolicy, Status,
};
pub use convoke_core::mesh::{EpochFloor, InstanceId, MeshError, MeshNode};
pub use convoke_core::shards::{Shard, Version as ShardVersion};
pub use convoke_core::{Epoch, ExecutionId, JobId, Json, QueueName};
pub use convoke_runtime::shards::{Change as ShardChange, Changes as ShardChanges};
