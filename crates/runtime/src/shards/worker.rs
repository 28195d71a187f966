//! A worker of a sharded service: drives its rules over a socket.
//!
//! One task owns the connection; the rules are behind a lock that the application's calls take too. A connection that
//! receives nothing for half of a timeout is replaced, by one to the next address if there are several: only the
//! coordinator that leads listens. The rules alone decide whether the worker is gone or fenced, so that a connection
//! that hangs cannot keep a shard.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use convoke_core::limits::SHARDS_MAX;
use convoke_core::ports::router::{Dealer, DealerConnecting};
use convoke_core::shards::wire::{self, CoordinatorMessage, Message};
use convoke_core::shards::worker::{Profile, Worker};
use convoke_core::shards::{Shard, Version};
use convoke_core::{Invalid, Result, ServiceName, WorkerId};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::{debug, warn};

use super::changes::Changes;
use crate::outage::Outages;

/// Pause after an address could not be connected to, or a connection failed.
const AGAIN: Duration = Duration::from_millis(250);
/// Messages that wait for a connection; the rest is dropped, since the rules send it again.
const OUTBOX_MAX: usize = 1_024;

/// Options of a [`ShardWorker`].
#[derive(Debug, Clone)]
pub struct WorkerOptions {
    /// The service whose shards it works on.
    pub service: String,
    /// Its id, unique among the workers of the service.
    pub worker_id: String,
    /// The number of shards of the whole service.
    pub max_shards: u32,
    /// Whether the worker is asked to release a shard before another worker receives it.
    pub handoff: bool,
    /// `None` for a third of the coordinator's timeout.
    pub heartbeat_interval: Option<Duration>,
    /// How long [`ShardWorker::leave`] waits for the application to release its shards and for the coordinator to
    /// confirm.
    pub leave_grace: Duration,
}

impl WorkerOptions {
    /// Returns options without handoff, with the default times.
    pub fn new(service: impl Into<String>, worker_id: impl Into<String>, max_shards: u32) -> Self {
        WorkerOptions {
            service: service.into(),
            worker_id: worker_id.into(),
            max_shards,
            handoff: false,
            heartbeat_interval: None,
            leave_grace: Duration::from_secs(25),
        }
    }

    fn profile(&self) -> Result<Profile> {
        if self.max_shards > SHARDS_MAX {
            let message = format!("expected a number from 0 to {SHARDS_MAX}, got {}", self.max_shards);
            return Err(Invalid::new("maxShardCount", message).into());
        }
        if self.heartbeat_interval.is_some_and(|interval| interval.is_zero()) {
            return Err(Invalid::new("heartbeatInterval", "expected more than nothing, got 0s").into());
        }
        Ok(Profile {
            service: ServiceName::new(&self.service)?,
            worker: WorkerId::new(&self.worker_id)?,
            max_shards: self.max_shards,
            handoff: self.handoff,
            heartbeat_interval: self.heartbeat_interval,
        })
    }
}

/// A worker of a sharded service. Cheap to clone; dropping the last clone ends it without leaving: its shards move
/// after its timeout.
#[derive(Clone)]
pub struct ShardWorker {
    shared: Arc<Shared>,
    leave_grace: Duration,
    /// Ends the task with the last handle.
    _stop: Arc<DropGuard>,
}

/// The state that the task, the handles and the stream of changes share.
pub(super) struct Shared {
    state: Mutex<State>,
    began: Instant,
    /// Notified when the rules have something to send or to do.
    pub(super) work: Notify,
    /// Notified when something may have changed for the application.
    pub(super) news: Notify,
    pub(super) stop: CancellationToken,
}

pub(super) struct State {
    pub worker: Worker,
    outbox: Vec<Message>,
    /// The number of the present stream of changes; earlier ones are over.
    pub stream: u64,
    /// Whether a stream confirms changes.
    pub is_followed: bool,
}

impl ShardWorker {
    /// Starts to register at the first address that responds. Does not wait for a coordinator; fails if an address is
    /// invalid.
    pub async fn connect(
        connecting: Arc<dyn DealerConnecting>,
        addresses: Vec<String>,
        options: WorkerOptions,
    ) -> Result<ShardWorker> {
        let profile = options.profile()?;
        let mut first = None;
        for (place, address) in addresses.iter().enumerate() {
            match connecting.connect(address).await {
                Ok(dealer) if place == 0 => first = Some(dealer),
                Ok(_) => {}
                Err(error) if error.is_transient() => {
                    debug!(address, %error, "connecting to the shard coordinator failed")
                }
                Err(error) => return Err(error),
            }
        }
        if addresses.is_empty() {
            return Err(Invalid::new("url", "expected an address such as tcp://127.0.0.1:5555, got none").into());
        }
        // Heartbeats of a later process have higher numbers: microseconds fit a double until 2255.
        let first_beat = u64::try_from(crate::machine::now().as_microsecond()).unwrap_or_default();
        let worker = Worker::new(profile, first_beat, Duration::ZERO);
        let stop = CancellationToken::new();
        let shared = Arc::new(Shared {
            state: Mutex::new(State { worker, outbox: Vec::new(), stream: 0, is_followed: false }),
            began: Instant::now(),
            work: Notify::new(),
            news: Notify::new(),
            stop: stop.clone(),
        });
        let outages = Outages::new([("the shard coordinator", addresses.join(","))]);
        tokio::spawn(Connection { shared: shared.clone(), connecting, addresses, place: 0, outages }.run(first));
        Ok(ShardWorker { shared, leave_grace: options.leave_grace, _stop: Arc::new(stop.drop_guard()) })
    }

    /// Returns the shards that it owns now, in order. Empty while it is not certain that the coordinator counts it as
    /// alive.
    pub fn shards(&self) -> Vec<Shard> {
        self.shared.with(|state, now| state.worker.shards(now).to_vec())
    }

    /// Returns whether it owns a shard at this moment. Call it before each piece of work.
    pub fn owns(&self, shard: Shard) -> bool {
        self.shared.with(|state, now| state.worker.owns(shard, now))
    }

    /// Returns the version of the latest assignment: the fence for writes.
    pub fn version(&self) -> Version {
        self.shared.with(|state, _| state.worker.version())
    }

    /// Returns whether a coordinator has replied lately.
    pub fn is_connected(&self) -> bool {
        self.shared.with(|state, now| state.worker.is_certain(now))
    }

    /// Returns whether another worker has registered under its id. Then this one has released its shards and is over.
    pub fn is_replaced(&self) -> bool {
        self.shared.with(|state, _| state.worker.is_replaced())
    }

    /// Returns the stream of changes, beginning with all shards that are owned now. There is one such stream: another
    /// call ends the previous one.
    ///
    /// A change counts as done when the next one is requested (or the stream is dropped). With handoff, the next owner
    /// of a removed shard waits for that: stop the work on it before. Without a stream nothing is waited for.
    pub fn changes(&self) -> Changes {
        Changes::new(self.shared.clone())
    }

    /// Waits until a coordinator has replied.
    pub async fn ready(&self) {
        self.shared.wait_until(|state, now| state.worker.is_certain(now)).await;
    }

    /// Leaves: a last change removes its shards, and other workers receive them as soon as that is done. Waits for that
    /// and for the coordinator's confirmation; returns false if either took too long. Afterwards the stream of changes
    /// is over.
    pub async fn leave(&self) -> bool {
        self.shared.with(|state, _| state.worker.leave());
        self.shared.news.notify_waiters();
        self.shared.work.notify_one();
        let gone = self.shared.wait_until(|state, _| state.worker.is_gone());
        let is_confirmed = tokio::time::timeout(self.leave_grace, gone).await.is_ok();
        self.shared.stop.cancel();
        self.shared.news.notify_waiters();
        is_confirmed
    }
}

impl Shared {
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut State, Duration) -> T) -> T {
        act(&mut self.state.lock(), self.began.elapsed())
    }

    /// Runs the rules, and queues their messages for sending.
    pub(super) fn run_rules(&self, state: &mut State, act: impl FnOnce(&mut Worker, &mut Vec<Message>)) {
        let State { worker, outbox, .. } = state;
        act(worker, outbox);
        if !outbox.is_empty() {
            outbox.truncate(OUTBOX_MAX);
            self.work.notify_one();
        }
    }

    async fn wait_until(&self, is: impl Fn(&State, Duration) -> bool) {
        loop {
            let news = self.news.notified();
            tokio::pin!(news);
            news.as_mut().enable();
            if self.with(|state, now| is(state, now)) || self.stop.is_cancelled() {
                return;
            }
            news.await;
        }
    }
}

/// The task that owns the connection.
struct Connection {
    shared: Arc<Shared>,
    connecting: Arc<dyn DealerConnecting>,
    addresses: Vec<String>,
    place: usize,
    outages: Outages,
}

impl Connection {
    async fn run(mut self, mut first: Option<Box<dyn Dealer>>) {
        let stop = self.shared.stop.clone();
        stop.run_until_cancelled(async {
            loop {
                let address = self.addresses[self.place].clone();
                let connected = match first.take() {
                    Some(dealer) => Ok(dealer),
                    None => self.connecting.connect(&address).await,
                };
                match connected {
                    Ok(dealer) => {
                        self.outages.succeeded("the shard coordinator");
                        self.shared.with(|state, now| state.worker.reconnected(now));
                        if self.converse(dealer).await.is_gone() {
                            // Also for tasks that wait for something else than its end.
                            self.shared.stop.cancel();
                            return;
                        }
                        debug!(address, "the shard coordinator does not respond");
                    }
                    Err(error) => {
                        self.outages.failed("connecting", &error);
                        self.pause().await;
                    }
                }
                self.place = (self.place + 1) % self.addresses.len();
            }
        })
        .await;
        self.shared.news.notify_waiters();
    }

    /// Waits before another attempt; the rules go on meanwhile, since a fence does not wait for a connection.
    async fn pause(&self) {
        tokio::time::sleep(AGAIN).await;
        self.step();
        self.shared.with(|state, _| state.outbox.clear());
    }

    /// Uses one connection until it is silent or fails, or the worker is gone.
    async fn converse(&self, mut dealer: Box<dyn Dealer>) -> Ended {
        loop {
            let deadline = self.step();
            let (outgoing, is_gone, is_silent) = self.shared.with(|state, now| {
                (std::mem::take(&mut state.outbox), state.worker.is_gone(), state.worker.is_silent(now))
            });
            for message in outgoing {
                if let Err(error) = dealer.send(message.encode()).await {
                    debug!(%error, "sending to the shard coordinator failed: it is sent again");
                }
            }
            if is_gone {
                return Ended::Gone;
            }
            if is_silent {
                return Ended::Silent;
            }
            tokio::select! {
                biased;
                // Before the messages: those that come without end must not keep it from its heartbeats.
                () = tokio::time::sleep_until(deadline) => {}
                () = self.shared.work.notified() => {}
                received = dealer.receive() => match received {
                    Ok(frames) => self.on_frames(&frames),
                    Err(error) => {
                        debug!(%error, "connection to the shard coordinator failed");
                        tokio::time::sleep(AGAIN).await;
                        return Ended::Silent;
                    }
                },
            }
        }
    }

    fn on_frames(&self, frames: &[Bytes]) {
        let Some(coordinator_message) = wire::answer(frames) else {
            debug!("message of the shard coordinator could not be read");
            return;
        };
        if let CoordinatorMessage::Error(refusal) = &coordinator_message {
            warn!(code = %refusal.code, error = refusal.message, "rejected by the shard coordinator");
        }
        self.shared.with(|state, now| {
            let State { worker, outbox, .. } = state;
            worker.on_message(coordinator_message, now, outbox);
        });
    }

    /// Lets the rules do what is due, and returns when they are due again.
    fn step(&self) -> Instant {
        let next = self.shared.with(|state, now| {
            let State { worker, outbox, is_followed, .. } = state;
            while !*is_followed && worker.change(now).is_some() {
                worker.acknowledge(outbox);
            }
            worker.tick(now, outbox);
            worker.next_deadline(now)
        });
        self.shared.news.notify_waiters();
        self.shared.began + next
    }
}

/// The reason for which a connection was left.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ended {
    Gone,
    Silent,
}

impl Ended {
    fn is_gone(self) -> bool {
        self == Ended::Gone
    }
}
