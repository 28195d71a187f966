//! The shards of every service, and who owns them.

use axum::extract::State;
use convoke_core::{NodeId, ServiceName};
use convoke_runtime::shards::{ServiceStatus, ShardsState};
use http::StatusCode;
use serde::Serialize;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::AppState;
use super::body::{self, NoParams, Segment};
use super::error::{ApiError, ApiResult};
use super::openapi as doc;
use crate::shards::Shards;

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(services)).routes(routes!(service))
}

#[derive(Serialize)]
struct Services {
    /// The node that coordinates shards: the leader.
    coordinator: Option<NodeId>,
    /// Where this node listens for workers; none where another does.
    listening: Option<String>,
    services: Vec<ServiceStatus>,
}

/// All services that have shards
///
/// The node that leads has them. Another answers with none, and says which node that is.
#[utoipa::path(get, path = "/v1/shards", tag = "shards", responses((status = 200, body = doc::ShardServices), doc::Refused))]
async fn services(State(state): State<AppState>, _: NoParams) -> ApiResult {
    let Some(Shards { view, .. }) = &state.shards else {
        return Ok(body::ok(&Services { coordinator: None, listening: None, services: Vec::new() }));
    };
    let listening = match view.state() {
        ShardsState::Listening(address) => Some(address),
        _ => None,
    };
    let coordinator = state.coordinator.cluster().leader;
    Ok(body::ok(&Services { coordinator, listening, services: view.services() }))
}

/// One service: its workers, and which shards each has
///
/// The node that leads knows. Another answers 503, and says which node that is.
#[utoipa::path(get, path = "/v1/shards/{service}", tag = "shards", params(doc::ServicePath),
    responses((status = 200, body = doc::ShardService), doc::Refused))]
async fn service(State(state): State<AppState>, Segment(name): Segment<ServiceName>, _: NoParams) -> ApiResult {
    let Some(Shards { view, .. }) = &state.shards else {
        return Err(ApiError::not_found("this server coordinates no shards: it was started with --shards off"));
    };
    match (view.service(&name), view.state()) {
        (Some(service), _) => Ok(body::ok(&service)),
        (None, ShardsState::Listening(_)) => {
            Err(ApiError::not_found(format!("no worker of a service {:?} has registered", name.as_str())))
        }
        (None, _) => Err(elsewhere(&state)),
    }
}

/// Only the node that leads knows.
fn elsewhere(state: &AppState) -> ApiError {
    let cluster = state.coordinator.cluster();
    let message = match cluster.leader {
        Some(leader) if !cluster.is_me => format!("node {leader} coordinates shards: ask there"),
        _ => "nobody listens for shard workers at present".into(),
    };
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message)
}
