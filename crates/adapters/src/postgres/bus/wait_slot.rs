//! The place at which the consumers of one group of one queue wait, within this process.
//!
//! A bell wakes one of them, which wakes the next if entries are left. A bell that arrives while none waits is kept for
//! the next one. After the connection was lost all are woken, since bells may have been lost. A queue is read only
//! after a bell: the hub rings for queues whose bells were lost.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::hub::{Hub, Interest, Listener, Listening};

pub(super) struct WaitSlot {
    bell: Arc<Bell>,
    _listening: Listening,
}

struct Bell {
    notify: Notify,
    /// The queue may hold undelivered entries.
    is_rung: AtomicBool,
}

impl Bell {
    fn ring(&self) {
        self.is_rung.store(true, Ordering::SeqCst);
        self.notify.notify_one();
    }

    fn ring_for_all(&self) {
        self.is_rung.store(true, Ordering::SeqCst);
        self.notify.notify_waiters();
        self.notify.notify_one();
    }
}

impl Listener for Bell {
    fn on_bell(&self, _queue: &str) {
        self.ring();
    }

    fn missed(&self) {
        self.ring_for_all();
    }
}

impl WaitSlot {
    pub(super) async fn wait(&self) {
        self.bell.notify.notified().await;
    }

    /// Returns whether to read the queue: it may hold entries. A later bell counts for the next read.
    pub(super) fn begin_read(&self) -> bool {
        self.bell.is_rung.swap(false, Ordering::SeqCst)
    }

    /// Lets the next read start without a bell: the entries of the failed read are still there.
    pub(super) fn read_failed(&self) {
        self.bell.is_rung.store(true, Ordering::SeqCst);
    }

    /// Wakes another consumer: entries may be left.
    pub(super) fn wake_next(&self) {
        self.bell.ring();
    }

    pub(super) fn wake_all(&self) {
        self.bell.ring_for_all();
    }
}

/// The wait slots of a process, by queue and group.
#[derive(Default)]
pub(super) struct WaitSlots {
    by_name: Mutex<HashMap<(String, String), Weak<WaitSlot>>>,
}

impl WaitSlots {
    pub(super) fn wait_slot(&self, hub: &Hub, queue: &str, group: &str) -> Arc<WaitSlot> {
        let mut by_name = self.by_name.lock();
        by_name.retain(|_, slot| slot.strong_count() > 0);
        let place = by_name.entry((queue.to_owned(), group.to_owned())).or_default();
        if let Some(slot) = place.upgrade() {
            return slot;
        }
        let bell = Arc::new(Bell { notify: Notify::new(), is_rung: AtomicBool::new(true) });
        let listening = hub.listen(Interest::Queue(queue.into()), bell.clone());
        let slot = Arc::new(WaitSlot { bell, _listening: listening });
        *place = Arc::downgrade(&slot);
        slot
    }
}
