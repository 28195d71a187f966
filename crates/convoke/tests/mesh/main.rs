//! Instances of a mesh in one process, with time that the tests move.

mod calls;
mod fences;
mod limits;
mod metrics;
mod registry;
mod stage;
mod stopping;
