//! A member of a namespace that would lead it: any number of subscribers, one heartbeat.
//!
//! The heartbeat runs as a task of its own until the last handle is dropped; then it gives up what it holds, so that the next
//! one need not wait for a lease to run out. What a handle tells is what the heartbeat last heard, judged by the clock at the
//! moment of the question: a process that was paused does not go on believing, nor, on Linux, a machine that was suspended.

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
    holder: Arc<Holder>,
    office: Arc<ElectorOffice>,
    tasks: TaskTracker,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.holder.quit();
    }
}

/// Tells watchers what happens.
struct ElectorOffice {
    namespace: String,
    clock: Arc<dyn Clock>,
    /// None once it has stopped.
    events: Mutex<Option<broadcast::Sender<Arc<Event>>>>,
}

impl Office for ElectorOffice {
    fn announce(&self, what: ElectionEvent) {
        log(&self.namespace, &what);
        let event = Event { at: self.clock.now(), namespace: self.namespace.clone(), what };
        // Fails only where nobody watches.
        let _ = self.events.lock().as_ref().map(|events| events.send(Arc::new(event)));
    }

    /// No more events will come.
    fn close(&self) {
        self.events.lock().take();
    }
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
            delay: least + most.saturating_sub(least).mul_f64(rand::random()),
            outages: Arc::new(Outages::new([("leases", leases.address())])),
            leases,
            clock,
            vacancy: Arc::default(),
            fit: watch::channel(true).1,
        });
        let tasks = TaskTracker::new();
        // Made here: a runtime that shuts down drops a task that it has not begun.
        let left = holder.left.clone().drop_guard();
        tasks.spawn(driver::drive(holder.clone(), office.clone(), left));
        Ok(Elector { handle: Arc::new(Handle { holder, office, tasks }), handed: AtomicU64::new(0) })
    }

    fn holder(&self) -> &Arc<Holder> {
        &self.handle.holder
    }

    pub fn id(&self) -> String {
        self.holder().rules.lock().me().to_owned()
    }

    pub fn namespace(&self) -> &str {
        &self.holder().namespace
    }

    pub fn settings(&self) -> Settings {
        self.holder().rules.lock().settings().clone()
    }

    /// Who leads, as far as is known and for as long as its lease was known to last.
    pub fn leader(&self) -> Option<String> {
        let now = self.holder().moment();
        let rules = self.holder().rules.lock();
        rules.leader().filter(|(.., until)| now < *until).map(|(leader, ..)| leader.to_owned())
    }

    /// The highest term that was heard of.
    pub fn epoch(&self) -> Epoch {
        self.holder().rules.lock().epoch()
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
        self.holder().present()
    }

    /// Everybody present, asked of the backend.
    pub async fn members(&self) -> Result<Vec<String>> {
        self.holder().leases.roster(self.namespace()).await
    }

    /// Everybody present, as of the last heartbeat that asked.
    pub fn known_members(&self) -> Vec<String> {
        self.holder().rules.lock().members(self.holder().moment())
    }

    /// Whether the place is left to members of another system that were listed last.
    pub fn is_yielding(&self) -> bool {
        self.holder().rules.lock().yields()
    }

    pub fn metrics(&self) -> Metrics {
        self.holder().rules.lock().metrics()
    }

    pub fn breaker(&self) -> BreakerStatus {
        self.holder().rules.lock().breaker()
    }

    /// Whether a task that was handed out in that term may still be done: in the present one, in a later one that this member has not
    /// heard of yet, or in the one before for a grace period. For tasks only; what a leader writes must be fenced where it
    /// is written.
    pub fn admits(&self, epoch: Epoch) -> bool {
        self.holder().rules.lock().admits(epoch, self.holder().moment())
    }

    /// As [`admits`](Self::admits), of a task that says when it was created: one of the term before is admitted if it is no older than
    /// the grace period, by the clocks of whoever created it and of this member.
    pub fn admits_created_at(&self, epoch: Epoch, created_at: jiff::Timestamp) -> bool {
        let holder = self.holder();
        let age = Duration::try_from(holder.clock.now().duration_since(created_at)).unwrap_or_default();
        holder.rules.lock().admits_aged(epoch, age, holder.moment())
    }

    /// What happens from now on.
    pub fn events(&self) -> Events {
        Events { receiver: self.handle.office.events.lock().as_ref().map(broadcast::Sender::subscribe) }
    }

    /// Waits until this member leads, and gives the term; each term once to each handle. None once the elector has stopped.
    pub async fn lead(&self) -> Option<Tenure> {
        let term = self.holder().next_term(Epoch(self.handed.load(Ordering::Relaxed))).await?;
        self.handed.store(term.epoch().0, Ordering::Relaxed);
        Some(term)
    }

    /// Tells `subscriber` of every term, beginning with the present one, until the elector stops.
    pub fn subscribe(&self, subscriber: Subscriber) {
        self.handle.tasks.spawn(subscriber::attend(subscriber, self.holder().clone()));
    }

    /// Gives up the term, where it holds one, and lets others stand first. It remains a member and may lead again: once another
    /// has led, or after the time of a lease. Done when another may lead; a subscriber that calls it does not wait for that.
    pub async fn resign(&self) {
        let holder = self.holder();
        let Some(term) = holder.term.borrow().clone() else { return };
        term.end();
        if subscriber::is_of(holder) {
            return;
        }
        let mut terms = holder.term.subscribe();
        // Fails only where the heartbeat has ended: then nothing is held.
        let _ = terms.wait_for(|now| now.as_ref().is_none_or(|now| now.epoch() != term.epoch())).await;
    }

    /// A handle that keeps nothing alive.
    pub fn downgrade(&self) -> WeakElector {
        WeakElector { handle: Arc::downgrade(&self.handle), left: self.holder().left.clone() }
    }

    /// Leaves: ends the term, tells the subscribers, resigns, withdraws. Done when all that is done. A subscriber that calls it, as
    /// from `on_deposed`, does not wait for that, since all of it waits for the subscriber; nor may it wait for another task that
    /// calls it.
    pub async fn stop(&self) {
        self.holder().quit();
        if subscriber::is_of(self.holder()) {
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
        let handle = self.handle.upgrade().filter(|handle| !handle.holder.stop.is_cancelled())?;
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
