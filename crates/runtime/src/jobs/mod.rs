//! The coordinator: a node that hands runs to workers, records their reports, and leads when it is elected.
//!
//! One node is leader and follower at once. `leader` has the duties of the leading node, all fenced by its term;
//! `follower` those of every node: which node records which run; `gateway` serves workers; `requests` serves clients.
//! All reports of runs are committed by `recorder`, whichever way they came. No state here is authoritative: a node can
//! be killed between any two lines, and its state is read back from the store.

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
