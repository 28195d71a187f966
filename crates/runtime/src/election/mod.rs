//! Who leads: terms of leadership over any [`Leases`](convoke_core::ports::Leases).

mod campaign;
mod term;

pub use campaign::Campaign;
pub use term::{Leadership, Term};
