//! Queues: their counts and limits.

use axum::extract::{Request, State};
use convoke_core::jobs::{QueueCounts, QueuePatch, RateLimit};
use convoke_core::limits::WORKER_CONCURRENCY_MAX;
use convoke_core::{QueueName, duration};
use convoke_runtime::jobs::QueueView;
use http::StatusCode;
use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::AppState;
use super::body::{self, NoParams, SMALL_BYTES_MAX, Segment};
use super::error::{ApiError, ApiResult};
use super::openapi as doc;

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(show, configure, remove))
}

/// All queues, by name.
#[derive(Serialize, ToSchema)]
struct Queues {
    queues: Vec<QueueResponse>,
}

/// A queue, its limits and how many jobs it has.
#[derive(Serialize, ToSchema)]
#[schema(as = Queue)]
#[serde(rename_all = "camelCase")]
struct QueueResponse {
    name: QueueName,
    paused: bool,
    /// The rate limit that was set for this queue.
    rate_limit: Option<RateLimit>,
    /// The rate limit that applies: its own, or the default of the configuration.
    effective_rate_limit: Option<RateLimit>,
    /// How many of its jobs may be dispatched or running at once.
    concurrency: Option<u32>,
    counts: QueueCounts,
    /// How long the oldest pending job has waited.
    #[schema(example = "12s")]
    oldest_pending_age: Option<String>,
    /// How many live workers receive its runs.
    workers: u32,
}

impl QueueResponse {
    fn of(view: QueueView, now: Timestamp) -> Self {
        // Clocks of two nodes may differ by a little: an age is never negative.
        let age = |since| now.duration_since(since).try_into().unwrap_or_default();
        QueueResponse {
            name: view.queue.name,
            paused: view.queue.paused,
            rate_limit: view.queue.rate_limit,
            effective_rate_limit: view.effective_rate_limit,
            concurrency: view.queue.concurrency,
            counts: view.queue.counts,
            oldest_pending_age: view.queue.oldest_pending_at.map(|since| duration::format(age(since))),
            workers: view.workers,
        }
    }
}

/// All queues, by name
#[utoipa::path(get, path = "/v1/queues", tag = "queues", responses((status = 200, body = Queues), doc::Refused))]
async fn list(State(state): State<AppState>, _: NoParams) -> ApiResult {
    let now = state.coordinator.clock().now();
    let views = state.coordinator.queue_views().await?;
    let queues = views.into_iter().map(|view| QueueResponse::of(view, now)).collect();
    Ok(body::ok(&Queues { queues }))
}

/// Show a queue
#[utoipa::path(get, path = "/v1/queues/{name}", tag = "queues", params(doc::QueuePath), responses(
    (status = 200, body = QueueResponse),
    doc::Refused,
))]
async fn show(State(state): State<AppState>, Segment(name): Segment<QueueName>, _: NoParams) -> ApiResult {
    respond(&state, &name).await
}

async fn respond(state: &AppState, name: &QueueName) -> ApiResult {
    let view = state.coordinator.queue_view(name).await?;
    Ok(body::ok(&QueueResponse::of(view, state.coordinator.clock().now())))
}

/// A change of a queue: a field that is absent stays as it is, `null` removes a limit.
#[derive(Deserialize, ToSchema)]
#[schema(as = QueuePatch)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Patch {
    #[serde(default)]
    paused: Option<bool>,
    #[schema(value_type = Option<RateLimit>)]
    #[serde(default, deserialize_with = "given")]
    rate_limit: Option<Option<RateLimit>>,
    /// How many of its jobs may be dispatched or running at once.
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 100_000)]
    #[serde(default, deserialize_with = "given")]
    concurrency: Option<Option<u32>>,
}

/// Distinguishes `null` (remove the limit) from absent (keep it).
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// Pause, resume or limit a queue
///
/// An absent field stays as it is, `null` removes a limit. A queue that does not exist is created.
#[utoipa::path(patch, path = "/v1/queues/{name}", tag = "queues", params(doc::QueuePath), request_body = Patch,
    responses((status = 200, body = QueueResponse), doc::Refused))]
async fn configure(
    State(state): State<AppState>,
    Segment(name): Segment<QueueName>,
    _: NoParams,
    request: Request,
) -> ApiResult {
    let patch: Patch = body::parse(request, SMALL_BYTES_MAX).await?;
    if let Some(Some(rate_limit)) = &patch.rate_limit {
        rate_limit.check()?;
    }
    check_concurrency(patch.concurrency.flatten())?;
    let patch = QueuePatch { paused: patch.paused, rate_limit: patch.rate_limit, concurrency: patch.concurrency };
    state.coordinator.configure_queue(&name, patch).await?;
    respond(&state, &name).await
}

/// Rejects a bound that no queue can have.
pub fn check_concurrency(concurrency: Option<u32>) -> ApiResult<()> {
    match concurrency.filter(|concurrency| !(1..=WORKER_CONCURRENCY_MAX).contains(concurrency)) {
        Some(concurrency) => {
            let message =
                format!("expected 1 to {WORKER_CONCURRENCY_MAX} (pause the queue to stop it), got {concurrency}");
            Err(ApiError::invalid("concurrency", message))
        }
        None => Ok(()),
    }
}

/// Delete a queue
///
/// With its settings. 409 if it has jobs, ended ones included, or live workers. Its next job, worker or setting creates
/// it again.
#[utoipa::path(delete, path = "/v1/queues/{name}", tag = "queues", params(doc::QueuePath), responses(
    (status = 204, description = "Deleted"),
    doc::Refused,
))]
async fn remove(
    State(state): State<AppState>,
    Segment(name): Segment<QueueName>,
    _: NoParams,
) -> ApiResult<StatusCode> {
    state.coordinator.delete_queue(&name).await?;
    Ok(StatusCode::NO_CONTENT)
}
