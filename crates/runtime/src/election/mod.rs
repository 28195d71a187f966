//! Who leads: terms of leadership over any [`Leases`](convoke_core::ports::Leases).

mod campaign;
mod duty;
mod term;

pub use campaign::Campaign;
pub use duty::{Duty, Tell};
pub use term::{Leadership, Term};
