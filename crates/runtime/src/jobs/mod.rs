//! The coordinator: a node that hands runs to workers, records what becomes of them, and leads when it is elected.
//!
//! One node is leader and follower at once. `leader` has the duties of the one that leads, all fenced by its term;
//! `follower` those of every node: who records which run; `gateway` speaks with workers; `requests` with clients.
//! All that is said of runs is committed by `recorder`, whoever heard it. Nothing here is the truth: a node can be
//! killed between any two lines, and what it knew is read back from the store.

mod bus_client;
mod cache;
mod candidacy;
pub mod client;
mod competition;
mod coordinator;
mod drain;
mod duties;
mod duty;
mod events_forward;
mod feed;
mod follower;
mod gateway;
mod handoff;
mod health;
mod heartbeats;
mod hints;
mod intake;
mod leader;
mod node;
mod node_hints;
mod over;
mod reach;
mod recorder;
mod requests;
mod settings;
mod telemetry;
mod views;
mod waiting;
pub mod worker;

pub use bus_client::BusClient;
pub use coordinator::{Coordinator, NAMESPACE};
pub use duty::{Duty, Scope};
pub use health::Check;
pub use node::Ports;
pub use reach::BackendState;
pub use requests::DeadSelection;
pub use settings::{
    BUS_PREFIX, BusSettings, CacheSettings, ChannelSettings, LeaseSettings, RateLimitSettings, RetentionSettings,
    RetrySettings, Settings, StoreSettings, WorkerSettings,
};
pub use views::{Handoffs, KnownNodes, QueueView};

pub use crate::election::Leadership;
pub use convoke_core::jobs::ClusterSettings;
