//! The same routes inside another axum server.
//!
//! The application's server accepts connections, so it must limit their number and their times; bodies, memory and
//! event streams are limited here. Access is checked as on a separate port. Without tokens only the machine itself may
//! send requests; [`ConnectInfo`] has the address that a request comes from.

use std::convert::Infallible;
use std::net::SocketAddr;

use axum::Router;
use axum::extract::{ConnectInfo, NestedPath, Request};
use axum::response::Response;
use http::header::{HeaderValue, LOCATION};
use http::{Extensions, Uri};

use super::access::Peer;
use super::{ApiService, AppState, Site};

/// The path under which clients reach the routes: empty at the root, `/convoke` under `nest("/convoke", …)`, or the
/// configured `http.base_path`.
#[derive(Debug, Clone)]
pub struct Prefix(String);

impl Prefix {
    /// Returns the prefix of the request's path.
    pub fn of(extensions: &Extensions) -> &str {
        extensions.get::<Prefix>().map_or("", |prefix| &prefix.0)
    }
}

/// Returns the routes for an application's own server: under a path (`nest`), beside its routes (`merge`, if it has no
/// fallback of its own), or as its fallback (`fallback_service`).
pub fn router(state: AppState) -> Router {
    let api_service = ApiService::new(state);
    // A fallback, so that the application's own routes come first, also its `/`.
    Router::new().fallback_service(tower::service_fn(move |request: Request| {
        let api_service = api_service.clone();
        async move { Ok::<Response, Infallible>(respond(&api_service, request).await) }
    }))
}

async fn respond(api_service: &ApiService, mut request: Request) -> Response {
    let arrived = std::mem::take(request.extensions_mut());
    let prefix = arrived.get::<NestedPath>().map_or("", |path| path.as_str().trim_end_matches('/')).to_owned();
    // No other extension of the application: its path parameters would be mistaken for those of these routes.
    if let Some(ConnectInfo(address)) = arrived.get::<ConnectInfo<SocketAddr>>() {
        request.extensions_mut().insert(Peer(address.ip()));
    }
    request.extensions_mut().insert(Prefix(prefix));
    api_service.respond(request).await
}

/// Removes the configured base path from the request's path, and returns the prefix of links and redirects. A proxy may
/// have removed the base path before; probes that reach the server directly do not have it.
pub fn enter(site: &Site, request: &mut Request) -> String {
    let base = site.base_path.as_str();
    if base.is_empty() {
        return Prefix::of(request.extensions()).to_owned();
    }
    request.extensions_mut().insert(Prefix(base.to_owned()));
    let uri = request.uri();
    let rest = uri.path().strip_prefix(base).filter(|rest| rest.is_empty() || rest.starts_with('/'));
    if let Some(rest) = rest {
        let path = if rest.is_empty() { "/" } else { rest };
        let target = uri.query().map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"));
        let mut parts = uri.clone().into_parts();
        // The rest of a path that was parsed before; if it cannot be parsed, the request stays as it is.
        parts.path_and_query = target.parse().ok().or(parts.path_and_query);
        if let Ok(uri) = Uri::from_parts(parts) {
            *request.uri_mut() = uri;
        }
    }
    base.to_owned()
}

/// Adds the prefix to redirects.
pub fn within(prefix: &str, mut response: Response) -> Response {
    if let Some(location) = response.headers_mut().get_mut(LOCATION).filter(|_| !prefix.is_empty()) {
        let moved = location.to_str().ok().filter(|path| path.starts_with('/')).map(|path| format!("{prefix}{path}"));
        if let Some(moved) = moved.and_then(|path| HeaderValue::try_from(path).ok()) {
            *location = moved;
        }
    }
    response
}
