//! Drives the rules of `convoke-core` over its ports, and knows no engine.

#![cfg_attr(not(test), warn(unused_crate_dependencies))]
#![warn(missing_docs)]

#[cfg(feature = "node")]
pub mod decisions;
pub mod election;
pub mod jobs;
mod line_rate;
pub mod machine;
pub mod mesh;
pub mod outage;
pub mod shards;
