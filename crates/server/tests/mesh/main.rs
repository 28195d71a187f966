//! A mesh of which Rust and Node.js are both part.

mod bench;
mod commands;
mod node_peer;
mod peer;
