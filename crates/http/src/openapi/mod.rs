//! The document at `/openapi.json`, and the page at `/docs` that shows it.
//!
//! Paths come from the routes, schemas from the types that are sent and received: those of `core` and `runtime`, and
//! the few that a handler declares itself. Their comments are the descriptions that users of the API read. A test
//! compares responses of a running router with the document.

mod flattened;
mod params;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use axum::Router;
use axum::middleware::map_response;
use axum::response::IntoResponse;
use http::StatusCode;
use serde_json::json;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{ContentBuilder, OpenApi, Ref, RefOr, Response, ResponseBuilder};
use utoipa::{IntoResponses, Modify, OpenApi as _};
use utoipa_swagger_ui::{Config, SwaggerUi};

use super::AppState;
use super::error::{ApiError, ErrorBody};
pub use params::*;

#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Convoke",
        description = "Schedules, dispatches and never loses jobs. JSON is camelCase; durations are strings such as `250ms`, \
                       `30s` or `1h30m`; instants are RFC 3339 in UTC. Unknown fields and parameters are refused by name.",
        version = env!("CARGO_PKG_VERSION"),
        license(name = "MIT OR Apache-2.0"),
    ),
    components(schemas(ErrorBody)),
    security((), ("token" = [])),
    modifiers(&Bearer),
    tags(
        (name = "jobs", description = "Enqueue, read, wait, cancel, retry"),
        (name = "schedules", description = "Rules that make jobs: cron expressions and intervals"),
        (name = "queues", description = "Counts and limits of queues"),
        (name = "dead letters", description = "Jobs whose attempts are used up"),
        (name = "worker gateway", description = "How a worker in any language receives runs and reports their results"),
        (name = "cluster", description = "Workers, nodes and the leader"),
        (name = "shards", description = "The owner of each shard of a service"),
        (name = "mesh", description = "Instances of applications, and calls to them"),
        (name = "events", description = "Events of jobs, workers, nodes and leadership"),
        (name = "audit", description = "Acts of operators"),
        (name = "system", description = "Probes and metrics"),
    )
)]
struct Preface;

struct Bearer;

impl Modify for Bearer {
    fn modify(&self, document: &mut OpenApi) {
        let description = "Not needed on loopback. Roles: read, enqueue, worker, admin. From a token with hidden payloads, arguments and \
                           results are null, and errors, messages of progress and log lines are `(hidden)`.";
        let scheme = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some(description)).build();
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(scheme));
    }
}

/// Returns the document without the routes.
pub fn preface() -> OpenApi {
    Preface::openapi()
}

/// Returns the whole document.
pub fn text() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let mut document = super::documented().into_openapi();
        flattened::merge_parts(&mut document);
        document.to_json().expect("the document has string keys only")
    });
    &TEXT
}

/// Returns the whole document of routes that are mounted under `prefix`.
pub fn text_at(prefix: &str) -> Cow<'static, str> {
    match prefix {
        "" => Cow::Borrowed(text()),
        // Inserts the servers at the start of the object.
        prefix => Cow::Owned(text().replacen('{', &format!("{{\"servers\":[{{\"url\":{}}}],", json!(prefix)), 1)),
    }
}

/// Returns the page that shows it, from files inside the binary.
pub fn browser() -> Router<AppState> {
    let config = Config::from("../openapi.json").try_it_out_enabled(true);
    Router::from(SwaggerUi::new("/docs").config(config)).layer(map_response(in_shape))
}

/// Converts the page's own errors, which are plain text.
async fn in_shape(response: axum::response::Response) -> axum::response::Response {
    if !response.status().is_client_error() || response.status() == StatusCode::METHOD_NOT_ALLOWED {
        return response;
    }
    ApiError::not_found("the documentation has no such page").into_response()
}

/// The error responses of every request.
pub struct Refused;

impl IntoResponses for Refused {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        let refusals = [
            ("400", "Invalid input; `field` names it"),
            ("401", "A valid token is required"),
            ("403", "The token's role does not allow it"),
            ("404", "Not found (`unknown_worker`: register the worker again)"),
            ("409", "Conflict with the present state"),
            ("413", "Larger than a limit"),
            ("422", "Well formed, but contradictory or without effect"),
            ("429", "Too many requests; see Retry-After"),
            (
                "503",
                "The store is unavailable or too many requests are in flight (nothing happened), or the outcome is unknown (`unknown_outcome`); see Retry-After",
            ),
        ];
        let response = |description| {
            let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("ErrorBody"))).build();
            ResponseBuilder::new().description(description).content("application/json", content).build()
        };
        refusals.into_iter().map(|(status, description)| (status.into(), RefOr::T(response(description)))).collect()
    }
}
