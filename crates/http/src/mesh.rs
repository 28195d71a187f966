//! The meshes that this node can reach: their instances, and calls to them.

use std::time::Duration;

use axum::extract::{Request, State};
use convoke_core::error::Invalid;
use convoke_core::ids::check_name;
use convoke_core::mesh::envelope::DATA_BYTES_MAX;
use convoke_core::mesh::{InstanceId, MeshError, MeshFigures, MeshNode};
use convoke_core::{Json, NodeId};
use convoke_runtime::mesh::Meshes;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::AppState;
use super::audit::Noted;
use super::body::{self, NoParams, Segment};
use super::error::{ApiError, ApiResult};
use super::openapi as doc;

/// Upper bound of the timeout of a call.
const TIMEOUT_MAX: Duration = Duration::from_secs(60);
/// Bytes of a request beside its data.
const FRAME_BYTES: usize = 4 << 10;

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(show)).routes(routes!(call))
}

/// The meshes that this node can reach.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct MeshList {
    /// The node that responds.
    answered_by: NodeId,
    /// The address of the Redis of the meshes; null if none is configured.
    address: Option<String>,
    /// The names of the configuration (`dashboard.meshes`). Redis does not list names: ask for any other by its name.
    meshes: Vec<String>,
}

/// The meshes that this node can reach
#[utoipa::path(get, path = "/v1/mesh", tag = "mesh", responses((status = 200, body = MeshList), doc::Refused))]
async fn list(State(state): State<AppState>, _: NoParams) -> ApiResult {
    let meshes = state.meshes.as_ref();
    Ok(body::ok(&MeshList {
        answered_by: state.coordinator.node_id().clone(),
        address: meshes.map(|meshes| meshes.address().to_owned()),
        meshes: meshes.map(|meshes| meshes.names().to_vec()).unwrap_or_default(),
    }))
}

/// The instances of a mesh.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MeshInstances {
    pub mesh: String,
    /// The live instances, by number.
    pub instances: Vec<MeshInstance>,
}

/// An instance of a mesh.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MeshInstance {
    #[schema(value_type = u64, minimum = 1)]
    pub instance_id: InstanceId,
    pub hostname: String,
    /// Time since its last heartbeat, by the clock of Redis.
    #[schema(value_type = String, example = "2s")]
    #[serde(with = "convoke_core::duration")]
    pub heartbeat_age: Duration,
    /// What it published with its last heartbeat; null if it publishes nothing, as instances of MeshService.
    pub figures: Option<MeshFigures>,
}

impl From<MeshNode> for MeshInstance {
    fn from(node: MeshNode) -> Self {
        let MeshNode { instance_id, hostname, idle, figures, .. } = node;
        let heartbeat_age = Duration::from_millis(idle.as_millis() as u64);
        MeshInstance { instance_id, hostname, heartbeat_age, figures }
    }
}

/// The instances of a mesh: host, age of the heartbeat, calls in flight, latencies
///
/// A mesh that nobody has joined has no instances.
#[utoipa::path(get, path = "/v1/mesh/{mesh}", tag = "mesh", params(doc::MeshPath),
    responses((status = 200, body = MeshInstances), doc::Refused))]
async fn show(State(state): State<AppState>, Segment(name): Segment<MeshName>, _: NoParams) -> ApiResult {
    Ok(body::ok(&read(&state, &name.0).await?))
}

/// Reads the instances of a mesh.
pub(crate) async fn read(state: &AppState, mesh: &str) -> ApiResult<MeshInstances> {
    let nodes = meshes(state)?.nodes(mesh).await?;
    Ok(MeshInstances { mesh: mesh.to_owned(), instances: nodes.into_iter().map(MeshInstance::from).collect() })
}

/// A call to an instance.
#[derive(Deserialize, ToSchema)]
#[schema(as = MeshCallRequest)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Call {
    #[schema(value_type = u64, minimum = 1)]
    instance_id: InstanceId,
    /// Names the handler
    #[serde(rename = "type")]
    request_type: String,
    /// Any JSON, at most 1 MiB
    #[schema(value_type = Json)]
    data: Option<Json>,
    /// How long to wait for a reply or a heartbeat, at most `1m`; the default is `mesh.request_timeout`
    #[schema(value_type = Option<String>, example = "10s")]
    #[serde(default, with = "convoke_core::duration::option")]
    timeout: Option<Duration>,
}

/// The reply to a call.
#[derive(Serialize, ToSchema)]
#[schema(as = MeshReply)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Reply {
    /// What the handler returned.
    #[schema(value_type = Json)]
    pub data: Json,
    /// From the call to its reply.
    #[schema(value_type = String, example = "3ms")]
    #[serde(with = "convoke_core::duration")]
    pub took: Duration,
}

/// Call an instance of a mesh
///
/// The node joins the mesh for the time of the call. A call is sent at most once; after a timeout the handler may have run.
#[utoipa::path(post, path = "/v1/mesh/{mesh}/call", tag = "mesh", params(doc::MeshPath), request_body = Call,
    responses((status = 200, body = Reply), (status = 502, body = crate::error::ErrorBody,
        description = "The handler failed, or did not reply in time"), doc::Refused))]
async fn call(
    State(state): State<AppState>,
    Segment(name): Segment<MeshName>,
    _: NoParams,
    request: Request,
) -> ApiResult {
    let Call { instance_id, request_type, data, timeout } = body::parse(request, DATA_BYTES_MAX + FRAME_BYTES).await?;
    let data = data.unwrap_or_else(Json::null);
    let reply = send(&state, &name.0, instance_id, &request_type, &data, timeout).await?;
    Ok(noted(&name.0, instance_id, &request_type).on(body::ok(&reply)))
}

/// Returns what the audit shows of a call.
pub(crate) fn noted(mesh: &str, instance: impl std::fmt::Display, request_type: &str) -> Noted {
    Noted { target: Some(format!("{mesh} {instance} {request_type}")), ..Noted::default() }
}

/// Calls an instance.
pub(crate) async fn send(
    state: &AppState,
    mesh: &str,
    instance: InstanceId,
    request_type: &str,
    data: &Json,
    timeout: Option<Duration>,
) -> ApiResult<Reply> {
    if timeout.is_some_and(|timeout| timeout.is_zero() || timeout > TIMEOUT_MAX) {
        return Err(ApiError::invalid("timeout", "expected more than 0s and at most 1m"));
    }
    let started = Instant::now();
    let text = meshes(state)?.call(mesh, instance, request_type, data, timeout).await.map_err(refused)?;
    let took = Duration::from_millis(started.elapsed().as_millis().max(1) as u64);
    let data = Json::parse(text).map_err(|_| bad_gateway("the reply is no JSON".into()))?;
    Ok(Reply { data, took })
}

fn bad_gateway(message: String) -> ApiError {
    ApiError::new(StatusCode::BAD_GATEWAY, "mesh_call_failed", message)
}

fn refused(error: MeshError) -> ApiError {
    let message = format!("{}: {error}", error.name());
    match error {
        MeshError::Invalid(invalid) => invalid.into(),
        MeshError::NoNode { .. } => ApiError::not_found(message),
        MeshError::Unavailable { source, .. } => source.into(),
        _ => bad_gateway(message),
    }
}

fn meshes(state: &AppState) -> ApiResult<&Meshes> {
    state.meshes.as_ref().ok_or_else(|| {
        ApiError::not_found("this node knows no Redis with meshes: set dashboard.mesh, or use Redis as the bus")
    })
}

/// The name of a mesh.
pub(crate) struct MeshName(pub String);

impl std::str::FromStr for MeshName {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        check_name("mesh", text)?;
        Ok(MeshName(text.to_owned()))
    }
}
