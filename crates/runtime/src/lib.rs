//! Drives the rules of `convoke-core` over its ports, and knows no engine.

pub mod election;
pub mod jobs;
pub mod mesh;
pub mod shards;
