//! The pending calls, and the one timer that ends those whose deadline has passed.
//!
//! The timer is set for the earliest deadline that it knows of and is not moved when calls end: since most calls have
//! the same timeout, it wakes about once in that time, however many calls there are.

use std::sync::Arc;
use std::time::Duration;

use convoke_core::Error;
use convoke_core::mesh::{Calls, RequestId};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

/// The end of a call, as far as the table knows.
pub(super) enum End {
    Reply(Result<String, String>),
    /// Nobody listens under that number.
    NoNode,
    /// The link could not send it.
    Unsent(Error),
    Expired,
    Stopped,
}

type Waiter = oneshot::Sender<End>;

pub(super) struct Pending {
    began: Instant,
    table: Mutex<Table>,
    earlier: Notify,
}

struct Table {
    calls: Calls<Waiter>,
    /// The deadline that the timer is set for.
    wakes: Option<Duration>,
    is_closed: bool,
}

impl Pending {
    pub(super) fn new() -> Self {
        let table = Table { calls: Calls::new(crate::machine::bits()), wakes: None, is_closed: false };
        Pending { began: Instant::now(), table: Mutex::new(table), earlier: Notify::new() }
    }

    /// `None` if the instance has stopped.
    pub(super) fn open(self: &Arc<Self>, timeout: Duration) -> Option<(Call, oneshot::Receiver<End>)> {
        let (waiter, end) = oneshot::channel();
        let mut table = self.table.lock();
        if table.is_closed {
            return None;
        }
        let id = table.calls.open(timeout, self.began.elapsed(), waiter);
        let next = table.calls.next_deadline();
        if next.is_some_and(|next| table.wakes.is_none_or(|wakes| next < wakes)) {
            table.wakes = next;
            self.earlier.notify_one();
        }
        Some((Call { id, pending: self.clone() }, end))
    }

    pub(super) fn heartbeat(&self, id: RequestId) -> bool {
        self.table.lock().calls.heartbeat(id, self.began.elapsed())
    }

    /// Returns false if the call has ended before.
    pub(super) fn end(&self, id: RequestId, end: End) -> bool {
        let waiter = self.table.lock().calls.close(id);
        // The caller may have dropped the call a moment ago.
        waiter.is_some_and(|waiter| waiter.send(end).is_ok())
    }

    /// Keeps messages of pending calls, and messages that belong to no call.
    pub(super) fn retain<T>(&self, outgoing_messages: &mut Vec<T>, call: impl Fn(&T) -> Option<RequestId>) {
        let table = self.table.lock();
        outgoing_messages.retain(|outgoing| call(outgoing).is_none_or(|id| table.calls.is_open(id)));
    }

    pub(super) fn len(&self) -> usize {
        self.table.lock().calls.len()
    }

    /// Ends all calls and rejects new ones.
    pub(super) fn close(&self) {
        let waiters = {
            let mut table = self.table.lock();
            table.is_closed = true;
            table.calls.drain()
        };
        for waiter in waiters {
            let _ = waiter.send(End::Stopped);
        }
    }

    /// Ends calls at their deadlines. Never returns.
    pub(super) async fn watch(&self) {
        loop {
            let wakes = self.table.lock().wakes.map(|wakes| self.began + wakes);
            match wakes {
                None => self.earlier.notified().await,
                Some(wakes) => {
                    tokio::select! {
                        biased;
                        () = tokio::time::sleep_until(wakes) => {}
                        () = self.earlier.notified() => continue,
                    }
                }
            }
            let expired = {
                let mut table = self.table.lock();
                let expired = table.calls.expire(self.began.elapsed());
                table.wakes = table.calls.next_deadline();
                expired
            };
            for waiter in expired {
                let _ = waiter.send(End::Expired);
            }
        }
    }
}

/// A call of this instance. Dropping it ends the wait.
pub(super) struct Call {
    pub id: RequestId,
    pending: Arc<Pending>,
}

impl Drop for Call {
    fn drop(&mut self) {
        let waiter = self.pending.table.lock().calls.close(self.id);
        drop(waiter);
    }
}
