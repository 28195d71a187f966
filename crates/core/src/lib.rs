//! The rules of Convoke, and the ports through which they reach the outside.
//!
//! Nothing here does I/O, reads a clock or draws random numbers: time and randomness are arguments. So one set of rules
//! runs against memory, SQLite, PostgreSQL and Redis, and a simulation runs a year in a second.
//!
//! A capability has the same name in every layer: `election`, `shards`, `mesh`, `jobs`. [`history`] has the recent past of
//! all of them, for display.

#![cfg_attr(not(test), warn(unused_crate_dependencies))]
#![warn(missing_docs)]

pub mod audit;
mod byte_budget;
pub mod decisions;
pub mod duration;
pub mod election;
pub mod error;
mod flat;
pub mod history;
pub mod ids;
pub mod instant;
pub mod jobs;
pub mod json;
pub mod limits;
pub mod mesh;
pub mod mutant;
pub mod ports;
mod sections;
pub mod shards;
pub mod strict;
#[cfg(feature = "node")]
pub mod verify;
mod whole;

pub use byte_budget::ByteBudget;
pub use error::{Error, Invalid, Result};
pub use ids::{Epoch, ExecutionId, JobId, JobType, NodeId, QueueName, ScheduleName, ServiceName, WorkerId};
pub use json::Json;
pub use sections::Secret;

#[cfg(test)]
mod tests {
    pub mod model;
}
