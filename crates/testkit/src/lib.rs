//! What tests of Convoke share. Nobody's normal dependency.
//!
//! - [`process`] starts, pauses and kills real `convoke` processes, and talks to them by hand.
//! - [`invariants`] has one file for each promise, checked against a [`Ledger`](invariants::Ledger) of what the outside saw.

pub mod invariants;
pub mod process;
