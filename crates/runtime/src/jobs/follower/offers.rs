//! Hands runs off: all of them when the node shuts down, some when it has more than its share.
//!
//! The rules are the core's [`Drain`]; this module carries them out. A run is marked in the store before it is offered,
//! so that every node can see the handoff. This node goes on recording its events until another node has taken it: from
//! then on the store rejects this node's writes, and the new owner reads the entries that were not acknowledged.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::time::Duration;

use convoke_core::Result;
use convoke_core::history::{DrainRecord, HandoffRecord};
use convoke_core::jobs::event::{ClusterEvent, HandoffChange};
use convoke_core::jobs::handoff::{AckCase, Command, Drain, Event, Outcome};
use convoke_core::jobs::wire::{HandoffAck, HandoffReason, RunRef};
use convoke_core::ports::store::{Handover, Reassign, Reassigned};
use convoke_core::{JobId, NodeId};
use jiff::Timestamp;
use metrics::counter;
use tokio::time::Instant;
use tracing::{info, warn};

use super::claims;
use super::peers::{Prospects, prospects};
use crate::jobs::feed::{Feed, Received};
use crate::jobs::handoff::{self, Offer};
use crate::jobs::node::{Node, NodeBase};
use crate::jobs::telemetry;

/// How often the node checks whether another node is alive.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// How long the first offer waits until acknowledgements can be received. A missed one is repeated.
const SUBSCRIBE_PATIENCE: Duration = Duration::from_secs(1);
const REASSIGN_MAX: usize = 1_000;

/// Offers `runs` until each is done. Returns true if each found another owner or ended.
pub async fn offer_runs(node: &Node, runs: Vec<RunRef>, reason: HandoffReason) -> bool {
    if runs.is_empty() {
        record_empty_drain(node, reason);
        return true;
    }
    let mut acks = Feed::new(node.base.clone(), vec![node.channels.handoff_ack(&node.id)], "handoff");
    // Before the first offer is sent: an acknowledgement must not come too early.
    let _ = tokio::time::timeout(SUBSCRIBE_PATIENCE, acks.next()).await;
    let mut offers = Offers {
        node,
        reason,
        acks,
        began: Instant::now(),
        began_at: node.now(),
        total: 0,
        shown_at: None,
        new_owners: BTreeMap::new(),
        orphans: BTreeSet::new(),
    };
    let runs = offers.mark(runs, Handover::Offer).await;
    offers.total = runs.len() as u64;
    info!(runs = runs.len(), reason = reason.as_str(), "handing runs over");
    let is_clean = offers.await_owners(runs).await;
    offers.record_progress(offers.orphans.len(), true);
    is_clean
}

/// Records the drain of a node that owns nothing, for display.
fn record_empty_drain(node: &Node, reason: HandoffReason) {
    if reason == HandoffReason::Shutdown {
        let (node_id, at) = (node.id.clone(), node.now());
        let drain = DrainRecord { node: node_id, began_at: at, at, runs: 0, open: 0, orphans: 0, ended_at: Some(at) };
        node.history.drain(drain);
    }
}

struct Offers<'a> {
    node: &'a Node,
    reason: HandoffReason,
    acks: Feed,
    began: Instant,
    began_at: Timestamp,
    /// How many runs are handed over.
    total: u64,
    /// When the progress was last recorded.
    shown_at: Option<Instant>,
    new_owners: BTreeMap<JobId, NodeId>,
    orphans: BTreeSet<JobId>,
}

impl Offers<'_> {
    async fn await_owners(&mut self, runs: Vec<RunRef>) -> bool {
        let (mut drain, mut commands) = Drain::new(runs, self.node.settings.cluster, true, self.began.elapsed());
        let mut checked = Instant::now();
        loop {
            let node = self.node;
            let released = node.ownership.claims.released();
            tokio::pin!(released);
            released.as_mut().enable();
            let outcomes = drain.take_outcomes();
            let exit = self.carry_out(commands).await;
            outcomes.into_iter().for_each(|outcome| self.record_outcome(outcome));
            if let Some(clean) = exit {
                return clean;
            }
            self.record_progress(drain.open().count(), false);
            // Ended or taken meanwhile.
            let over: Vec<RunRef> = drain.open().filter(|run| !node.ownership.claims.has(&run.execution_id)).collect();
            if !over.is_empty() {
                commands = over.into_iter().flat_map(|run| drain.on(Event::JobEnded(run.job_id), self.now())).collect();
                continue;
            }
            let wake = drain.next_wake().map_or(CHECK_INTERVAL, |at| at.saturating_sub(self.now()).min(CHECK_INTERVAL));
            let event = tokio::select! {
                biased;
                ack = next_ack(node, &mut self.acks) => {
                    self.new_owners.insert(ack.job_id, ack.new_owner.clone());
                    Event::Ack { job: ack.job_id, new_owner: ack.new_owner }
                }
                () = &mut released => Event::Tick,
                () = tokio::time::sleep(wake.max(Duration::from_millis(1))) => Event::Tick,
            };
            commands = drain.on(event, self.now());
            if checked.elapsed() >= CHECK_INTERVAL {
                checked = Instant::now();
                match prospects(node, &node.ownership.peers).await {
                    Prospects::Good => commands.extend(drain.on(Event::OthersAlive(true), self.now())),
                    Prospects::Silent => commands.extend(drain.on(Event::OthersAlive(false), self.now())),
                    Prospects::None => {
                        self.carry_out(commands).await;
                        let left: Vec<RunRef> = drain.open().collect();
                        for run in &left {
                            self.record_outcome(Outcome { run: *run, case: AckCase::OthersSilent, tries: 1 });
                        }
                        self.give_up(left).await;
                        return self.orphans.is_empty();
                    }
                }
            }
        }
    }

    /// Records how the handoff of a run went, for display.
    fn record_outcome(&self, Outcome { run: RunRef { job_id, execution_id }, case, tries }: Outcome) {
        self.node.history.handoff(HandoffRecord {
            at: self.node.now(),
            job_id,
            execution_id,
            from_node: self.node.id.clone(),
            to_node: self.new_owners.get(&job_id).cloned(),
            reason: self.reason,
            case: Some(case),
            tries: Some(tries),
            duration: Some(self.began.elapsed()),
        });
    }

    /// Records how far the drain of a node that shuts down is, at most once a second, and its end.
    fn record_progress(&mut self, open: usize, is_over: bool) {
        let is_soon = self.shown_at.is_some_and(|at| at.elapsed() < Duration::from_secs(1));
        if self.reason != HandoffReason::Shutdown || (is_soon && !is_over) {
            return;
        }
        self.shown_at = Some(Instant::now());
        let at = self.node.now();
        self.node.history.drain(DrainRecord {
            node: self.node.id.clone(),
            began_at: self.began_at,
            at,
            runs: self.total,
            open: open as u64,
            orphans: self.orphans.len() as u64,
            ended_at: is_over.then_some(at),
        });
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Carries out the actions of the rules. Returns whether all runs were handed off, once it is over.
    async fn carry_out(&mut self, commands: Vec<Command>) -> Option<bool> {
        let (mut offers, mut released, mut orphans, mut exit) = (Vec::new(), Vec::new(), Vec::new(), None);
        for command in commands {
            match command {
                Command::Publish { run, tries } => offers.push((run, tries)),
                Command::Release(run) => released.push(run),
                Command::MarkOrphan(run) => orphans.push(run),
                Command::Exit { clean } => exit = Some(clean),
            }
        }
        self.publish(offers).await;
        for run in &released {
            self.orphans.remove(&run.job_id);
            self.publish_event(HandoffChange::Acked, *run, None);
        }
        count("acked", released.len());
        claims::drop_claims(self.node, &self.node.ownership, released).await;
        self.give_up(orphans).await;
        exit.map(|clean| clean || self.orphans.is_empty())
    }

    async fn publish(&mut self, runs: Vec<(RunRef, u32)>) {
        for (run, tries) in &runs {
            let change = if *tries == 1 { HandoffChange::Started } else { HandoffChange::Retried };
            self.publish_event(change, *run, NonZeroU32::new(*tries));
        }
        count("retried", runs.iter().filter(|(_, tries)| *tries > 1).count());
        let offer = |(run, tries)| Offer { run, from_node: self.node.id.clone(), reason: self.reason, tries };
        if let Err(error) = handoff::publish(self.node, runs.into_iter().map(offer).collect()).await {
            self.node.outages.failed("handoff", &error);
        }
    }

    /// No node acknowledged. A node that only sheds load keeps these runs; one that stops leaves them as orphans.
    async fn give_up(&mut self, runs: Vec<RunRef>) {
        if self.reason == HandoffReason::Rebalance {
            self.mark(runs, Handover::Keep).await;
            return;
        }
        let left = self.mark(runs, Handover::Orphan).await;
        let left: Vec<RunRef> = left.into_iter().filter(|run| self.orphans.insert(run.job_id)).collect();
        for run in &left {
            warn!(job = %run.job_id, "handoff not acknowledged: the run is left as an orphan");
            self.publish_event(HandoffChange::Orphaned, *run, None);
        }
        count("orphaned", left.len());
    }

    /// Marks runs in the store. Returns those that are still this node's; the claims of the others are dropped.
    async fn mark(&mut self, runs: Vec<RunRef>, to: Handover) -> Vec<RunRef> {
        let mut ours = Vec::with_capacity(runs.len());
        for runs in runs.chunks(REASSIGN_MAX) {
            match self.reassign(runs, &to).await {
                Ok(results) => {
                    let gone: Vec<RunRef> = runs
                        .iter()
                        .zip(results)
                        .filter_map(|(run, result)| {
                            if result == Reassigned::Done {
                                ours.push(*run);
                                return None;
                            }
                            Some(*run)
                        })
                        .collect();
                    claims::drop_claims(self.node, &self.node.ownership, gone).await;
                }
                Err(error) => {
                    // The store is unavailable: a new owner takes a run in the store, so that offering does no harm.
                    self.node.outages.failed("handoff", &error);
                    ours.extend_from_slice(runs);
                }
            }
        }
        ours
    }

    async fn reassign(&mut self, runs: &[RunRef], to: &Handover) -> Result<Vec<Reassigned>> {
        let changes = runs.iter().map(|run| Reassign {
            job: run.job_id,
            execution: run.execution_id,
            from: self.node.id.clone(),
            to: to.clone(),
        });
        self.node.store().reassign(changes.collect()).await
    }

    fn publish_event(&self, change: HandoffChange, run: RunRef, tries: Option<NonZeroU32>) {
        if self.node.is_watched() {
            let (RunRef { job_id, execution_id }, from_node) = (run, self.node.id.clone());
            let new_owner = self.new_owners.get(&job_id).cloned();
            self.node.publish_event(ClusterEvent::Handoff {
                change,
                job_id,
                execution_id,
                from_node,
                new_owner,
                tries,
            });
        }
    }
}

fn count(outcome: &'static str, runs: usize) {
    if runs > 0 {
        counter!("convoke_handoffs_total", "outcome" => outcome).increment(runs as u64);
    }
}

/// Returns the next acknowledgement. A missed one is repeated with the next offer.
async fn next_ack(node: &NodeBase, acks: &mut Feed) -> HandoffAck {
    loop {
        let Received::Message(message) = acks.next().await else { continue };
        match serde_json::from_slice(&message.body) {
            Ok(ack) => return ack,
            Err(error) => telemetry::poison(node, message.channel, message.body, &error).await,
        }
    }
}
