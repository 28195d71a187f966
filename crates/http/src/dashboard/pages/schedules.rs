//! Schedules: their rhythm in words, their ticks, and every change of them.

use askama::Template;
use axum::extract::{Request, State};
use convoke_core::ScheduleName;
use convoke_core::jobs::schedule::{PastTick, Schedule, TickOutcome};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::AppState;
use crate::body::{SMALL_BYTES_MAX, Segment};
use crate::dashboard::filter;
use crate::dashboard::form::Form;
use crate::dashboard::json::pretty;
use crate::dashboard::layout::{self, Frame, Page, SCHEDULES};
use crate::dashboard::routes::PageRoutes;
use crate::dashboard::text::{Local, Mark, When, encode};
use crate::error::ApiResult;
use crate::memory::Share;
use crate::schedules::read_ticks;

/// Past ticks that are shown.
const PAST_SHOWN: usize = 50;

pub fn routes() -> PageRoutes {
    PageRoutes::new()
        .page("/schedules", list)
        .page("/schedules/{name}", show)
        .form("/schedules/{name}/pause", pause)
        .form("/schedules/{name}/resume", resume)
        .form("/schedules/{name}/trigger", trigger)
        .form("/schedules/{name}/remove", remove)
}

#[derive(Template)]
#[template(path = "schedules.html")]
struct SchedulesTemplate {
    page: Page,
    schedules: Vec<ScheduleRow>,
}

/// A schedule as a list shows it.
struct ScheduleRow {
    name: String,
    path: String,
    expression: String,
    zone: String,
    words: String,
    job_type: String,
    queue: String,
    paused: bool,
    next: Option<When>,
    last: Option<When>,
    missed: String,
    overlap: String,
}

impl ScheduleRow {
    fn of(schedule: &Schedule, now: Timestamp) -> Self {
        let every = schedule.every.map(|every| format!("every {}", convoke_core::duration::format(every)));
        ScheduleRow {
            name: schedule.name.to_string(),
            path: path_of(&schedule.name),
            expression: schedule.cron.clone().or(every).unwrap_or_default(),
            zone: schedule.tz.clone().unwrap_or_else(|| "UTC".into()),
            words: schedule.words().unwrap_or_else(|| "this version cannot parse it".into()),
            job_type: schedule.template.job_type.to_string(),
            queue: schedule.template.queue.clone().unwrap_or_default().to_string(),
            paused: schedule.paused,
            next: schedule.next_run_at.map(|at| When::new(at, now)),
            last: schedule.last_run_at.map(|at| When::new(at, now)),
            missed: word(&schedule.missed),
            overlap: word(&schedule.overlap),
        }
    }
}

/// Returns the name of a choice, as in JSON.
pub fn word(choice: &impl serde::Serialize) -> String {
    serde_json::to_value(choice).ok().and_then(|value| value.as_str().map(ToOwned::to_owned)).unwrap_or_default()
}

fn path_of(name: &ScheduleName) -> String {
    format!("/schedules/{}", encode(name.as_str()))
}

async fn list(State(state): State<AppState>, frame: Frame) -> ApiResult {
    let (schedules, now) = (state.coordinator.store().schedules().await?, state.coordinator.clock().now());
    let schedules = schedules.iter().map(|schedule| ScheduleRow::of(schedule, now)).collect();
    layout::render(&SchedulesTemplate { page: frame.page(SCHEDULES, "Schedules"), schedules })
}

#[derive(Template)]
#[template(path = "schedule.html")]
struct ScheduleTemplate {
    page: Page,
    schedule: ScheduleRow,
    jobs_path: String,
    args: String,
    next: Vec<NextTick>,
    past: Vec<TickRow>,
    commands: Vec<(&'static str, String)>,
}

/// A tick to come: in the zone of the schedule, in the viewer's zone, and how far away it is.
struct NextTick {
    there: String,
    here: Local,
    away: When,
}

struct TickRow {
    there: String,
    at: When,
    outcome: Mark,
    job: Option<String>,
    status: Option<Mark>,
}

impl TickRow {
    fn of(tick: &PastTick, zone: &TimeZone, now: Timestamp) -> Self {
        TickRow {
            there: in_zone(tick.at, zone),
            at: When::new(tick.at, now),
            outcome: match tick.outcome {
                TickOutcome::Made => Mark::new("✓", "made a job", "good"),
                TickOutcome::Triggered => Mark::new("▸", "triggered by hand", "busy"),
                TickOutcome::Skipped => Mark::new("↷", "skipped: a job was live", "warn"),
                TickOutcome::Missed => Mark::new("✕", "missed: no leader, or paused", "bad"),
            },
            job: tick.job_id.map(|id| id.to_string()),
            status: tick.status.map(Mark::from),
        }
    }
}

fn in_zone(at: Timestamp, zone: &TimeZone) -> String {
    at.to_zoned(zone.clone()).strftime("%a %Y-%m-%d %H:%M:%S %Z").to_string()
}

async fn show(
    State(state): State<AppState>,
    Segment(name): Segment<ScheduleName>,
    frame: Frame,
    share: Share,
) -> ApiResult {
    share.reserve_page().await?;
    let schedule = state.coordinator.schedule(&name).await?;
    let ticks = read_ticks(&state, &schedule, PAST_SHOWN).await?;
    let now = state.coordinator.clock().now();
    let zone = schedule.tz.as_deref().and_then(|tz| TimeZone::get(tz).ok()).unwrap_or(TimeZone::UTC);
    let next = |at: &Timestamp| NextTick { there: in_zone(*at, &zone), here: Local(*at), away: When::new(*at, now) };
    let hidden = frame.viewer.payloads_hidden;
    let args = schedule.template.args.as_ref().map(|args| pretty(args.as_str())).unwrap_or_default();
    let api = format!("/v1{}", path_of(&name));
    layout::render(&ScheduleTemplate {
        page: frame.page(SCHEDULES, format!("Schedule {name}")),
        jobs_path: filter::path_of("schedule", name.as_str()),
        args: if hidden { "hidden from this token".into() } else { args },
        next: ticks.next.iter().map(next).collect(),
        past: ticks.past.iter().map(|tick| TickRow::of(tick, &zone, now)).collect(),
        commands: vec![
            ("Show", frame.curl("GET", &api)),
            ("Ticks", frame.curl("GET", &format!("{api}/ticks"))),
            ("Pause", frame.curl("POST", &format!("{api}/pause"))),
            ("Resume", frame.curl("POST", &format!("{api}/resume"))),
            ("Trigger", frame.curl("POST", &format!("{api}/trigger"))),
            ("Remove", frame.curl("DELETE", &api)),
        ],
        schedule: ScheduleRow::of(&schedule, now),
    })
}

async fn pause(state: State<AppState>, name: Segment<ScheduleName>, request: Request) -> ApiResult {
    set_paused(state, name, request, true).await
}

async fn resume(state: State<AppState>, name: Segment<ScheduleName>, request: Request) -> ApiResult {
    set_paused(state, name, request, false).await
}

async fn set_paused(
    State(state): State<AppState>,
    Segment(name): Segment<ScheduleName>,
    request: Request,
    paused: bool,
) -> ApiResult {
    Form::read(request, SMALL_BYTES_MAX).await?;
    state.coordinator.pause_schedule(&name, paused).await?;
    let notice = if paused { "schedule-paused" } else { "schedule-resumed" };
    layout::see_other(&format!("{}?notice={notice}", path_of(&name)))
}

async fn trigger(State(state): State<AppState>, Segment(name): Segment<ScheduleName>, request: Request) -> ApiResult {
    Form::read(request, SMALL_BYTES_MAX).await?;
    state.coordinator.trigger_schedule(&name).await?;
    layout::see_other(&format!("{}?notice=triggered", path_of(&name)))
}

async fn remove(State(state): State<AppState>, Segment(name): Segment<ScheduleName>, request: Request) -> ApiResult {
    Form::read(request, SMALL_BYTES_MAX).await?;
    state.coordinator.remove_schedule(&name).await?;
    layout::see_other("/schedules?notice=schedule-removed")
}
