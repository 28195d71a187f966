//! Shared parts of Convoke's tests. No crate has it as a normal dependency.
//!
//! - [`conformance`] has one suite for each port, which every adapter must pass.
//! - [`fuzz`] reads any bytes by the parsers of core; tests and fuzzers share it, and the inputs that it starts from.
//! - [`process`] starts, pauses and kills real `convoke` processes, and talks to them by hand.
//! - [`scale`] has the numbers of quick and full runs.
//! - [`shard_frames`] plays what strangers send to the coordinator of shards; tests and a fuzzer share it.
//! - [`shared_bus`] lets several nodes of one process use one bus.
//! - [`sim_bucket`] is a bucket in memory whose time is tokio's.
//! - [`linear`] checks whether the operations of several clients on a lease could have happened one after the other.
//! - [`invariants`] has one file for each promise, checked against a [`Observations`](invariants::Observations) of what the outside saw.

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

pub mod conformance;
pub mod fuzz;
pub mod invariants;
pub mod linear;
pub mod process;
pub mod scale;
pub mod shard_frames;
pub mod shared_bus;
pub mod sim_bucket;
