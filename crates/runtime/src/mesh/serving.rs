//! Runs handlers: up to their limit, in a task of their own, with heartbeats to the caller until there is a reply.
//!
//! If a handler panics, its result is too large or it is dropped because the instance stops, its caller receives an
//! error like any other. Heartbeats continue while the instance stops, so that the caller waits until the handler has
//! finished.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use convoke_core::Json;
use convoke_core::mesh::envelope::{DATA_BYTES_MAX, Request, encode_heartbeat, encode_refusal, encode_reply};
use convoke_core::mesh::{Fault, InstanceId};
use futures_util::FutureExt;
use tokio::time::Instant;
use tracing::warn;

use super::context::Context;
use super::handlers::Handler;
use super::outbox::{OutgoingMessage, Reply, Sort};
use super::session::{MeshSession, Permit};
use super::telemetry;
use super::tracing_scope::in_trace;

/// A heartbeat is sent after this part of the caller's timeout.
const HEARTBEAT_PART: f64 = 0.75;
/// Lower bound of the interval between heartbeats, however short the caller's timeout is.
const HEARTBEAT_INTERVAL_MIN: Duration = Duration::from_millis(5);

/// Starts the handler of a received request, or rejects it.
pub(super) fn serve(session: &Arc<MeshSession>, request: Request<'_>) {
    let timeout = request.timeout.unwrap_or(session.settings.request_timeout);
    let context = Context {
        caller: request.sender,
        timeout,
        received: Instant::now(),
        epoch: request.epoch,
        trace: request.trace,
        session: session.clone(),
    };
    let (handler, permit) = match admit(session, &request.kind, request.data, &context) {
        Ok(admitted) => admitted,
        Err(fault) => return session.refuse(request.sender, &request.id, &request.kind, &fault),
    };
    let work = Work { session: session.clone(), id: request.id.into_owned(), caller: request.sender, timeout, permit };
    let data = request.data.to_owned();
    session.tasks.spawn(work.run(handler, context, data));
}

/// Runs a call of this instance to itself: the same handler, limits and checks, without the link.
pub(super) async fn serve_local(
    session: &Arc<MeshSession>,
    request_type: &str,
    data: String,
    context: Context,
) -> Result<Json, Fault> {
    let (handler, _permit) = admit(session, request_type, &data, &context)?;
    tokio::select! {
        biased;
        outcome = guarded(handler, context, data) => checked(outcome),
        () = session.stopping.cancelled() => Err(Fault::Stopped),
    }
}

/// Runs the handler of a broadcast, if its type has one.
pub(super) fn dispatch_broadcast(session: &Arc<MeshSession>, sender: InstanceId, kind: &str, data: &str) {
    let Some(broadcast_handler) = session.handlers.find_broadcast_handler(kind) else { return };
    if data.len() > DATA_BYTES_MAX || session.stopping.is_cancelled() {
        return telemetry::dropped("broadcast");
    }
    let Some(permit) = session.permit() else {
        warn!(kind, sender = sender.0, "broadcast dropped: too many handlers run already");
        return telemetry::dropped("broadcast");
    };
    let (data, abandoned, kind) = (data.to_owned(), session.abandoned.clone(), kind.to_owned());
    session.tasks.spawn(async move {
        let _permit = permit;
        let call = AssertUnwindSafe(async move { broadcast_handler(sender, data).await }).catch_unwind();
        if let Some(Err(panic)) = abandoned.run_until_cancelled(call).await {
            warn!(kind, panic = panic_message(&*panic), "broadcast handler panicked");
        }
    });
}

/// Returns whether a request may run here and now.
fn admit(
    session: &Arc<MeshSession>,
    request_type: &str,
    data: &str,
    context: &Context,
) -> Result<(Arc<Handler>, Permit), Fault> {
    if session.stopping.is_cancelled() {
        return Err(Fault::Stopped);
    }
    let handler = session.handlers.find(request_type).ok_or(Fault::NoHandler)?;
    if data.len() > DATA_BYTES_MAX {
        return Err(Fault::TooLarge);
    }
    if let Some(floor) = &handler.demand.epoch
        && let Err(lowest) = floor.admit(context.epoch)
    {
        telemetry::fenced();
        return Err(Fault::StaleEpoch(lowest));
    }
    let permit = session.permit().ok_or(Fault::Busy)?;
    Ok((handler, permit))
}

/// A running handler for a caller elsewhere.
struct Work {
    session: Arc<MeshSession>,
    id: String,
    caller: InstanceId,
    timeout: Duration,
    permit: Permit,
}

impl Work {
    async fn run(self, handler: Arc<Handler>, context: Context, data: String) {
        let outcome = tokio::select! {
            // The handler first: one that finishes at once costs no timer.
            biased;
            outcome = guarded(handler.clone(), context, data) => checked(outcome),
            () = self.send_heartbeats() => Err(Fault::Stopped),
            () = self.session.abandoned.cancelled() => Err(Fault::Stopped),
        };
        let message = match outcome {
            Ok(data) => encode_reply(&self.id, data.as_raw()),
            Err(fault) => encode_refusal(&self.id, &fault.to_error(&handler.request_type)),
        };
        let sort = Sort::Reply(Reply::new(self.permit, self.timeout));
        self.session.outbox.put(OutgoingMessage { to: self.caller, message: message.into(), sort }).await;
    }

    /// Sends heartbeats for as long as it is polled. The next one makes up for a lost one; the reply does not wait for
    /// them.
    async fn send_heartbeats(&self) {
        let interval = self.timeout.mul_f64(HEARTBEAT_PART).max(HEARTBEAT_INTERVAL_MIN);
        let heartbeat = Bytes::from(encode_heartbeat(&self.id));
        let mut next = Instant::now();
        loop {
            // Measured from heartbeat to heartbeat, so that a slow link does not stretch them beyond the caller's
            // timeout.
            next = (next + interval).max(Instant::now());
            tokio::time::sleep_until(next).await;
            let outgoing = OutgoingMessage { to: self.caller, message: heartbeat.clone(), sort: Sort::Heartbeat };
            self.session.outbox.put(outgoing).await;
        }
    }
}

/// Returns a handler's result for a request; a panic is a fault.
async fn guarded(handler: Arc<Handler>, context: Context, data: String) -> Result<Json, Fault> {
    let trace = context.trace;
    let work = AssertUnwindSafe(async move { (handler.call)(context, data).await }).catch_unwind();
    let outcome = match trace {
        Some(trace) => in_trace(trace, work).await,
        None => work.await,
    };
    outcome.unwrap_or_else(|panic| Err(Fault::Handler(format!("the handler panicked: {}", panic_message(&*panic)))))
}

fn checked(outcome: Result<Json, Fault>) -> Result<Json, Fault> {
    match outcome {
        Ok(data) if data.as_str().len() > DATA_BYTES_MAX => {
            let length = data.as_str().len();
            Err(Fault::Handler(format!(
                "the result has {length} bytes, more than the {DATA_BYTES_MAX} that may be sent"
            )))
        }
        other => other,
    }
}

pub(super) fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a message")
}
