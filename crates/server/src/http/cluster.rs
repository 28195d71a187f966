//! The fleet: workers, nodes, who leads.

use axum::extract::State;
use convoke_core::ports::store::{NodeRecord, WorkerRecord};
use convoke_core::{Epoch, NodeId};
use serde::Serialize;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::AppState;
use super::body::{self, NoParams};
use super::error::ApiResult;
use super::openapi as doc;

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(workers)).routes(routes!(nodes)).routes(routes!(cluster))
}

#[derive(Serialize)]
struct Workers {
    workers: Vec<WorkerRecord>,
}

/// All workers
#[utoipa::path(get, path = "/v1/workers", tag = "cluster", responses((status = 200, body = doc::Workers), doc::Refused))]
async fn workers(State(state): State<AppState>, _: NoParams) -> ApiResult {
    let workers = state.coordinator.workers().await?;
    Ok(body::ok(&Workers { workers }))
}

#[derive(Serialize)]
struct Nodes {
    nodes: Vec<NodeRecord>,
}

/// All coordinator nodes
#[utoipa::path(get, path = "/v1/nodes", tag = "cluster", responses((status = 200, body = doc::Nodes), doc::Refused))]
async fn nodes(State(state): State<AppState>, _: NoParams) -> ApiResult {
    let nodes = state.coordinator.nodes().await?;
    Ok(body::ok(&Nodes { nodes }))
}

#[derive(Serialize)]
struct Cluster {
    leader: Option<NodeId>,
    epoch: Epoch,
    nodes: Vec<NodeRecord>,
    /// Jobs on their way from one node to another. A node on its own has nobody to hand them to.
    handoffs: [(); 0],
}

/// Who leads, and everybody else
#[utoipa::path(get, path = "/v1/cluster", tag = "cluster", responses((status = 200, body = doc::Cluster), doc::Refused))]
async fn cluster(State(state): State<AppState>, _: NoParams) -> ApiResult {
    let leadership = state.coordinator.cluster();
    let nodes = state.coordinator.nodes().await?;
    Ok(body::ok(&Cluster { leader: leadership.leader, epoch: leadership.epoch, nodes, handoffs: [] }))
}
