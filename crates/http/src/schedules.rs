//! Schedules: put, read, pause, trigger, delete.

use axum::extract::{Request, State};
use convoke_core::jobs::Job;
use convoke_core::jobs::schedule::{Schedule, ScheduleSpec};
use convoke_core::{Error, ScheduleName};
use http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::AppState;
use super::body::{self, JOB_BYTES_MAX, NoParams, Nothing, SMALL_BYTES_MAX, Segment};
use super::error::ApiResult;
use super::jobs::job_answer;
use super::openapi as doc;

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(put, show, remove))
        .routes(routes!(pause))
        .routes(routes!(resume))
        .routes(routes!(trigger))
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
async fn list(State(state): State<AppState>, _: NoParams) -> ApiResult {
    let schedules = state.coordinator.store().schedules().await?;
    Ok(body::ok(&Schedules { schedules }))
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
    Segment(name): Segment<ScheduleName>,
    _: NoParams,
    request: Request,
) -> ApiResult {
    let spec: ScheduleSpec = body::parse(request, JOB_BYTES_MAX).await?;
    let warnings = spec.warnings();
    let (schedule, created) = state.coordinator.put_schedule(name, spec).await?;
    let status = if created { StatusCode::CREATED } else { StatusCode::OK };
    let size = 512 + schedule.template.args_bytes();
    Ok(body::json(status, &PutSchedule { schedule, warnings }, size))
}

/// Show a schedule
#[utoipa::path(get, path = "/v1/schedules/{name}", tag = "schedules", params(doc::SchedulePath), responses(
    (status = 200, body = Schedule),
    doc::Refused,
))]
async fn show(State(state): State<AppState>, Segment(name): Segment<ScheduleName>, _: NoParams) -> ApiResult {
    let schedule = state.coordinator.store().schedule(&name).await?;
    let schedule = schedule.ok_or_else(|| Error::not_found("schedule", &name))?;
    Ok(body::ok(&schedule))
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
    Segment(name): Segment<ScheduleName>,
    _: NoParams,
    request: Request,
) -> ApiResult {
    set_paused(state, name, request, true).await
}

/// Resume a schedule
#[utoipa::path(post, path = "/v1/schedules/{name}/resume", tag = "schedules", params(doc::SchedulePath), responses(
    (status = 200, body = Schedule),
    doc::Refused,
))]
async fn resume(
    State(state): State<AppState>,
    Segment(name): Segment<ScheduleName>,
    _: NoParams,
    request: Request,
) -> ApiResult {
    set_paused(state, name, request, false).await
}

async fn set_paused(state: AppState, name: ScheduleName, request: Request, paused: bool) -> ApiResult {
    let Nothing {} = body::parse_or_default(request, SMALL_BYTES_MAX).await?;
    let schedule = state.coordinator.pause_schedule(&name, paused).await?;
    Ok(body::ok(&schedule))
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
    Segment(name): Segment<ScheduleName>,
    _: NoParams,
    request: Request,
) -> ApiResult {
    let Nothing {} = body::parse_or_default(request, SMALL_BYTES_MAX).await?;
    let (job, created) = state.coordinator.trigger_schedule(&name).await?;
    Ok(job_answer(if created { StatusCode::CREATED } else { StatusCode::OK }, &job))
}
