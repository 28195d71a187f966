//! The recent past: the time series of jobs, terms, refused writes, handoffs and rebalances.
//!
//! Every node keeps it in memory for the whole cluster. A response names the node that responds and since when that node
//! knows what happened.

use std::time::Duration;

use axum::extract::State;
use convoke_core::history::{
    BUCKETS_MAX, Counts, DrainRecord, HandoffRecord, QueueTotal, Rebalance, RefusedWrite, STEP, SeriesView, Slots,
    TermRecord,
};
use convoke_core::{NodeId, QueueName, ServiceName};
use convoke_runtime::jobs::Known;
use jiff::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::AppState;
use super::body::{self, Params, Segment};
use super::error::{ApiError, ApiResult};
use super::openapi as doc;

/// Records of one response, unless the request asks for another number.
const RECORDS_DEFAULT: usize = 100;
const WINDOW_MAX: Duration = Duration::from_secs(STEP.as_secs() * BUCKETS_MAX as u64);

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(timeseries))
        .routes(routes!(terms))
        .routes(routes!(refusals))
        .routes(routes!(handoffs))
        .routes(routes!(rebalances))
}

/// Counts of jobs in steps of ten seconds, summed over all nodes.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Timeseries {
    /// The node that responds.
    answered_by: NodeId,
    /// Since when the responding node knows the counts.
    since: Timestamp,
    /// The begin of the first step.
    pub from: Timestamp,
    /// The end of the last step.
    pub until: Timestamp,
    /// The length of a step.
    #[schema(value_type = String, example = "10s")]
    #[serde(with = "convoke_core::duration")]
    pub step: Duration,
    /// The nodes whose counts are contained.
    pub nodes: Vec<NodeId>,
    /// The counts of each step. Divide by the seconds of `step` for a rate.
    pub points: Vec<Counts>,
    /// The refused writes of each step, of all queues.
    pub refused: Vec<u64>,
    /// The slots of all workers at the end of each step; null if no leader counted them.
    pub slots: Vec<Option<Slots>>,
    /// The counts of each queue in all steps together: at most 100 queues a step are counted by name.
    pub queues: Vec<QueueTotal>,
}

/// Returns the last steps of the time series, of one queue or of all jobs.
pub(crate) fn read_timeseries(state: &AppState, window: Duration, queue: Option<&QueueName>) -> Timeseries {
    let (since, view) = state.coordinator.time_series(window, queue);
    let SeriesView { from, until, nodes, points, refused, slots, queues } = view;
    let answered_by = state.coordinator.node_id().clone();
    Timeseries { answered_by, since, from, until, step: STEP, nodes, points, refused, slots, queues }
}

/// Jobs enqueued, started, completed, failed and dead over the last hour
///
/// Each node counts in steps of ten seconds and sends its counts to the others, so that any node returns the sum. The
/// counts are kept in memory for an hour. A step is contained two seconds after its end.
#[utoipa::path(get, path = "/v1/timeseries", tag = "cluster", params(doc::TimeseriesParams),
    responses((status = 200, body = Timeseries), doc::Refused))]
async fn timeseries(State(state): State<AppState>, mut params: Params) -> ApiResult {
    let window = params.parse_by("window", convoke_core::duration::parse)?.unwrap_or(WINDOW_MAX);
    let queue: Option<QueueName> = params.name("queue")?;
    params.end()?;
    if window.is_zero() || window > WINDOW_MAX {
        let given = convoke_core::duration::format(window);
        return Err(ApiError::invalid("window", format!("expected a duration of at most 1h, got {given:?}")));
    }
    Ok(body::ok(&read_timeseries(&state, window, queue.as_ref())))
}

/// Parses the number of records of a response.
fn limit(mut params: Params) -> ApiResult<usize> {
    let limit = params.limit_or(RECORDS_DEFAULT)?;
    params.end()?;
    Ok(limit)
}

/// The last terms of the leader.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Terms {
    /// The node that responds.
    answered_by: NodeId,
    /// Since when the responding node knows what happened.
    since: Timestamp,
    /// The newest first: at most 256 are kept.
    terms: Vec<TermRecord>,
}

/// The last terms of the leader
///
/// Nodes share them and keep them in memory: they outlive the leader, but not all nodes.
#[utoipa::path(get, path = "/v1/cluster/terms", tag = "cluster", params(doc::RecordsParams),
    responses((status = 200, body = Terms), doc::Refused))]
async fn terms(State(state): State<AppState>, params: Params) -> ApiResult {
    let limit = limit(params)?;
    let Known { since, records: mut terms } = state.coordinator.terms();
    terms.truncate(limit);
    Ok(body::ok(&Terms { answered_by: state.coordinator.node_id().clone(), since, terms }))
}

/// The last writes of former owners that were refused.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Refusals {
    /// The node that responds.
    answered_by: NodeId,
    /// Since when the responding node knows what happened.
    since: Timestamp,
    /// The newest first: at most 256 are kept. Of many at once only the first are recorded; the time series counts all.
    refusals: Vec<RefusedWrite>,
}

/// The last writes of former owners that were refused
///
/// A former leader, a worker whose run was given to another, or a node that no longer owns a run tried to write.
#[utoipa::path(get, path = "/v1/cluster/refusals", tag = "cluster", params(doc::RecordsParams),
    responses((status = 200, body = Refusals), doc::Refused))]
async fn refusals(State(state): State<AppState>, params: Params) -> ApiResult {
    let limit = limit(params)?;
    let Known { since, records: mut refusals } = state.coordinator.refused_writes();
    refusals.truncate(limit);
    Ok(body::ok(&Refusals { answered_by: state.coordinator.node_id().clone(), since, refusals }))
}

/// The last handoffs and drains.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct PastHandoffs {
    /// The node that responds.
    answered_by: NodeId,
    /// Since when the responding node knows what happened.
    since: Timestamp,
    /// The newest first: at most 1,000 are kept.
    handoffs: Vec<HandoffRecord>,
    /// The last drains of nodes, the newest first: at most 64 are kept.
    drains: Vec<DrainRecord>,
}

/// The last handoffs of runs and drains of nodes
///
/// `GET /v1/cluster` has the runs that are on their way now.
#[utoipa::path(get, path = "/v1/cluster/handoffs", tag = "cluster", params(doc::RecordsParams),
    responses((status = 200, body = PastHandoffs), doc::Refused))]
async fn handoffs(State(state): State<AppState>, params: Params) -> ApiResult {
    let limit = limit(params)?;
    let Known { since, records: mut handoffs } = state.coordinator.past_handoffs();
    handoffs.truncate(limit);
    let drains = state.coordinator.drains().records;
    Ok(body::ok(&PastHandoffs { answered_by: state.coordinator.node_id().clone(), since, handoffs, drains }))
}

/// The last rebalances of a service.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Rebalances {
    /// The node that responds.
    answered_by: NodeId,
    /// Since when the responding node knows what happened.
    since: Timestamp,
    service: ServiceName,
    /// The newest first: at most 64 of a service are kept, and 50,000 ranges of shards of all services.
    rebalances: Vec<Rebalance>,
}

/// The last rebalances of a service: which shards moved, from where to where, and why
///
/// Empty if no rebalance is known. Undo the moves of the newest first to see an earlier assignment, up to one that is
/// `cut`.
#[utoipa::path(get, path = "/v1/shards/{service}/history", tag = "shards", params(doc::ServicePath, doc::RecordsParams),
    responses((status = 200, body = Rebalances), doc::Refused))]
async fn rebalances(
    State(state): State<AppState>,
    Segment(service): Segment<ServiceName>,
    params: Params,
) -> ApiResult {
    let limit = limit(params)?;
    let Known { since, records: mut rebalances } = state.coordinator.rebalances(&service);
    rebalances.truncate(limit);
    Ok(body::ok(&Rebalances { answered_by: state.coordinator.node_id().clone(), since, service, rebalances }))
}
