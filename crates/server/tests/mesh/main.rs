//! A mesh of which Rust and Node.js are both part.

mod node_peer;
mod peer;
