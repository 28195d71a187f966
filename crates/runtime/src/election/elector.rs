//! A member of a namespace that wants to lead it: any number of subscribers, one heartbeat.
//!
//! The heartbeat runs as a task of its own until the last handle is dropped; then it resigns, so that the next leader
//! need not wait for the lease to expire. A handle returns the result of the last heartbeat, checked against the clock
//! at the time of the call: a process that was paused does not go on leading, nor, on Linux, a machine that was
//! suspended.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use convoke_core::election::{BreakerStatus, Conduct, ElectionEvent, Event, Metrics, Settings};
use convoke_core::ids::check_name;
use convoke_core::ports::{Clock, Leases};
use convoke_core::{Epoch, Invalid, Result, duration};
use parking_lot::Mutex;
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, info, warn};

use super::driver;
use super::holder::{Candidate, Holder};
use super::office::Office;
use super::subscriber::{self, Subscriber};
use super::tenure::Tenure;
use crate::outage::Outages;

/// How many events a watcher may be behind before it misses some.
const EVENTS_BUFFER: usize = 256;

/// The parts of an [`Elector`].
pub struct Candidacy {
    /// Its id among the members, unique among those that live at the same time.
    pub id: String,
    /// The namespace that it wants to lead.
    pub namespace: String,
    /// Where the lease and the list of members are held.
    pub leases: Arc<dyn Leases>,
    /// For timestamps of the metrics and the age of tasks.
    pub clock: Arc<dyn Clock>,
    /// Times, contention and circuit breaker.
    pub settings: Settings,
}

/// A handle of a running elector. Clones share it; dropping the last one resigns.
///
/// A handle that a subscriber has captured counts too: it keeps the elector running until [`stop`](Self::stop), even if
/// no other handle is left. Pass a subscriber a [`downgrade`](Self::downgrade)d one.
pub struct Elector {
    handle: Arc<Handle>,
    /// The last term that this handle returned.
    handed: AtomicU64,
}

struct Handle {
    holder: Arc<Holder>,
    office: Arc<ElectorOffice>,
    tasks: TaskTracker,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.holder.quit();
    }
}

/// Sends events to the watchers.
struct ElectorOffice {
    namespace: String,
    clock: Arc<dyn Clock>,
    /// `None` after the elector has stopped.
    events: Mutex<Option<broadcast::Sender<Arc<Event>>>>,
}

impl Office for ElectorOffice {
    fn announce(&self, what: ElectionEvent) {
        log(&self.namespace, &what);
        let event = Event { at: self.clock.now(), namespace: self.namespace.clone(), what };
        // Fails only if nothing watches.
        let _ = self.events.lock().as_ref().map(|events| events.send(Arc::new(event)));
    }

    /// Closes the stream of events.
    fn close(&self) {
        self.events.lock().take();
    }
}

impl Elector {
    /// Starts the heartbeat and returns a handle at once: the leader is known after the first heartbeat.
    pub fn start(candidacy: Candidacy) -> Result<Elector> {
        let Candidacy { id, namespace, leases, clock, settings } = candidacy;
        check_name("id", &id)?;
        check_name("namespace", &namespace)?;
        settings.check()?;
        if leases.foreign().is_some_and(|is_foreign| is_foreign(&id)) {
            let message = format!("expected an id that is not of another system that shares the namespace, got {id:?}");
            return Err(Invalid::unprocessable("id", message).into());
        }
        let (least, most) = (settings.startup_jitter_min, settings.startup_jitter_max);
        let events = Mutex::new(Some(broadcast::Sender::new(EVENTS_BUFFER)));
        let office = Arc::new(ElectorOffice { namespace: namespace.clone(), clock: clock.clone(), events });
        let holder = Holder::new(Candidate {
            id,
            namespace,
            conduct: Conduct::member(&settings),
            settings,
            lease_check_interval: leases.lease_check_interval(),
            foreign: leases.foreign(),
            delay: least + most.saturating_sub(least).mul_f64(crate::machine::fraction()),
            outages: Arc::new(Outages::new([("leases", leases.address())])),
            leases,
            clock,
            vacancy: Arc::default(),
            fit: watch::channel(true).1,
        });
        let tasks = TaskTracker::new();
        // Created here: a runtime that shuts down drops a task that it has not polled yet.
        let left = holder.left.clone().drop_guard();
        tasks.spawn(driver::drive(holder.clone(), office.clone(), left));
        Ok(Elector { handle: Arc::new(Handle { holder, office, tasks }), handed: AtomicU64::new(0) })
    }

    fn holder(&self) -> &Arc<Holder> {
        &self.handle.holder
    }

    /// Returns the id of this member.
    pub fn id(&self) -> String {
        self.holder().rules.lock().me().to_owned()
    }

    /// Returns the namespace that it wants to lead.
    pub fn namespace(&self) -> &str {
        &self.holder().namespace
    }

    /// Returns a copy of the settings.
    pub fn settings(&self) -> Settings {
        self.holder().rules.lock().settings().clone()
    }

    /// Returns the leader's id; `None` if it is unknown or its lease may have expired.
    pub fn leader(&self) -> Option<String> {
        let now = self.holder().moment();
        let rules = self.holder().rules.lock();
        rules.leader().filter(|(.., until)| now < *until).map(|(leader, ..)| leader.to_owned())
    }

    /// Returns the highest epoch that this member knows of.
    pub fn epoch(&self) -> Epoch {
        self.holder().rules.lock().epoch()
    }

    /// Returns whether this member leads at this moment.
    pub fn is_leader(&self) -> bool {
        self.term().is_some()
    }

    /// Returns whether the member with this id leads, as far as this member knows.
    pub fn is_leader_of(&self, id: &str) -> bool {
        self.leader().is_some_and(|leader| leader == id)
    }

    /// Returns the present term if this member leads.
    pub fn term(&self) -> Option<Tenure> {
        self.holder().present()
    }

    /// Requests the ids of all members from the backend.
    pub async fn members(&self) -> Result<Vec<String>> {
        self.holder().leases.roster(self.namespace()).await
    }

    /// Returns the ids of all members, as of the last heartbeat that listed them.
    pub fn known_members(&self) -> Vec<String> {
        self.holder().rules.lock().members(self.holder().moment())
    }

    /// Returns whether this member leaves the lease to members of another system, which were on the last list.
    pub fn is_yielding(&self) -> bool {
        self.holder().rules.lock().yields()
    }

    /// Returns the durations and counts of the heartbeats.
    pub fn metrics(&self) -> Metrics {
        self.holder().rules.lock().metrics()
    }

    /// Returns the state of the circuit breaker.
    pub fn breaker(&self) -> BreakerStatus {
        self.holder().rules.lock().breaker()
    }

    /// Returns whether a task that was created in that term may still be done: in the present term, in a later one that
    /// this member does not know of yet, or in the previous one for a grace period. For tasks only; a leader's write
    /// must be fenced at the place of the write.
    pub fn admits(&self, epoch: Epoch) -> bool {
        self.holder().rules.lock().admits(epoch, self.holder().moment())
    }

    /// Like [`admits`](Self::admits), for a task with a creation time: a task of the previous term is admitted if it is
    /// no older than the grace period, by the clocks of its creator and of this member.
    pub fn admits_created_at(&self, epoch: Epoch, created_at: jiff::Timestamp) -> bool {
        let holder = self.holder();
        let age = Duration::try_from(holder.clock.now().duration_since(created_at)).unwrap_or_default();
        holder.rules.lock().admits_aged(epoch, age, holder.moment())
    }

    /// Subscribes to the events from now on.
    pub fn events(&self) -> Events {
        Events { receiver: self.handle.office.events.lock().as_ref().map(broadcast::Sender::subscribe) }
    }

    /// Waits until this member leads, and returns the term; each handle receives each term once. `None` after the
    /// elector has stopped.
    pub async fn lead(&self) -> Option<Tenure> {
        let term = self.holder().next_term(Epoch(self.handed.load(Ordering::Relaxed))).await?;
        self.handed.store(term.epoch().0, Ordering::Relaxed);
        Some(term)
    }

    /// Calls `subscriber` for every term, beginning with the present one, until the elector stops.
    pub fn subscribe(&self, subscriber: Subscriber) {
        self.handle.tasks.spawn(subscriber::attend(subscriber, self.holder().clone()));
    }

    /// Resigns, if this member leads, and lets others stand first. It remains a member and may lead again: after
    /// another has led, or after the time of a lease. Returns when another may lead; a call from a subscriber returns
    /// at once.
    pub async fn resign(&self) {
        let holder = self.holder();
        let Some(term) = holder.term.borrow().clone() else { return };
        term.end();
        if subscriber::is_of(holder) {
            return;
        }
        let mut terms = holder.term.subscribe();
        // Fails only if the heartbeat has ended: then nothing is held.
        let _ = terms.wait_for(|now| now.as_ref().is_none_or(|now| now.epoch() != term.epoch())).await;
    }

    /// Returns a handle that does not keep the elector running.
    pub fn downgrade(&self) -> WeakElector {
        WeakElector { handle: Arc::downgrade(&self.handle), left: self.holder().left.clone() }
    }

    /// Stops: ends the term, calls the subscribers, resigns, withdraws; returns when all of it is done. A call from a
    /// subscriber, as from `on_deposed`, returns at once, since all of it waits for the subscriber; nor may a
    /// subscriber wait for another task that calls `stop`.
    pub async fn stop(&self) {
        self.holder().quit();
        if subscriber::is_of(self.holder()) {
            return;
        }
        self.handle.tasks.close();
        self.handle.tasks.wait().await;
    }
}

/// A handle that does not keep the elector running.
#[derive(Clone)]
pub struct WeakElector {
    handle: Weak<Handle>,
    left: CancellationToken,
}

impl WeakElector {
    /// Returns the elector, unless it has ended or is stopping.
    pub fn upgrade(&self) -> Option<Elector> {
        let handle = self.handle.upgrade().filter(|handle| !handle.holder.stop.is_cancelled())?;
        Some(Elector { handle, handed: AtomicU64::new(0) })
    }

    /// Waits until the elector has stopped, resigned and withdrawn.
    pub async fn left(&self) {
        self.left.cancelled().await;
    }

    /// Returns whether the elector has stopped, resigned and withdrawn.
    pub fn has_left(&self) -> bool {
        self.left.is_cancelled()
    }
}

impl Clone for Elector {
    fn clone(&self) -> Self {
        Elector { handle: self.handle.clone(), handed: AtomicU64::new(0) }
    }
}

/// Logs one line for a change of leader; all other events at debug level, except warnings.
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
    /// Returns the next event; `None` after the elector has stopped. A slow watcher misses some: an event is a hint,
    /// the elector itself has the present state.
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
