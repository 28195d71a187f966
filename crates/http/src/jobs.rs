//! Jobs: enqueue, read, wait, cancel, retry.
//!
//! The response to an enqueue is sent after the commit. The two enqueue routes are the hot path of the server: one read
//! of the body, one parse, one serialisation, and the arguments are passed on as the text that was received.

use std::time::Duration;

use axum::extract::{Request, State};
use axum::response::Response;
use convoke_core::jobs::filter::FILTERS;
use convoke_core::jobs::link::Enqueued;
use convoke_core::jobs::{Execution, Job, JobFilter, JobSpec, LogLine};
use convoke_core::limits::{
    ARGS_BYTES_MAX, BATCH_JOBS_MAX, ERROR_BYTES_MAX, LOG_PAGE_BYTES_MAX, PAGE_MAX, RESULT_BYTES_MAX,
};
use convoke_core::ports::store::JobQuery;
use convoke_core::{JobId, duration};
use http::StatusCode;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Map;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::AppState;
use super::access::Caller;
use super::body::{self, BATCH_BYTES_MAX, Bounded, JOB_BYTES_MAX, NoParams, Nothing, Params, SMALL_BYTES_MAX, Segment};
use super::error::{ApiError, ApiResult};
use super::memory::Share;
use super::openapi as doc;

/// How long a request may wait.
pub const WAIT_MAX: Duration = Duration::from_secs(300);

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(enqueue, list))
        .routes(routes!(enqueue_batch))
        .routes(routes!(show))
        .routes(routes!(history))
        .routes(routes!(logs))
        .routes(routes!(cancel))
        .routes(routes!(retry))
}

/// Enqueue one job
///
/// The response is sent after the job is durable. While a job with the same `uniqueKey` is live, and for a repeated
/// `id`, the response is the existing job.
#[utoipa::path(post, path = "/v1/jobs", tag = "jobs", request_body = JobSpec, responses(
    (status = 201, description = "Made", body = Job),
    (status = 200, description = "The job exists already", body = Job),
    doc::Refused,
))]
async fn enqueue(State(state): State<AppState>, caller: Caller, _: NoParams, request: Request) -> ApiResult {
    let spec: JobSpec = body::parse(request, JOB_BYTES_MAX).await?;
    let (job, created) = state.coordinator.enqueue(spec).await?;
    Ok(job_response(if created { StatusCode::CREATED } else { StatusCode::OK }, &caller.shown(job)))
}

/// Jobs to enqueue together.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Batch {
    #[schema(value_type = Vec<JobSpec>, min_items = 1, max_items = 10_000)]
    pub jobs: Bounded<JobSpec, BATCH_JOBS_MAX>,
}

/// The jobs of a batch, in its order.
#[derive(Serialize, ToSchema)]
#[schema(as = BatchAnswer)]
struct BatchResponse {
    jobs: Vec<Enqueued>,
}

/// Enqueue many jobs, all or none
#[utoipa::path(post, path = "/v1/jobs/batch", tag = "jobs", request_body = Batch, responses(
    (status = 201, description = "All of them are durable; in order", body = BatchResponse),
    doc::Refused,
))]
async fn enqueue_batch(State(state): State<AppState>, _: NoParams, request: Request) -> ApiResult {
    let batch: Batch = body::parse(request, BATCH_BYTES_MAX).await?;
    let specs = batch.jobs.within("jobs")?;
    let jobs = state.coordinator.enqueue_batch(specs).await?;
    let bytes_expected = 16 + jobs.len() * 64;
    Ok(body::json(StatusCode::CREATED, &BatchResponse { jobs }, bytes_expected))
}

/// A page of jobs.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct JobsPage {
    jobs: Vec<Job>,
    /// Start of the next page, also after a short or empty page; null at the end.
    next_cursor: Option<String>,
}

/// List jobs, newest first
///
/// A page may be short, even empty, and still have a cursor: `nextCursor` is null at the end.
#[utoipa::path(get, path = "/v1/jobs", tag = "jobs", params(JobFilter, doc::PageParams), responses(
    (status = 200, body = JobsPage),
    doc::Refused,
))]
async fn list(State(state): State<AppState>, caller: Caller, params: Params, share: Share) -> ApiResult {
    let query = list_query(params, state.coordinator.clock().now())?;
    share.reserve_page().await?;
    let page = state.coordinator.store().list(query).await?;
    let bytes_expected = 64 + page.jobs.iter().map(|job| 1024 + job.payload_bytes()).sum::<usize>();
    let page = JobsPage { jobs: caller.shown(page.jobs), next_cursor: page.next_cursor };
    Ok(body::json(StatusCode::OK, &page, bytes_expected))
}

/// Parses the parameters of a list of jobs. Others are rejected.
pub fn list_query(mut params: Params, now: Timestamp) -> ApiResult<JobQuery> {
    let query = page_query(&mut params, &FILTERS, now)?;
    params.end()?;
    Ok(query)
}

/// Parses the parameters of a page of jobs, with these filters.
pub fn page_query(params: &mut Params, filters: &[&'static str], now: Timestamp) -> ApiResult<JobQuery> {
    let mut texts = Map::new();
    for name in filters {
        texts.extend(params.text(name)?.map(|text| ((*name).to_owned(), text.into())));
    }
    let query = JobFilter::from_texts(texts)?.query(now);
    Ok(JobQuery { limit: params.limit()?, cursor: params.text("cursor")?, ..query })
}

/// Show a job, or wait for its end
#[utoipa::path(get, path = "/v1/jobs/{id}", tag = "jobs", params(doc::JobPath, doc::WaitParams), responses(
    (status = 200, description = "As it is now; with `wait`, once it has ended or the wait is over", body = Job),
    doc::Refused,
))]
async fn show(
    State(state): State<AppState>,
    caller: Caller,
    Segment(id): Segment<JobId>,
    mut params: Params,
    share: Share,
) -> ApiResult {
    let wait = params.parse_by("wait", |text| match duration::parse(text)? {
        wait if wait <= WAIT_MAX => Ok(wait),
        _ => Err(format!("expected at most {}, got {text:?}", duration::format(WAIT_MAX))),
    })?;
    params.end()?;
    let job = match wait.filter(|wait| !wait.is_zero()) {
        None => {
            share.reserve(ARGS_BYTES_MAX + RESULT_BYTES_MAX).await?;
            let job = state.coordinator.job_view(id).await?;
            // Payloads are copied only if they must be hidden.
            return Ok(match caller.payloads_hidden {
                true => job_response(StatusCode::OK, &caller.shown((*job).clone())),
                false => job_response(StatusCode::OK, &job),
            });
        }
        Some(wait) => tokio::select! {
            job = state.coordinator.job(id, Some(wait)) => job?,
            // The client sends the request again, to another node or once this node is back.
            () = state.closing.cancelled() => state.coordinator.job(id, None).await?,
        },
    };
    share.reserve(job.payload_bytes()).await?;
    Ok(job_response(StatusCode::OK, &caller.shown(job)))
}

/// A page of the runs of a job.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct History {
    executions: Vec<Execution>,
    /// The `after` of the next request; null at the end.
    next_after: Option<u64>,
}

/// Runs of a job, oldest first
///
/// A page may be short: `nextAfter` is null at the end.
#[utoipa::path(get, path = "/v1/jobs/{id}/history", tag = "jobs", params(doc::JobPath, doc::HistoryParams), responses(
    (status = 200, body = History),
    doc::Refused,
))]
async fn history(
    State(state): State<AppState>,
    caller: Caller,
    Segment(id): Segment<JobId>,
    mut params: Params,
    share: Share,
) -> ApiResult {
    let after = params.parse("after")?.unwrap_or(0);
    let limit = params.limit_or(PAGE_MAX)?;
    params.end()?;
    share.reserve_page().await?;
    let page = state.coordinator.store().history(id, after, limit).await?;
    if page.runs.is_empty() {
        // A job that never ran has no history; an unknown one is an error.
        state.coordinator.job(id, None).await?;
    }
    Ok(body::ok(&History { executions: caller.shown(page.runs), next_after: page.next_after }))
}

/// A page of the log lines of a job.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct Logs {
    logs: Vec<LogLine>,
    /// The `after` of the next request.
    next_after: u64,
}

/// Log lines of a job's runs
///
/// A page may be short: `logs` is empty at the end.
#[utoipa::path(get, path = "/v1/jobs/{id}/logs", tag = "jobs", params(doc::JobPath, doc::LogsParams), responses(
    (status = 200, description = "Lines with `seq` above `after`, in order", body = Logs),
    doc::Refused,
))]
async fn logs(
    State(state): State<AppState>,
    caller: Caller,
    Segment(id): Segment<JobId>,
    mut params: Params,
    share: Share,
) -> ApiResult {
    let after = params.parse("after")?.unwrap_or(0);
    let limit = params.limit()?;
    params.end()?;
    share.reserve(LOG_PAGE_BYTES_MAX).await?;
    let logs = state.coordinator.store().logs(id, after, limit).await?;
    if logs.is_empty() {
        state.coordinator.job(id, None).await?;
    }
    let next_after = logs.last().map_or(after, |line| line.seq);
    Ok(body::ok(&Logs { logs: caller.shown(logs), next_after }))
}

/// The reason of a cancellation.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Cancel {
    /// Stored as the error of the job.
    #[serde(default)]
    reason: Option<String>,
}

/// Cancel a job
///
/// In any state: its worker is notified, and its later reports are rejected. Cancelling it again succeeds.
#[utoipa::path(post, path = "/v1/jobs/{id}/cancel", tag = "jobs", params(doc::JobPath), request_body = Option<Cancel>,
    responses((status = 200, body = Job), doc::Refused))]
async fn cancel(
    State(state): State<AppState>,
    caller: Caller,
    Segment(id): Segment<JobId>,
    _: NoParams,
    request: Request,
) -> ApiResult {
    let Cancel { reason } = body::parse_or_default(request, SMALL_BYTES_MAX).await?;
    check_reason(reason.as_deref())?;
    let job = state.coordinator.cancel(id, reason).await?;
    Ok(job_response(StatusCode::OK, &caller.shown(job)))
}

/// Rejects a reason that is longer than an error may be.
pub fn check_reason(reason: Option<&str>) -> ApiResult<()> {
    match reason.map(str::len).filter(|bytes| *bytes > ERROR_BYTES_MAX) {
        Some(bytes) => {
            Err(ApiError::too_large("reason", format!("expected at most {ERROR_BYTES_MAX} bytes, got {bytes}")))
        }
        None => Ok(()),
    }
}

/// Run an ended job again
///
/// For a job that failed, timed out or was cancelled, with a fresh budget of retries.
#[utoipa::path(post, path = "/v1/jobs/{id}/retry", tag = "jobs", params(doc::JobPath), responses(
    (status = 200, body = Job),
    doc::Refused,
))]
async fn retry(
    State(state): State<AppState>,
    caller: Caller,
    Segment(id): Segment<JobId>,
    _: NoParams,
    request: Request,
) -> ApiResult {
    let Nothing {} = body::parse_or_default(request, SMALL_BYTES_MAX).await?;
    let job = state.coordinator.retry(id).await?;
    Ok(job_response(StatusCode::OK, &caller.shown(job)))
}

pub fn job_response(status: StatusCode, job: &Job) -> Response {
    let result_bytes = job.result.as_ref().map_or(0, |result| result.as_str().len());
    body::json(status, job, 1024 + job.definition.args.as_str().len() + result_bytes)
}
