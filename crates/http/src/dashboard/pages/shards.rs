//! Shards: the services, the owner of each shard, and the last rebalances.

use askama::Template;
use axum::extract::State;
use convoke_core::ServiceName;
use convoke_core::history::Rebalance;
use jiff::Timestamp;
use serde::Deserialize;

use crate::AppState;
use crate::body::{Params, Segment};
use crate::dashboard::layout::{self, Frame, Page, SHARDS};
use crate::dashboard::routes::PageRoutes;
use crate::dashboard::text::{Mark, When, count, encode};
use crate::error::ApiResult;
use crate::shards::{read_service, read_services};

/// Workers on one page of the grid.
const ROWS_MAX: usize = 100;
/// Ranges of one strip. A strip with more is drawn in parts of the whole.
const RUNS_MAX: usize = 400;
/// Moves that the list of rebalances names.
const MOVES_NAMED: usize = 6;
/// Services on the page.
const SERVICES_MAX: usize = 200;

pub fn routes() -> PageRoutes {
    PageRoutes::new().page("/shards", list).page("/shards/{service}", show)
}

/// A service, as the API returns it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Service {
    service: String,
    max_shard_count: u32,
    version: u64,
    strategy: serde_json::Value,
    workers: Vec<Worker>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Worker {
    worker_id: String,
    shards: Vec<u32>,
    #[serde(default)]
    revoking: Vec<u32>,
    #[serde(default)]
    incoming: Vec<u32>,
    active: bool,
    last_heartbeat_at: Timestamp,
}

impl Service {
    /// Returns the shards that no worker owns.
    fn unassigned(&self) -> Vec<u32> {
        let mut owned = vec![false; self.max_shard_count as usize];
        for shard in self.workers.iter().flat_map(|worker| &worker.shards) {
            if let Some(owned) = owned.get_mut(*shard as usize) {
                *owned = true;
            }
        }
        (0..self.max_shard_count).filter(|shard| !owned[*shard as usize]).collect()
    }

    fn strategy(&self) -> String {
        self.strategy.as_str().map_or_else(|| self.strategy.to_string(), str::to_owned)
    }
}

#[derive(Template)]
#[template(path = "shards.html")]
struct ShardsTemplate {
    page: Page,
    coordinator: String,
    services: Vec<ServiceRow>,
    more: usize,
}

struct ServiceRow {
    name: String,
    path: String,
    shards: String,
    workers: String,
    unassigned: u64,
    moving: u64,
    version: String,
}

async fn list(State(state): State<AppState>, frame: Frame) -> ApiResult {
    let read = read_services(&state).await;
    let total = read.services.len();
    let services = read.services.into_iter().take(SERVICES_MAX);
    let row = |value: serde_json::Value| {
        let service: Service = serde_json::from_value(value).ok()?;
        Some(ServiceRow {
            path: format!("/shards/{}", encode(&service.service)),
            shards: count(service.max_shard_count.into()),
            workers: count(service.workers.iter().filter(|worker| worker.active).count() as u64),
            unassigned: service.unassigned().len() as u64,
            moving: service.workers.iter().map(|worker| worker.revoking.len() as u64).sum(),
            version: count(service.version),
            name: service.service,
        })
    };
    let template = ShardsTemplate {
        page: frame.page(SHARDS, "Shards"),
        coordinator: read.coordinator.map(|node| node.to_string()).unwrap_or_default(),
        services: services.filter_map(row).collect(),
        more: total.saturating_sub(SERVICES_MAX),
    };
    layout::render(&template)
}

#[derive(Template)]
#[template(path = "shard_service.html")]
struct ServiceTemplate {
    page: Page,
    name: String,
    path: String,
    shards: u32,
    version: String,
    changed: Option<When>,
    strategy: String,
    unassigned: Strip,
    unassigned_count: u64,
    moving: u64,
    rows: Vec<WorkerRow>,
    workers: usize,
    first: usize,
    last: usize,
    before: Option<usize>,
    next: Option<usize>,
    rebalances: Vec<RebalanceRow>,
}

/// The shards of one worker, as a strip of all shards of the service.
struct Strip {
    /// First shard, number of shards, and what they are: `own`, `leaving` or `coming`.
    runs: Vec<(u32, u32, &'static str)>,
}

impl Strip {
    fn new(parts: [(&[u32], &'static str); 3]) -> Self {
        let mut runs = Vec::new();
        for (shards, class) in parts {
            let part = merged(shards);
            // Thousands of single shards: neighbours that are close become one.
            let gap = (part.len() / RUNS_MAX) as u32;
            runs.extend(joined(part, gap).into_iter().map(|(first, length)| (first, length, class)));
        }
        Strip { runs }
    }
}

/// Returns contiguous runs of shards as first and length.
fn merged(shards: &[u32]) -> Vec<(u32, u32)> {
    let mut sorted = shards.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let single = sorted.into_iter().map(|shard| (shard, 1)).collect();
    joined(single, 0)
}

/// Joins runs that are at most `gap` shards apart.
fn joined(runs: Vec<(u32, u32)>, gap: u32) -> Vec<(u32, u32)> {
    let mut whole: Vec<(u32, u32)> = Vec::new();
    for (first, length) in runs {
        match whole.last_mut() {
            Some((start, total)) if first <= *start + *total + gap => *total = first + length - *start,
            _ => whole.push((first, length)),
        }
    }
    whole
}

/// Returns runs in words: `0–9, 12, 20–29 and 3 more ranges`.
fn words(shards: &[u32]) -> String {
    let runs = merged(shards);
    let range = |(first, length): &(u32, u32)| match length {
        1 => first.to_string(),
        length => format!("{first}–{}", first + length - 1),
    };
    let named: Vec<String> = runs.iter().take(MOVES_NAMED).map(range).collect();
    match runs.len().saturating_sub(MOVES_NAMED) {
        0 => named.join(", "),
        more => format!("{} and {more} more ranges", named.join(", ")),
    }
}

struct WorkerRow {
    id: String,
    state: Mark,
    count: usize,
    strip: Strip,
    text: String,
    leaving: String,
    coming: String,
    heartbeat: When,
}

impl WorkerRow {
    fn of(worker: &Worker, now: Timestamp) -> Self {
        let Worker { worker_id, shards, revoking, incoming, active, last_heartbeat_at } = worker;
        WorkerRow {
            id: worker_id.clone(),
            state: if *active { Mark::new("●", "active", "good") } else { Mark::new("✕", "silent", "bad") },
            count: shards.len(),
            strip: Strip::new([(shards, "own"), (revoking, "leaving"), (incoming, "coming")]),
            text: words(shards),
            leaving: words(revoking),
            coming: words(incoming),
            heartbeat: When::new(*last_heartbeat_at, now),
        }
    }
}

struct RebalanceRow {
    version: String,
    at: When,
    causes: String,
    moved: String,
    moves: Vec<String>,
    more: usize,
    is_cut: bool,
}

impl RebalanceRow {
    fn of(rebalance: &Rebalance, now: Timestamp) -> Self {
        let causes = rebalance.causes.iter().map(|cause| match cause.count {
            1 => cause.change.as_str().to_owned(),
            count => format!("{} × {count}", cause.change.as_str()),
        });
        let moves = rebalance.moves.iter().take(MOVES_NAMED).map(|it| {
            let shards = if it.first == it.last { it.first.to_string() } else { format!("{}–{}", it.first, it.last) };
            let name = |worker: &Option<convoke_core::WorkerId>| {
                worker.as_ref().map_or_else(|| "nobody".to_owned(), |worker| worker.to_string())
            };
            format!("{shards}: {} → {}", name(&it.from), name(&it.to))
        });
        RebalanceRow {
            version: count(rebalance.version.0),
            at: When::new(rebalance.at, now),
            causes: causes.collect::<Vec<_>>().join(", "),
            moved: count(rebalance.moved),
            moves: moves.collect(),
            more: rebalance.moves.len().saturating_sub(MOVES_NAMED),
            is_cut: rebalance.cut,
        }
    }
}

async fn show(
    State(state): State<AppState>,
    Segment(name): Segment<ServiceName>,
    mut params: Params,
    frame: Frame,
) -> ApiResult {
    let first = params.parse::<usize>("from")?.unwrap_or(0);
    let now = state.coordinator.clock().now();
    let service: Service = serde_json::from_value(read_service(&state, &name).await?).map_err(|error| {
        crate::error::ApiError::new(
            http::StatusCode::SERVICE_UNAVAILABLE,
            "unavailable",
            format!("the view of the coordinator of shards could not be read: {error}; it may be of another version"),
        )
    })?;
    let rebalances = state.coordinator.rebalances(&name).records;
    let unassigned = service.unassigned();
    // Workers whose shards move come first.
    let mut workers: Vec<&Worker> = service.workers.iter().collect();
    workers.sort_by_key(|worker| (worker.revoking.is_empty() && worker.incoming.is_empty(), worker.worker_id.as_str()));
    let first = first.min(workers.len());
    let last = (first + ROWS_MAX).min(workers.len());
    let template = ServiceTemplate {
        page: frame.page(SHARDS, format!("Shards of {name}")),
        path: format!("/shards/{}", encode(name.as_str())),
        name: name.to_string(),
        shards: service.max_shard_count,
        version: count(service.version),
        changed: rebalances.first().map(|rebalance| When::new(rebalance.at, now)),
        strategy: service.strategy(),
        unassigned_count: unassigned.len() as u64,
        unassigned: Strip::new([(&unassigned, "unassigned"), (&[], ""), (&[], "")]),
        moving: service.workers.iter().map(|worker| worker.revoking.len() as u64).sum(),
        rows: workers[first..last].iter().map(|worker| WorkerRow::of(worker, now)).collect(),
        workers: workers.len(),
        first: if workers.is_empty() { 0 } else { first + 1 },
        last,
        before: (first > 0).then(|| first.saturating_sub(ROWS_MAX)),
        next: (last < workers.len()).then_some(last),
        rebalances: rebalances.iter().map(|rebalance| RebalanceRow::of(rebalance, now)).collect(),
    };
    layout::render(&template)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contiguous_shards_are_one_run() {
        assert_eq!(merged(&[3, 1, 2, 7, 9, 8, 2]), [(1, 3), (7, 3)]);
        assert_eq!(words(&[3, 1, 2, 7]), "1–3, 7");
        assert_eq!(words(&[0, 2, 4, 6, 8, 10, 12, 14]), "0, 2, 4, 6, 8, 10 and 2 more ranges");
        assert_eq!(words(&[]), "");
    }

    #[test]
    fn a_strip_of_many_single_shards_stays_small() {
        let shards: Vec<u32> = (0..10_000).filter(|shard| shard % 2 == 0).collect();
        let strip = Strip::new([(&shards, "own"), (&[], ""), (&[], "")]);
        assert!(strip.runs.len() <= 2 * RUNS_MAX, "{}", strip.runs.len());
    }
}
