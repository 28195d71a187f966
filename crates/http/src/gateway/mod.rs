//! The worker gateway: five calls by which a worker in any language receives runs and reports their results.
//!
//! The coordinator implements the other end of [`WorkerLink`] and decides on the messages; this module parses them,
//! within limits of size, and writes the responses. The response to a report is sent after the report is durable. An
//! unknown worker receives 404 `unknown_worker` and registers again.

use axum::extract::{Request, State};
use convoke_core::WorkerId;
use convoke_core::jobs::link::{
    Heartbeat, HeartbeatReply, Poll, Polled, Register, Registered, Report, Reported, WorkerLink,
};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::AppState;
use crate::body::{self, BATCH_BYTES_MAX, NoParams};
use crate::error::ApiResult;
use crate::memory::Share;
use crate::openapi as doc;

/// Room for all the queues that a worker may name.
const REGISTER_BYTES_MAX: usize = 1 << 20;
/// Room for the ids of all runs that a worker may have.
const HEARTBEAT_BYTES_MAX: usize = 8 << 20;

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(register))
        .routes(routes!(poll))
        .routes(routes!(report))
        .routes(routes!(heartbeat))
        .routes(routes!(leave))
}

/// Register a worker
#[utoipa::path(post, path = "/v1/worker/register", tag = "worker gateway", request_body = Register, responses(
    (status = 200, body = Registered),
    doc::Refused,
))]
async fn register(State(state): State<AppState>, _: NoParams, request: Request) -> ApiResult {
    let worker: Register = body::parse(request, REGISTER_BYTES_MAX).await?;
    let registered = WorkerLink::register(&state.coordinator, worker).await?;
    Ok(body::ok(&registered))
}

/// Poll for runs
///
/// Responds as soon as there is one, or when the wait is over. Counts as a heartbeat, also while it waits.
#[utoipa::path(post, path = "/v1/worker/poll", tag = "worker gateway", request_body = Poll, responses(
    (status = 200, body = Polled),
    doc::Refused,
))]
async fn poll(State(state): State<AppState>, _: NoParams, share: Share, request: Request) -> ApiResult {
    let poll: Poll = body::parse(request, body::SMALL_BYTES_MAX).await?;
    // No run is dispatched to the worker while other responses use all the memory for responses: a dispatched run must
    // reach its worker.
    share.reserve(1).await?;
    let polled = WorkerLink::poll(&state.coordinator, poll).await?;
    let args_bytes: usize = polled.jobs.iter().map(|job| job.input.args.as_str().len()).sum();
    let bytes_expected = 64 + args_bytes + polled.jobs.len() * 320;
    Ok(body::json(StatusCode::OK, &polled, bytes_expected))
}

/// Report events of runs
///
/// An accepted report is durable. A repeated end is accepted and changes nothing; a report of an older run is rejected
/// with `stale_execution`.
#[utoipa::path(post, path = "/v1/worker/report", tag = "worker gateway", request_body = Report, responses(
    (status = 200, body = Reported),
    doc::Refused,
))]
async fn report(State(state): State<AppState>, _: NoParams, request: Request) -> ApiResult {
    let report: Report = body::parse(request, BATCH_BYTES_MAX).await?;
    let reported = WorkerLink::report(&state.coordinator, report).await?;
    Ok(body::ok(&reported))
}

/// Send a worker's heartbeat, with its runs
#[utoipa::path(post, path = "/v1/worker/heartbeat", tag = "worker gateway", request_body = Heartbeat, responses(
    (status = 200, body = HeartbeatReply),
    doc::Refused,
))]
async fn heartbeat(State(state): State<AppState>, _: NoParams, request: Request) -> ApiResult {
    let heartbeat: Heartbeat = body::parse(request, HEARTBEAT_BYTES_MAX).await?;
    let reply = WorkerLink::heartbeat(&state.coordinator, heartbeat).await?;
    Ok(body::ok(&reply))
}

/// A worker that leaves.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Leave {
    worker_id: WorkerId,
}

#[derive(Serialize)]
struct Left {}

/// Remove a worker
///
/// The worker's unfinished runs are released at once.
#[utoipa::path(post, path = "/v1/worker/leave", tag = "worker gateway", request_body = Leave, responses(
    (status = 200, body = Object, description = "`{}`"),
    doc::Refused,
))]
async fn leave(State(state): State<AppState>, _: NoParams, request: Request) -> ApiResult {
    let Leave { worker_id } = body::parse(request, body::SMALL_BYTES_MAX).await?;
    WorkerLink::leave(&state.coordinator, worker_id).await?;
    Ok(body::ok(&Left {}))
}
