//! What every node does: it owns the events of some jobs, records them, and hands them on when it goes or has too many.

mod assignments;
mod audit;
mod balance;
mod channel_events;
mod claims;
mod competition;
mod enqueues;
mod handoffs;
mod offers;
mod peers;

pub use assignments::consume_assignments;
pub use audit::{audit_claims, recover_owned_runs};
pub use balance::balance_load;
pub use channel_events::record_channel_events;
pub use claims::{Claims, drop_claims, maintain_claims, persist_claims};
pub use enqueues::consume_enqueues;
pub use handoffs::consume_handoffs;
pub use offers::offer_runs;
pub use peers::{Peers, Prospects, prospects, read_registry, receive_peer_heartbeats};
