//! What an instance is between its start and its stop.
//!
//! Each start makes a new one, with a call table of its own: nothing of an earlier run can be mistaken for this one's.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use convoke_core::mesh::{Fault, InstanceId, envelope};
use convoke_core::ports::MeshLink;
use futures_util::stream::{self, StreamExt};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::deadlines::Pending;
use super::handlers::Handlers;
use super::lease::Lease;
use super::settings::Settings;
use super::telemetry::{self, METERS};

/// How many refusals wait to be sent; more are dropped, since whoever causes so many does not wait for them.
const REFUSALS_MAX: usize = 1_024;
/// How many refusals are sent at once.
const REFUSALS_AT_ONCE: usize = 64;

pub(super) type Refusal = (InstanceId, Bytes);

pub(super) struct Station {
    pub link: Arc<dyn MeshLink>,
    pub settings: Settings,
    pub hostname: String,
    pub handlers: Arc<Handlers>,
    pub pending: Arc<Pending>,
    pub lease: Lease,
    /// Known once it has joined; messages may come before.
    id: OnceLock<InstanceId>,
    /// The connection was lost for a while: the registry must hear of us at once.
    pub missed: Notify,
    pub tasks: TaskTracker,
    running: AtomicUsize,
    malformed: AtomicU64,
    refusals: mpsc::Sender<Refusal>,
    /// Handlers are asked to come to an end, and no more are started.
    pub stopping: CancellationToken,
    /// Handlers that still run are dropped.
    pub abandoned: CancellationToken,
}

impl Station {
    pub(super) fn new(
        link: Arc<dyn MeshLink>,
        settings: Settings,
        hostname: String,
        handlers: Arc<Handlers>,
    ) -> (Arc<Self>, mpsc::Receiver<Refusal>) {
        let (refusals, queue) = mpsc::channel(REFUSALS_MAX);
        let station = Station {
            link,
            settings,
            hostname,
            handlers,
            pending: Arc::new(Pending::new()),
            lease: Lease::new(),
            id: OnceLock::new(),
            missed: Notify::new(),
            tasks: TaskTracker::new(),
            running: AtomicUsize::new(0),
            malformed: AtomicU64::new(0),
            refusals,
            stopping: CancellationToken::new(),
            abandoned: CancellationToken::new(),
        };
        (Arc::new(station), queue)
    }

    pub(super) fn id(&self) -> InstanceId {
        self.id.get().copied().unwrap_or(InstanceId::NOBODY)
    }

    pub(super) fn joined(&self, id: InstanceId) {
        let _ = self.id.set(id);
    }

    pub(super) fn running(&self) -> usize {
        self.running.load(Ordering::Acquire)
    }

    pub(super) fn malformed(&self) -> u64 {
        self.malformed.load(Ordering::Relaxed)
    }

    pub(super) fn count_malformed(&self) {
        self.malformed.fetch_add(1, Ordering::Relaxed);
        METERS.malformed();
    }

    /// Leave to run a handler, where not as many run as may.
    pub(super) fn permit(self: &Arc<Self>) -> Option<Permit> {
        let max = self.settings.handlers_max;
        let count = |running: usize| (running < max).then_some(running + 1);
        self.running.fetch_update(Ordering::AcqRel, Ordering::Acquire, count).ok()?;
        METERS.handler_began();
        Some(Permit(self.clone()))
    }

    /// Answers a request that is not run. Never waits.
    pub(super) fn refuse(&self, caller: InstanceId, id: &str, request_type: &str, fault: &Fault) {
        let message = envelope::encode_refusal(id, &fault.to_error(request_type));
        if self.refusals.try_send((caller, message.into())).is_err() {
            telemetry::dropped("refusal");
        }
    }

    /// Sends refusals, for ever.
    pub(super) async fn send_refusals(link: Arc<dyn MeshLink>, queue: mpsc::Receiver<Refusal>) {
        let refusals = stream::unfold(queue, async |mut queue| Some((queue.recv().await?, queue)));
        let link = &link;
        let send = |(caller, message)| async move {
            if !matches!(link.send(caller, message).await, Ok(1..)) {
                telemetry::dropped("refusal");
            }
        };
        refusals.for_each_concurrent(REFUSALS_AT_ONCE, send).await;
    }
}

/// Leave to run one handler.
pub(super) struct Permit(Arc<Station>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::AcqRel);
        METERS.handler_ended();
    }
}
