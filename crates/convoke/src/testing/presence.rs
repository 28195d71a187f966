//! Which workers are connected, by real time.
//!
//! Virtual time may pass a day while a worker needs a millisecond to send its next heartbeat. So a worker that is
//! connected counts as alive, however far time was moved.
//!
//! | a worker is connected | |
//! | --- | --- |
//! | while one of its requests is in progress, such as a poll that waits | |
//! | after a request, for [`CONTACT`] | it sends a heartbeat each second |
//! | unless a request was cut off and no other followed within [`DOUBT`] | its process has ended |

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use convoke_core::WorkerId;
use parking_lot::Mutex;

/// How long a worker is connected after its last request.
const CONTACT: Duration = Duration::from_secs(10);
/// How long it takes to find out whether a worker that cut off its request is gone.
const DOUBT: Duration = Duration::from_millis(250);

#[derive(Default)]
pub(super) struct Presence {
    contacts: Mutex<BTreeMap<WorkerId, Contact>>,
}

struct Contact {
    /// Its requests in progress.
    open: usize,
    last: Instant,
    /// It cut off its last request.
    was_cut: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Connected,
    Doubtful,
    Gone,
}

impl Contact {
    fn state(&self) -> State {
        let silence = self.last.elapsed();
        match self {
            Contact { open: 1.., .. } => State::Connected,
            Contact { was_cut: true, .. } if silence < DOUBT => State::Doubtful,
            Contact { was_cut: true, .. } => State::Gone,
            _ if silence < CONTACT => State::Connected,
            _ => State::Gone,
        }
    }
}

impl Presence {
    /// Records the start of a request of a worker.
    pub fn enter(self: &Arc<Self>, worker: WorkerId) -> OpenRequest {
        let mut contacts = self.contacts.lock();
        let new = || Contact { open: 0, last: Instant::now(), was_cut: false };
        let contact = contacts.entry(worker.clone()).or_insert_with(new);
        contact.open += 1;
        contact.was_cut = false;
        OpenRequest { presence: self.clone(), worker, is_done: false }
    }

    /// Forgets a worker that has left.
    pub fn leave(&self, worker: &WorkerId) {
        self.contacts.lock().remove(worker);
    }

    /// Returns whether the worker has made a request.
    pub fn is_known(&self, worker: &WorkerId) -> bool {
        self.contacts.lock().contains_key(worker)
    }

    pub fn connected(&self) -> Vec<WorkerId> {
        let contacts = self.contacts.lock();
        let connected = contacts.iter().filter(|(_, contact)| contact.state() != State::Gone);
        connected.map(|(worker, _)| worker.clone()).collect()
    }

    /// Returns whether it is not certain yet if a worker is connected.
    pub fn is_doubtful(&self) -> bool {
        self.contacts.lock().values().any(|contact| contact.state() == State::Doubtful)
    }
}

/// A request in progress. It was cut off if it is dropped before it is [done](Self::done).
pub(super) struct OpenRequest {
    presence: Arc<Presence>,
    worker: WorkerId,
    is_done: bool,
}

impl OpenRequest {
    pub fn done(mut self) {
        self.is_done = true;
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        // A worker that has left is not in the list.
        if let Some(contact) = self.presence.contacts.lock().get_mut(&self.worker) {
            contact.open = contact.open.saturating_sub(1);
            contact.last = Instant::now();
            contact.was_cut = !self.is_done;
        }
    }
}
