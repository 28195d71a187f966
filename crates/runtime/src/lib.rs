//! Drives the rules of `convoke-core` over its ports, and knows no engine.

pub mod election;
pub mod jobs;
mod line_rate;
pub mod mesh;
pub mod outage;
pub mod shards;
