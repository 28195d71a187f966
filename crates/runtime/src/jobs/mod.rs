//! The coordinator: a node that hands runs to workers, records their reports, and leads when it is elected.
//!
//! One node is leader and follower at once. `leader` has the duties of the leading node, all fenced by its term;
//! `follower` those of every node: which node records which run; `gateway` serves workers; `requests` serves clients.
//! All reports of runs are committed by `recorder`, whichever way they came. No state here is authoritative: a node can
//! be killed between any two lines, and its state is read back from the store.

#[cfg(feature = "node")]
mod bulk;
mod bus_client;
#[cfg(feature = "node")]
mod cache;
#[cfg(feature = "node")]
mod candidacy;
pub mod client;
#[cfg(feature = "node")]
mod competition;
#[cfg(feature = "node")]
mod coordinator;
#[cfg(feature = "node")]
mod drain;
#[cfg(feature = "node")]
mod duties;
#[cfg(feature = "node")]
mod duty;
#[cfg(feature = "node")]
mod elections;
#[cfg(feature = "node")]
mod events_forward;
#[cfg(feature = "node")]
mod feed;
#[cfg(feature = "node")]
mod follower;
#[cfg(feature = "node")]
mod gateway;
#[cfg(feature = "node")]
mod handoff;
#[cfg(feature = "node")]
mod health;
#[cfg(feature = "node")]
mod heartbeats;
#[cfg(feature = "node")]
mod hints;
#[cfg(feature = "node")]
mod history;
mod intake;
#[cfg(feature = "node")]
mod leader;
#[cfg(feature = "node")]
mod node;
#[cfg(feature = "node")]
mod node_hints;
mod over;
#[cfg(feature = "node")]
mod reach;
#[cfg(feature = "node")]
mod recorder;
#[cfg(feature = "node")]
mod requests;
mod settings;
#[cfg(feature = "node")]
mod simulation;
#[cfg(feature = "node")]
mod telemetry;
#[cfg(feature = "node")]
mod traffic;
#[cfg(feature = "node")]
mod views;
#[cfg(feature = "node")]
mod waiting;
pub mod worker;

#[cfg(feature = "node")]
pub use bulk::{BulkAction, BulkCount, BulkSlice, COUNT_MAX};
pub use bus_client::BusClient;
#[cfg(feature = "node")]
pub use coordinator::Coordinator;
#[cfg(feature = "node")]
pub use duty::{Duty, Scope};
#[cfg(feature = "node")]
pub use elections::ElectionView;
#[cfg(feature = "node")]
pub use health::Check;
#[cfg(feature = "node")]
pub use history::Known;
#[cfg(feature = "node")]
pub use node::Ports;
#[cfg(feature = "node")]
pub use node_hints::Belief;
#[cfg(feature = "node")]
pub use reach::BackendState;
#[cfg(feature = "node")]
pub use requests::DeadSelection;
pub use settings::{
    BUS_PREFIX, BusSettings, CacheSettings, ChannelSettings, LeaseSettings, NAMESPACE, RateLimitSettings,
    RetentionSettings, RetrySettings, Settings, StoreSettings, WorkerSettings,
};
#[cfg(feature = "node")]
pub use views::{Handoffs, KnownNodes, QueueView};

#[cfg(feature = "node")]
pub use crate::election::Leadership;
pub use convoke_core::jobs::ClusterSettings;
