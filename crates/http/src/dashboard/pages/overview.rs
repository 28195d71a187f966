//! The overview: the verdict, the queues by trouble, the last hour, and the slots of workers.

use std::time::Duration;

use askama::Template;
use axum::extract::State;
use convoke_core::history::{Counts, STEP, SeriesView};
use convoke_core::jobs::{QueueCounts, Status};
use convoke_core::ports::store::WorkerRecord;
use convoke_runtime::jobs::QueueView;
use jiff::Timestamp;

use crate::AppState;
use crate::dashboard::charts::Sparkline;
use crate::dashboard::layout::{self, Frame, OVERVIEW, Page};
use crate::dashboard::routes::PageRoutes;
use crate::dashboard::text::{count, encode, span};
use crate::dashboard::verdict::{Trouble, Verdict};
use crate::error::ApiResult;

/// How many queues are shown; the page of queues has them all.
const QUEUES_MAX: usize = 20;

pub fn routes() -> PageRoutes {
    PageRoutes::new().page("/", overview)
}

#[derive(Template)]
#[template(path = "overview.html")]
struct OverviewTemplate {
    page: Page,
    verdict: Verdict,
    figures: Vec<Figure>,
    charts: Vec<Chart>,
    slots: Slots,
    queues: Vec<QueueRow>,
    queues_total: usize,
    backends: Vec<(&'static str, String)>,
}

/// A number with the list that explains it.
struct Figure {
    label: &'static str,
    value: String,
    path: &'static str,
    /// Whether the number is one that should be zero, and is not.
    is_alarming: bool,
}

/// A chart of the last hour.
pub struct Chart {
    pub label: &'static str,
    /// The value of the last full minute, as text.
    pub now: String,
    /// The values in words, for readers who do not see the line.
    pub summary: String,
    pub line: Sparkline,
}

/// Steps of the time series that one point of a chart has: half a minute.
const STEPS_A_POINT: usize = 3;
const HOUR: Duration = Duration::from_secs(3600);

impl Chart {
    /// Returns the chart of one of the counts, a second.
    pub fn of(label: &'static str, series: &SeriesView, of: fn(&Counts) -> u64, class: &'static str) -> Self {
        let points: Vec<f64> = series
            .points
            .chunks(STEPS_A_POINT)
            .map(|steps| steps.iter().map(of).sum::<u64>() as f64 / (steps.len() as f64 * STEP.as_secs_f64()))
            .collect();
        let last = points.last().copied().unwrap_or(0.0);
        let highest = points.iter().copied().fold(0.0, f64::max);
        let total: u64 = series.points.iter().map(of).fold(0, u64::saturating_add);
        Chart {
            label,
            now: rate(last),
            summary: format!("In the last hour {} in all, at most {} a second.", count(total), rate(highest)),
            line: Sparkline::new(points, class),
        }
    }
}

/// Returns a number a second, with one digit after the point if it is small.
fn rate(number: f64) -> String {
    if number < 10.0 { format!("{number:.1}") } else { count(number.round() as u64) }
}

struct Slots {
    busy: u64,
    free: u64,
    workers: usize,
}

impl Slots {
    fn of(workers: &[WorkerRecord]) -> Self {
        let busy = workers.iter().map(|worker| u64::from(worker.running)).sum();
        let total: u64 = workers.iter().map(|worker| u64::from(worker.concurrency)).sum();
        Slots { busy, free: total.saturating_sub(busy), workers: workers.len() }
    }
}

/// A queue, with what is wrong with it.
struct QueueRow {
    name: String,
    path: String,
    pending: String,
    in_flight: String,
    dead: String,
    oldest: String,
    failing: String,
    workers: String,
    troubles: Vec<&'static str>,
}

impl QueueRow {
    fn of(view: &QueueView, trouble: Trouble) -> Self {
        let counts = &view.queue.counts;
        let mut troubles = Vec::new();
        if trouble.no_worker {
            troubles.push("no worker");
        }
        if view.queue.paused {
            troubles.push("paused");
        }
        if trouble.waits_long() {
            troubles.push("waits long");
        }
        if trouble.fails_often() {
            troubles.push("fails often");
        }
        QueueRow {
            name: view.queue.name.to_string(),
            path: format!("/queues/{}", encode(view.queue.name.as_str())),
            pending: count(counts.get(Status::Pending)),
            in_flight: count(counts.in_flight()),
            dead: count(dead(counts)),
            oldest: if trouble.waited.is_zero() { "–".into() } else { span(trouble.waited) },
            failing: format!("{} %", trouble.failing_percent),
            workers: count(view.workers.into()),
            troubles,
        }
    }
}

pub fn dead(counts: &QueueCounts) -> u64 {
    counts.get(Status::Failed) + counts.get(Status::TimedOut)
}

async fn overview(State(state): State<AppState>, frame: Frame) -> ApiResult {
    let page = frame.page(OVERVIEW, "Overview");
    let coordinator = &state.coordinator;
    let now = coordinator.clock().now();
    let nodes = coordinator.known_nodes().await?;
    let views = coordinator.queue_views().await?;
    let workers = coordinator.workers().await?;
    let verdict = Verdict::of(&state, &nodes, &views, now);
    let figures = figures(&views);
    let queues_total = views.len();
    let queues = by_trouble(views, now);
    layout::render(&OverviewTemplate {
        page,
        verdict,
        figures,
        charts: charts(&state),
        slots: Slots::of(&workers),
        queues,
        queues_total,
        backends: vec![
            ("node", coordinator.node_id().to_string()),
            ("store", state.info.store.clone()),
            ("bus", state.info.bus.clone()),
            ("leases", state.info.leases.clone()),
        ],
    })
}

fn figures(views: &[QueueView]) -> Vec<Figure> {
    let sum = |of: fn(&QueueCounts) -> u64| views.iter().map(|view| of(&view.queue.counts)).sum::<u64>();
    let figure = |label, path, value: u64, is_alarming| Figure { label, value: count(value), path, is_alarming };
    let dead_letters = sum(dead);
    vec![
        figure("pending", "/jobs?q=status:pending", sum(|counts| counts.get(Status::Pending)), false),
        figure("in flight", "/jobs?q=status:running,dispatched", sum(QueueCounts::in_flight), false),
        figure("scheduled", "/jobs?q=status:scheduled", sum(|counts| counts.get(Status::Scheduled)), false),
        figure("completed", "/jobs?q=status:completed", sum(|counts| counts.get(Status::Completed)), false),
        figure("dead letters", "/dead-letters", dead_letters, dead_letters > 0),
    ]
}

/// Returns the queues with the most trouble, the worst first.
fn by_trouble(views: Vec<QueueView>, now: Timestamp) -> Vec<QueueRow> {
    let mut rows: Vec<_> = views.into_iter().map(|view| (Trouble::of(&view, now), view)).collect();
    rows.sort_by(|(one, first), (other, second)| {
        other.partial_cmp(one).expect("no float").then_with(|| first.queue.name.cmp(&second.queue.name))
    });
    rows.truncate(QUEUES_MAX);
    rows.iter().map(|(trouble, view)| QueueRow::of(view, *trouble)).collect()
}

/// Returns the charts of the last hour.
fn charts(state: &AppState) -> Vec<Chart> {
    let (_, series) = state.coordinator.time_series(HOUR, None);
    vec![
        Chart::of("Completed a second", &series, |counts| counts.completed, "good"),
        Chart::of("Failed attempts a second", &series, |counts| counts.failed, "bad"),
        Chart::of("Enqueued a second", &series, |counts| counts.enqueued, "busy"),
    ]
}
