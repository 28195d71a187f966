//! Election as people use it: `convoke elect` on real backends, with real processes that die in every way.

#[cfg(feature = "bench")]
mod bench;
mod elect_cli;
mod inspect;
mod singleton;
mod stage;
