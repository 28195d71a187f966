//! Workers: their slots, their heartbeats and the runs that each has.

use std::collections::HashMap;

use askama::Template;
use axum::extract::State;
use convoke_core::WorkerId;
use convoke_core::jobs::wire::WorkerState;
use convoke_core::ports::store::{InFlight, InFlightFilter, WorkerRecord};
use jiff::Timestamp;

use crate::AppState;
use crate::body::Segment;
use crate::dashboard::layout::{self, Frame, Page, WORKERS};
use crate::dashboard::routes::PageRoutes;
use crate::dashboard::text::{Mark, When, encode};
use crate::error::ApiResult;

/// Runs that are read for the list; the page of a worker shows its own.
const RUNS_READ: usize = 500;
/// Runs that the list names for each worker.
const RUNS_NAMED: usize = 4;
/// Runs on the page of a worker.
const RUNS_SHOWN: usize = 200;

pub fn routes() -> PageRoutes {
    PageRoutes::new().page("/workers", list).page("/workers/{id}", show)
}

#[derive(Template)]
#[template(path = "workers.html")]
struct WorkersTemplate {
    page: Page,
    workers: Vec<WorkerRow>,
    busy: u64,
    slots: u64,
}

/// A worker and some of its runs.
pub struct WorkerRow {
    pub id: String,
    pub path: String,
    pub name: String,
    pub queues: Vec<(String, String)>,
    pub running: u32,
    pub slots: u32,
    pub state: Mark,
    pub heartbeat: When,
    pub registered: When,
    pub via: String,
    pub runs: Vec<RunRow>,
    pub more_runs: usize,
}

/// A run that a worker has.
pub struct RunRow {
    pub job: String,
    pub job_type: String,
    pub queue: String,
    pub attempt: u32,
    pub mark: Mark,
    pub owner: String,
    pub dispatched: When,
}

impl RunRow {
    fn of(run: &InFlight, now: Timestamp) -> Self {
        RunRow {
            job: run.job.to_string(),
            job_type: run.job_type.to_string(),
            queue: run.queue.to_string(),
            attempt: run.attempt,
            mark: run.status.into(),
            owner: run.owner.as_ref().map(ToString::to_string).unwrap_or_default(),
            dispatched: When::new(run.dispatched_at, now),
        }
    }
}

impl WorkerRow {
    pub fn of(worker: &WorkerRecord, now: Timestamp) -> Self {
        let queue = |name: &str| (name.to_owned(), format!("/queues/{}", encode(name)));
        WorkerRow {
            id: worker.worker_id.to_string(),
            path: format!("/workers/{}", encode(worker.worker_id.as_str())),
            name: worker.name.clone(),
            queues: worker.queues.iter().map(|name| queue(name.as_str())).collect(),
            running: worker.running,
            slots: worker.concurrency,
            state: mark(worker.state),
            heartbeat: When::new(worker.last_heartbeat_at, now),
            registered: When::new(worker.registered_at, now),
            via: worker.via.as_ref().map_or_else(|| "the bus".into(), |node| format!("node {node}")),
            runs: Vec::new(),
            more_runs: 0,
        }
    }
}

fn mark(state: WorkerState) -> Mark {
    match state {
        WorkerState::Active => Mark::new("✓", "active", "good"),
        WorkerState::Draining => Mark::new("↩", "draining", "warn"),
        WorkerState::Gone => Mark::new("✕", "gone", "bad"),
    }
}

async fn list(State(state): State<AppState>, frame: Frame) -> ApiResult {
    let coordinator = &state.coordinator;
    let workers = coordinator.workers().await?;
    let runs = coordinator.store().in_flight(InFlightFilter::default(), None, RUNS_READ).await?;
    let now = coordinator.clock().now();
    let mut runs_of: HashMap<WorkerId, Vec<RunRow>> = HashMap::new();
    for run in &runs {
        if let Some(worker) = &run.worker {
            runs_of.entry(worker.clone()).or_default().push(RunRow::of(run, now));
        }
    }
    let busy = workers.iter().map(|worker| u64::from(worker.running)).sum();
    let slots = workers.iter().map(|worker| u64::from(worker.concurrency)).sum();
    let rows = workers.iter().map(|worker| {
        let mut runs = runs_of.remove(&worker.worker_id).unwrap_or_default();
        let more_runs = runs.len().saturating_sub(RUNS_NAMED);
        runs.truncate(RUNS_NAMED);
        WorkerRow { runs, more_runs, ..WorkerRow::of(worker, now) }
    });
    let workers = rows.collect();
    layout::render(&WorkersTemplate { page: frame.page(WORKERS, "Workers"), workers, busy, slots })
}

#[derive(Template)]
#[template(path = "worker.html")]
struct WorkerTemplate {
    page: Page,
    worker: WorkerRow,
}

async fn show(State(state): State<AppState>, Segment(id): Segment<WorkerId>, frame: Frame) -> ApiResult {
    let coordinator = &state.coordinator;
    let worker = coordinator.worker(&id).await?;
    let filter = InFlightFilter { worker: Some(id.clone()), ..InFlightFilter::default() };
    let runs = coordinator.store().in_flight(filter, None, RUNS_SHOWN).await?;
    let now = coordinator.clock().now();
    let runs = runs.iter().map(|run| RunRow::of(run, now)).collect();
    let worker = WorkerRow { runs, ..WorkerRow::of(&worker, now) };
    layout::render(&WorkerTemplate { page: frame.page(WORKERS, format!("Worker {id}")), worker })
}
