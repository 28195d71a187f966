//! The place at which the consumers of one group of one queue wait, within this process.
//!
//! A bell wakes one of them, which wakes the next if entries are left. A bell that arrives while none waits is kept for
//! the next one. After the connection was lost all are woken, since bells may have been lost. A queue is read only
//! after a bell, or if it was not read for about a second: some producers send no bells, and a worker of a thousand
//! queues must not read all of them with every poll.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::subscription_hub::{Listener, Listening, SubscriptionHub};

const READ_INTERVAL_MS: std::ops::Range<u64> = 750..1_250;

pub(super) struct WaitSlot {
    bell: Arc<Bell>,
    /// When the queue is read although no bell arrived.
    next_read: Mutex<Instant>,
    pub(super) listening: Listening,
}

struct Bell {
    notify: Notify,
    /// The queue may hold undelivered entries.
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

fn next_read_at() -> Instant {
    Instant::now() + Duration::from_millis(rand::random_range(READ_INTERVAL_MS))
}

impl WaitSlot {
    /// Waits for a bell, or for the next poll without one, which one of the waiting consumers makes.
    pub(super) async fn wait(&self) {
        loop {
            let wake_at = *self.next_read.lock();
            tokio::select! {
                () = self.bell.notify.notified() => return,
                () = tokio::time::sleep_until(wake_at) => {}
            }
            let mut next = self.next_read.lock();
            if *next == wake_at {
                *next = next_read_at();
                self.bell.is_rung.store(true, Ordering::SeqCst);
                return;
            }
        }
    }

    /// Returns whether to read the queue: it may hold entries. A later bell counts for the next read.
    pub(super) fn begin_read(&self) -> bool {
        let is_rung = self.bell.is_rung.swap(false, Ordering::SeqCst);
        let mut next = self.next_read.lock();
        let is_due = is_rung || *next <= Instant::now();
        if is_due {
            *next = next_read_at();
        }
        is_due
    }

    /// Lets the next read start without a bell: the entries of the failed read are still there.
    pub(super) fn read_failed(&self) {
        self.bell.is_rung.store(true, Ordering::SeqCst);
    }

    /// Wakes another consumer: entries may be left.
    pub(super) fn wake_next(&self) {
        self.bell.is_rung.store(true, Ordering::SeqCst);
        self.bell.notify.notify_one();
    }

    pub(super) fn wake_all(&self) {
        self.bell.missed();
    }
}

/// The wait slots of a process: one for each queue and group that it consumes.
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
        // Drops slots without users: there are never more than twice as many as are in use.
        if wait_slots.len() >= 64
            && wait_slots.len() >= 2 * wait_slots.values().filter(|wait_slot| wait_slot.strong_count() > 0).count()
        {
            wait_slots.retain(|_, wait_slot| wait_slot.strong_count() > 0);
        }
        let bell = Arc::new(Bell::default());
        let listening = subscriptions.listen(&[queue.to_owned()], bell.clone());
        let wait_slot = Arc::new(WaitSlot { bell, next_read: Mutex::new(next_read_at()), listening });
        wait_slots.insert(place, Arc::downgrade(&wait_slot));
        wait_slot
    }
}
