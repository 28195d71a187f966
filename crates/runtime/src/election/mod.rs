//! Who leads: terms of leadership over any [`Leases`](convoke_core::ports::Leases).
