//! Ends runs that take longer than their job allows.
//!
//! A worker watches its own runs; this is for those that do not, or that hang. The run is ended in the store first, then
//! its worker is told to stop: whatever it still reports is stale.
//!
//! A run may have ended in time and its owner not have read so: a bell can be lost, and some workers ring none. Where something
//! lies unread on the job's channel the owner is rung for, and the run ends for its time only if that was not its end. Not for
//! ever: an owner that does not read has trouble of its own, and a run may be spoken of faster than anybody reads.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use convoke_core::jobs::wire::{self, Bell, V1};
use convoke_core::jobs::{Outcome, RunReport};
use convoke_core::ports::store::InFlight;
use convoke_core::{ExecutionId, JobId, Result};
use futures_util::future::join_all;
use jiff::Timestamp;
use tokio::time::Instant;
use tracing::debug;

use crate::election::Term;
use crate::jobs::node::Node;
use crate::jobs::recorder;

const BATCH_MAX: usize = 500;
/// Runs that start are not announced to the leader: it must look often enough for short timeouts.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// How soon a run that was held back is looked at again.
const UNREAD_INTERVAL: Duration = Duration::from_millis(50);

/// Runs whose time is up and of which something is unread, and since when that is known.
type HeldBack = HashMap<ExecutionId, Instant>;

pub async fn run(node: Arc<Node>, term: Term) {
    let mut held_back = HeldBack::new();
    loop {
        let pause = match end_overdue(&node, &term, &mut held_back).await {
            Ok(_) if !held_back.is_empty() => UNREAD_INTERVAL,
            Ok(None) => LOOK_INTERVAL,
            Ok(Some(next)) => super::until(node.now(), next).min(LOOK_INTERVAL),
            Err(error) => {
                super::note(&node, &term, "timeouts", &error);
                super::LOOK_INTERVAL
            }
        };
        if !term.sleep(pause).await {
            return;
        }
    }
}

/// Answers when the next run's time is up.
async fn end_overdue(node: &Node, term: &Term, held_back: &mut HeldBack) -> Result<Option<Timestamp>> {
    let now = node.now();
    // Those that are held back must not be in the way of others.
    let overdue = node.store().overdue(now, BATCH_MAX + held_back.len()).await?;
    hold_back(node, &overdue.runs, held_back).await;
    let over = overdue.runs.iter().filter(|run| !held_back.contains_key(&run.execution));
    let reports = over.map(|run| {
        let outcome = Outcome::TimedOut { error: "the run took longer than the job's timeout".into() };
        RunReport::of(run.job, run.execution).ended(now, outcome, rand::random())
    });
    recorder::judge(node, term.fence(), reports.collect()).await?;
    Ok(overdue.next_at)
}

/// Notes which of these runs are to wait until their owner has read what lies on their channel, and rings for it.
async fn hold_back(node: &Node, runs: &[InFlight], held_back: &mut HeldBack) {
    let before = std::mem::take(held_back);
    // Long enough for a dead owner to be found out and for another to read in its place.
    let patience = node.settings.cluster.dead_node_timeout * 2;
    // What this node's own workers say does not come by the channel.
    let asked = runs.iter().filter(|run| !node.sessions.has(&run.execution));
    let answers = join_all(asked.map(|run| async move { (run, may_have_ended(node, run).await) })).await;
    let mut jobs: Vec<JobId> = Vec::new();
    for (run, _) in answers.into_iter().filter(|(_, may_have_ended)| *may_have_ended) {
        let since = before.get(&run.execution).copied().unwrap_or_else(Instant::now);
        if since.elapsed() < patience {
            held_back.insert(run.execution, since);
            jobs.push(run.job);
        }
    }
    if jobs.is_empty() {
        return;
    }
    let bell = Bell { v: V1, jobs, logs: Some(Vec::new()) };
    if let Err(error) = node.bus().publish(&node.channels.bell(), wire::encode(&bell)).await {
        debug!(%error, "notifying owners of due runs failed");
    }
}

async fn may_have_ended(node: &Node, run: &InFlight) -> bool {
    match super::has_unread(node, run.job).await {
        Ok(is_unread) => is_unread,
        // The bus is away: nobody who speaks it can be heard.
        Err(_) => run.worker.as_ref().is_some_and(|worker| node.bus_workers.heartbeat(worker).is_some()),
    }
}
