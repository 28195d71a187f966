//! The state of an instance between its start and its stop.
//!
//! Each start creates a new session with a call table of its own, so that nothing of an earlier run can be mistaken for
//! part of this one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use convoke_core::Result;
use convoke_core::mesh::{Fault, InstanceId, MeshFigures, envelope};
use convoke_core::ports::{Membership, MeshLink};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::deadlines::Pending;
use super::handlers::Handlers;
use super::inbox::Inbox;
use super::lease::Lease;
use super::outbox::{Outbox, OutgoingMessage, Sort};
use super::settings::Settings;
use super::telemetry::Meters;
use crate::outage::Outages;

pub(super) struct MeshSession {
    pub link: Arc<dyn MeshLink>,
    pub settings: Settings,
    pub hostname: String,
    pub handlers: Arc<Handlers>,
    pub pending: Arc<Pending>,
    pub lease: Lease,
    pub meters: Arc<Meters>,
    pub outages: Arc<Outages>,
    /// `NOBODY` until it has joined; messages may arrive before. It changes if the instance had to join again.
    id: AtomicU64,
    /// Dropping it ends the subscription.
    membership: Mutex<Option<Arc<dyn Membership>>>,
    /// Notified when the connection was lost for a while: the next heartbeat is due at once.
    pub missed: Notify,
    pub tasks: TaskTracker,
    running: AtomicUsize,
    malformed: AtomicU64,
    pub outbox: Outbox,
    /// Cancelled when handlers should finish; no more are started.
    pub stopping: CancellationToken,
    /// Cancelled when handlers that still run are dropped.
    pub abandoned: CancellationToken,
}

impl MeshSession {
    pub(super) fn new(
        link: Arc<dyn MeshLink>,
        settings: Settings,
        hostname: String,
        handlers: Arc<Handlers>,
    ) -> (Arc<Self>, mpsc::Receiver<OutgoingMessage>) {
        let (outbox, outgoing_messages) = Outbox::new();
        let meters = Arc::new(Meters::new());
        let outages = Arc::new(Outages::new([("mesh", link.address())]));
        let lease = Lease::new(link.clone(), &settings, meters.clone(), outages.clone());
        let session = MeshSession {
            outages,
            link,
            settings,
            hostname,
            handlers,
            pending: Arc::new(Pending::new()),
            lease,
            meters,
            id: AtomicU64::new(InstanceId::NOBODY.0),
            membership: Mutex::new(None),
            missed: Notify::new(),
            tasks: TaskTracker::new(),
            running: AtomicUsize::new(0),
            malformed: AtomicU64::new(0),
            outbox,
            stopping: CancellationToken::new(),
            abandoned: CancellationToken::new(),
        };
        (Arc::new(session), outgoing_messages)
    }

    pub(super) fn id(&self) -> InstanceId {
        InstanceId(self.id.load(Ordering::Acquire))
    }

    /// Joins under a new number.
    pub(super) async fn join(self: &Arc<Self>) -> Result<()> {
        let membership = self.link.join(&self.hostname, Arc::new(Inbox(self.clone()))).await?;
        self.id.store(membership.id().0, Ordering::Release);
        *self.membership.lock() = Some(membership.into());
        // A stop cancels first and takes the membership second: one of the two always sees the other.
        if self.stopping.is_cancelled() {
            self.leave_registry();
        }
        Ok(())
    }

    pub(super) fn membership(&self) -> Option<Arc<dyn Membership>> {
        self.membership.lock().clone()
    }

    /// Unsubscribes and clears the number. The subscription holds a reference to this session, so it must be dropped.
    pub(super) fn leave_registry(&self) {
        self.id.store(InstanceId::NOBODY.0, Ordering::Release);
        let membership = self.membership.lock().take();
        drop(membership);
    }

    pub(super) fn running(&self) -> usize {
        self.running.load(Ordering::Acquire)
    }

    /// Returns the figures that are published with the next heartbeat.
    pub(super) fn figures(&self) -> MeshFigures {
        let times = self.meters.recent_times();
        MeshFigures {
            in_flight: self.pending.len() as u64,
            handlers: self.running() as u64,
            p50_us: times.map(|(median, _)| median),
            p99_us: times.map(|(_, p99)| p99),
        }
    }

    pub(super) fn malformed(&self) -> u64 {
        self.malformed.load(Ordering::Relaxed)
    }

    pub(super) fn count_malformed(&self) {
        self.malformed.fetch_add(1, Ordering::Relaxed);
        self.meters.malformed();
    }

    /// Returns a permit to run a handler; `None` at the limit.
    pub(super) fn permit(self: &Arc<Self>) -> Option<Permit> {
        let max = self.settings.handlers_max;
        let count = |running: usize| (running < max).then_some(running + 1);
        self.running.fetch_update(Ordering::AcqRel, Ordering::Acquire, count).ok()?;
        self.meters.handler_began();
        Some(Permit { session: self.clone() })
    }

    /// Replies to a request that is not run. Never waits.
    pub(super) fn refuse(&self, caller: InstanceId, id: &str, request_type: &str, fault: &Fault) {
        let message = envelope::encode_refusal(id, &fault.to_error(request_type)).into();
        self.outbox.try_put(OutgoingMessage { to: caller, message, sort: Sort::Refusal });
    }
}

/// A permit to run one handler, until its reply is sent.
pub(super) struct Permit {
    pub(super) session: Arc<MeshSession>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.session.running.fetch_sub(1, Ordering::AcqRel);
        self.session.meters.handler_ended();
    }
}
