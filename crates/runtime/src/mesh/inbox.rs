//! Decodes received messages in the task that receives them.
//!
//! Nothing here waits and nothing here fails: a message is decoded and passed on, or counted as malformed.

use std::sync::Arc;

use bytes::Bytes;
use convoke_core::mesh::{Envelope, InstanceId, RequestId};
use convoke_core::ports::MeshInbox;
use tracing::debug;

use super::deadlines::End;
use super::serving;
use super::session::MeshSession;

pub(super) struct Inbox(pub Arc<MeshSession>);

impl MeshInbox for Inbox {
    fn on_message(&self, message: Bytes) {
        let session = &self.0;
        match Envelope::parse(&message) {
            Ok(Envelope::Reply { id, outcome }) => {
                let is_ours = |id| session.pending.end(id, End::Reply(outcome.map(str::to_owned)));
                session.count_stray(RequestId::parse(&id).is_some_and(is_ours), &id);
            }
            Ok(Envelope::Heartbeat { id }) => {
                let is_ours = |id| session.pending.heartbeat(id);
                session.count_stray(RequestId::parse(&id).is_some_and(is_ours), &id);
            }
            Ok(Envelope::Request(request)) => serving::serve(session, request),
            Ok(Envelope::Broadcast { sender, kind, data }) => self.on_broadcast_message(sender, &kind, data),
            Err(error) => {
                session.count_malformed();
                debug!(%error, bytes = message.len(), "mesh message could not be read");
            }
        }
    }

    fn missed(&self) {
        self.0.missed.notify_one();
    }
}

impl Inbox {
    fn on_broadcast_message(&self, sender: InstanceId, kind: &str, data: &str) {
        // Our own broadcast was delivered when it was sent.
        if sender != self.0.id() {
            serving::dispatch_broadcast(&self.0, sender, kind, data);
        }
    }
}

impl MeshSession {
    fn count_stray(&self, is_ours: bool, id: &str) {
        if !is_ours {
            self.meters.stray();
            debug!(id, "reply to no pending call");
        }
    }
}
