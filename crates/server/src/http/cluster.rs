//! The fleet: workers, nodes, who leads, and what is on its way between them.

use std::time::Duration;

use axum::extract::State;
use convoke_core::election::{BreakerStatus, Metrics};
use convoke_core::jobs::wire::NodeState;
use convoke_core::jobs::{Ownership, Status};
use convoke_core::ports::store::{InFlight, NodeRecord, WorkerRecord};
use convoke_core::{Epoch, ExecutionId, JobId, JobType, NodeId, QueueName, WorkerId};
use convoke_runtime::jobs::NAMESPACE;
use jiff::Timestamp;
use serde::Serialize;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::AppState;
use super::body::{self, NoParams, Segment};
use super::error::ApiResult;
use super::openapi as doc;

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(workers))
        .routes(routes!(worker))
        .routes(routes!(nodes))
        .routes(routes!(node))
        .routes(routes!(node_jobs))
        .routes(routes!(cluster))
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

/// One worker
#[utoipa::path(get, path = "/v1/workers/{id}", tag = "cluster", params(doc::WorkerPath),
    responses((status = 200, body = doc::Worker), doc::Refused))]
async fn worker(State(state): State<AppState>, Segment(id): Segment<WorkerId>, _: NoParams) -> ApiResult {
    Ok(body::ok(&state.coordinator.worker(&id).await?))
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

/// One coordinator node
#[utoipa::path(get, path = "/v1/nodes/{id}", tag = "cluster", params(doc::NodePath),
    responses((status = 200, body = doc::Node), doc::Refused))]
async fn node(State(state): State<AppState>, Segment(id): Segment<NodeId>, _: NoParams) -> ApiResult {
    Ok(body::ok(&state.coordinator.node_view(&id).await?))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OwnedRuns<'a> {
    node_id: NodeId,
    jobs: Vec<OwnedRun<'a>>,
}

#[derive(Serialize)]
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
/// A run that ends at once is never written down as owned, so it is not among them; `jobCount` of the node has it.
#[utoipa::path(get, path = "/v1/nodes/{id}/jobs", tag = "cluster", params(doc::NodePath),
    responses((status = 200, body = doc::OwnedRuns), doc::Refused))]
async fn node_jobs(State(state): State<AppState>, Segment(id): Segment<NodeId>, _: NoParams) -> ApiResult {
    let runs = state.coordinator.jobs_of(&id).await?;
    if runs.is_empty() {
        // A node that owns nothing is fine; one that is unknown is an error.
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

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Cluster {
    leader: Option<NodeId>,
    epoch: Epoch,
    nodes: Vec<ClusterNode>,
    /// Runs on their way from one node to another.
    handoffs: Vec<Handoff>,
    /// How many there are, where not all are shown.
    handoffs_total: usize,
    /// How the election among the nodes goes, as this one sees it.
    election: Option<Election>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Election {
    namespace: &'static str,
    is_leader: bool,
    metrics: Metrics,
    breaker: BreakerStatus,
}

/// A node as the cluster sees it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ClusterNode {
    #[serde(flatten)]
    record: NodeRecord,
    /// The term that it spoke of last; none where it was not heard yet.
    epoch: Option<Epoch>,
    #[serde(with = "convoke_core::duration")]
    heartbeat_age: Duration,
    draining: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Handoff {
    job_id: JobId,
    execution_id: ExecutionId,
    #[serde(rename = "type")]
    job_type: JobType,
    queue: QueueName,
    from_node: Option<NodeId>,
    ownership: Ownership,
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

/// Who leads, everybody else, and what is on its way between them
///
/// Of the handoffs the first 100 are shown; `handoffsTotal` counts them, up to 10,000.
#[utoipa::path(get, path = "/v1/cluster", tag = "cluster", responses((status = 200, body = doc::Cluster), doc::Refused))]
async fn cluster(State(state): State<AppState>, _: NoParams) -> ApiResult {
    let coordinator = &state.coordinator;
    let leadership = coordinator.cluster();
    let now = coordinator.clock().now();
    let nodes = coordinator.nodes().await?.into_iter().map(|record| {
        let age = Duration::try_from(now.duration_since(record.last_heartbeat_at)).unwrap_or_default();
        ClusterNode {
            epoch: coordinator.epoch_of(&record.node_id),
            // Finer than this is not known: a beat takes its way.
            heartbeat_age: Duration::from_millis(age.as_millis() as u64),
            draining: record.state == NodeState::Draining,
            record,
        }
    });
    let nodes = nodes.collect();
    let handoffs = coordinator.handoffs().await?;
    let election = coordinator.election().map(|(metrics, breaker)| Election {
        namespace: NAMESPACE,
        is_leader: leadership.is_me,
        metrics,
        breaker,
    });
    Ok(body::ok(&Cluster {
        leader: leadership.leader,
        epoch: leadership.epoch,
        nodes,
        handoffs: handoffs.shown.into_iter().map(Handoff::from).collect(),
        handoffs_total: handoffs.total,
        election,
    }))
}
