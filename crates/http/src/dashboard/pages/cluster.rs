//! The cluster: the lanes of terms, whom each node believes to lead, who owns how many runs, handoffs and drains.

use std::collections::HashMap;
use std::time::Duration;

use askama::Template;
use axum::extract::{Request, State};
use convoke_core::NodeId;
use convoke_core::history::{DrainRecord, HandoffRecord, RefusedWrite, TermEnd, TermRecord};
use convoke_core::jobs::wire::{NodeRole, NodeState};
use convoke_core::ports::store::NodeRecord;
use jiff::Timestamp;

use crate::AppState;
use crate::body::{Params, SMALL_BYTES_MAX, Segment};
use crate::dashboard::form::Form;
use crate::dashboard::lanes::{self, LEFT, Lanes, WIDTH};
use crate::dashboard::layout::{self, CLUSTER, Frame, Page};
use crate::dashboard::routes::PageRoutes;
use crate::dashboard::text::{Local, Mark, When, count, encode, span};
use crate::dashboard::verdict::{Opinion, believes};
use crate::error::ApiResult;

/// Rows of each table; the API returns more.
const ROWS_MAX: usize = 50;
/// The windows that the lanes can show.
const WINDOWS: [(&str, u64); 4] = [("15m", 900), ("1h", 3_600), ("6h", 21_600), ("1d", 86_400)];

pub fn routes() -> PageRoutes {
    PageRoutes::new().page("/cluster", show).form("/cluster/nodes/{id}/drain", drain)
}

#[derive(Template)]
#[template(path = "cluster.html")]
struct ClusterTemplate {
    page: Page,
    agreement: Agreement,
    lanes: Lanes,
    windows: Vec<(&'static str, bool)>,
    since: When,
    nodes: Vec<NodeRow>,
    terms: Vec<TermRow>,
    refused: Vec<RefusedRow>,
    moving: String,
    handoffs: Vec<HandoffRow>,
    left: u32,
    width: u32,
}

/// Whether all nodes believe in the same leader.
struct Agreement {
    is_whole: bool,
    text: String,
}

struct NodeRow {
    id: String,
    path: String,
    state: Mark,
    is_leader: bool,
    is_here: bool,
    /// Whom it believes to lead, with which epoch; empty if that is not known.
    leader: String,
    epoch: String,
    as_of: Option<When>,
    agrees: Mark,
    runs: String,
    heartbeat: String,
    version: String,
    drain: Option<DrainRow>,
    may_drain: bool,
}

struct DrainRow {
    runs: u64,
    done: u64,
    text: String,
}

struct TermRow {
    epoch: String,
    node: String,
    began: Local,
    ended: Option<Local>,
    why: &'static str,
    slow: Vec<String>,
}

struct RefusedRow {
    at: When,
    node: String,
    text: String,
    job: Option<String>,
}

struct HandoffRow {
    at: When,
    job: String,
    from: String,
    to: String,
    reason: &'static str,
    case: String,
    took: String,
}

/// Why a term ended, in words.
fn why(by: Option<TermEnd>) -> &'static str {
    match by {
        None => "leads now",
        Some(TermEnd::Stopped) => "the node drained or stopped, and resigned",
        Some(TermEnd::Resigned) => "the node gave the lease up: it did not reach a backend, or a task failed",
        Some(TermEnd::Fenced) => "a write or a renewal was refused: another node leads",
        Some(TermEnd::Expired) => "the lease was not renewed in time",
    }
}

async fn show(State(state): State<AppState>, mut params: Params, frame: Frame) -> ApiResult {
    let wanted = params.text("window")?;
    let coordinator = &state.coordinator;
    let now = coordinator.clock().now();
    let known = coordinator.known_nodes().await?;
    let (terms, refused) = (coordinator.terms(), coordinator.refused_writes().records);
    let window = WINDOWS.iter().find(|(name, _)| wanted.as_deref() == Some(*name)).unwrap_or(&WINDOWS[1]);
    let present: Vec<&NodeRecord> = known.nodes.iter().filter(|node| !node.state.is_gone()).collect();
    let ids: Vec<NodeId> = present.iter().map(|node| node.node_id.clone()).collect();
    let lanes = Lanes::draw(&ids, &terms.records, &refused, Duration::from_secs(window.1), now);
    let drains: HashMap<NodeId, DrainRecord> =
        coordinator.drains().records.into_iter().rev().map(|drain| (drain.node.clone(), drain)).collect();
    let handoffs = coordinator.known_handoffs().await;
    let template = ClusterTemplate {
        page: frame.page(CLUSTER, "Cluster"),
        agreement: agreement(&state, &present),
        lanes,
        windows: WINDOWS.iter().map(|it| (it.0, it == window)).collect(),
        since: When::new(terms.since, now),
        nodes: known.nodes.iter().map(|node| node_row(&state, &frame, node, drains.get(&node.node_id), now)).collect(),
        terms: terms.records.iter().take(ROWS_MAX).map(term_row).collect(),
        refused: refused.iter().take(ROWS_MAX).map(|refused| refused_row(refused, now)).collect(),
        moving: handoffs.map_or_else(|| "unknown: the store does not respond".into(), |it| count(it.total as u64)),
        handoffs: coordinator.past_handoffs().records.iter().take(ROWS_MAX).map(|it| handoff_row(it, now)).collect(),
        left: LEFT,
        width: WIDTH,
    };
    layout::render(&template)
}

/// Compares whom the nodes that are present believe to lead.
fn agreement(state: &AppState, present: &[&NodeRecord]) -> Agreement {
    let view = state.coordinator.cluster();
    let Some(leader) = view.leader else {
        return Agreement { is_whole: false, text: format!("Nobody leads. The last epoch was {}.", view.epoch) };
    };
    let others: Vec<String> = present
        .iter()
        .filter_map(|node| {
            let id = &node.node_id;
            match Opinion::of(state, node) {
                Opinion::Agrees => None,
                Opinion::Unknown => Some(format!("{id}: not known yet.")),
                Opinion::Differs(belief) => Some(format!("{id} believes that {}.", believes(&belief))),
            }
        })
        .collect();
    let agreeing = present.len() - others.len();
    let is_whole = others.is_empty();
    let rest: String = others.iter().map(|other| format!(" {other}")).collect();
    let text = format!("{agreeing} of {} nodes agree: {leader} leads, epoch {}.{rest}", present.len(), view.epoch);
    Agreement { is_whole, text }
}

fn node_row(
    state: &AppState,
    frame: &Frame,
    node: &NodeRecord,
    drain: Option<&DrainRecord>,
    now: Timestamp,
) -> NodeRow {
    let (coordinator, id) = (&state.coordinator, &node.node_id);
    let (view, belief) = (coordinator.cluster(), coordinator.belief_of(id));
    let agrees = match Opinion::of(state, node) {
        _ if node.state.is_gone() => Mark::new("–", "gone", "quiet"),
        Opinion::Unknown => Mark::new("?", "not known", "warn"),
        Opinion::Agrees if view.leader.is_some() => Mark::new("✓", "agrees", "good"),
        Opinion::Agrees => Mark::new("!", "nobody leads", "bad"),
        Opinion::Differs(_) => Mark::new("!", "differs", "bad"),
    };
    let state_mark = match node.state {
        NodeState::Active => Mark::new("●", "active", "good"),
        NodeState::Suspect => Mark::new("?", "suspect", "warn"),
        NodeState::Draining => Mark::new("↩", "draining", "busy"),
        NodeState::Dead => Mark::new("✕", "dead", "bad"),
        NodeState::Left => Mark::new("–", "left", "quiet"),
    };
    let drain = drain.filter(|_| node.state != NodeState::Active).map(|drain| DrainRow {
        runs: drain.runs,
        done: drain.runs.saturating_sub(drain.open),
        text: match (drain.ended_at, drain.orphans) {
            (Some(_), 0) => format!("all {} runs have another owner or have ended", count(drain.runs)),
            (Some(_), orphans) => format!("{} of {} runs were left as orphans", count(orphans), count(drain.runs)),
            (None, _) => format!("{} of {} runs are left", count(drain.open), count(drain.runs)),
        },
    });
    NodeRow {
        path: format!("/cluster/nodes/{}/drain", encode(id.as_str())),
        id: id.to_string(),
        state: state_mark,
        is_leader: node.role == NodeRole::Leader,
        is_here: id == coordinator.node_id(),
        leader: belief.as_ref().and_then(|belief| belief.leader.as_ref()).map(NodeId::to_string).unwrap_or_default(),
        epoch: belief.as_ref().map(|belief| belief.epoch.to_string()).unwrap_or_default(),
        as_of: belief.map(|belief| When::new(belief.lease_read_at.unwrap_or(belief.at), now)),
        agrees,
        runs: count(node.job_count),
        heartbeat: span(coordinator.silence_of(id)),
        version: node.version.clone(),
        drain,
        may_drain: frame.viewer.may_admin && matches!(node.state, NodeState::Active | NodeState::Suspect),
    }
}

fn term_row(term: &TermRecord) -> TermRow {
    let slow = |slow: &convoke_core::history::SlowRenewal| {
        format!("{:.0}: {} instead of {}", slow.at, span(slow.duration), span(slow.expected))
    };
    TermRow {
        epoch: term.epoch.to_string(),
        node: term.node.to_string(),
        began: Local(term.began_at),
        ended: term.ended_at.map(Local),
        why: why(term.ended_by.filter(|_| term.ended_at.is_some())),
        slow: term.slow_renewals.iter().map(slow).collect(),
    }
}

fn refused_row(refused: &RefusedWrite, now: Timestamp) -> RefusedRow {
    RefusedRow {
        at: When::new(refused.at, now),
        node: refused.node.to_string(),
        text: lanes::explain(refused),
        job: refused.job_id.map(|job| job.to_string()),
    }
}

fn handoff_row(handoff: &HandoffRecord, now: Timestamp) -> HandoffRow {
    let case = |case: convoke_core::jobs::handoff::AckCase| format!("{}: {}", case.letter(), lanes::case_words(case));
    HandoffRow {
        at: When::new(handoff.at, now),
        job: handoff.job_id.to_string(),
        from: handoff.from_node.to_string(),
        to: handoff.to_node.as_ref().map_or_else(|| "nobody".into(), NodeId::to_string),
        reason: handoff.reason.as_str(),
        case: handoff.case.map_or_else(|| "–: the former owner was gone".into(), case),
        took: handoff.duration.map(span).unwrap_or_default(),
    }
}

async fn drain(State(state): State<AppState>, Segment(id): Segment<NodeId>, request: Request) -> ApiResult {
    Form::read(request, SMALL_BYTES_MAX).await?;
    state.coordinator.request_drain(&id).await?;
    layout::see_other("/cluster?notice=draining")
}
