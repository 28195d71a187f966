//! Where the consumers of one group of one queue wait, within this process.
//!
//! A ring wakes one of them; whoever leaves something behind passes it on. A ring that comes while nobody waits is kept for
//! the next who does. After the connection was lost all are woken, since rings may have been. A queue is read only after a
//! ring, or if nobody has read it for about a second: producers that know no bells exist, and a worker of a thousand queues
//! must not read all of them with every poll.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::subscription_hub::{Listener, Listening, SubscriptionHub};

const LOOK_INTERVAL_MS: std::ops::Range<u64> = 750..1_250;

pub(super) struct WaitSlot {
    bell: Arc<Bell>,
    /// When the queue is read although nobody rang.
    next_look: Mutex<Instant>,
    pub(super) listening: Listening,
}

struct Bell {
    notify: Notify,
    /// The queue may hold something that nobody was given.
    is_rung: AtomicBool,
}

impl Default for Bell {
    fn default() -> Self {
        Bell { notify: Notify::new(), is_rung: AtomicBool::new(true) }
    }
}

impl Listener for Bell {
    fn on_message(&self, _topic: &Arc<str>, _body: Bytes) {
        self.is_rung.store(true, Ordering::SeqCst);
        self.notify.notify_one();
    }

    fn missed(&self) {
        self.is_rung.store(true, Ordering::SeqCst);
        self.notify.notify_waiters();
        self.notify.notify_one();
    }
}

fn look_after_now() -> Instant {
    Instant::now() + Duration::from_millis(rand::random_range(LOOK_INTERVAL_MS))
}

impl WaitSlot {
    /// Waits for a ring, or until it is time to look without one; then one of those who wait does.
    pub(super) async fn wait(&self) {
        loop {
            let look = *self.next_look.lock();
            tokio::select! {
                () = self.bell.notify.notified() => return,
                () = tokio::time::sleep_until(look) => {}
            }
            let mut next = self.next_look.lock();
            if *next == look {
                *next = look_after_now();
                self.bell.is_rung.store(true, Ordering::SeqCst);
                return;
            }
        }
    }

    /// Whether the queue is to be read: it may hold something. A ring that comes from now on counts for the next read.
    pub(super) fn begin_read(&self) -> bool {
        let is_rung = self.bell.is_rung.swap(false, Ordering::SeqCst);
        let mut next = self.next_look.lock();
        let is_due = is_rung || *next <= Instant::now();
        if is_due {
            *next = look_after_now();
        }
        is_due
    }

    /// What the read was to find is still there: the next read need not wait for a ring.
    pub(super) fn read_failed(&self) {
        self.bell.is_rung.store(true, Ordering::SeqCst);
    }

    /// Something may be left for another.
    pub(super) fn wake_next(&self) {
        self.bell.is_rung.store(true, Ordering::SeqCst);
        self.bell.notify.notify_one();
    }

    pub(super) fn wake_all(&self) {
        self.bell.missed();
    }
}

/// The doors of a process: one for each queue and group that it consumes.
#[derive(Default)]
pub(super) struct WaitSlots {
    by_place: Mutex<HashMap<(String, String), Weak<WaitSlot>>>,
}

impl WaitSlots {
    pub(super) fn wait_slot(&self, subscriptions: &SubscriptionHub, queue: &str, group: &str) -> Arc<WaitSlot> {
        let mut wait_slots = self.by_place.lock();
        let place = (queue.to_owned(), group.to_owned());
        if let Some(wait_slot) = wait_slots.get(&place).and_then(Weak::upgrade) {
            return wait_slot;
        }
        // Those that nobody waits at any more are let go of here: there are never more than twice as many as are in use.
        if wait_slots.len() >= 64
            && wait_slots.len() >= 2 * wait_slots.values().filter(|wait_slot| wait_slot.strong_count() > 0).count()
        {
            wait_slots.retain(|_, wait_slot| wait_slot.strong_count() > 0);
        }
        let bell = Arc::new(Bell::default());
        let listening = subscriptions.listen(&[queue.to_owned()], bell.clone());
        let wait_slot = Arc::new(WaitSlot { bell, next_look: Mutex::new(look_after_now()), listening });
        wait_slots.insert(place, Arc::downgrade(&wait_slot));
        wait_slot
    }
}
