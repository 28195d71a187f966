//! Virtual time: the clock of a tokio runtime that is paused.
//!
//! Such a runtime moves its clock by itself, from timer to timer in their order, whenever it has nothing else to do, but
//! not while a blocking task runs. So time stands still as long as there is a [`Hold`], which is such a task.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use convoke_core::ports::Clock;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Wall time that follows the clock of a paused runtime.
pub(super) struct VirtualClock {
    runtime: Handle,
    origin: Mutex<Origin>,
}

/// A wall time, and when it was; `None` while wall time is pinned to it.
#[derive(Clone, Copy)]
struct Origin {
    at: Timestamp,
    instant: Option<Instant>,
}

impl VirtualClock {
    /// Returns a clock that is pinned to `at`.
    pub fn new(runtime: Handle, at: Timestamp) -> Self {
        VirtualClock { runtime, origin: Mutex::new(Origin { at, instant: None }) }
    }

    fn instant(&self) -> Instant {
        let _context = self.runtime.enter();
        Instant::now()
    }

    /// Keeps wall time as it is while a node starts: an election may take a few milliseconds.
    pub fn pin(&self) {
        let at = self.now();
        *self.origin.lock() = Origin { at, instant: None };
    }

    /// Lets wall time follow the clock of the runtime, from now on.
    pub fn unpin(&self) {
        let instant = Some(self.instant());
        self.origin.lock().instant = instant;
    }

    /// Returns the instant at which it will be `at`.
    pub fn instant_of(&self, at: Timestamp) -> Instant {
        let left = Duration::try_from(at.duration_since(self.now())).unwrap_or_default();
        self.instant() + left
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        let now = self.instant();
        let Origin { at, instant } = *self.origin.lock();
        let passed = instant.map_or(Duration::ZERO, |instant| now.saturating_duration_since(instant));
        at.checked_add(passed).unwrap_or(at)
    }
}

/// Keeps the clock of the runtime where it is.
pub(super) struct Hold {
    release: mpsc::Sender<()>,
    held: JoinHandle<()>,
}

impl Hold {
    /// Holds the clock of the current runtime, from this call on.
    pub fn new() -> Self {
        let (release, released) = mpsc::channel();
        // Ends with an error when the sender is dropped.
        let held = tokio::task::spawn_blocking(move || {
            let _ = released.recv();
        });
        Hold { release, held }
    }

    pub async fn release(self) {
        drop(self.release);
        let _ = self.held.await;
    }
}

/// Tells when the virtual runtime has nothing left to do at the present time.
#[derive(Default)]
pub(super) struct Idle(Mutex<Vec<Waiting>>);

struct Waiting {
    condition: Box<dyn Fn() -> bool + Send>,
    reached: Arc<Notify>,
}

impl Idle {
    /// Is called when no task of the runtime can run: before it waits, and before time moves.
    pub fn on_park(&self) {
        self.0.lock().retain(|waiting| {
            // A waiting task that was dropped leaves only this end.
            let is_reached = Arc::strong_count(&waiting.reached) == 1 || (waiting.condition)();
            if is_reached {
                waiting.reached.notify_one();
            }
            !is_reached
        });
    }

    /// Waits until no task can run and the condition holds.
    pub async fn when(&self, condition: impl Fn() -> bool + Send + 'static) {
        let reached = Arc::new(Notify::new());
        self.0.lock().push(Waiting { condition: Box::new(condition), reached: reached.clone() });
        reached.notified().await;
    }

    /// Waits until no task can run.
    pub async fn until_idle(&self) {
        self.when(|| true).await;
    }
}
