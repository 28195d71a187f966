//! Schedules: put, read, pause, trigger, delete.

use axum::extract::{Request, State};
use convoke_core::jobs::Job;
use convoke_core::jobs::schedule::{PastTick, Schedule, ScheduleSpec};
use convoke_core::ports::store::JobQuery;
use convoke_core::{Error, ScheduleName};
use http::StatusCode;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::AppState;
use super::access::Caller;
use super::audit::Noted;
use super::body::{self, JOB_BYTES_MAX, NoParams, Nothing, Params, SMALL_BYTES_MAX, Segment};
use super::error::ApiResult;
use super::jobs::job_response;
use super::memory::Share;
use super::openapi as doc;

/// How many ticks are shown in advance.
const NEXT_TICKS: usize = 5;

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(put, show, remove))
        .routes(routes!(pause))
        .routes(routes!(resume))
        .routes(routes!(trigger))
        .routes(routes!(ticks))
}

/// All schedules, by name.
#[derive(Serialize, ToSchema)]
struct Schedules {
    schedules: Vec<Schedule>,
}

/// A schedule that was created or replaced.
#[derive(Serialize, ToSchema)]
struct PutSchedule {
    #[serde(flatten)]
    schedule: Schedule,
    /// Why the schedule may differ from what was intended; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

/// All schedules, by name
#[utoipa::path(get, path = "/v1/schedules", tag = "schedules", responses(
    (status = 200, body = Schedules),
    doc::Refused,
))]
async fn list(State(state): State<AppState>, caller: Caller, _: NoParams) -> ApiResult {
    let schedules = state.coordinator.store().schedules().await?;
    Ok(body::ok(&Schedules { schedules: caller.shown(schedules) }))
}

/// Create or replace a schedule
///
/// `warnings` beside the schedule's own fields, a list of strings, is present if the schedule is valid but ambiguous:
/// both day fields of `cron` are restricted and `day` is absent.
#[utoipa::path(put, path = "/v1/schedules/{name}", tag = "schedules", params(doc::SchedulePath),
    request_body = ScheduleSpec, responses(
    (status = 201, description = "Made", body = PutSchedule),
    (status = 200, description = "Replaced", body = PutSchedule),
    doc::Refused,
))]
async fn put(
    State(state): State<AppState>,
    caller: Caller,
    Segment(name): Segment<ScheduleName>,
    _: NoParams,
    request: Request,
) -> ApiResult {
    let spec: ScheduleSpec = body::parse(request, JOB_BYTES_MAX).await?;
    let warnings = spec.warnings();
    let (schedule, created) = state.coordinator.put_schedule(name, spec).await?;
    let status = if created { StatusCode::CREATED } else { StatusCode::OK };
    let size = 512 + schedule.template.args_bytes();
    Ok(body::json(status, &PutSchedule { schedule: caller.shown(schedule), warnings }, size))
}

/// Show a schedule
#[utoipa::path(get, path = "/v1/schedules/{name}", tag = "schedules", params(doc::SchedulePath), responses(
    (status = 200, body = Schedule),
    doc::Refused,
))]
async fn show(
    State(state): State<AppState>,
    caller: Caller,
    Segment(name): Segment<ScheduleName>,
    _: NoParams,
) -> ApiResult {
    let schedule = state.coordinator.store().schedule(&name).await?;
    let schedule = schedule.ok_or_else(|| Error::not_found("schedule", &name))?;
    Ok(body::ok(&caller.shown(schedule)))
}

/// Delete a schedule
///
/// The jobs that it made stay.
#[utoipa::path(delete, path = "/v1/schedules/{name}", tag = "schedules", params(doc::SchedulePath), responses(
    (status = 204, description = "Removed"),
    doc::Refused,
))]
async fn remove(
    State(state): State<AppState>,
    Segment(name): Segment<ScheduleName>,
    _: NoParams,
) -> ApiResult<StatusCode> {
    state.coordinator.remove_schedule(&name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Pause a schedule
#[utoipa::path(post, path = "/v1/schedules/{name}/pause", tag = "schedules", params(doc::SchedulePath), responses(
    (status = 200, body = Schedule),
    doc::Refused,
))]
async fn pause(
    State(state): State<AppState>,
    caller: Caller,
    Segment(name): Segment<ScheduleName>,
    _: NoParams,
    request: Request,
) -> ApiResult {
    set_paused(state, &caller, name, request, true).await
}

/// Resume a schedule
#[utoipa::path(post, path = "/v1/schedules/{name}/resume", tag = "schedules", params(doc::SchedulePath), responses(
    (status = 200, body = Schedule),
    doc::Refused,
))]
async fn resume(
    State(state): State<AppState>,
    caller: Caller,
    Segment(name): Segment<ScheduleName>,
    _: NoParams,
    request: Request,
) -> ApiResult {
    set_paused(state, &caller, name, request, false).await
}

async fn set_paused(state: AppState, caller: &Caller, name: ScheduleName, request: Request, paused: bool) -> ApiResult {
    let Nothing {} = body::parse_or_default(request, SMALL_BYTES_MAX).await?;
    let schedule = state.coordinator.pause_schedule(&name, paused).await?;
    Ok(body::ok(&caller.shown(schedule)))
}

/// The ticks of a schedule.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ScheduleTicks)]
pub struct Ticks {
    /// The rhythm in words, in English; null if this version cannot parse the stored schedule.
    #[schema(example = "At 09:00, Monday through Friday.")]
    pub words: Option<String>,
    /// The next five ticks, also of a schedule that is paused.
    pub next: Vec<Timestamp>,
    /// Ticks that have passed, the newest first, as far as their jobs are kept.
    pub past: Vec<PastTick>,
}

/// Ticks of a schedule
///
/// The next ones, and those that have passed: whether each made a job, was skipped because a job of the schedule was
/// live, or was missed. Jobs that were made before version 0.2 are not found by their schedule.
#[utoipa::path(get, path = "/v1/schedules/{name}/ticks", tag = "schedules", params(doc::SchedulePath, doc::TicksParams),
    responses((status = 200, body = Ticks), doc::Refused))]
async fn ticks(
    State(state): State<AppState>,
    Segment(name): Segment<ScheduleName>,
    mut params: Params,
    share: Share,
) -> ApiResult {
    let limit = params.limit()?;
    params.end()?;
    share.reserve_page().await?;
    let schedule = state.coordinator.schedule(&name).await?;
    Ok(body::ok(&read_ticks(&state, &schedule, limit).await?))
}

/// Reads the ticks of a schedule: the next five, and at most `limit` that have passed.
pub async fn read_ticks(state: &AppState, schedule: &Schedule, limit: usize) -> ApiResult<Ticks> {
    let query = JobQuery { schedule: Some(schedule.name.clone()), limit, ..JobQuery::default() };
    let page = state.coordinator.store().list(query).await?;
    let now = state.coordinator.clock().now();
    Ok(Ticks {
        words: schedule.words(),
        next: schedule.ticks_after(now, NEXT_TICKS),
        past: schedule.past_ticks(&page.jobs, page.next_cursor.is_none(), now, limit),
    })
}

/// Run a schedule's job now
///
/// In addition to its ticks, which do not move.
#[utoipa::path(post, path = "/v1/schedules/{name}/trigger", tag = "schedules", params(doc::SchedulePath), responses(
    (status = 201, description = "The job that was made", body = Job),
    (status = 200, description = "The job that exists already for this instant", body = Job),
    doc::Refused,
))]
async fn trigger(
    State(state): State<AppState>,
    caller: Caller,
    Segment(name): Segment<ScheduleName>,
    _: NoParams,
    request: Request,
) -> ApiResult {
    let Nothing {} = body::parse_or_default(request, SMALL_BYTES_MAX).await?;
    let (job, created) = state.coordinator.trigger_schedule(&name).await?;
    let noted = Noted { after: Some(json!({ "jobId": job.id })), ..Noted::default() };
    Ok(noted.on(job_response(if created { StatusCode::CREATED } else { StatusCode::OK }, &caller.shown(job))))
}
