//! Drives the rules over ports, and knows no engine.

pub mod jobs;
