//! The director of a world: lets the faults of its plan happen, and heals it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::World;
use crate::fault::{Fault, Kind, NODES, STORY_MS, WORKERS};

/// A healed world is waited for by longer than this: a retry may be due so much later.
const SKEW_MS_MAX: f64 = 20_000.0;

impl World {
    /// Starts everything, and lets the faults happen.
    pub(super) async fn live_story(self: &Arc<Self>, faults: &[Fault]) {
        self.start_clients();
        for place in 0..NODES {
            self.start_node(place);
        }
        for place in 0..WORKERS {
            self.start_worker(place);
        }
        for fault in faults {
            tokio::spawn(self.clone().happen(fault.clone()));
        }
        for _ in 0..STORY_MS / 500 {
            tokio::time::sleep(Duration::from_millis(500)).await;
            self.replace_ended_workers();
        }
    }

    async fn happen(self: Arc<Self>, fault: Fault) {
        tokio::time::sleep(Duration::from_millis(fault.at_ms)).await;
        let span = Duration::from_millis(fault.for_ms.min(STORY_MS.saturating_sub(fault.at_ms)));
        self.network.note_of("---", || fault.line());
        let target = fault.target;
        match fault.kind {
            Kind::Forget => self.forget_bus(),
            Kind::ForgetLeases => self.leases.forget(),
            Kind::Kill => {
                self.kill_node(target);
                tokio::time::sleep(span).await;
                self.start_node(target);
            }
            Kind::Drain => {
                // In half of the cases nobody receives its offers, or nobody's acknowledgement arrives.
                let loses = |kind| Fault { kind, variant: 1.0, ..fault.clone() };
                let lost = [loses(Kind::Lose), loses(Kind::ForgetSuffix)];
                if fault.variant > 0.5 {
                    lost.iter().for_each(|lost| self.network.begin(lost.clone()));
                }
                self.drain_node(target).await;
                lost.iter().for_each(|lost| self.network.end(lost));
                tokio::time::sleep(Duration::from_millis(200)).await;
                self.start_node(target);
            }
            Kind::KillWorker => {
                self.kill_worker(target);
                tokio::time::sleep(span).await;
                self.start_worker(target);
            }
            Kind::Pause | Kind::PauseWorker => {
                let is_node = fault.kind == Kind::Pause;
                let process = if is_node { self.node_process(target) } else { self.worker_process(target) };
                let Some(process) = process else { return };
                process.pause();
                tokio::time::sleep(span).await;
                process.go_on();
            }
            Kind::Skew => {
                // Half of them by less than a tick.
                let most = if fault.at_ms.is_multiple_of(2) { SKEW_MS_MAX } else { 1_500.0 };
                let ahead = (fault.variant - 0.5) * 2.0 * most;
                self.clocks[target].set_ahead(ahead as i64);
                tokio::time::sleep(span).await;
                self.clocks[target].set_ahead(0);
            }
            _ => {
                self.network.begin(fault.clone());
                tokio::time::sleep(span).await;
                self.network.end(&fault);
            }
        }
    }

    fn forget_bus(&self) {
        // Enqueues that no node has inserted yet were on the bus alone.
        let history = &self.network.history;
        let acknowledged = history.read(|records| {
            let jobs = records.iter().filter_map(|record| match record.what {
                crate::history::Entry::Acknowledged { job, by_bus: true } => Some(job),
                _ => None,
            });
            jobs.collect::<Vec<_>>()
        });
        let was_inserted = |job| {
            history.read(|records| {
                records.iter().any(|record| match &record.what {
                    crate::history::Entry::Changed { what: "insert", after: Some(after), .. } => after.id == job,
                    _ => false,
                })
            })
        };
        let lost: Vec<_> = acknowledged.into_iter().filter(|job| !was_inserted(*job)).collect();
        history.excuse(lost);
        self.bus.forget();
        history.reach("bus forgot everything");
    }

    /// Ends all faults, and starts whatever does not run.
    pub(super) async fn heal(self: &Arc<Self>) {
        self.network.note_of("---", || "healed".into());
        self.is_healed.store(true, Ordering::Relaxed);
        self.network.heal();
        self.end_schedule();
        for place in 0..NODES {
            self.clocks[place].set_ahead(0);
            if let Some(process) = self.node_process(place) {
                process.go_on();
            }
            self.start_node(place);
        }
        for place in 0..WORKERS {
            if let Some(process) = self.worker_process(place) {
                process.go_on();
            }
            self.start_worker(place);
        }
        self.replace_ended_workers();
    }
}
