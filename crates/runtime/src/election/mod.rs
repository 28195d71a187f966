//! Who leads: terms of leadership over any [`Leases`](convoke_core::ports::Leases).
//!
//! An [`Elector`] serves an application: any number of subscribers by one heartbeat, by the rules of
//! [`convoke_core::election`]. A [`Campaign`] serves the coordinator of jobs, whose terms are sealed in its store before
//! anything acts on them. Both hold a term as a [`Tenure`], which ends before its lease may be another's.

mod campaign;
mod duty;
mod election_health;
mod elector;
mod heartbeat;
mod mark;
mod subscriber;
pub(crate) mod telemetry;
mod tenure;
mod term;

pub use campaign::Campaign;
pub use duty::{Duty, EventSink};
pub use election_health::ElectionHealth;
pub use elector::{Candidacy, Elector, Events, WeakElector};
pub use subscriber::Subscriber;
pub use tenure::Tenure;
pub use term::{Leadership, Term};
