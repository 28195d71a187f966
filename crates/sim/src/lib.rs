//! Runs a whole cluster in one thread: real nodes, workers and clients over the engines in memory, with one seed that
//! decides time, chance and faults.
//!
//! | module | has |
//! | --- | --- |
//! | [`fault`] | the kinds of faults, and the plan of a seed |
//! | [`ports`] | the engines behind a network that fails |
//! | [`world`] | the processes, their story, and the healing |
//! | [`history`] | what the store and the leases decided |
//! | [`checks`] | what must be true of a history |
//! | [`branches`] | what must have been reached |
//! | [`run`] | one seed, many seeds, the smallest plan that still fails |
//! | [`mutants`] | fences that are removed on purpose |

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

pub mod branches;
pub mod checks;
pub mod fault;
pub mod history;
pub mod mutants;
pub mod network;
pub mod ports;
pub mod process;
pub mod run;
pub mod trace;
pub mod world;

// The binary's alone.
use clap as _;
