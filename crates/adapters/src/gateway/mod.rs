//! The HTTP client of workers and clients for a coordinator.
//!
//! [`Http`] is a small JSON client with pooled, kept-alive connections; [`GatewayLink`] implements the worker gateway
//! and the job API on it. Errors differ by what the caller does next: a connection that could not be made is
//! `Unavailable` (nothing happened), a reply that never arrived is `Unknown` (it may have happened), a rejection has
//! the server's error code. Nothing here retries: the callers know which of their calls may be repeated. Only if no
//! connection could be made, and there are several nodes, the next node is used.

mod base;
mod http;
mod link;
mod percent;
mod refusal;
mod sse;
#[cfg(test)]
mod tests;

pub use http::Http;
pub use link::GatewayLink;
pub use percent::encode;
pub use sse::{EventStream, ServerEvent};

pub use ::http::{Method, StatusCode};
