//! What tests of Convoke share. Nobody's normal dependency.
//!
//! - [`conformance`] has one suite for each port, which every adapter must pass.

pub mod conformance;
