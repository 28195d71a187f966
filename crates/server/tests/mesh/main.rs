//! A mesh of which Rust and Node.js are both part.

#[cfg(feature = "bench")]
mod bench;
mod commands;
mod node_peer;
mod peer;
