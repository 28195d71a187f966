//! Shards: numbered parts of a service's work, spread over its workers.
//!
//! A service has shards `0..maxShardCount`. Its workers register and send heartbeats. The [`Coordinator`] spreads the
//! shards over the live ones by a [`Strategy`], and sends a worker its new assignment when it changes. Every assignment
//! carries a [`Version`] that rises with each change of the grants, so that a store can reject the writes of a former
//! owner.
//!
//! A worker that asks for it (`handoff`) gets time to stop: its shard is granted to the next owner only after the
//! worker sent `released`, left, or was silent for so long that it has fenced itself. [`Coordinator`] and [`Worker`]
//! are the two sides of this protocol; both are pure, and take the time as an argument.

pub mod coordinator;
pub mod relay;
pub mod roster;
pub mod settings;
pub mod strategy;
mod version;
pub mod wire;
pub mod worker;

pub use coordinator::{Coordinator, Start};
pub use roster::{Roster, RosterChange, ShardMember};
pub use settings::{Limits, Settings};
pub use strategy::Strategy;
pub use version::Version;
pub use worker::Worker;

/// The number of a shard, from 0 to one below its service's `maxShardCount`.
pub type Shard = u32;
