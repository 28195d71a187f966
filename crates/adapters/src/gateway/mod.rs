//! A worker's and a client's way to a coordinator over HTTP.
//!
//! [`Http`] is a small JSON client with pooled, kept-alive connections; [`GatewayLink`] speaks the worker gateway and the
//! job API through it. What fails is told apart by what the caller does next: a connection that could not be made is
//! `Unavailable` (nothing happened), an answer that never came is `Unknown` (it may have), a refusal is what the server
//! called it. Nothing here retries: the callers know which of their calls may be repeated. Only where no connection could be
//! made, and more than one node was named, the next is asked.

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
