//! What every node does: it owns the events of some jobs and records them.

mod assignments;
mod channel_events;
mod claims;
mod enqueues;

pub use assignments::consume_assignments;
pub use channel_events::record_channel_events;
pub use claims::{Claims, settle_claims};
pub use enqueues::consume_enqueues;
