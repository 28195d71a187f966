//! The tasks of every node: it owns the events of some jobs, records them, and hands them off when it stops or has too
//! many.

mod assignments;
mod audit;
mod balance;
mod channel_events;
mod claims;
mod enqueues;
mod handoffs;
mod offers;
mod peers;

pub use assignments::consume_assignments;
pub use audit::{audit_claims, recover_owned_runs};
pub use balance::balance_load;
pub use channel_events::record_channel_events;
pub use claims::{MAINTAIN_INTERVAL, drop_claims, maintain_claims, persist_claims};
pub use enqueues::consume_enqueues;
pub use handoffs::consume_handoffs;
pub use offers::offer_runs;
pub use peers::{Prospects, prospects, read_registry, receive_peer_heartbeats};

use std::sync::Arc;

use convoke_core::Result;
use convoke_core::ports::Multiplex;

use self::claims::Claims;
use self::peers::Peers;
use super::node::NodeBase;

/// The runs whose events this node records, and the state of the nodes that could do so instead.
pub struct Ownership {
    pub claims: Claims,
    pub peers: Peers,
    /// One reader for the channels of all jobs that this node owns.
    pub job_channels: Arc<dyn Multiplex>,
}

impl Ownership {
    pub async fn new(base: &NodeBase) -> Result<Self> {
        let job_channels = base.bus().multiplex().await?.into();
        Ok(Ownership { claims: Claims::default(), peers: Peers::new(&base.settings.cluster), job_channels })
    }
}
