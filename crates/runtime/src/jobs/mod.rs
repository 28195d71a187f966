//! Who runs this work, when, and what if it dies.

pub mod client;
pub mod worker;
