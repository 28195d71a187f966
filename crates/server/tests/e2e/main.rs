//! The real binary, from outside: processes that are killed, paused, starved of disk and sent nonsense.
//!
//! Every test has a server of its own on a free port and a directory of its own. Timings are made short by configuration
//! and never asserted: a test waits for what must come.

mod access;
mod bad_input;
mod command_line;
mod crash;
mod disk_full;
mod drain;
mod examples;
mod exclusivity;
mod floods;
mod follow;
mod histories;
mod jobs;
mod large_jobs;
mod logs;
mod mesh;
mod mesh_serve;
mod page_plans;
mod power_loss;
mod queues;
mod schedules;
mod streams;
mod supervision;
mod workers;

use convoke_testkit::process::{Node, NodeBuilder};

/// A server to be configured further.
fn server() -> NodeBuilder {
    Node::builder(env!("CARGO_BIN_EXE_convoke"))
}
