//! The coordinator of shards, which runs while this node leads.
//!
//! Messages are received and replies are sent in batches; between them the rules run, under a lock that readers of the
//! coordinator take too. The socket is opened when the term begins and closed when it ends, or when the lease is no
//! longer certain: a process that was paused detects that before it replies. Assignments are not stored: the next
//! leader learns them from the workers. With a durable store, a [roster](super::roster) lists the workers to wait for.

use std::sync::Arc;
use std::time::Duration;

use convoke_core::jobs::event::{ClusterEvent, WorkerChange};
use convoke_core::ports::router::{Received, Router, RouterBinding};
use convoke_core::ports::{Clock, Store};
use convoke_core::shards::Version;
use convoke_core::shards::coordinator::{Coordinator, Output, Rebalanced, Settings, ShardEvent, Start};
use convoke_core::shards::wire::{self, CoordinatorMessage};
use convoke_core::{Epoch, Error};
use tokio::time::Instant;
use tracing::{info, warn};

use super::roster::RosterWriter;
use super::telemetry::{self, Tally};
use super::view::{Running, ShardsState, ShardsView};
use crate::election::{EventSink, Term};
use crate::line_rate::LineRate;
use crate::outage::Outages;

/// Messages per batch.
const BATCH_MAX: usize = 1_024;
/// Replies per batch; the replies with large assignments are sent in parts.
const SEND_BYTES_MAX: usize = 8 << 20;
const BIND_AGAIN_MIN: Duration = Duration::from_millis(50);
const BIND_AGAIN_MAX: Duration = Duration::from_secs(2);
/// Pause after a failure of the socket.
const BROKEN_PAUSE: Duration = Duration::from_millis(200);

/// Receives what each rebalance moved, for display.
pub type RecordSink = Arc<dyn Fn(Rebalanced) + Send + Sync>;

/// Coordinates shards while this node leads.
pub struct ShardsDuty {
    binding: Arc<dyn RouterBinding>,
    settings: Settings,
    epochs_last: bool,
    /// Keeps the roster; `None` if the store does not outlive the process.
    roster: Option<Arc<dyn Store>>,
    view: ShardsView,
    outages: Outages,
    lines: LineRate,
}

impl ShardsDuty {
    /// `epochs_last`: whether epochs count terms from one on and outlive the process, as in any store but memory.
    pub fn new(binding: Arc<dyn RouterBinding>, settings: Settings, epochs_last: bool, clock: Arc<dyn Clock>) -> Self {
        telemetry::describe();
        let (outages, lines) = (Outages::new([]), LineRate::new("shards"));
        ShardsDuty { binding, settings, epochs_last, roster: None, view: ShardsView::new(clock), outages, lines }
    }

    /// Lists the workers that may hold shards in a store that every later leader reads. Without it a successor waits
    /// for one heartbeat timeout in each service.
    pub fn listing_workers(mut self, store: Arc<dyn Store>) -> Self {
        self.roster = Some(store);
        self
    }

    /// Returns the view of the coordinator's state.
    pub fn view(&self) -> ShardsView {
        self.view.clone()
    }

    /// Opens the socket; retries until it succeeds or the term is over.
    async fn bind(&self, term: &Term) -> Option<Box<dyn Router>> {
        let mut pause = BIND_AGAIN_MIN;
        while !term.is_over() {
            match self.binding.bind().await {
                Ok(router) => return Some(router),
                Err(error) => {
                    // A predecessor on this machine may need a moment to close it.
                    let is_first = pause == BIND_AGAIN_MIN;
                    if is_first || !matches!(error, Error::Conflict(_)) {
                        self.outages.failed("shard socket", &error);
                    }
                    self.view.set_state(ShardsState::Refused(error.to_string()));
                }
            }
            if !term.sleep(pause).await {
                return None;
            }
            pause = (pause * 2).min(BIND_AGAIN_MAX);
        }
        None
    }

    /// Reads which workers may hold shards; retries until it succeeds or the term is over.
    async fn start(&self, term: &Term) -> Option<Start> {
        let Some(store) = &self.roster else {
            return Some(if term.epoch() > Epoch(1) { Start::Takeover } else { Start::Fresh });
        };
        while !term.is_over() {
            match store.shard_roster().await {
                Ok(listed) => {
                    if !listed.is_empty() {
                        info!(workers = listed.len(), "shard workers of the former term are waited for");
                    }
                    return Some(Start::Listed(listed));
                }
                Err(error) => {
                    self.outages.failed("shard roster", &error);
                    self.view.set_state(ShardsState::Refused(error.to_string()));
                }
            }
            if !term.sleep(BROKEN_PAUSE).await {
                return None;
            }
        }
        None
    }

    /// Logs one line for a change of a service's workers and shards.
    fn log(&self, event: &ShardEvent) {
        if !self.lines.admits() {
            return;
        }
        match event {
            ShardEvent::Rebalanced { service, version, moved } => {
                info!(shard_service = %service, version = version.0, moved, "shards rebalanced");
            }
            ShardEvent::Joined { service, worker } => {
                info!(shard_service = %service, shard_worker = %worker, "shard worker joined");
            }
            ShardEvent::Left { service, worker } => {
                info!(shard_service = %service, shard_worker = %worker, "shard worker left");
            }
            ShardEvent::Dead { service, worker } => {
                warn!(shard_service = %service, shard_worker = %worker, "shard worker declared dead");
            }
            ShardEvent::Replaced { service, worker } => {
                warn!(
                    shard_service = %service, shard_worker = %worker,
                    "shard worker replaced: another registered under its id, the newest is kept"
                );
            }
        }
    }

    fn coordinator(&self, start: Start, epoch: Epoch) -> Coordinator {
        let first = if self.epochs_last { Version::of_term(epoch) } else { Version::of_moment(self.view.now()) };
        Coordinator::new(self.settings.clone(), start, first)
    }
}

impl ShardsDuty {
    /// Coordinates until the term is over.
    pub async fn lead(&self, term: Term, publish_event: EventSink, record: RecordSink) {
        let mut tally = Tally::default();
        if let Some(router) = self.bind(&term).await
            && let Some(start) = self.start(&term).await
        {
            let address = router.address().to_owned();
            info!(address, epoch = term.fence().epoch().0, "shard coordinator is listening");
            // The assignments are kept also after a failure of the socket: workers find them unchanged.
            self.view.begin(self.coordinator(start, term.fence().epoch()));
            self.view.set_state(ShardsState::Listening(address));
            let writer = RosterWriter::new(self.roster.clone(), &self.outages, &term);
            let sinks = (&publish_event, &record);
            BoundTerm { duty: self, term: &term, sinks, tally: &mut tally, writer }.run(router).await;
        }
        self.view.end();
        tally.clear();
    }
}

/// One term at the socket.
struct BoundTerm<'a> {
    duty: &'a ShardsDuty,
    term: &'a Term,
    sinks: (&'a EventSink, &'a RecordSink),
    tally: &'a mut Tally,
    writer: RosterWriter<'a>,
}

impl BoundTerm<'_> {
    async fn run(mut self, mut router: Box<dyn Router>) {
        while !self.term.is_over() {
            let writer = &mut self.writer;
            let Some(deadline) = self.duty.view.with(|running| {
                writer.begin(&mut running.coordinator);
                running.began + running.coordinator.next_deadline()
            }) else {
                return;
            };
            let received = tokio::select! {
                biased;
                () = self.term.ended() => return,
                written = writer.written() => {
                    let listed = |running: &mut Running| {
                        running.coordinator.roster_written(written, running.began.elapsed());
                    };
                    self.duty.view.with(listed);
                    continue;
                }
                received = router.receive(BATCH_MAX) => received,
                () = tokio::time::sleep_until(deadline) => Ok(Vec::new()),
            };
            // A process that was paused meanwhile must not reply for a term that may be over.
            if self.term.is_over() {
                return;
            }
            match received {
                Ok(received) => self.work(&mut *router, received).await,
                Err(error) => {
                    self.duty.outages.failed("shard socket", &error);
                    self.tally.error("socket");
                    if !self.term.sleep(BROKEN_PAUSE).await {
                        return;
                    }
                }
            }
            self.tally.publish(router.refusals());
        }
    }

    async fn work(&mut self, router: &mut dyn Router, received: Vec<Received>) {
        let mut received = received.into_iter();
        loop {
            let mut output = Output::default();
            let view = &self.duty.view;
            let Some(is_exhausted) = view.with(|running| {
                take(running, &mut received, &mut output, self.tally);
                running.coordinator.is_exhausted()
            }) else {
                return;
            };
            let is_last = received.len() == 0;
            for event in output.events {
                self.duty.log(&event);
                if let Some(cluster_event) = cluster_event(event) {
                    (self.sinks.0)(cluster_event);
                }
            }
            output.rebalances.into_iter().for_each(|rebalanced| (self.sinks.1)(rebalanced));
            if !output.sends.is_empty() {
                let outcomes = router.send(output.sends).await;
                self.tally.sent(&outcomes);
            }
            if is_exhausted {
                warn!("versions of shard assignments are used up: the term ends and the next one takes over");
                self.term.end();
            }
            if is_last || self.term.is_over() {
                return;
            }
        }
    }
}

/// Lets the rules process messages until all are taken or there is enough to send, and then what is due.
fn take(running: &mut Running, received: &mut std::vec::IntoIter<Received>, output: &mut Output, tally: &mut Tally) {
    let now = Instant::now() - running.began;
    let (mut counted, mut bytes) = (0, 0);
    while bytes < SEND_BYTES_MAX {
        let Some(Received { from, frames }) = received.next() else { break };
        match wire::message(&frames) {
            Ok(message) => {
                tally.message(message.kind());
                running.coordinator.on_message(&from, message, now, output);
            }
            Err(refusal) => {
                tally.error(&refusal.code);
                output.sends.push((from, CoordinatorMessage::Error(refusal).encode()));
            }
        }
        bytes += output.sends[counted..].iter().map(|(_, text)| text.len()).sum::<usize>();
        counted = output.sends.len();
    }
    let was_due = running.coordinator.next_deadline() <= now;
    if was_due {
        running.coordinator.tick(now, output);
    }
    for event in &output.events {
        tally.event(event, &running.coordinator, now);
    }
    if was_due && output.events.is_empty() {
        tally.measure_all(&running.coordinator, now);
    }
}

/// The event for watchers. A replaced worker is logged and counted only: for watchers its id stays.
fn cluster_event(event: ShardEvent) -> Option<ClusterEvent> {
    let worker = |change, service, worker_id| ClusterEvent::ShardWorker { change, service, worker_id };
    Some(match event {
        ShardEvent::Rebalanced { service, version, moved } => {
            ClusterEvent::ShardsRebalanced { service, version, moved: moved as u64 }
        }
        ShardEvent::Joined { service, worker: id } => worker(WorkerChange::Joined, service, id),
        ShardEvent::Left { service, worker: id } => worker(WorkerChange::Left, service, id),
        ShardEvent::Dead { service, worker: id } => worker(WorkerChange::Dead, service, id),
        ShardEvent::Replaced { .. } => return None,
    })
}
