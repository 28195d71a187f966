//! A member of a consumer group, with the waiting.
//!
//! It reads without blocking, and only if its [wait slot](super::wait_slot) reports that the queue may hold entries. A
//! read that was begun belongs to the consumer, not to the call: if the call is dropped, another waiting call of the
//! process is woken, and the next call of this consumer finishes the read and returns its entries.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use convoke_core::ports::{Consumer, Delivery};
use convoke_core::{Error, Result};
use futures_util::future::BoxFuture;
use tokio::sync::Mutex;
use tracing::debug;

use super::member::Member;
use super::wait_slot::WaitSlot;

/// Bounds one read, whatever the caller asks for.
const READ_MAX: usize = 10_000;

pub(super) struct RedisConsumer {
    member: Arc<Member>,
    wait_slot: Arc<WaitSlot>,
    inbox: Mutex<Inbox>,
    left: AtomicBool,
    /// The consumer has left, and Redis has been informed.
    is_released: AtomicBool,
}

/// Reads that were begun and entries not returned yet.
#[derive(Default)]
struct Inbox {
    read: Option<BoxFuture<'static, Result<Vec<Delivery>>>>,
    arrived: VecDeque<Delivery>,
    /// The first read does not wait for a bell.
    has_read: bool,
}

impl Inbox {
    /// Finishes the read that is under way. If this future is dropped, the read stays.
    async fn finish(&mut self) -> Result<usize> {
        let Some(read) = &mut self.read else { return Ok(0) };
        let outcome = read.await;
        self.read = None;
        let came = outcome?;
        let count = came.len();
        self.arrived.extend(came);
        Ok(count)
    }
}

impl RedisConsumer {
    pub(super) fn new(member: Member, wait_slot: Arc<WaitSlot>) -> Self {
        let inbox = Mutex::new(Inbox::default());
        let (left, is_released) = (AtomicBool::new(false), AtomicBool::new(false));
        RedisConsumer { member: Arc::new(member), wait_slot, inbox, left, is_released }
    }

    fn check_member(&self) -> Result<()> {
        if self.left.load(Ordering::SeqCst) {
            return Err(Error::not_found("consumer", format!("{} of {}", self.member.name, self.member.queue)));
        }
        Ok(())
    }

    /// Reads if nothing has arrived and the queue may hold entries. Returns whether the read was full.
    async fn fill(&self, inbox: &mut Inbox, wanted: usize) -> Result<bool> {
        // Finish an earlier call's read first: it may hold entries, and is out of date if not.
        if inbox.arrived.is_empty() {
            inbox.finish().await?;
        }
        let is_first = !inbox.has_read;
        if !inbox.arrived.is_empty() || !(self.wait_slot.begin_read() || is_first) {
            return Ok(false);
        }
        inbox.has_read = true;
        inbox.read = Some(Box::pin(self.member.clone().read(wanted)));
        Ok(inbox.finish().await? >= wanted || self.member.has_left_some.load(Ordering::Relaxed))
    }
}

/// Wakes another consumer of the wait slot on drop: for a call that ends before it knows whether entries are left.
struct WakeNextOnDrop<'a> {
    wait_slot: &'a WaitSlot,
    is_armed: bool,
}

impl Drop for WakeNextOnDrop<'_> {
    fn drop(&mut self) {
        if self.is_armed {
            self.wait_slot.wake_next();
        }
    }
}

#[async_trait]
impl Consumer for RedisConsumer {
    async fn take_now(&self, max: usize) -> Result<Vec<Delivery>> {
        if max == 0 {
            return Ok(Vec::new());
        }
        let mut wake_next = WakeNextOnDrop { wait_slot: &self.wait_slot, is_armed: true };
        let mut inbox = self.inbox.lock().await;
        self.check_member()?;
        let is_full = match self.fill(&mut inbox, max.min(READ_MAX)).await {
            Ok(is_full) => is_full,
            Err(error) => {
                // Wakes no other consumer: it would fail as well. The next poll reads again.
                wake_next.is_armed = false;
                self.wait_slot.read_failed();
                return Err(error);
            }
        };
        let count = inbox.arrived.len().min(max);
        let taken: Vec<Delivery> = inbox.arrived.drain(..count).collect();
        self.member.held.lock().extend(taken.iter().map(|delivery| delivery.id.clone()));
        // A bell wakes one consumer: if entries may be left, it wakes the next.
        wake_next.is_armed = is_full || !inbox.arrived.is_empty();
        Ok(taken)
    }

    async fn ready(&self) -> Result<()> {
        self.wait_slot.wait().await;
        Ok(())
    }

    async fn ack(&self, ids: &[String]) -> Result<()> {
        self.member.ack(ids).await
    }

    async fn take_over(&self, idle: Duration, max: usize) -> Result<Vec<Delivery>> {
        self.check_member()?;
        self.member.take_over(idle, max).await
    }

    async fn leave(&self) -> Result<()> {
        self.left.store(true, Ordering::SeqCst);
        // Ends a `take` of this consumer that still waits.
        self.wait_slot.wake_all();
        let mut inbox = self.inbox.lock().await;
        if self.is_released.load(Ordering::SeqCst) {
            return Ok(());
        }
        // Entries of a read under way are released with the rest. If it fails, so does the next request.
        let _ = inbox.finish().await;
        inbox.arrived.clear();
        self.member.leave().await?;
        self.is_released.store(true, Ordering::SeqCst);
        Ok(())
    }
}

impl Drop for RedisConsumer {
    /// The consumer vanished without `leave`. If it has nothing pending, its name is removed in the background: names
    /// of consumers that come and go would accumulate in the group. If that fails, the next takeover removes it.
    fn drop(&mut self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if *self.is_released.get_mut() {
            return;
        }
        let (member, inbox) = (self.member.clone(), std::mem::take(self.inbox.get_mut()));
        runtime.spawn(async move {
            let mut inbox = inbox;
            let _ = inbox.finish().await;
            let unreturned: Vec<String> = inbox.arrived.into_iter().map(|delivery| delivery.id).collect();
            if let Err(error) = member.part(&unreturned).await {
                debug!(%error, queue = member.queue, "removing a consumer from its group failed");
            }
        });
    }
}
