//! What an application depends on to run jobs with Convoke.

pub mod connect;

pub use convoke_adapters::gateway::Http;
