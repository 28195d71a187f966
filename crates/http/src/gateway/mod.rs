//! The worker gateway: five calls by which a worker in any language gets work and says what became of it.
//!
//! The coordinator is the other end of the same [`WorkerLink`] and judges what is said; here its messages are taken off the
//! wire, within limits of size, and its answers written. A report is answered when it is durable. A worker that the server does not know gets
//! 404 `unknown_worker` and registers again.

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
/// Room for the ids of all that a worker may run.
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

/// Ask for jobs
///
/// Answers as soon as there is one, or when the wait is over. Counts as a beat, also while it waits.
#[utoipa::path(post, path = "/v1/worker/poll", tag = "worker gateway", request_body = Poll, responses(
    (status = 200, body = Polled),
    doc::Refused,
))]
async fn poll(State(state): State<AppState>, _: NoParams, share: Share, request: Request) -> ApiResult {
    let poll: Poll = body::parse(request, body::SMALL_BYTES_MAX).await?;
    // Nothing is handed out while other responses take all the memory there is for them: a run that was handed out must
    // reach its worker.
    share.reserve(1).await?;
    let polled = WorkerLink::poll(&state.coordinator, poll).await?;
    let args_bytes: usize = polled.jobs.iter().map(|job| job.input.args.as_str().len()).sum();
    let bytes_expected = 64 + args_bytes + polled.jobs.len() * 320;
    Ok(body::json(StatusCode::OK, &polled, bytes_expected))
}

/// Say what became of runs
///
/// What is accepted is durable. The same end said twice is accepted and changes nothing; what comes of an older run is
/// rejected with `stale_execution`.
#[utoipa::path(post, path = "/v1/worker/report", tag = "worker gateway", request_body = Report, responses(
    (status = 200, body = Reported),
    doc::Refused,
))]
async fn report(State(state): State<AppState>, _: NoParams, request: Request) -> ApiResult {
    let report: Report = body::parse(request, BATCH_BYTES_MAX).await?;
    let reported = WorkerLink::report(&state.coordinator, report).await?;
    Ok(body::ok(&reported))
}

/// Say that a worker lives, and what it runs
#[utoipa::path(post, path = "/v1/worker/heartbeat", tag = "worker gateway", request_body = Heartbeat, responses(
    (status = 200, body = HeartbeatReply),
    doc::Refused,
))]
async fn heartbeat(State(state): State<AppState>, _: NoParams, request: Request) -> ApiResult {
    let beat: Heartbeat = body::parse(request, HEARTBEAT_BYTES_MAX).await?;
    let beaten = WorkerLink::heartbeat(&state.coordinator, beat).await?;
    Ok(body::ok(&beaten))
}

/// A worker that leaves.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Leave {
    worker_id: WorkerId,
}

#[derive(Serialize)]
struct Left {}

/// Leave
///
/// The worker's unfinished runs go back at once.
#[utoipa::path(post, path = "/v1/worker/leave", tag = "worker gateway", request_body = Leave, responses(
    (status = 200, body = Object, description = "`{}`"),
    doc::Refused,
))]
async fn leave(State(state): State<AppState>, _: NoParams, request: Request) -> ApiResult {
    let Leave { worker_id } = body::parse(request, body::SMALL_BYTES_MAX).await?;
    WorkerLink::leave(&state.coordinator, worker_id).await?;
    Ok(body::ok(&Left {}))
}
