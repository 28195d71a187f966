//! Queues: their counts, their limits and their workers; pause, resume, limit, delete.

use std::collections::HashMap;
use std::time::Duration;

use askama::Template;
use axum::extract::{Request, State};
use convoke_core::QueueName;
use convoke_core::history::Counts;
use convoke_core::jobs::{QueuePatch, RateLimit, Status};
use convoke_core::ports::store::JobQuery;
use convoke_runtime::jobs::QueueView;
use jiff::Timestamp;

use super::jobs::JobRow;
use super::overview::Chart;
use super::workers::WorkerRow;
use crate::AppState;
use crate::body::{SMALL_BYTES_MAX, Segment};
use crate::dashboard::filter;
use crate::dashboard::form::Form;
use crate::dashboard::layout::{self, Frame, Page, QUEUES};
use crate::dashboard::routes::PageRoutes;
use crate::dashboard::text::{self, Mark, count, encode, span};
use crate::dashboard::verdict::Trouble;
use crate::error::ApiResult;
use crate::memory::Share;
use crate::queues::check_concurrency;

/// Jobs on the page of a queue.
const JOBS_SHOWN: usize = 10;
/// The time over which rates of the list are measured.
const RATES_OVER: Duration = Duration::from_secs(300);
const HOUR: Duration = Duration::from_secs(3600);

pub fn routes() -> PageRoutes {
    PageRoutes::new()
        .page("/queues", list)
        .page("/queues/{name}", show)
        .form("/queues/{name}/pause", pause)
        .form("/queues/{name}/resume", resume)
        .form("/queues/{name}/limit", limit)
        .form("/queues/{name}/delete", delete)
}

#[derive(Template)]
#[template(path = "queues.html")]
struct QueuesTemplate {
    page: Page,
    queues: Vec<QueueRow>,
}

struct QueueRow {
    name: String,
    path: String,
    paused: bool,
    pending: String,
    scheduled: String,
    in_flight: String,
    completed: String,
    dead: String,
    oldest: String,
    limits: String,
    workers: u32,
    no_worker: bool,
    /// Completed jobs and failed attempts of the last five minutes, a minute.
    rates: String,
}

impl QueueRow {
    fn of(view: &QueueView, rates: Option<&Counts>, now: Timestamp) -> Self {
        let (queue, counts) = (&view.queue, &view.queue.counts);
        let rate = view.effective_rate_limit.map(|rate| rate.to_string());
        let concurrency = queue.concurrency.map(|most| format!("at most {most} at once"));
        QueueRow {
            name: queue.name.to_string(),
            path: format!("/queues/{}", encode(queue.name.as_str())),
            paused: queue.paused,
            pending: count(counts.get(Status::Pending)),
            scheduled: count(counts.get(Status::Scheduled)),
            in_flight: count(counts.in_flight()),
            completed: count(counts.get(Status::Completed)),
            dead: count(counts.get(Status::Failed) + counts.get(Status::TimedOut)),
            oldest: queue.oldest_pending_at.map_or_else(|| "–".into(), |since| span(text::age(since, now))),
            limits: rate.into_iter().chain(concurrency).collect::<Vec<_>>().join(", "),
            workers: view.workers,
            no_worker: Trouble::of(view, now).no_worker,
            rates: rates.map(a_minute).unwrap_or_default(),
        }
    }
}

/// Returns what happened in [`RATES_OVER`], a minute.
fn a_minute(counts: &Counts) -> String {
    let minutes = RATES_OVER.as_secs() / 60;
    let failed = counts.failed / minutes;
    let completed = format!("{} completed", count(counts.completed / minutes));
    if counts.failed > 0 { format!("{completed}, {} failed", count(failed.max(1))) } else { completed }
}

async fn list(State(state): State<AppState>, frame: Frame) -> ApiResult {
    let (views, now) = (state.coordinator.queue_views().await?, state.coordinator.clock().now());
    let (_, series) = state.coordinator.time_series(RATES_OVER, None);
    let rates: HashMap<_, _> = series.queues.iter().map(|total| (&total.queue, &total.counts)).collect();
    let row = |view: &QueueView| QueueRow::of(view, rates.get(&view.queue.name).copied(), now);
    let queues = views.iter().map(row).collect();
    layout::render(&QueuesTemplate { page: frame.page(QUEUES, "Queues"), queues })
}

#[derive(Template)]
#[template(path = "queue.html")]
struct QueueTemplate {
    page: Page,
    row: QueueRow,
    charts: Vec<Chart>,
    counts: Vec<(Mark, String, String)>,
    own_rate: String,
    effective_rate: String,
    /// How much of the present window of the rate limit is used.
    used: Option<String>,
    concurrency: String,
    workers: Vec<WorkerRow>,
    jobs: Vec<JobRow>,
    commands: Vec<(&'static str, String)>,
}

async fn show(
    State(state): State<AppState>,
    Segment(name): Segment<QueueName>,
    frame: Frame,
    share: Share,
) -> ApiResult {
    share.reserve_page().await?;
    let coordinator = &state.coordinator;
    let view = coordinator.queue_view(&name).await?;
    let now = coordinator.clock().now();
    let used = match view.effective_rate_limit {
        Some(rate) => Some(used(&state, &name, rate, now).await?),
        None => None,
    };
    let (_, hour) = coordinator.time_series(HOUR, Some(&name));
    let workers = coordinator.workers().await?;
    let query = JobQuery { queue: Some(name.clone()), limit: JOBS_SHOWN, ..JobQuery::default() };
    let jobs = coordinator.store().list(query).await?.jobs;
    let path = |status: Status| {
        let words = [filter::written("queue", name.as_str()), filter::written("status", status.as_str())];
        format!("/jobs?q={}", encode(&words.join(" ")))
    };
    let counts = view.queue.counts.iter().filter(|(status, _)| *status != Status::Created);
    let encoded = encode(name.as_str());
    let patch = |body: &str| frame.curl_with("PATCH", &format!("/v1/queues/{encoded}"), body);
    layout::render(&QueueTemplate {
        page: frame.page(QUEUES, format!("Queue {name}")),
        charts: vec![
            Chart::of("Completed a second", &hour, |counts| counts.completed, "good"),
            Chart::of("Failed attempts a second", &hour, |counts| counts.failed, "bad"),
            Chart::of("Enqueued a second", &hour, |counts| counts.enqueued, "busy"),
        ],
        row: QueueRow::of(&view, None, now),
        counts: counts.map(|(status, number)| (status.into(), count(number), path(status))).collect(),
        own_rate: view.queue.rate_limit.map(|rate| rate.to_string()).unwrap_or_default(),
        effective_rate: view.effective_rate_limit.map_or_else(|| "none".into(), |rate| rate.to_string()),
        used,
        concurrency: view.queue.concurrency.map(|most| most.to_string()).unwrap_or_default(),
        workers: workers
            .iter()
            .filter(|worker| worker.queues.contains(&name))
            .map(|worker| WorkerRow::of(worker, now))
            .collect(),
        jobs: jobs.iter().map(|job| JobRow::of(job, now, frame.viewer.payloads_hidden)).collect(),
        commands: vec![
            ("Show", frame.curl("GET", &format!("/v1/queues/{encoded}"))),
            ("Pause", patch(r#"{"paused":true}"#)),
            ("Resume", patch(r#"{"paused":false}"#)),
            ("Limit", patch(r#"{"rateLimit":{"limit":100,"per":"1s"},"concurrency":10}"#)),
            ("Delete", frame.curl("DELETE", &format!("/v1/queues/{encoded}"))),
        ],
    })
}

/// Returns how many dispatches the present window of a rate limit has.
async fn used(state: &AppState, name: &QueueName, rate: RateLimit, now: Timestamp) -> ApiResult<String> {
    let grants = state.coordinator.store().grants(Some(name), now - rate.per).await?;
    let dispatched: u64 = grants.iter().map(|(_, number)| u64::from(*number)).sum();
    Ok(format!("{} of {} in the last {}", count(dispatched), count(rate.limit.into()), text::typed(rate.per)))
}

async fn pause(state: State<AppState>, name: Segment<QueueName>, request: Request) -> ApiResult {
    set_paused(state, name, request, true).await
}

async fn resume(state: State<AppState>, name: Segment<QueueName>, request: Request) -> ApiResult {
    set_paused(state, name, request, false).await
}

async fn set_paused(
    State(state): State<AppState>,
    Segment(name): Segment<QueueName>,
    request: Request,
    paused: bool,
) -> ApiResult {
    Form::read(request, SMALL_BYTES_MAX).await?;
    state.coordinator.configure_queue(&name, QueuePatch { paused: Some(paused), ..QueuePatch::default() }).await?;
    back(&name, if paused { "queue-paused" } else { "queue-resumed" })
}

async fn limit(State(state): State<AppState>, Segment(name): Segment<QueueName>, request: Request) -> ApiResult {
    let form = Form::read(request, SMALL_BYTES_MAX).await?;
    let number = |text: &str| text.parse::<u32>().map_err(|_| format!("expected a whole number, got {text:?}"));
    let concurrency = form.parsed("concurrency", number)?;
    check_concurrency(concurrency)?;
    let rate_limit = form.parsed("rate", str::parse::<RateLimit>)?;
    let patch = QueuePatch { paused: None, rate_limit: Some(rate_limit), concurrency: Some(concurrency) };
    state.coordinator.configure_queue(&name, patch).await?;
    back(&name, "queue-limited")
}

async fn delete(State(state): State<AppState>, Segment(name): Segment<QueueName>, request: Request) -> ApiResult {
    Form::read(request, SMALL_BYTES_MAX).await?;
    state.coordinator.delete_queue(&name).await?;
    layout::see_other("/queues?notice=queue-deleted")
}

fn back(name: &QueueName, notice: &str) -> ApiResult {
    layout::see_other(&format!("/queues/{}?notice={notice}", encode(name.as_str())))
}
