//! A member of a consumer group, with the waiting.
//!
//! It reads only if its [wait slot](super::wait_slot) reports that the queue may hold entries. A read runs in a task of
//! its own: if the call is dropped, the task goes on, and the entries that it took become undelivered again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use convoke_core::limits::TAKE_BYTES_MAX;
use convoke_core::ports::{Consumer, Delivery};
use convoke_core::{Error, Result};
use tokio::sync::oneshot;
use tracing::debug;

use super::member::{Member, Taken};
use super::wait_slot::WaitSlot;

/// Bounds one read, whatever the caller asks for.
const READ_MAX: usize = 10_000;

pub(super) struct PostgresConsumer {
    member: Arc<Member>,
    wait_slot: Arc<WaitSlot>,
    /// The first read does not wait for a bell.
    has_read: AtomicBool,
    left: AtomicBool,
    /// The consumer has left, and the server has been informed.
    is_released: AtomicBool,
}

impl PostgresConsumer {
    pub(super) fn new(member: Member, wait_slot: Arc<WaitSlot>) -> Self {
        let no = || AtomicBool::new(false);
        PostgresConsumer { member: Arc::new(member), wait_slot, has_read: no(), left: no(), is_released: no() }
    }

    fn check_member(&self) -> Result<()> {
        if self.left.load(Ordering::SeqCst) {
            return Err(Error::not_found("consumer", format!("{} of {}", self.member.name, self.member.queue)));
        }
        Ok(())
    }

    async fn read(&self, max: usize) -> Result<Taken> {
        let (reply, taken) = oneshot::channel();
        let member = self.member.clone();
        tokio::spawn(async move {
            // If nobody waits any more, the entries are dropped and so become undelivered again.
            let _ = reply.send(member.read(max).await);
        });
        taken.await.map_err(|_| Error::unknown("bus", "the read ended before its reply"))?
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
impl Consumer for PostgresConsumer {
    async fn take_now(&self, max: usize) -> Result<Vec<Delivery>> {
        if max == 0 {
            return Ok(Vec::new());
        }
        let mut wake_next = WakeNextOnDrop { wait_slot: &self.wait_slot, is_armed: true };
        self.check_member()?;
        let is_first = !self.has_read.swap(true, Ordering::SeqCst);
        if !self.wait_slot.begin_read() && !is_first {
            wake_next.is_armed = false;
            return Ok(Vec::new());
        }
        let wanted = max.min(READ_MAX);
        match self.read(wanted).await {
            Ok(taken) => {
                // A consumer that left meanwhile has released its entries, these perhaps not.
                self.check_member()?;
                // A bell wakes one consumer: if entries may be left, it wakes the next.
                wake_next.is_armed = taken.len() >= wanted || taken.bytes() >= TAKE_BYTES_MAX;
                Ok(taken.into_deliveries())
            }
            Err(error) => {
                // Wakes no other consumer: it would fail as well. The next read needs no bell.
                wake_next.is_armed = false;
                self.wait_slot.read_failed();
                Err(error)
            }
        }
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
        self.member.take_over(idle, max.min(READ_MAX)).await
    }

    async fn leave(&self) -> Result<()> {
        self.left.store(true, Ordering::SeqCst);
        // Ends a `take` of this consumer that still waits.
        self.wait_slot.wake_all();
        if self.is_released.load(Ordering::SeqCst) {
            return Ok(());
        }
        self.member.leave().await?;
        self.is_released.store(true, Ordering::SeqCst);
        Ok(())
    }
}

impl Drop for PostgresConsumer {
    /// The consumer vanished without `leave`. If it has nothing pending, its name is removed in the background: names
    /// of consumers that come and go would accumulate in the group. If that fails, a takeover removes it later.
    fn drop(&mut self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if *self.is_released.get_mut() {
            return;
        }
        let member = self.member.clone();
        runtime.spawn(async move {
            if let Err(error) = member.part().await {
                debug!(%error, queue = member.queue, "removing a consumer from its group failed");
            }
        });
    }
}
