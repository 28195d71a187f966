//! Shards: the leader's duty to coordinate them, and the worker that an application runs.
//!
//! [`ShardsDuty`] binds the coordinator's socket when a term begins and drives the rules over it until the term is
//! over; a standby does not listen, so that workers reach the leader or nobody. [`ShardsView`] shows its state
//! meanwhile. [`ShardWorker`] is the other end.

mod changes;
#[cfg(feature = "node")]
mod duty;
#[cfg(feature = "node")]
mod relay;
#[cfg(feature = "node")]
mod roster;
#[cfg(feature = "node")]
mod telemetry;
#[cfg(feature = "node")]
mod view;
mod worker;

pub use changes::Changes;
#[cfg(feature = "node")]
pub use duty::{RecordSink, ShardsDuty};
#[cfg(feature = "node")]
pub use relay::ShardsRelay;
#[cfg(feature = "node")]
pub use view::{ServiceStatus, ShardsState, ShardsView, WorkerStatus};
pub use worker::{ShardWorker, WorkerOptions};

pub use convoke_core::shards::worker::Change;
