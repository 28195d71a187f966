//! One sentence about the state of the fleet, or its problems by name, each with the page that explains it.
//!
//! Everything that is judged here is also in `/v1/cluster` and `/v1/queues`.

use std::time::Duration;

use convoke_core::jobs::Status;
use convoke_core::jobs::wire::NodeState;
use convoke_core::ports::store::NodeRecord;
use convoke_runtime::jobs::{Belief, KnownNodes, QueueView};
use jiff::Timestamp;

use super::text::{age, count, encode, span};
use crate::AppState;

/// A pending job that waits longer than this is a problem of its queue.
const WAIT_LONG: Duration = Duration::from_secs(300);
/// A share of dead letters among ended jobs, in percent, from which a queue fails too often.
const FAILING_PERCENT: u64 = 10;
/// How many problems are named; the rest is counted.
const NAMED_MAX: usize = 12;

/// The state of the fleet.
pub struct Verdict {
    /// The sentence of a healthy fleet, or the number of problems.
    pub sentence: String,
    pub problems: Vec<Problem>,
    /// Problems that are not named.
    pub further: usize,
}

/// A named problem.
pub struct Problem {
    pub text: String,
    /// The page that explains it, without the prefix.
    pub path: String,
    /// How bad it is: the fleet does not work, or a part of it.
    pub is_outage: bool,
}

impl Verdict {
    pub fn is_healthy(&self) -> bool {
        self.problems.is_empty()
    }

    /// Judges what the node knows.
    pub fn of(state: &AppState, nodes: &KnownNodes, queues: &[QueueView], now: Timestamp) -> Self {
        let mut problems = problems_of_nodes(state, nodes);
        problems.extend(queues.iter().flat_map(|view| Trouble::of(view, now).problems(view)));
        // A stable sort: problems of one kind stay in the order of their names.
        problems.sort_by_key(|problem| !problem.is_outage);
        let further = problems.len().saturating_sub(NAMED_MAX);
        let sentence = match problems.len() {
            0 => healthy(state, nodes),
            1 => "One problem".into(),
            several => format!("{several} problems"),
        };
        problems.truncate(NAMED_MAX);
        Verdict { sentence, problems, further }
    }
}

fn healthy(state: &AppState, nodes: &KnownNodes) -> String {
    let leadership = state.coordinator.cluster();
    let present = nodes.nodes.iter().filter(|node| !node.state.is_gone());
    let opinions: Vec<Opinion> = present.map(|node| Opinion::of(state, node)).collect();
    let agree = opinions.iter().filter(|opinion| matches!(opinion, Opinion::Agrees)).count();
    let leader = leadership.leader.as_ref().map_or_else(|| "nobody".into(), |leader| leader.to_string());
    let terms = state.coordinator.terms().records;
    let since = terms.iter().find(|term| term.epoch == leadership.epoch && term.ended_at.is_none());
    let since = since.map(|term| format!(" since {}", term.began_at.strftime("%H:%M UTC"))).unwrap_or_default();
    let all = opinions.len();
    let unknown = if agree < all { ", of the rest it is not known yet" } else { "" };
    format!("Healthy: {leader} leads{since}, epoch {}; {agree} of {all} nodes agree{unknown}.", leadership.epoch)
}

/// Whom another node believes to lead, beside what this node believes.
pub enum Opinion {
    Agrees,
    /// It has not sent a heartbeat to this node.
    Unknown,
    Differs(Belief),
}

impl Opinion {
    pub fn of(state: &AppState, node: &NodeRecord) -> Self {
        let view = state.coordinator.cluster();
        match state.coordinator.belief_of(&node.node_id) {
            None => Opinion::Unknown,
            Some(belief) if belief.leader == view.leader && belief.epoch == view.epoch => Opinion::Agrees,
            Some(belief) => Opinion::Differs(belief),
        }
    }
}

/// Returns in words whom a node believes to lead.
pub fn believes(belief: &Belief) -> String {
    let leader = belief.leader.as_ref().map_or_else(|| "nobody leads".into(), |leader| format!("{leader} leads"));
    format!("{leader}, epoch {}", belief.epoch)
}

fn problems_of_nodes(state: &AppState, nodes: &KnownNodes) -> Vec<Problem> {
    let cluster = |text: String, is_outage| Problem { text, path: "/cluster".into(), is_outage };
    let mut problems = Vec::new();
    for backend in state.coordinator.backends().into_iter().filter(|backend| !backend.is_reachable) {
        problems.push(cluster(format!("{} cannot be reached", backend.component), true));
    }
    if state.coordinator.cluster().leader.is_none() {
        problems.push(cluster("No node leads: nothing is dispatched".into(), true));
    }
    for node in &nodes.nodes {
        let id = &node.node_id;
        match node.state {
            NodeState::Suspect => problems.push(cluster(format!("Node {id} is silent"), true)),
            NodeState::Dead => problems.push(cluster(format!("Node {id} is dead"), true)),
            NodeState::Draining => problems.push(cluster(format!("Node {id} drains"), false)),
            NodeState::Active | NodeState::Left => {}
        }
        if let (Opinion::Differs(belief), false) = (Opinion::of(state, node), node.state.is_gone()) {
            let text = format!("Node {id} disagrees: it believes that {}", believes(&belief));
            problems.push(Problem { text, path: "/cluster#nodes-title".into(), is_outage: false });
        }
    }
    if let Some(why) = state.shards.as_ref().and_then(|shards| shards.health().err()) {
        problems.push(Problem { text: format!("Shards: {why}"), path: "/shards".into(), is_outage: true });
    }
    problems
}

/// The troubles of a queue, the worst first.
#[derive(Debug, Clone, Copy, Default, PartialEq, PartialOrd)]
pub struct Trouble {
    /// Jobs wait and no worker receives them.
    pub no_worker: bool,
    /// Jobs wait and the queue is paused.
    pub held: bool,
    /// How long the oldest pending job has waited.
    pub waited: Duration,
    /// Dead letters among ended jobs, in percent.
    pub failing_percent: u64,
}

impl Trouble {
    pub fn of(view: &QueueView, now: Timestamp) -> Self {
        let counts = &view.queue.counts;
        let waits = counts.get(Status::Pending) > 0;
        let dead = counts.get(Status::Failed) + counts.get(Status::TimedOut);
        let ended = dead + counts.get(Status::Completed);
        Trouble {
            no_worker: waits && view.workers == 0,
            held: waits && view.queue.paused,
            waited: view.queue.oldest_pending_at.map(|since| age(since, now)).unwrap_or_default(),
            failing_percent: (dead * 100).checked_div(ended).unwrap_or(0),
        }
    }

    pub fn waits_long(&self) -> bool {
        self.waited > WAIT_LONG
    }

    pub fn fails_often(&self) -> bool {
        self.failing_percent >= FAILING_PERCENT
    }

    fn problems(&self, view: &QueueView) -> Vec<Problem> {
        let (name, counts) = (&view.queue.name, &view.queue.counts);
        let pending = count(counts.get(Status::Pending));
        let of_queue =
            |text: String| Problem { text, path: format!("/queues/{}", encode(name.as_str())), is_outage: false };
        let mut problems = Vec::new();
        if self.no_worker {
            problems.push(of_queue(format!("Queue {name} has no worker; {pending} pending")));
        } else if self.held {
            problems.push(of_queue(format!("Queue {name} is paused; {pending} pending")));
        } else if self.waits_long() {
            problems.push(of_queue(format!("Queue {name}: the oldest pending job has waited {}", span(self.waited))));
        }
        if self.fails_often() {
            let dead = count(counts.get(Status::Failed) + counts.get(Status::TimedOut));
            let path = format!("/dead-letters?queue={}", encode(name.as_str()));
            let text = format!("Queue {name}: {} % of ended jobs are dead letters ({dead})", self.failing_percent);
            problems.push(Problem { text, path, is_outage: false });
        }
        problems
    }
}
