//! Where the consumers of one group of one queue wait, within this process.
//!
//! A ring wakes one of them; whoever leaves something behind passes it on. A ring that comes while nobody waits is kept for
//! the next who does. After the connection was lost all are woken, since rings may have been.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use super::switchboard::{Listener, Listening, Switchboard};

pub(super) struct Door {
    bell: Arc<Bell>,
    pub(super) listening: Listening,
}

#[derive(Default)]
struct Bell(Notify);

impl Listener for Bell {
    fn hear(&self, _topic: &Arc<str>, _body: Bytes) {
        self.0.notify_one();
    }

    fn missed(&self) {
        self.0.notify_waiters();
        self.0.notify_one();
    }
}

impl Door {
    pub(super) fn rung(&self) -> Notified<'_> {
        self.bell.0.notified()
    }

    pub(super) fn pass_on(&self) {
        self.bell.0.notify_one();
    }

    pub(super) fn wake_all(&self) {
        self.bell.missed();
    }
}

/// The doors of a process: one for each queue and group that it consumes.
#[derive(Default)]
pub(super) struct Doors {
    by_place: Mutex<HashMap<(String, String), Weak<Door>>>,
}

impl Doors {
    pub(super) fn door(&self, switchboard: &Switchboard, queue: &str, group: &str) -> Arc<Door> {
        let mut doors = self.by_place.lock();
        let place = (queue.to_owned(), group.to_owned());
        if let Some(door) = doors.get(&place).and_then(Weak::upgrade) {
            return door;
        }
        // Those that nobody waits at any more are let go of here: there are never more than twice as many as are in use.
        if doors.len() >= 64 && doors.len() >= 2 * doors.values().filter(|door| door.strong_count() > 0).count() {
            doors.retain(|_, door| door.strong_count() > 0);
        }
        let bell = Arc::new(Bell::default());
        let listening = switchboard.listen(&[queue.to_owned()], bell.clone());
        let door = Arc::new(Door { bell, listening });
        doors.insert(place, Arc::downgrade(&door));
        door
    }
}
