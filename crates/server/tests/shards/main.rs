//! The coordinator of shards from outside, with workers that were not written for it.
//!
//! Some are on Node.js and its ZeroMQ library and keep to the documented protocol alone; some are dealers written by hand,
//! ten thousand of them. The messages that they received and what the coordinator shows must agree.

mod crowd;
mod hostile;
mod interface;
mod node_crowd;
mod node_worker;
mod restart;
mod stage;
mod takeover;
mod ten_thousand;
mod two_phase;
