//! The fleet: workers, nodes, the leader, and the handoffs between nodes.

use std::time::Duration;

use axum::extract::{Request, State};
use convoke_core::election::{BreakerStatus, Metrics};
use convoke_core::jobs::wire::NodeState;
use convoke_core::jobs::{Ownership, RateLimit, Status};
use convoke_core::ports::store::{InFlight, NodeRecord, WorkerRecord};
use convoke_core::{Epoch, ExecutionId, JobId, JobType, NodeId, QueueName, WorkerId};
use convoke_runtime::jobs::{BackendState, Belief, NAMESPACE};
use http::StatusCode;
use jiff::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::AppState;
use super::body::{self, NoParams, Nothing, SMALL_BYTES_MAX, Segment};
use super::error::ApiResult;
use super::openapi as doc;

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(workers))
        .routes(routes!(worker))
        .routes(routes!(nodes))
        .routes(routes!(node))
        .routes(routes!(node_jobs))
        .routes(routes!(drain))
        .routes(routes!(cluster))
}

/// All workers.
#[derive(Serialize, ToSchema)]
struct Workers {
    workers: Vec<WorkerRecord>,
}

/// All workers
#[utoipa::path(get, path = "/v1/workers", tag = "cluster", responses((status = 200, body = Workers), doc::Refused))]
async fn workers(State(state): State<AppState>, _: NoParams) -> ApiResult {
    let workers = state.coordinator.workers().await?;
    Ok(body::ok(&Workers { workers }))
}

/// One worker
#[utoipa::path(get, path = "/v1/workers/{id}", tag = "cluster", params(doc::WorkerPath),
    responses((status = 200, body = WorkerRecord), doc::Refused))]
async fn worker(State(state): State<AppState>, Segment(id): Segment<WorkerId>, _: NoParams) -> ApiResult {
    Ok(body::ok(&state.coordinator.worker(&id).await?))
}

/// All coordinator nodes.
#[derive(Serialize, ToSchema)]
struct Nodes {
    nodes: Vec<NodeRecord>,
}

/// All coordinator nodes
#[utoipa::path(get, path = "/v1/nodes", tag = "cluster", responses((status = 200, body = Nodes), doc::Refused))]
async fn nodes(State(state): State<AppState>, _: NoParams) -> ApiResult {
    let nodes = state.coordinator.nodes().await?;
    Ok(body::ok(&Nodes { nodes }))
}

/// One coordinator node
#[utoipa::path(get, path = "/v1/nodes/{id}", tag = "cluster", params(doc::NodePath),
    responses((status = 200, body = NodeRecord), doc::Refused))]
async fn node(State(state): State<AppState>, Segment(id): Segment<NodeId>, _: NoParams) -> ApiResult {
    Ok(body::ok(&state.coordinator.node_view(&id).await?))
}

/// Drain a coordinator node
///
/// It hands its runs over to the others and exits, as on SIGTERM. Any node accepts the request, and responds once the
/// node drains; `GET /v1/nodes/{id}` then shows it as `draining` and, once it has exited, as `left`.
#[utoipa::path(post, path = "/v1/nodes/{id}/drain", tag = "cluster", params(doc::NodePath),
    responses((status = 202, description = "The node drains", body = NodeRecord), doc::Refused))]
async fn drain(
    State(state): State<AppState>,
    Segment(id): Segment<NodeId>,
    _: NoParams,
    request: Request,
) -> ApiResult {
    let Nothing {} = body::parse_or_default(request, SMALL_BYTES_MAX).await?;
    state.coordinator.request_drain(&id).await?;
    let node = state.coordinator.node_view(&id).await?;
    Ok(body::json(StatusCode::ACCEPTED, &node, 256))
}

/// Runs whose events a node records.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct OwnedRuns<'a> {
    node_id: NodeId,
    jobs: Vec<OwnedRun<'a>>,
}

/// A run whose events a node records.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct OwnedRun<'a> {
    job_id: JobId,
    execution_id: ExecutionId,
    #[serde(rename = "type")]
    job_type: &'a JobType,
    queue: &'a QueueName,
    status: Status,
    attempt: u32,
    worker_id: Option<&'a WorkerId>,
    ownership: Ownership,
    dispatched_at: Timestamp,
}

/// The first 100 runs whose events a node records
///
/// A run that ends at once is never stored as owned, so it is not among them; `jobCount` of the node includes it.
#[utoipa::path(get, path = "/v1/nodes/{id}/jobs", tag = "cluster", params(doc::NodePath),
    responses((status = 200, body = OwnedRuns), doc::Refused))]
async fn node_jobs(State(state): State<AppState>, Segment(id): Segment<NodeId>, _: NoParams) -> ApiResult {
    let runs = state.coordinator.jobs_of(&id).await?;
    if runs.is_empty() {
        // A node that owns nothing is valid; an unknown one is an error.
        state.coordinator.node_view(&id).await?;
    }
    let jobs = runs.iter().map(|run| OwnedRun {
        job_id: run.job,
        execution_id: run.execution,
        job_type: &run.job_type,
        queue: &run.queue,
        status: run.status,
        attempt: run.attempt,
        worker_id: run.worker.as_ref(),
        ownership: run.ownership,
        dispatched_at: run.dispatched_at,
    });
    Ok(body::ok(&OwnedRuns { node_id: id, jobs: jobs.collect() }))
}

/// The cluster as the responding node knows it.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Cluster {
    /// The holder of the lease, as the responding node knows it; null once the lease has expired.
    leader: Option<NodeId>,
    epoch: Epoch,
    /// The node that responds.
    answered_by: NodeId,
    /// When the responding node last read or renewed the lease.
    as_of: Option<Timestamp>,
    backends: Vec<Backend>,
    nodes: Vec<ClusterNode>,
    /// When the nodes were read: earlier than now while the store is unreachable.
    nodes_as_of: Timestamp,
    /// The first 100 runs on their way from one node to another.
    handoffs: Vec<Handoff>,
    /// How many such runs there are, counted up to 10,000; null while the store is unreachable.
    #[schema(format = Int64)]
    handoffs_total: Option<usize>,
    rate_limits: RateLimits,
    /// The election among the nodes, as the responding node sees it.
    election: Option<Election>,
}

/// Rate limits of the configuration of the responding node.
#[derive(Serialize, ToSchema)]
struct RateLimits {
    /// The limit of all queues together.
    global: Option<RateLimit>,
    /// The limit of each queue that has none of its own.
    default: Option<RateLimit>,
}

/// A backend as the responding node reaches it.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Backend {
    /// `Store` or `Bus`.
    #[schema(example = "Store")]
    component: &'static str,
    is_reachable: bool,
    /// When it became reachable or unreachable.
    since: Timestamp,
    /// The last error of a backend that is unreachable.
    detail: Option<String>,
}

/// The election among the nodes.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Election {
    #[schema(example = "coordinator")]
    namespace: &'static str,
    /// Whether the responding node leads.
    is_leader: bool,
    metrics: Metrics,
    breaker: BreakerStatus,
}

/// A node, as the responding node sees it.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct ClusterNode {
    #[serde(flatten)]
    record: NodeRecord,
    /// The term of its last heartbeat; null before the first.
    epoch: Option<Epoch>,
    /// Whom it believes to lead, by its last heartbeat; null before the first.
    believes: Option<Believes>,
    /// How long the responding node has received no heartbeat of it.
    #[schema(value_type = String, example = "2s500ms")]
    #[serde(with = "convoke_core::duration")]
    heartbeat_age: Duration,
    draining: bool,
}

/// Whom a node believes to lead.
#[derive(Serialize, ToSchema)]
#[schema(as = Belief)]
#[serde(rename_all = "camelCase")]
struct Believes {
    /// Null if it knows of no leader.
    leader: Option<NodeId>,
    epoch: Epoch,
    /// When it last read or renewed the lease, by its clock.
    lease_read_at: Option<Timestamp>,
    /// When it reported this, by its clock.
    as_of: Timestamp,
}

impl From<Belief> for Believes {
    fn from(Belief { leader, epoch, lease_read_at, at }: Belief) -> Self {
        Believes { leader, epoch, lease_read_at, as_of: at }
    }
}

/// A run on its way from one node to another.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Handoff {
    job_id: JobId,
    execution_id: ExecutionId,
    #[serde(rename = "type")]
    job_type: JobType,
    queue: QueueName,
    /// The node that hands it over.
    from_node: Option<NodeId>,
    ownership: Ownership,
}

impl From<BackendState> for Backend {
    fn from(BackendState { component, is_reachable, since, detail }: BackendState) -> Self {
        Backend { component, is_reachable, since, detail }
    }
}

impl From<InFlight> for Handoff {
    fn from(run: InFlight) -> Self {
        Handoff {
            job_id: run.job,
            execution_id: run.execution,
            job_type: run.job_type,
            queue: run.queue,
            from_node: run.owner,
            ownership: run.ownership,
        }
    }
}

/// The leader, all nodes, and the handoffs between them
///
/// As the responding node knows it: it also responds while the store or the bus is unavailable, and `backends` shows
/// that. At most one node has the role `leader`: the holder of the lease, while it lasts. A node is `active`, `suspect`
/// (silent for more than one and a half heartbeats), `draining`, `dead` or `left`; one that is gone is listed for an
/// hour. The first 100 handoffs are shown; `handoffsTotal` counts them, up to 10,000.
#[utoipa::path(get, path = "/v1/cluster", tag = "cluster", responses((status = 200, body = Cluster), doc::Refused))]
async fn cluster(State(state): State<AppState>, _: NoParams) -> ApiResult {
    let coordinator = &state.coordinator;
    let known = coordinator.known_nodes().await?;
    let handoffs = coordinator.known_handoffs().await;
    let (leadership, now) = (coordinator.cluster(), coordinator.clock().now());
    let mut backends = coordinator.backends();
    if let ([store, _], Some(error)) = (&mut backends, &known.error)
        && store.is_reachable
    {
        (store.is_reachable, store.since, store.detail) = (false, now, Some(error.to_string()));
    }
    let nodes = known.nodes.into_iter().map(|record| ClusterNode {
        epoch: coordinator.belief_of(&record.node_id).map(|belief| belief.epoch),
        believes: coordinator.belief_of(&record.node_id).map(Believes::from),
        // Whole milliseconds: the time in transit of a heartbeat makes more digits meaningless.
        heartbeat_age: Duration::from_millis(coordinator.silence_of(&record.node_id).as_millis() as u64),
        draining: record.state == NodeState::Draining,
        // Of the same moment as `leader`: it may have changed since the nodes were read.
        record: NodeRecord { role: leadership.role_of(&record.node_id), ..record },
    });
    let nodes = nodes.collect();
    let election = coordinator.election().map(|(metrics, breaker)| Election {
        namespace: NAMESPACE,
        is_leader: leadership.is_me,
        metrics,
        breaker,
    });
    Ok(body::ok(&Cluster {
        leader: leadership.leader,
        epoch: leadership.epoch,
        answered_by: coordinator.node_id().clone(),
        as_of: leadership.seen.map(|seen| now - seen.elapsed()),
        backends: backends.into_iter().map(Backend::from).collect(),
        nodes,
        nodes_as_of: known.as_of,
        handoffs_total: handoffs.as_ref().map(|handoffs| handoffs.total),
        handoffs: handoffs.into_iter().flat_map(|handoffs| handoffs.shown).map(Handoff::from).collect(),
        rate_limits: RateLimits {
            global: coordinator.rate_limits().global,
            default: coordinator.rate_limits().default,
        },
        election,
    }))
}
