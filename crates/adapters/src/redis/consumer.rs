//! A member of a group, that waits.
//!
//! It reads without blocking, and when there is nothing waits at its door until somebody rings; now and then it looks anyway,
//! for those who add to a queue and know no bells. A read that was begun belongs to the consumer, not to the call: should the
//! call be given up, the next one finishes the read and gets what it brought. While Redis is away it goes on waiting.

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

use super::door::Door;
use super::member::Member;

const POLL_INTERVAL_MS: std::ops::Range<u64> = 750..1_250;
/// Bounds one read, whatever the caller asks for.
const READ_MAX: usize = 10_000;

pub(super) struct RedisConsumer {
    member: Arc<Member>,
    door: Arc<Door>,
    inbox: Mutex<Inbox>,
    left: AtomicBool,
    /// Redis knows that it left.
    is_released: AtomicBool,
}

/// What was begun and not returned.
#[derive(Default)]
struct Inbox {
    read: Option<BoxFuture<'static, Result<Vec<Delivery>>>>,
    arrived: VecDeque<Delivery>,
}

impl Inbox {
    /// Finishes the read that is under way. Where this is given up, the read stays.
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
    pub(super) fn new(member: Member, door: Arc<Door>) -> Self {
        let inbox = Mutex::new(Inbox::default());
        let (left, is_released) = (AtomicBool::new(false), AtomicBool::new(false));
        RedisConsumer { member: Arc::new(member), door, inbox, left, is_released }
    }

    fn check_member(&self) -> Result<()> {
        if self.left.load(Ordering::SeqCst) {
            return Err(Error::not_found("consumer", format!("{} of {}", self.member.name, self.member.queue)));
        }
        Ok(())
    }

    /// What there is, without waiting for more.
    async fn take_now(&self, max: usize) -> Result<Vec<Delivery>> {
        let mut inbox = self.inbox.lock().await;
        self.check_member()?;
        // An earlier call's read first: it may have what is looked for, and is out of date if not.
        if inbox.arrived.is_empty() {
            inbox.finish().await?;
        }
        let mut is_full = false;
        if inbox.arrived.is_empty() {
            let wanted = max.min(READ_MAX);
            inbox.read = Some(Box::pin(self.member.clone().read(wanted)));
            is_full = inbox.finish().await? >= wanted;
        }
        let count = inbox.arrived.len().min(max);
        let taken: Vec<Delivery> = inbox.arrived.drain(..count).collect();
        self.member.held.lock().extend(taken.iter().map(|delivery| delivery.id.clone()));
        // A ring wakes one: whoever may have left something behind passes it on.
        if is_full || !inbox.arrived.is_empty() {
            self.door.pass_on();
        }
        Ok(taken)
    }
}

#[async_trait]
impl Consumer for RedisConsumer {
    async fn take(&self, max: usize) -> Result<Vec<Delivery>> {
        loop {
            // Made before anything is looked at, so that no ring meanwhile goes unheard.
            let rung = self.door.rung();
            match self.take_now(max.max(1)).await {
                Ok(taken) if taken.is_empty() => {}
                Err(error) if error.is_transient() => {
                    debug!(%error, queue = self.member.queue, "cannot take at present");
                }
                Err(error) => {
                    // It may have been woken for an entry that it can no longer take.
                    self.door.pass_on();
                    return Err(error);
                }
                taken => return taken,
            }
            let poll = Duration::from_millis(rand::random_range(POLL_INTERVAL_MS));
            let _ = tokio::time::timeout(poll, rung).await;
        }
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
        // A take of this consumer that still waits must hear of it.
        self.door.wake_all();
        let mut inbox = self.inbox.lock().await;
        if self.is_released.load(Ordering::SeqCst) {
            return Ok(());
        }
        // What a read under way brings is given back with the rest. If it fails, so will what follows.
        let _ = inbox.finish().await;
        inbox.arrived.clear();
        self.member.leave().await?;
        self.is_released.store(true, Ordering::SeqCst);
        Ok(())
    }
}
