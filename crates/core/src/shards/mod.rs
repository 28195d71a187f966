//! Who owns which part: the shards of a service, spread over its workers.
//!
//! A service has shards `0..maxShardCount`. Its workers register and beat; the [`Coordinator`] spreads the shards over
//! those that live by a [`Strategy`], and tells a worker whenever its part changes. Every assignment carries a
//! [`Version`] that rises with each change of what is granted, so that whoever is written to can refuse a former owner.
//!
//! A worker that asks for it (`handoff`) is given time to let go: its shard reaches the next owner only after it said
//! `released`, left, or was silent for so long that it has fenced itself. The two halves of that bargain are
//! [`Coordinator`] and [`Worker`]; both are pure, and take the time as an argument.

pub mod coordinator;
pub mod relay;
pub mod roster;
pub mod strategy;
mod version;
pub mod wire;
pub mod worker;

pub use coordinator::{Coordinator, Limits, Settings, Start};
pub use roster::{Roster, RosterChange, ShardMember};
pub use strategy::Strategy;
pub use version::Version;
pub use worker::Worker;

/// A part of a service, from 0 to one below its `maxShardCount`.
pub type Shard = u32;
