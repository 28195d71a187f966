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
use http::Extensions;
use http::header::{HeaderValue, LOCATION};

use super::access::Peer;
use super::{ApiService, AppState};

/// The path under which the routes are mounted: empty at the root, `/convoke` under `nest("/convoke", …)`.
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
        async move { Ok::<Response, Infallible>(answer(&api_service, request).await) }
    }))
}

async fn answer(api_service: &ApiService, mut request: Request) -> Response {
    let arrived = std::mem::take(request.extensions_mut());
    let prefix = arrived.get::<NestedPath>().map_or("", |path| path.as_str().trim_end_matches('/')).to_owned();
    // No other extension of the application: its path parameters would be mistaken for those of these routes.
    if let Some(ConnectInfo(address)) = arrived.get::<ConnectInfo<SocketAddr>>() {
        request.extensions_mut().insert(Peer(address.ip()));
    }
    request.extensions_mut().insert(Prefix(prefix.clone()));
    let mut response = api_service.answer(request).await;
    if !prefix.is_empty() {
        within(&prefix, &mut response);
    }
    response
}

/// Adds the prefix to redirects.
fn within(prefix: &str, response: &mut Response) {
    let Some(location) = response.headers_mut().get_mut(LOCATION) else { return };
    let moved = location.to_str().ok().filter(|path| path.starts_with('/')).map(|path| format!("{prefix}{path}"));
    if let Some(moved) = moved.and_then(|path| HeaderValue::try_from(path).ok()) {
        *location = moved;
    }
}
