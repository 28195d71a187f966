//! Clients and workers in the process of the test server, without HTTP.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use convoke_core::jobs::link::{
    ClientLink, Enqueued, Heartbeat, HeartbeatReply, Poll, Polled, Register, Registered, Report, Reported,
    ScheduleCall, WorkerLink,
};
use convoke_core::jobs::{Job, JobSpec};
use convoke_core::{Error, JobId, Json, Result, WorkerId};
use tokio_util::task::AbortOnDropHandle;

use super::faults::{ReportFault, reply_lost};
use super::shared::Shared;

/// How long a poll waits at most; as on any node.
const POLL_WAIT_MAX: Duration = Duration::from_secs(60);

/// A link to the node of a test server.
pub(super) struct TestLink {
    pub shared: Arc<Shared>,
    /// Jobs that are enqueued have run when the call returns.
    pub is_inline: bool,
}

fn stopped(_: tokio::task::JoinError) -> Error {
    Error::unavailable("test server", "it is stopping")
}

impl TestLink {
    async fn call<T: Send + 'static>(&self, calling: AbortOnDropHandle<Result<T>>) -> Result<T> {
        calling.await.map_err(stopped)?
    }

    /// Waits for a result, at most for so long in real time. Returns `None` if the wait is over.
    async fn within<T: Send + 'static>(
        &self,
        wait: Duration,
        mut calling: AbortOnDropHandle<Result<T>>,
    ) -> Result<Option<T>> {
        // Its own runtime: that of the test may be paused.
        let timer = self.shared.real_time.spawn(async move { tokio::time::sleep(wait).await });
        let mut timer = AbortOnDropHandle::new(timer);
        tokio::select! {
            biased;
            done = &mut calling => return done.map_err(stopped)?.map(Some),
            _ = &mut timer => calling.abort(),
        }
        // It may have ended in this moment.
        calling.await.ok().transpose()
    }

    /// Calls as a worker, unless a fault prevents it.
    async fn as_worker<T>(&self, worker: WorkerId, call: impl Future<Output = Result<T>>) -> Result<T> {
        self.shared.faults.on_request(&worker)?;
        let open = self.shared.presence.enter(worker);
        let result = call.await;
        open.done();
        self.shared.activity.notify_waiters();
        result
    }
}

#[async_trait]
impl WorkerLink for TestLink {
    async fn register(&self, worker: Register) -> Result<Registered> {
        let calling = self.shared.call(|node| async move { node.coordinator.register(worker).await });
        let registered = self.call(calling).await?;
        self.shared.presence.enter(registered.worker_id.clone()).done();
        self.shared.activity.notify_waiters();
        Ok(registered)
    }

    async fn poll(&self, poll: Poll) -> Result<Polled> {
        let deadline = Instant::now() + poll.wait.min(POLL_WAIT_MAX);
        let polling = async {
            loop {
                let (left, poll) = (deadline.saturating_duration_since(Instant::now()), poll.clone());
                let worker = poll.worker_id.clone();
                let calling = self.shared.call(|node| async move { node.coordinator.poll(poll).await });
                let polled = match left.is_zero() {
                    true => Some(self.call(calling).await?),
                    false => self.within(left, calling).await?,
                };
                match polled {
                    // The wait was over in virtual time.
                    Some(polled) if polled == Polled::default() && Instant::now() < deadline => {
                        self.shared.until_not_silenced(&worker, deadline).await;
                    }
                    polled => return Ok(polled.unwrap_or_default()),
                }
            }
        };
        self.as_worker(poll.worker_id.clone(), polling).await
    }

    async fn report(&self, report: Report) -> Result<Reported> {
        let reporting = async {
            let fault = self.shared.faults.on_report()?;
            let report = report.clone();
            let calling = self.shared.call(|node| async move { node.coordinator.report(report).await });
            let reported = self.call(calling).await?;
            if fault == ReportFault::ReplyLost { Err(reply_lost()) } else { Ok(reported) }
        };
        self.as_worker(report.worker_id.clone(), reporting).await
    }

    async fn heartbeat(&self, beat: Heartbeat) -> Result<HeartbeatReply> {
        self.shared.faults.on_heartbeat(&beat.worker_id)?;
        let worker = beat.worker_id.clone();
        let calling = self.shared.call(|node| async move { node.coordinator.heartbeat(beat).await });
        self.as_worker(worker, self.call(calling)).await
    }

    async fn leave(&self, worker: WorkerId) -> Result<()> {
        let leaving = worker.clone();
        let calling = self.shared.call(|node| async move { node.coordinator.leave(leaving).await });
        self.as_worker(worker.clone(), self.call(calling)).await?;
        self.shared.presence.leave(&worker);
        Ok(())
    }
}

#[async_trait]
impl ClientLink for TestLink {
    async fn enqueue(&self, jobs: Vec<JobSpec>) -> Result<Vec<Enqueued>> {
        // A handler that enqueues must not wait for itself: its job runs before the outer call returns.
        let is_outer = self.is_inline && !self.shared.has_runs().await?;
        let calling = self.shared.call(|node| async move { ClientLink::enqueue(&node.coordinator, jobs).await });
        let enqueued = self.call(calling).await?;
        if is_outer {
            self.shared.run_until_idle(super::PATIENCE).await?;
        }
        Ok(enqueued)
    }

    async fn job(&self, id: JobId, wait: Option<Duration>) -> Result<Job> {
        if let Some(wait) = wait {
            let calling = self.shared.call(move |node| async move { node.coordinator.job(id, Some(wait)).await });
            if let Some(job) = self.within(wait, calling).await? {
                return Ok(job);
            }
        }
        let calling = self.shared.call(move |node| async move { node.coordinator.job(id, None).await });
        self.call(calling).await
    }

    async fn cancel(&self, id: JobId, reason: Option<String>) -> Result<Job> {
        let calling = self.shared.call(move |node| async move { node.coordinator.cancel(id, reason).await });
        self.call(calling).await
    }

    async fn retry(&self, id: JobId) -> Result<Job> {
        let calling = self.shared.call(move |node| async move { node.coordinator.retry(id).await });
        self.call(calling).await
    }

    async fn schedule(&self, call: ScheduleCall) -> Result<Json> {
        let calling = self.shared.call(move |node| async move { ClientLink::schedule(&node.coordinator, call).await });
        self.call(calling).await
    }
}
