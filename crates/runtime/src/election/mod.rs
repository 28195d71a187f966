//! Leader election: terms of leadership over any [`Leases`](convoke_core::ports::Leases).
//!
//! One loop, the `driver`, holds all leases by the rules of [`convoke_core::election`]. It has three users. An
//! [`Elector`] serves an application: any number of subscribers by one heartbeat. A [`Campaign`] serves the coordinator
//! of jobs, whose terms are sealed in its store before anything acts on them. The third is the leader of a
//! [mesh](crate::mesh). Each holds a term as a [`Tenure`], which ends before another member may hold the lease.

#[cfg(feature = "node")]
mod campaign;
pub(crate) mod driver;
mod election_health;
mod elector;
mod event_sink;
pub(crate) mod holder;
pub(crate) mod mark;
pub(crate) mod office;
mod subscriber;
pub(crate) mod telemetry;
mod tenure;
#[cfg(feature = "node")]
mod term;

#[cfg(feature = "node")]
pub use campaign::{Campaign, CampaignOptions};
pub use election_health::ElectionHealth;
pub use elector::{Candidacy, Elector, Events, WeakElector};
pub use event_sink::EventSink;
pub use subscriber::Subscriber;
pub use tenure::Tenure;
#[cfg(feature = "node")]
pub use term::{Leadership, Term};
