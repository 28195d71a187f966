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
pub use audit::{audit_claims, read_back};
pub use balance::balance_load;
pub use channel_events::record_channel_events;
pub use claims::{Claims, let_go, settle_claims, write_down};
pub use enqueues::consume_enqueues;
pub use handoffs::consume_handoffs;
pub use offers::give_away;
pub use peers::{Peers, Prospects, hear_peers, prospects, read_registry};
