//! Sends calls and waits for their end.
//!
//! A call is entered into the table, its request is put into the outbox, and the caller waits for its end: the reply,
//! the deadline, or at once if the link reports that nobody listens or that it sent nothing. If the link does not know
//! whether it sent the request, the call waits; it is never sent twice.

use std::sync::Arc;
use std::time::Duration;

use convoke_core::error::Invalid;
use convoke_core::limits::NAME_BYTES_MAX;
use convoke_core::mesh::envelope::{DATA_BYTES_MAX, Heading, encode_request};
use convoke_core::mesh::{Fault, InstanceId, MeshError};
use convoke_core::{Epoch, Error, Json};
use tokio::time::Instant;

use super::context::Context;
use super::deadlines::End;
use super::outbox::{OutgoingMessage, Sort};
use super::serving;
use super::session::MeshSession;
use super::telemetry::Meters;
use super::tracing_scope::next_step;

/// Options of one call.
#[derive(Debug, Clone, Copy, Default)]
pub struct CallOptions {
    /// How long to wait for a reply or a heartbeat; `None` for the instance's own setting.
    pub timeout: Option<Duration>,
    /// The term of leadership on whose behalf the call is made.
    pub epoch: Option<Epoch>,
}

/// Returns the result of `read` for the reply's JSON text. A reply that `read` rejects counts as unreadable, not as a
/// success.
pub(super) async fn call<T>(
    session: &Arc<MeshSession>,
    to: InstanceId,
    request_type: &str,
    data: &Json,
    options: CallOptions,
    read: impl FnOnce(String) -> serde_json::Result<T>,
) -> Result<T, MeshError> {
    check_type(request_type)?;
    if session.id() == InstanceId::NOBODY && !session.stopping.is_cancelled() {
        let source = Error::unavailable("mesh", "this instance is joining it anew");
        return Err(unavailable(to, request_type, source));
    }
    let started = Instant::now();
    let counted = Counted::new(&session.meters);
    let reply = if to == session.id() {
        call_ourselves(session, request_type, data, options).await
    } else {
        call_other(session, to, request_type, data, options).await
    };
    let result = reply.and_then(|text| {
        read(text).map_err(|error| MeshError::BadReply {
            instance: to,
            request_type: request_type.to_owned(),
            message: error.to_string(),
        })
    });
    drop(counted);
    session.meters.called(request_type, result.as_ref().err().map(MeshError::outcome), started.elapsed());
    result
}

/// Rejects a type that no peer would accept.
pub fn check_type(request_type: &str) -> Result<(), Invalid> {
    let length = request_type.len();
    if (1..=NAME_BYTES_MAX).contains(&length) {
        return Ok(());
    }
    Err(Invalid::new("type", format!("expected 1 to {NAME_BYTES_MAX} bytes, got {length}")))
}

async fn call_other(
    session: &Arc<MeshSession>,
    to: InstanceId,
    request_type: &str,
    data: &Json,
    options: CallOptions,
) -> Result<String, MeshError> {
    check_size(data)?;
    let timeout = options.timeout.unwrap_or(session.settings.request_timeout);
    let stopped = || MeshError::of(Fault::Stopped, to, request_type);
    let (call, mut end) = session.pending.open(timeout).ok_or_else(stopped)?;
    let heading =
        Heading { sender: session.id(), kind: request_type, timeout, epoch: options.epoch, trace: next_step() };
    let message = encode_request(call.id, &heading, data.as_raw());
    let outgoing = OutgoingMessage { to, message: message.into(), sort: Sort::Request(call.id) };
    let end = tokio::select! {
        biased;
        is_taken = session.outbox.put(outgoing) => if is_taken { end.await } else { return Err(stopped()) },
        end = &mut end => end,
    };
    match end {
        Ok(End::Reply(Ok(data))) => Ok(data),
        Ok(End::Reply(Err(error))) => Err(MeshError::of(Fault::from_error(&error, request_type), to, request_type)),
        Ok(End::NoNode) => Err(MeshError::NoNode { instance: to, request_type: request_type.to_owned() }),
        Ok(End::Unsent(source)) => Err(unavailable(to, request_type, source)),
        Ok(End::Expired) => {
            Err(MeshError::RequestTimeout { instance: to, request_type: request_type.to_owned(), timeout })
        }
        Ok(End::Stopped) | Err(_) => Err(stopped()),
    }
}

async fn call_ourselves(
    session: &Arc<MeshSession>,
    request_type: &str,
    data: &Json,
    options: CallOptions,
) -> Result<String, MeshError> {
    check_size(data)?;
    let context = Context {
        caller: session.id(),
        timeout: options.timeout.unwrap_or(session.settings.request_timeout),
        received: Instant::now(),
        epoch: options.epoch,
        trace: next_step(),
        session: session.clone(),
    };
    let result = serving::serve_local(session, request_type, data.as_str().to_owned(), context).await;
    match result {
        Ok(data) => Ok(data.as_str().to_owned()),
        Err(fault) => Err(MeshError::of(fault, session.id(), request_type)),
    }
}

pub(super) fn unavailable(instance: InstanceId, what: &str, source: Error) -> MeshError {
    match source {
        Error::Invalid(invalid) => invalid.into(),
        source => MeshError::Unavailable { instance, what: what.to_owned(), source },
    }
}

pub(super) fn check_size(data: &Json) -> Result<(), Invalid> {
    match data.as_str().len() {
        0..=DATA_BYTES_MAX => Ok(()),
        length => {
            let message = format!("expected at most {DATA_BYTES_MAX} bytes of JSON, got {length}");
            Err(Invalid::too_large("data", message))
        }
    }
}

/// A pending call, counted until it ends or is dropped.
struct Counted<'a>(&'a Meters);

impl<'a> Counted<'a> {
    fn new(meters: &'a Meters) -> Self {
        meters.began();
        Counted(meters)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.ended();
    }
}
