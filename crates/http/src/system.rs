//! For operators: probes and metrics.

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use metrics_exporter_prometheus::PrometheusHandle;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::AppState;
use super::access::Caller;
use super::body;
use super::error::{ApiError, ApiResult, ErrorBody};
use super::mount::Prefix;
use super::openapi as doc;

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(health))
        .routes(routes!(livez))
        .routes(routes!(readyz))
        .routes(routes!(metrics))
        .routes(routes!(openapi))
}

/// Whether every part of a node works.
#[derive(Serialize, ToSchema)]
struct Health {
    /// `healthy` if all checks pass, otherwise `unhealthy`.
    #[schema(example = "healthy")]
    status: &'static str,
    checks: Vec<HealthCheck>,
}

/// Whether one part works.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct HealthCheck {
    #[schema(example = "Coordinator")]
    component: &'static str,
    is_healthy: bool,
    /// The error. Present only if the check fails, and only for a token that may read.
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

/// Whether every part works
///
/// The store and the bus are probed at most once a second, however often this is requested.
#[utoipa::path(get, path = "/health", tag = "system", security(()), responses(
    (status = 200, description = "Every part works", body = Health),
    (status = 503, description = "At least one part does not work; tokens that may read see the error", body = Health),
))]
async fn health(State(state): State<AppState>, request: Request) -> Response {
    let mut checks = state.coordinator.health().await;
    if let Some(shards) = &state.shards {
        let detail = shards.health().err();
        checks.push(convoke_runtime::jobs::Check { component: "Shards", is_healthy: detail.is_none(), detail });
    }
    let healthy = checks.iter().all(|check| check.is_healthy);
    // A backend's error may contain addresses and databases: only for tokens that may read.
    let shows_details = Caller::may_read(request.extensions());
    let checks = checks.into_iter().map(|check| HealthCheck {
        component: check.component,
        is_healthy: check.is_healthy,
        detail: check.detail.filter(|_| shows_details),
    });
    let checks = checks.collect();
    let (status, word) =
        if healthy { (StatusCode::OK, "healthy") } else { (StatusCode::SERVICE_UNAVAILABLE, "unhealthy") };
    body::json(status, &Health { status: word, checks }, 256)
}

/// A probe that succeeded.
#[derive(Serialize, ToSchema)]
struct Probe {
    #[schema(example = "ready")]
    status: &'static str,
}

/// Whether the process is up
#[utoipa::path(get, path = "/livez", tag = "system", security(()), responses((status = 200, body = Probe)))]
async fn livez() -> Response {
    body::ok(&Probe { status: "alive" })
}

/// Whether the node accepts work
#[utoipa::path(get, path = "/readyz", tag = "system", security(()), responses(
    (status = 200, body = Probe),
    (status = 503, description = "It is starting or draining, or cannot reach its store or its bus", body = ErrorBody),
))]
async fn readyz(State(state): State<AppState>) -> ApiResult {
    match state.coordinator.unready() {
        None => Ok(body::ok(&Probe { status: "ready" })),
        Some(why) => Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", why)),
    }
}

/// Metrics in the format of Prometheus
#[utoipa::path(get, path = "/metrics", tag = "system", responses(
    (status = 200, body = String, content_type = "text/plain"),
    doc::Refused,
))]
async fn metrics(State(state): State<AppState>) -> Response {
    // If the store is unavailable, the other figures are all the more important.
    if let Err(error) = state.coordinator.refresh_gauges().await {
        tracing::debug!(%error, "reading the store failed; gauges are stale");
    }
    page(&state.metrics)
}

/// Returns the response of `/metrics`.
pub fn page(metrics: &PrometheusHandle) -> Response {
    let text = metrics.render() + &crate::process_metrics::text();
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

/// This document
#[utoipa::path(get, path = "/openapi.json", tag = "system", security(()), responses(
    (status = 200, body = Object, content_type = "application/json"),
))]
async fn openapi(request: Request) -> Response {
    let text = super::openapi::text_at(Prefix::of(request.extensions()));
    ([(CONTENT_TYPE, "application/json")], text).into_response()
}
