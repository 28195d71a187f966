//! The shards of every service, and their owners.

use std::sync::Arc;

use axum::extract::State;
use convoke_core::{NodeId, ServiceName};
use convoke_runtime::jobs::Leadership;
use convoke_runtime::shards::{ServiceStatus, ShardsRelay, ShardsState, ShardsView};
use http::StatusCode;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::AppState;
use super::body::{self, NoParams, Segment};
use super::error::{ApiError, ApiResult};
use super::openapi as doc;

/// The shard coordinator, for the rest of the server.
#[derive(Clone)]
pub struct Shards {
    /// Services, workers and shards, as this node knows them.
    pub view: ShardsView,
    /// Fetches the view from the node that coordinates.
    pub relay: Arc<ShardsRelay>,
    /// The address was configured: then a failure to listen on it is an error.
    pub is_wanted: bool,
}

impl Shards {
    /// Returns why it does not work as configured, if it does not.
    pub fn health(&self) -> Result<(), String> {
        match self.view.state() {
            ShardsState::Refused(why) if self.is_wanted => Err(why),
            _ => Ok(()),
        }
    }
}

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(services)).routes(routes!(service))
}

/// All services that have shards.
#[derive(Serialize, ToSchema)]
#[schema(as = ShardServices)]
pub(crate) struct Services {
    /// The node that coordinates shards: the leader.
    pub coordinator: Option<NodeId>,
    /// The address on which this node listens for workers; null if another node does.
    #[schema(example = "tcp://127.0.0.1:5555")]
    pub listening: Option<String>,
    #[schema(value_type = Vec<ServiceStatus>)]
    pub services: Vec<Value>,
}

/// All services that have shards
///
/// The leader has them. Another node asks it over the bus; if it does not reply, `services` is empty and `coordinator`
/// names it.
#[utoipa::path(get, path = "/v1/shards", tag = "shards", responses((status = 200, body = Services), doc::Refused))]
async fn services(State(state): State<AppState>, _: NoParams) -> ApiResult {
    Ok(body::ok(&read_services(&state).await))
}

/// Returns all services, of this node or of the one that coordinates.
pub(crate) async fn read_services(state: &AppState) -> Services {
    let Some(Shards { view, relay, .. }) = &state.shards else {
        return Services { coordinator: None, listening: None, services: Vec::new() };
    };
    let listening = match view.state() {
        ShardsState::Listening(address) => Some(address),
        _ => None,
    };
    let cluster = state.coordinator.cluster();
    let services = if is_elsewhere(&cluster, view) {
        relay.ask(None).await.map(|reply| reply.services).unwrap_or_default()
    } else {
        view.services().iter().map(|service| json!(service)).collect()
    };
    Services { coordinator: cluster.leader, listening, services }
}

/// One service: its workers, and the shards of each
///
/// The leader has them. Another node asks it over the bus; if it does not reply, the response is 503 and names it.
#[utoipa::path(get, path = "/v1/shards/{service}", tag = "shards", params(doc::ServicePath),
    responses((status = 200, body = ServiceStatus), doc::Refused))]
async fn service(State(state): State<AppState>, Segment(name): Segment<ServiceName>, _: NoParams) -> ApiResult {
    Ok(body::ok(&read_service(&state, &name).await?))
}

/// Returns one service, of this node or of the one that coordinates.
pub(crate) async fn read_service(state: &AppState, name: &ServiceName) -> ApiResult<Value> {
    let Some(Shards { view, relay, .. }) = &state.shards else {
        return Err(ApiError::not_found("this server coordinates no shards: it was started with --shards off"));
    };
    let unknown = || ApiError::not_found(format!("no worker of a service {:?} has registered", name.as_str()));
    match (view.service(name), view.state()) {
        (Some(service), _) => Ok(json!(service)),
        (None, ShardsState::Listening(_)) => Err(unknown()),
        (None, _) if is_elsewhere(&state.coordinator.cluster(), view) => match relay.ask(Some(name)).await {
            Ok(reply) if !reply.is_too_large => reply.services.into_iter().next().ok_or_else(unknown),
            _ => Err(elsewhere(state)),
        },
        (None, _) => Err(elsewhere(state)),
    }
}

/// Returns whether another node coordinates shards.
fn is_elsewhere(cluster: &Leadership, view: &ShardsView) -> bool {
    cluster.leader.is_some() && !cluster.is_me && !matches!(view.state(), ShardsState::Listening(_))
}

/// Only the leader has the shards.
fn elsewhere(state: &AppState) -> ApiError {
    let cluster = state.coordinator.cluster();
    let message = match cluster.leader {
        Some(leader) if !cluster.is_me => {
            format!("node {leader} coordinates shards and did not reply: try again, or send the request to that node")
        }
        _ => "no node listens for shard workers now".into(),
    };
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message)
}
