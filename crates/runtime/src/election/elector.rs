//! A member of a namespace that would lead it: any number of subscribers, one heartbeat.
//!
//! The heartbeat runs as a task of its own until the last handle is dropped; then it gives up what it holds, so that the next
//! one need not wait for a lease to run out. What a handle tells is what the heartbeat last heard, judged by the clock at the
//! moment of the question: a process that was paused does not go on believing, nor, on Linux, a machine that was suspended.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use convoke_core::election::{BreakerStatus, ElectionEvent, Elector as Rules, Event, Metrics, Moment, Now, Settings};
use convoke_core::ids::check_name;
use convoke_core::ports::{Clock, Leases};
use convoke_core::{Epoch, Invalid, Result, duration};
use parking_lot::Mutex;
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, info, warn};

use super::mark::Mark;
use super::subscriber::{self, Subscriber};
use super::tenure::Tenure;
use super::{heartbeat, telemetry};
use crate::outage::Outages;

/// How many events a watcher may be behind before it misses some.
const EVENTS_BUFFER: usize = 256;

/// What an elector is made of.
pub struct Candidacy {
    /// Its name among the members. No two that live at the same time may share one.
    pub id: String,
    pub namespace: String,
    pub leases: Arc<dyn Leases>,
    pub clock: Arc<dyn Clock>,
    pub settings: Settings,
}

/// A handle of a running elector. Clones share it; dropping the last one resigns.
///
/// A handle that a subscriber has captured is one too: it keeps the elector running until [`stop`](Self::stop), although nobody else
/// has one. Let a subscriber have a [`downgrade`](Self::downgrade)d one.
pub struct Elector {
    handle: Arc<Handle>,
    /// The last term that this handle gave out.
    handed: AtomicU64,
}

struct Handle {
    shared: Arc<Shared>,
    tasks: TaskTracker,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.quit();
    }
}

/// What the heartbeat and the handles share.
pub(super) struct Shared {
    pub namespace: String,
    pub leases: Arc<dyn Leases>,
    pub clock: Arc<dyn Clock>,
    pub rules: Mutex<Rules>,
    pub term: watch::Sender<Option<Tenure>>,
    /// None once it has stopped.
    events: Mutex<Option<broadcast::Sender<Arc<Event>>>>,
    pub stop: CancellationToken,
    /// It has left: nothing of it will reach the leases any more.
    pub left: CancellationToken,
    /// From where the rules count their moments.
    origin: Mark,
    pub outages: Outages,
}

impl Elector {
    /// Begins to beat. Gives a handle at once: who leads is known after the first heartbeat.
    pub fn start(candidacy: Candidacy) -> Result<Elector> {
        let Candidacy { id, namespace, leases, clock, settings } = candidacy;
        check_name("id", &id)?;
        check_name("namespace", &namespace)?;
        settings.check()?;
        if leases.foreign().is_some_and(|is_foreign| is_foreign(&id)) {
            let message = format!("expected an id that is not of another system that shares the namespace, got {id:?}");
            return Err(Invalid::unprocessable("id", message).into());
        }
        telemetry::describe();
        let (least, most) = (settings.startup_jitter_min, settings.startup_jitter_max);
        let origin = Mark::now();
        let now = Now { at: Moment::default(), wall: clock.now() };
        let first_beat = now.at + least + most.saturating_sub(least).mul_f64(rand::random());
        let lease_check_interval = leases.lease_check_interval();
        let rules = Rules::new(&id, settings, lease_check_interval, now, first_beat).sharing_with(leases.foreign());
        let shared = Arc::new(Shared {
            rules: Mutex::new(rules),
            namespace,
            outages: Outages::new([("leases", leases.address())]),
            leases,
            clock,
            term: watch::Sender::new(None),
            events: Mutex::new(Some(broadcast::Sender::new(EVENTS_BUFFER))),
            stop: CancellationToken::new(),
            left: CancellationToken::new(),
            origin,
        });
        let tasks = TaskTracker::new();
        // Made here: a runtime that shuts down drops a task that it has not begun.
        let left = shared.left.clone().drop_guard();
        tasks.spawn(heartbeat::run_heartbeats(shared.clone(), left));
        Ok(Elector { handle: Arc::new(Handle { shared, tasks }), handed: AtomicU64::new(0) })
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.handle.shared
    }

    pub fn id(&self) -> String {
        self.shared().rules.lock().me().to_owned()
    }

    pub fn namespace(&self) -> &str {
        &self.shared().namespace
    }

    pub fn settings(&self) -> Settings {
        self.shared().rules.lock().settings().clone()
    }

    /// Who leads, as far as is known and for as long as its lease was known to last.
    pub fn leader(&self) -> Option<String> {
        let now = self.shared().moment();
        let rules = self.shared().rules.lock();
        rules.leader().filter(|(.., until)| now < *until).map(|(leader, ..)| leader.to_owned())
    }

    /// The highest term that was heard of.
    pub fn epoch(&self) -> Epoch {
        self.shared().rules.lock().epoch()
    }

    /// Whether this member leads, at this moment.
    pub fn is_leader(&self) -> bool {
        self.term().is_some()
    }

    pub fn is_leader_of(&self, id: &str) -> bool {
        self.leader().is_some_and(|leader| leader == id)
    }

    /// The present term, where this member leads.
    pub fn term(&self) -> Option<Tenure> {
        self.shared().term.borrow().clone().filter(|term| !term.is_over())
    }

    /// Everybody present, asked of the backend.
    pub async fn members(&self) -> Result<Vec<String>> {
        self.shared().leases.roster(self.namespace()).await
    }

    /// Everybody present, as of the last heartbeat that asked.
    pub fn known_members(&self) -> Vec<String> {
        self.shared().rules.lock().members(self.shared().moment())
    }

    /// Whether the place is left to members of another system that were listed last.
    pub fn is_yielding(&self) -> bool {
        self.shared().rules.lock().yields()
    }

    pub fn metrics(&self) -> Metrics {
        self.shared().rules.lock().metrics()
    }

    pub fn breaker(&self) -> BreakerStatus {
        self.shared().rules.lock().breaker()
    }

    /// Whether a task that was handed out in that term may still be done: in the present one, in a later one that this member has not
    /// heard of yet, or in the one before for a grace period. For tasks only; what a leader writes must be fenced where it
    /// is written.
    pub fn admits(&self, epoch: Epoch) -> bool {
        self.shared().rules.lock().admits(epoch, self.shared().moment())
    }

    /// As [`admits`](Self::admits), of a task that says when it was created: one of the term before is admitted if it is no older than
    /// the grace period, by the clocks of whoever created it and of this member.
    pub fn admits_created_at(&self, epoch: Epoch, created_at: jiff::Timestamp) -> bool {
        let shared = self.shared();
        let age = Duration::try_from(shared.clock.now().duration_since(created_at)).unwrap_or_default();
        shared.rules.lock().admits_aged(epoch, age, shared.moment())
    }

    /// What happens from now on.
    pub fn events(&self) -> Events {
        Events { receiver: self.shared().events.lock().as_ref().map(broadcast::Sender::subscribe) }
    }

    /// Waits until this member leads, and gives the term; each term once to each handle. None once the elector has stopped.
    pub async fn lead(&self) -> Option<Tenure> {
        let term = self.shared().next_term(Epoch(self.handed.load(Ordering::Relaxed))).await?;
        self.handed.store(term.epoch().0, Ordering::Relaxed);
        Some(term)
    }

    /// Tells `subscriber` of every term, beginning with the present one, until the elector stops.
    pub fn subscribe(&self, subscriber: Subscriber) {
        self.handle.tasks.spawn(subscriber::attend(subscriber, self.shared().clone()));
    }

    /// Gives up the term, where it holds one, and lets others stand first. It remains a member and may lead again: once another
    /// has led, or after the time of a lease. Done when another may lead; a subscriber that calls it does not wait for that.
    pub async fn resign(&self) {
        let shared = self.shared();
        let Some(term) = shared.term.borrow().clone() else { return };
        term.end();
        if subscriber::is_of(shared) {
            return;
        }
        let mut terms = shared.term.subscribe();
        // Fails only where the heartbeat has ended: then nothing is held.
        let _ = terms.wait_for(|now| now.as_ref().is_none_or(|now| now.epoch() != term.epoch())).await;
    }

    /// A handle that keeps nothing alive.
    pub fn downgrade(&self) -> WeakElector {
        WeakElector { handle: Arc::downgrade(&self.handle), left: self.shared().left.clone() }
    }

    /// Leaves: ends the term, tells the subscribers, resigns, withdraws. Done when all that is done. A subscriber that calls it, as
    /// from `on_deposed`, does not wait for that, since all of it waits for the subscriber; nor may it wait for another task that
    /// calls it.
    pub async fn stop(&self) {
        self.shared().quit();
        if subscriber::is_of(self.shared()) {
            return;
        }
        self.handle.tasks.close();
        self.handle.tasks.wait().await;
    }
}

/// A handle that keeps nothing alive: with it alone an elector ends.
#[derive(Clone)]
pub struct WeakElector {
    handle: Weak<Handle>,
    left: CancellationToken,
}

impl WeakElector {
    /// The elector, unless it has ended or was told to stop.
    pub fn upgrade(&self) -> Option<Elector> {
        let handle = self.handle.upgrade().filter(|handle| !handle.shared.stop.is_cancelled())?;
        Some(Elector { handle, handed: AtomicU64::new(0) })
    }

    /// Waits until one that has ended, or was told to stop, has said its farewell to the leases.
    pub async fn left(&self) {
        self.left.cancelled().await;
    }

    pub fn has_left(&self) -> bool {
        self.left.is_cancelled()
    }
}

impl Clone for Elector {
    fn clone(&self) -> Self {
        Elector { handle: self.handle.clone(), handed: AtomicU64::new(0) }
    }
}

impl Shared {
    pub fn now(&self) -> Now {
        Now { at: self.moment(), wall: self.clock.now() }
    }

    pub fn moment(&self) -> Moment {
        Moment(self.origin.elapsed())
    }

    pub fn instant(&self, moment: Moment) -> Instant {
        self.origin.after(moment.0)
    }

    /// Whatever runs for the term ends now; the heartbeat does the rest.
    fn quit(&self) {
        if let Some(term) = &*self.term.borrow() {
            term.end();
        }
        self.stop.cancel();
    }

    /// The first term after that one that is not over.
    pub async fn next_term(&self, after: Epoch) -> Option<Tenure> {
        let mut terms = self.term.subscribe();
        loop {
            let present = terms.borrow_and_update().clone();
            if let Some(term) = present.filter(|term| term.epoch() > after && !term.is_over())
                && !self.stop.is_cancelled()
            {
                return Some(term);
            }
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return None,
                changed = terms.changed() => changed.ok()?,
            }
        }
    }

    /// Has the outside see what the rules have come to.
    pub fn publish(&self, rules: &mut Rules) {
        let held = rules.term();
        let present = self.term.borrow().clone();
        match (held, present) {
            (Some(held), Some(term)) if held.epoch == term.epoch() => {
                term.prolong(self.instant(held.certain_until));
            }
            (Some(held), before) => {
                if let Some(before) = before {
                    before.end();
                }
                let term = Tenure::new(held.epoch, self.instant(held.certain_until));
                self.term.send_replace(Some(term));
            }
            (None, Some(before)) => {
                before.end();
                self.term.send_replace(None);
            }
            (None, None) => {}
        }
        telemetry::leads(&self.namespace, held.is_some(), rules.epoch());
        let happened = rules.take_events();
        if !happened.is_empty() {
            let at = self.clock.now();
            let events = self.events.lock();
            for what in happened {
                log(&self.namespace, &what);
                let event = Event { at, namespace: self.namespace.clone(), what };
                // Fails only where nobody watches.
                let _ = events.as_ref().map(|events| events.send(Arc::new(event)));
            }
        }
    }

    /// No more events will come.
    pub fn fall_silent(&self) {
        self.events.lock().take();
    }
}

/// One line for a change of leader; everything else is for debugging.
fn log(namespace: &str, what: &ElectionEvent) {
    match what {
        ElectionEvent::LeaderChanged { previous_leader, new_leader, epoch } => {
            let (previous_leader, new_leader) = (previous_leader.as_deref(), new_leader.as_deref());
            info!(namespace, previous_leader, new_leader, epoch = epoch.0, "leader changed");
        }
        ElectionEvent::ContentionDetected(contention) => {
            let (duration, expected) = (duration::format(contention.duration), duration::format(contention.expected));
            warn!(namespace, duration, expected, ratio = contention.ratio, "heartbeats are slow: contention detected");
        }
        ElectionEvent::BreakerOpen { failure_count } => {
            warn!(namespace, failures = failure_count, "circuit breaker opened: no elections until it closes");
        }
        what => debug!(namespace, event = what.name(), "election event"),
    }
}

/// A stream of events.
pub struct Events {
    receiver: Option<broadcast::Receiver<Arc<Event>>>,
}

impl Events {
    /// The next event; None once the elector has stopped. A watcher that is too slow misses some: an event is a notice, the
    /// elector itself tells what is.
    pub async fn next(&mut self) -> Option<Arc<Event>> {
        let receiver = self.receiver.as_mut()?;
        loop {
            match receiver.recv().await {
                Ok(event) => return Some(event),
                Err(broadcast::error::RecvError::Lagged(missed)) => {
                    debug!(missed, "watcher of election events lagged behind")
                }
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }
}
