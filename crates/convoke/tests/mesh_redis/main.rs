//! Instances of a mesh on a real Redis, and what can happen to it.
#![cfg(feature = "redis")]

mod faults;
mod garbage;
mod soak;
mod stage;
