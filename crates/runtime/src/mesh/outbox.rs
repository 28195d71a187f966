//! Messages to other instances: requests, replies, heartbeats and refusals, sent in batches.
//!
//! Messages leave in the order in which they were put, while the link is available, and a batch does not wait for the
//! result of the one before it. The link's result for a message decides what follows: a request without a receiver, or
//! that was not sent, ends its call; a reply is retried for as long as its caller may wait, and may arrive twice, of
//! which the caller uses the first; the rest is counted. A request is never sent twice, and not at all once its caller
//! has gone.
//!
//! The outbox is bounded. Beyond the limit calls and replies wait for room, and refusals are dropped: a caller that
//! causes so many does not wait for them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use convoke_core::mesh::{InstanceId, RequestId};
use convoke_core::ports::MeshLink;
use convoke_core::{Error, Result};
use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tracing::debug;

use super::deadlines::{End, Pending};
use super::session::Permit;
use super::telemetry;

const OUTGOING_MAX: usize = 4_096;
/// A batch is closed when it has this many messages or bytes. Many small batches are faster than one large batch: the
/// link and the receiver work on the first while the next is made.
const BATCH_MESSAGES_MAX: usize = 16;
const BATCH_BYTES_MAX: usize = 1 << 20;
/// Batches whose results are awaited at once.
const BATCHES_MAX: usize = 64;
/// Upper bound of the time for which a reply is retried, however long its caller waits.
const REPLY_PATIENCE_MAX: Duration = Duration::from_secs(60);
/// How long a live instance may have no listener under its number: it reconnects.
const RECONNECTION: Duration = Duration::from_secs(1);
const RETRY_FIRST: Duration = Duration::from_millis(20);
const RETRY_MAX: Duration = Duration::from_secs(1);

pub(super) struct OutgoingMessage {
    pub to: InstanceId,
    pub message: Bytes,
    pub sort: Sort,
}

pub(super) enum Sort {
    Request(RequestId),
    Reply(Reply),
    Heartbeat,
    Refusal,
}

/// The state that a handler keeps until its reply is sent.
pub(super) struct Reply {
    permit: Permit,
    /// A stop waits for it.
    _token: TaskTrackerToken,
    written: Instant,
    given_up: Instant,
    pause: Duration,
}

impl Reply {
    /// Creates the state of a reply to a caller that waits for `timeout`.
    pub(super) fn new(permit: Permit, timeout: Duration) -> Self {
        let (written, _token) = (Instant::now(), permit.session.tasks.token());
        Reply { permit, _token, written, given_up: written + timeout.min(REPLY_PATIENCE_MAX), pause: RETRY_FIRST }
    }

    fn may_go_on(&self, result: &Result<u64>) -> bool {
        let until = match result {
            // The caller is gone, or reconnects.
            Ok(_) => self.given_up.min(self.written + RECONNECTION),
            Err(error) if error.is_transient() => self.given_up,
            Err(_) => return false,
        };
        Instant::now() + self.pause < until && !self.permit.session.abandoned.is_cancelled()
    }
}

pub(super) struct Outbox(mpsc::Sender<OutgoingMessage>);

impl Outbox {
    pub(super) fn new() -> (Self, mpsc::Receiver<OutgoingMessage>) {
        let (sender, outgoing_messages) = mpsc::channel(OUTGOING_MAX);
        (Outbox(sender), outgoing_messages)
    }

    /// Puts a message, and waits for room. Returns false if the instance has stopped.
    pub(super) async fn put(&self, outgoing: OutgoingMessage) -> bool {
        self.0.send(outgoing).await.is_ok()
    }

    /// Puts a message, or drops it if there is no room.
    pub(super) fn try_put(&self, outgoing: OutgoingMessage) {
        if let Err(error) = self.0.try_send(outgoing) {
            count_dropped(&error.into_inner().sort);
        }
    }
}

/// Sends the messages that are put. Never returns.
pub(super) async fn send_all(
    link: Arc<dyn MeshLink>,
    pending: Arc<Pending>,
    mut outgoing_messages: mpsc::Receiver<OutgoingMessage>,
) {
    let mut under_way = FuturesUnordered::new();
    loop {
        tokio::select! {
            biased;
            Some(()) = under_way.next(), if !under_way.is_empty() => {}
            first = outgoing_messages.recv(), if under_way.len() < BATCHES_MAX => {
                let Some(first) = first else { return };
                under_way.push(send_batch(&*link, &pending, gather(first, &mut outgoing_messages)));
                // The batch is handed to the link, and the link's writer runs, before the next is made.
                under_way.next().now_or_never();
                tokio::task::yield_now().await;
            }
        }
    }
}

fn gather(first: OutgoingMessage, outgoing_messages: &mut mpsc::Receiver<OutgoingMessage>) -> Vec<OutgoingMessage> {
    let mut bytes = first.message.len();
    let mut batch = vec![first];
    while batch.len() < BATCH_MESSAGES_MAX
        && bytes < BATCH_BYTES_MAX
        && let Ok(outgoing) = outgoing_messages.try_recv()
    {
        bytes += outgoing.message.len();
        batch.push(outgoing);
    }
    batch
}

async fn send_batch(link: &dyn MeshLink, pending: &Pending, mut batch: Vec<OutgoingMessage>) {
    pending.retain(&mut batch, |outgoing| match outgoing.sort {
        Sort::Request(id) => Some(id),
        _ => None,
    });
    if batch.is_empty() {
        return;
    }
    let messages: Vec<_> = batch.iter().map(|outgoing| (outgoing.to, outgoing.message.clone())).collect();
    let results = link.send(&messages).await;
    for (outgoing, result) in batch.into_iter().zip(results) {
        finish_send(pending, outgoing, result);
    }
}

fn finish_send(pending: &Pending, outgoing: OutgoingMessage, result: Result<u64>) {
    match (result, outgoing.sort) {
        (Ok(1..), _) => {}
        (Ok(0), Sort::Request(id)) => drop(pending.end(id, End::NoNode)),
        // It may be under way: its reply or its deadline ends the call.
        (Err(Error::Unknown { .. }), Sort::Request(_)) => {}
        (Err(error), Sort::Request(id)) => drop(pending.end(id, End::Unsent(error))),
        (result, Sort::Reply(reply)) if reply.may_go_on(&result) => try_again(outgoing.to, outgoing.message, reply),
        (result, sort) => {
            let error = result.err().map(|error| error.to_string());
            debug!(to = outgoing.to.0, error, "message not delivered");
            count_dropped(&sort);
        }
    }
}

fn try_again(to: InstanceId, message: Bytes, mut reply: Reply) {
    let session = reply.permit.session.clone();
    session.clone().tasks.spawn(async move {
        tokio::time::sleep(reply.pause).await;
        reply.pause = (reply.pause * 2).min(RETRY_MAX);
        session.outbox.put(OutgoingMessage { to, message, sort: Sort::Reply(reply) }).await;
    });
}

fn count_dropped(sort: &Sort) {
    telemetry::dropped(match sort {
        Sort::Request(_) => "request",
        Sort::Reply(_) => "reply",
        Sort::Heartbeat => "heartbeat",
        Sort::Refusal => "refusal",
    });
}
