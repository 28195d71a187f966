//! The HTTP API of a coordinator.
//!
//! Every response is JSON, every error has one form (`error`), and no request may cause a 500 or stop the server:
//! bodies, headers, connections and streams are all limited, and a panic in a handler is caught, reported to the client
//! and counted. Handlers are thin: they parse a request, call the coordinator and write its result.
//!
//! Connections are served by hyper directly. Access is checked before routing, in one place (`access`), so that no
//! route can be added without it.

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod access;
mod audit;
mod body;
mod bulk;
mod cluster;
mod dashboard;
mod dead_letters;
mod elections;
mod error;
mod events;
mod fuzz;
mod gateway;
mod history;
mod jobs;
mod listen;
mod memory;
mod mesh;
mod mount;
mod openapi;
mod process_metrics;
mod queues;
pub mod recorder;
mod schedules;
mod serve;
mod sessions;
mod shards;
mod site;
mod stalled;
mod system;
#[cfg(test)]
mod tests;

use std::ops::Deref;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use convoke_runtime::jobs::Coordinator;
use convoke_runtime::mesh::Meshes;
use futures_util::FutureExt;
use http::{Method, StatusCode, Uri};
use metrics::Counter;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tower::Service;
use utoipa_axum::router::OpenApiRouter;

use access::Sessions;
pub use access::{Access, Policy, PublicPaths, Role, SESSION_TTL, Token};
pub use dashboard::{Color, DashboardSettings};
pub use error::ApiError;
#[doc(hidden)]
pub use fuzz::play_body;
pub use listen::{AccessOptions, GuardedListener, ListenError, host_and_port, resolve};
use memory::{Memory, Share};
pub use mount::router;
pub use serve::{serve, serve_pages, serve_requests};
pub use shards::Shards;
pub use site::Site;

/// Requests and responses in JSON, for pages that are served beside the API.
pub mod response {
    pub use super::body::{from_slice, json, ok};
}

/// The version and backends, for people: passwords are removed by the caller.
#[derive(Debug, Clone)]
pub struct Info {
    /// The version of the program.
    pub version: String,
    /// The store's address.
    pub store: String,
    /// The bus's address.
    pub bus: String,
    /// The address of the leases.
    pub leases: String,
}

/// The state that handlers share.
#[derive(Clone)]
pub struct AppState(Arc<Shared>);

/// The fields of [`AppState`].
pub struct Shared {
    /// The node.
    pub coordinator: Coordinator,
    /// `None` if shards are switched off.
    pub shards: Option<Shards>,
    /// `None` if no Redis with meshes is configured.
    pub meshes: Option<Meshes>,
    /// The rules of access.
    pub access: Policy,
    /// The version and the backends.
    pub info: Info,
    /// Where the server is reached, and what it shows there.
    pub site: Site,
    /// The source of `/metrics`.
    pub metrics: PrometheusHandle,
    /// Cancelled when the server closes: waiting requests then respond at once.
    pub closing: CancellationToken,
    /// How many more event streams may be opened.
    pub streams: Arc<Semaphore>,
    pub(crate) memory: Arc<Memory>,
    pub(crate) sessions: Sessions,
    counts: Counts,
}

impl AppState {
    /// Returns the state of one node's API.
    pub fn new(
        coordinator: Coordinator,
        shards: Option<Shards>,
        access: impl Into<Policy>,
        info: Info,
        site: Site,
        metrics: PrometheusHandle,
    ) -> Self {
        AppState::with_meshes(coordinator, shards, None, access, info, site, metrics)
    }

    /// The same, with the meshes that the node can reach.
    pub fn with_meshes(
        coordinator: Coordinator,
        shards: Option<Shards>,
        meshes: Option<Meshes>,
        access: impl Into<Policy>,
        info: Info,
        site: Site,
        metrics: PrometheusHandle,
    ) -> Self {
        AppState(Arc::new(Shared {
            coordinator,
            shards,
            meshes,
            access: access.into(),
            info,
            site,
            metrics,
            closing: CancellationToken::new(),
            streams: Arc::new(Semaphore::new(events::STREAMS_MAX)),
            memory: Arc::default(),
            sessions: Sessions::default(),
            counts: Counts::new(),
        }))
    }
}

impl Deref for AppState {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

/// Requests by the class of their status. The counters are found once: every request uses them.
struct Counts {
    classes: [Counter; 5],
    panics: Counter,
}

impl Counts {
    fn new() -> Self {
        audit::describe();
        metrics::describe_counter!("convoke_http_requests_total", "Responses sent, by class of status.");
        metrics::describe_counter!("convoke_http_panics_total", "Requests whose handler panicked.");
        let class = |class: &'static str| metrics::counter!("convoke_http_requests_total", "status" => class);
        Counts {
            classes: ["1xx", "2xx", "3xx", "4xx", "5xx"].map(class),
            panics: metrics::counter!("convoke_http_panics_total"),
        }
    }

    fn count_response(&self, status: StatusCode) {
        if let Some(counter) = self.classes.get(usize::from(status.as_u16() / 100).wrapping_sub(1)) {
            counter.increment(1);
        }
    }
}

/// Returns every documented route. The document is made from them, so that neither can be without the other.
fn documented() -> OpenApiRouter<AppState> {
    OpenApiRouter::with_openapi(openapi::preface())
        .merge(system::routes())
        .merge(jobs::routes())
        .merge(bulk::routes())
        .merge(schedules::routes())
        .merge(queues::routes())
        .merge(dead_letters::routes())
        .merge(cluster::routes())
        .merge(shards::routes())
        .merge(history::routes())
        .merge(elections::routes())
        .merge(mesh::routes())
        .merge(events::routes())
        .merge(audit::routes())
        .merge(sessions::routes())
        .merge(gateway::routes())
}

/// The whole service, from the check of access to the catching of panics.
#[derive(Clone)]
pub struct ApiService {
    state: AppState,
    router: Router,
}

impl ApiService {
    /// Returns the service of one node.
    pub fn new(state: AppState) -> Self {
        let (documented, _) = documented().split_for_parts();
        let router = documented
            .merge(openapi::browser())
            .merge(dashboard::routes(&state))
            .fallback(no_such_route)
            .method_not_allowed_fallback(no_such_method)
            .with_state(state.clone());
        ApiService { state, router }
    }

    /// Returns the response to a request.
    pub async fn respond(&self, mut request: Request) -> Response {
        let prefix = mount::enter(&self.state.site, &mut request);
        let share = Share::of(&self.state.memory);
        request.extensions_mut().insert(share.clone());
        // Without the body: for the page of a rejection.
        let head = dashboard::head_of_page(&self.state, &request);
        let response = match access::admit(&self.state, request).await {
            Ok(request) => match audit::Pending::of(&request) {
                None => self.route(request).await,
                Some(act) => self.act(act, request).await,
            },
            Err(refused) => dashboard::page_of_refusal(&self.state, head, refused),
        };
        self.state.counts.count_response(response.status());
        share.finish(mount::within(&prefix, response))
    }

    async fn route(&self, request: Request) -> Response {
        match AssertUnwindSafe(self.router.clone().call(request)).catch_unwind().await {
            Ok(Ok(response)) => response,
            Ok(Err(never)) => match never {},
            Err(_) => self.after_panic(),
        }
    }

    /// Does and records an act of an operator: in a task of its own, so that it is recorded even if the client
    /// disconnects meanwhile.
    async fn act(&self, mut act: audit::Pending, request: Request) -> Response {
        let service = self.clone();
        let task = tokio::spawn(async move {
            act.read_target(&service.state).await;
            let mut response = service.route(request).await;
            act.record(&service.state, &mut response).await;
            response
        });
        task.await.unwrap_or_else(|_| self.after_panic())
    }

    /// The panic itself was logged by the process's hook.
    #[cold]
    fn after_panic(&self) -> Response {
        self.state.counts.panics.increment(1);
        let message = "the request could not be handled; this is a bug, and its trace is in the server's log";
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message).into_response()
    }
}

async fn no_such_route(uri: Uri) -> ApiError {
    ApiError::not_found(format!("there is no route {}; see /docs for the routes", uri.path()))
}

async fn no_such_method(method: Method, uri: Uri) -> ApiError {
    let message = format!("{} does not support {method}", uri.path());
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
}
