//! Shards: the leader's duty to coordinate them, and the worker that an application runs.
//!
//! [`ShardsDuty`] binds the coordinator's socket when a term begins and drives the rules over it until the term is
//! over; a standby does not listen, so that workers reach the leader or nobody. [`ShardsView`] shows its state
//! meanwhile. [`ShardWorker`] is the other end.

mod changes;
mod duty;
mod relay;
mod roster;
mod telemetry;
mod view;
mod worker;

pub use changes::Changes;
pub use duty::ShardsDuty;
pub use relay::ShardsRelay;
pub use view::{ServiceStatus, ShardsState, ShardsView, WorkerStatus};
pub use worker::{ShardWorker, WorkerOptions};

pub use convoke_core::shards::worker::Change;
