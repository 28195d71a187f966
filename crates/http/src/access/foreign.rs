//! Requests that a page of another site makes a browser send.

use std::net::IpAddr;

use http::HeaderMap;
use http::header::{HOST, ORIGIN};

use crate::error::ApiError;

/// A foreign page reaches a loopback server in two ways: through a name of its own that resolves to this machine (its
/// `Host` is then that name), or by posting to this address blindly (its `Origin` is then foreign).
pub fn refuse_foreign_pages(headers: &HeaderMap, target: Option<&str>, names: &[String]) -> Result<(), ApiError> {
    let host = match (target, headers.get(HOST)) {
        (Some(host), _) => host,
        (None, Some(host)) => host.to_str().unwrap_or_default(),
        // HTTP/1.0, or written by hand: no browser omits both.
        (None, None) => return Ok(()),
    };
    let is_named = |name: &str| names.iter().any(|known| known.eq_ignore_ascii_case(name));
    if !is_local_name(host) && !is_named(name_of(host)) {
        let message = format!(
            "this server is open to its own machine only and takes no request for the host {host:?}; use an address or \
             localhost, allow the name (http.hosts), or configure tokens"
        );
        return Err(ApiError::forbidden(message));
    }
    let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
    let origin = origin.to_str().unwrap_or_default();
    if is_origin_of(origin, host) {
        return Ok(());
    }
    Err(ApiError::forbidden(format!("this server accepts no requests from a page of {origin:?}; configure tokens")))
}

/// Rejects a form that a page of another site sent. Browsers state in `Sec-Fetch-Site`, or at least in `Origin`, where a
/// request comes from; a client that states nothing is no browser. Behind a proxy the name that the browser used is in
/// `X-Forwarded-Host`, which a foreign page cannot set.
pub fn refuse_foreign_forms(headers: &HeaderMap) -> Result<(), ApiError> {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let is_own = match (text("sec-fetch-site"), text("origin")) {
        (Some(site), _) => matches!(site, "same-origin" | "none"),
        (None, Some(origin)) => {
            ["host", "x-forwarded-host"].iter().any(|name| text(name).is_some_and(|host| is_origin_of(origin, host)))
        }
        (None, None) => true,
    };
    if is_own { Ok(()) } else { Err(ApiError::forbidden("this form was sent by a page of another site")) }
}

fn is_origin_of(origin: &str, host: &str) -> bool {
    origin.split_once("://").is_some_and(|(_, authority)| authority.eq_ignore_ascii_case(host))
}

/// Returns a host without its port.
fn name_of(host: &str) -> &str {
    match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.rsplit_once(':').filter(|(name, _)| !name.contains(':')).map_or(host, |(name, _)| name),
    }
}

fn is_local_name(host: &str) -> bool {
    let name = name_of(host);
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}
