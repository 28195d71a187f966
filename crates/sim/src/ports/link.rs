//! The calls of workers and clients at a node, as over HTTP: the node may be dead, paused or slow, a call or its reply may
//! be lost, and a caller then tries the next node.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use convoke_core::jobs::link::{
    ClientLink, Enqueued, Event, Heartbeat, HeartbeatReply, Poll, Polled, Register, Registered, Report, Reported,
    ScheduleCall, WorkerLink,
};
use convoke_core::jobs::{Job, JobSpec};
use convoke_core::ports::store::JobStore;
use convoke_core::{Error, JobId, Json, Result, WorkerId};
use convoke_runtime::jobs::Coordinator;
use parking_lot::Mutex;

use super::store_server::StoreServer;
use super::{now, pause};
use crate::fault::NODES;
use crate::history::Entry;
use crate::network::{Network, Reply};
use crate::process::Process;

/// How long a caller waits for a node that does not respond.
const PATIENCE: Duration = Duration::from_millis(1_500);

/// A node that runs, with its process.
type Running = (Arc<Process>, Coordinator);

/// Which node runs at which place.
#[derive(Default)]
pub struct Directory {
    nodes: Mutex<[Option<Running>; NODES]>,
}

impl Directory {
    pub fn set(&self, place: usize, node: Option<Running>) {
        self.nodes.lock()[place] = node;
    }

    pub fn get(&self, place: usize) -> Option<Running> {
        self.nodes.lock()[place].clone()
    }
}

/// A process's way to the nodes.
pub struct SimLink {
    pub network: Arc<Network>,
    pub process: Arc<Process>,
    pub directory: Arc<Directory>,
    pub store: Arc<StoreServer>,
    /// The node that it calls.
    pub node: AtomicUsize,
}

impl SimLink {
    fn move_on(&self) {
        let next = (self.node.load(Ordering::Relaxed) + 1) % NODES;
        self.node.store(next, Ordering::Relaxed);
    }

    async fn call<T, F: Future<Output = Result<T>> + Send>(
        &self,
        what: &'static str,
        patience: Duration,
        call: impl Fn(Coordinator) -> F + Send + Sync,
    ) -> Result<T> {
        self.process.running().await;
        let place = self.node.load(Ordering::Relaxed);
        let away = |text: &'static str| Error::unavailable("node", text);
        let Some((node, coordinator)) = self.directory.get(place) else {
            self.move_on();
            pause(Duration::from_millis(20)).await;
            return Err(away("connection refused"));
        };
        let (fate, is_repeated) = self.network.link_fate(place);
        pause(fate.before).await;
        if !fate.applies {
            self.move_on();
            return Err(away("connection reset before the request was sent"));
        }
        let response = async {
            node.running().await;
            let mut response = call(coordinator.clone()).await;
            if is_repeated {
                response = call(coordinator).await;
            }
            node.running().await;
            response
        };
        let response = tokio::select! {
            biased;
            () = node.died() => Err(Error::unknown("node", "connection reset")),
            response = tokio::time::timeout(patience, response) => {
                response.unwrap_or_else(|_| Err(Error::unknown("node", "no response")))
            }
        };
        self.process.running().await;
        let response = match fate.reply {
            Reply::Delivered => response,
            _ => Err(Error::unknown("node", "the response was lost")),
        };
        if let Err(error) = &response {
            self.network.note(&self.process, || format!("{what} at n{}: {error}", place + 1));
            if error.is_transient() {
                self.move_on();
            }
        }
        response
    }

    /// Records which ends a node has confirmed, and whether the store has them.
    fn confirmed(&self, events: &[Event], reported: &Reported) {
        let is_rejected = |event: &Event| reported.rejected.iter().any(|it| it.execution_id == event.execution_id);
        for event in events.iter().filter(|event| event.kind.is_end() && !is_rejected(event)) {
            let (job, execution, kind) = (event.job_id, event.execution_id, event.kind);
            let runs = now(self.store.store.history(job, 0, 1_000)).map(|page| page.runs).unwrap_or_default();
            let is_stored = runs.iter().any(|run| run.execution_id == execution && run.ended_at.is_some())
                || self.store.job(job).is_none();
            let entry = Entry::Accepted { job, execution, kind, is_stored };
            self.network.history.add(self.network.now_ms(), &self.process.name, entry);
        }
    }
}

#[async_trait]
impl WorkerLink for SimLink {
    async fn register(&self, register: Register) -> Result<Registered> {
        self.call("register", PATIENCE, |node| {
            let register = register.clone();
            async move { WorkerLink::register(&node, register).await }
        })
        .await
    }

    async fn poll(&self, poll: Poll) -> Result<Polled> {
        let patience = PATIENCE + poll.wait;
        self.call("poll", patience, |node| {
            let poll = poll.clone();
            async move { WorkerLink::poll(&node, poll).await }
        })
        .await
    }

    async fn report(&self, report: Report) -> Result<Reported> {
        let reported = self
            .call("report", PATIENCE, |node| {
                let report = report.clone();
                async move { WorkerLink::report(&node, report).await }
            })
            .await?;
        self.confirmed(&report.events, &reported);
        Ok(reported)
    }

    async fn heartbeat(&self, heartbeat: Heartbeat) -> Result<HeartbeatReply> {
        self.call("heartbeat", PATIENCE, |node| {
            let heartbeat = heartbeat.clone();
            async move { WorkerLink::heartbeat(&node, heartbeat).await }
        })
        .await
    }

    async fn leave(&self, worker: WorkerId) -> Result<()> {
        self.call("leave", PATIENCE, |node| {
            let worker = worker.clone();
            async move { WorkerLink::leave(&node, worker).await }
        })
        .await
    }
}

#[async_trait]
impl ClientLink for SimLink {
    async fn enqueue(&self, jobs: Vec<JobSpec>) -> Result<Vec<Enqueued>> {
        self.call("enqueue", PATIENCE, |node| {
            let jobs = jobs.clone();
            async move { ClientLink::enqueue(&node, jobs).await }
        })
        .await
    }

    async fn job(&self, id: JobId, wait: Option<Duration>) -> Result<Job> {
        self.call("job", PATIENCE, |node| async move { ClientLink::job(&node, id, wait).await }).await
    }

    async fn cancel(&self, id: JobId, reason: Option<String>) -> Result<Job> {
        self.call("cancel", PATIENCE, |node| {
            let reason = reason.clone();
            async move { ClientLink::cancel(&node, id, reason).await }
        })
        .await
    }

    async fn retry(&self, id: JobId) -> Result<Job> {
        self.call("retry", PATIENCE, |node| async move { ClientLink::retry(&node, id).await }).await
    }

    async fn schedule(&self, call: ScheduleCall) -> Result<Json> {
        self.call("schedule", PATIENCE, |node| {
            let call = call.clone();
            async move { ClientLink::schedule(&node, call).await }
        })
        .await
    }
}

impl SimLink {
    /// Makes or replaces a schedule at the node of the moment.
    pub async fn put_schedule(
        &self,
        name: &convoke_core::ScheduleName,
        spec: &convoke_core::jobs::ScheduleSpec,
    ) -> Result<()> {
        self.call("put a schedule", PATIENCE, |node| {
            let (name, spec) = (name.clone(), spec.clone());
            async move { node.put_schedule(name, spec).await.map(drop) }
        })
        .await
    }
}
