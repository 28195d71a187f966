//! Turns addresses into adapters. The only place that names them.

use convoke_adapters::gateway::Http;
use convoke_core::Result;

/// A JSON client of a coordinator's HTTP API.
pub fn http(url: &str, token: Option<String>) -> Result<Http> {
    Http::connect(url, token)
}
