//! A coordinator on the memory adapters, on SQLite and on Redis: one file for each subject.
//!
//! They are one binary because a binary of each would be linked for longer than its tests run.

#[path = "../common/mod.rs"]
mod common;

mod bus_away;
mod bus_workers;
mod cleanup;
mod clocks_apart;
mod cluster;
mod coordinator;
mod duties;
mod group_readers;
mod handing_out;
mod health;
mod linear_work;
mod rate_limits;
mod reruns;
mod schedules;
mod several_queues;
mod shard_roster;
mod shards;
mod shared_cache;
mod unnamed_runs;
mod views;
mod watching;
mod year;
