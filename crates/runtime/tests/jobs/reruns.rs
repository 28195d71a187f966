//! Jobs that run again on workers of the bus while the node that owned the run before owns this one, too.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{TokioClock, shared_ports, spec, until};
use convoke_core::jobs::Status;
use convoke_core::jobs::channels::Channels;
use convoke_core::jobs::link::{Event, EventKind, Heartbeat, Poll, Register, Report, WorkerLink};
use convoke_core::jobs::wire::{NodeRole, NodeState};
use convoke_core::ports::store::{Handover, NodeRecord, Reassign, Reassigned};
use convoke_core::{JobId, JobType, NodeId, QueueName, WorkerId};
use convoke_runtime::jobs::worker::{
    BusLink, BusLinkSettings, Handlers, Settings as WorkerSettings, Shutdown, Summary, Worker,
};
use convoke_runtime::jobs::{Coordinator, Ports, Settings};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const JOBS: usize = 12;
/// In virtual time: longer than anything that is waited for.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Two nodes on one bus, by virtual time.
struct Cluster {
    ports: Ports,
    nodes: [Coordinator; 2],
}

impl Cluster {
    async fn start() -> Cluster {
        let ports = Ports { clock: Arc::new(TokioClock::default()), ..shared_ports() };
        let [first, second] = ["a", "b"].map(|id| join(&ports, id));
        let nodes = [first.await, second.await];
        Cluster { ports, nodes }
    }

    /// The node that owns a job's present run, and the other one.
    async fn owner_and_other(&self, id: JobId) -> (&Coordinator, &Coordinator) {
        let job = self.nodes[0].job(id, None).await.expect("it is there");
        let owner = job.owner_node.expect("it is owned");
        let [a, b] = &self.nodes;
        if *a.node_id() == owner { (a, b) } else { (b, a) }
    }

    async fn enqueue(&self) -> JobId {
        self.nodes[0].enqueue(spec()).await.expect("enqueued").0.id
    }

    /// How many of the jobs have the same owner as before, and that is not the leader: it learns of the end of a run only by
    /// comparing its claims with the store.
    fn kept_by_follower(&self, before: &HashMap<JobId, NodeId>, after: &HashMap<JobId, NodeId>) -> usize {
        let [follower] = self.nodes.iter().filter(|node| !node.cluster().is_me).collect::<Vec<_>>()[..] else {
            panic!("one node leads")
        };
        let follower = follower.node_id();
        before.iter().filter(|(id, owner)| *owner == follower && after.get(*id) == Some(follower)).count()
    }

    /// Waits until all of these run for the given time, by name of the owner.
    async fn running(&self, jobs: &[JobId], attempt: u32) -> HashMap<JobId, NodeId> {
        let mut owners = HashMap::new();
        for id in jobs {
            let running = until(&self.nodes[0], *id, |job| job.status == Status::Running && job.attempt == attempt);
            let job = tokio::time::timeout(PATIENCE, running).await.expect("it runs");
            owners.insert(*id, job.owner_node.expect("it is owned"));
        }
        owners
    }

    async fn complete(&self, jobs: &[JobId]) {
        for id in jobs {
            let completed = until(&self.nodes[0], *id, |job| job.status == Status::Completed && job.attempt == 2);
            tokio::time::timeout(PATIENCE, completed).await.expect("it ends");
        }
    }

    async fn stop(self) {
        for node in self.nodes {
            node.stop().await;
        }
    }
}

async fn join(ports: &Ports, id: &str) -> Coordinator {
    let mut settings = Settings::default();
    // Runs stay where they are.
    settings.cluster.rebalance = false;
    let node = Coordinator::start(NodeId::new(id).expect("a name"), ports.clone(), settings).await.expect("it starts");
    node.ready().await;
    node
}

/// A worker whose first attempts go on although they are cancelled, for as long as they are let, and later ones until `go`.
fn work(ports: &Ports, name: &str, concurrency: usize, go: &CancellationToken) -> (Shutdown, JoinHandle<Summary>) {
    let settings = WorkerSettings {
        id: Some(WorkerId::new(name).expect("a name")),
        queues: vec![QueueName::new("default").expect("a name")],
        concurrency: concurrency as u32,
        ..WorkerSettings::default()
    };
    let mut handlers = Handlers::default();
    let go = go.clone();
    handlers.add(JobType::new("test").expect("a name"), move |cx, _| {
        let go = go.clone();
        Box::pin(async move {
            if cx.attempt() == 1 {
                cx.cancelled().await
            } else {
                go.cancelled().await
            }
            Ok(None)
        })
    });
    let worker = Worker::new(Arc::new(link(ports)), ports.clock.clone(), settings, handlers);
    let shutdown = Shutdown::default();
    let running = shutdown.clone();
    (shutdown, tokio::spawn(async move { worker.run(running).await.expect("it works") }))
}

fn link(ports: &Ports) -> BusLink {
    BusLink::new(ports.bus.clone(), Channels::new("convoke"), ports.clock.clone(), BusLinkSettings::default())
}

#[tokio::test(start_paused = true)]
async fn a_job_that_was_cancelled_through_the_other_node_and_retried_ends() {
    let (cluster, go) = (Cluster::start().await, CancellationToken::new());
    let (shutdown, worker) = work(&cluster.ports, "w", 2 * JOBS, &go);
    let mut jobs = Vec::new();
    for _ in 0..JOBS {
        // One by one, so that the nodes compete for each.
        jobs.push(cluster.enqueue().await);
        cluster.running(&jobs, 1).await;
    }
    let before = cluster.running(&jobs, 1).await;
    // Long enough for the claims to be compared with the store.
    tokio::time::sleep(Duration::from_secs(15)).await;
    for id in &jobs {
        let (_, other) = cluster.owner_and_other(*id).await;
        other.cancel(*id, None).await.expect("cancelled");
        other.retry(*id).await.expect("retried");
        cluster.running(std::slice::from_ref(id), 2).await;
    }
    let after = cluster.running(&jobs, 2).await;
    assert!(cluster.kept_by_follower(&before, &after) > 0, "{before:?} {after:?}");
    tokio::time::sleep(Duration::from_secs(15)).await;
    go.cancel();
    cluster.complete(&jobs).await;
    shutdown.drain.cancel();
    worker.await.expect("no panic");
    cluster.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_job_whose_worker_was_killed_ends_on_another() {
    let (cluster, go) = (Cluster::start().await, CancellationToken::new());
    let (mut jobs, mut victims) = (Vec::new(), Vec::new());
    for number in 0..JOBS {
        victims.push(work(&cluster.ports, &format!("victim-{number}"), 1, &go).1);
        jobs.push(cluster.enqueue().await);
        cluster.running(&jobs, 1).await;
    }
    let before = cluster.running(&jobs, 1).await;
    let (shutdown, worker) = work(&cluster.ports, "next", JOBS, &go);
    for victim in victims {
        victim.abort();
        // One by one, so that the nodes compete for each.
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    let after = cluster.running(&jobs, 2).await;
    assert!(cluster.kept_by_follower(&before, &after) > 0, "{before:?} {after:?}");
    tokio::time::sleep(Duration::from_secs(15)).await;
    go.cancel();
    cluster.complete(&jobs).await;
    shutdown.drain.cancel();
    worker.await.expect("no panic");
    cluster.stop().await;
}

/// A node that sends heartbeats and does nothing else.
async fn keep_ghost_node_alive(ports: Ports) {
    loop {
        let now = ports.clock.now();
        let ghost = NodeRecord {
            node_id: NodeId::new("ghost").expect("a name"),
            role: NodeRole::Follower,
            state: NodeState::Active,
            since: now,
            job_count: 1,
            started_at: now,
            last_heartbeat_at: now,
            version: "0".into(),
        };
        ports.store.record_node_heartbeat(ghost).await.expect("the heartbeat is recorded");
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_its_worker_no_longer_has_is_lost_though_its_owner_never_reads() {
    let ports = Ports { clock: Arc::new(TokioClock::default()), ..shared_ports() };
    let node = join(&ports, "a").await;
    let haunting = tokio::spawn(keep_ghost_node_alive(ports.clone()));
    let (link, id) = (link(&ports), WorkerId::new("w").expect("a name"));
    let queues = vec![QueueName::new("default").expect("a name")];
    link.register(Register { worker_id: Some(id.clone()), name: None, queues, concurrency: 1 }).await.expect("known");
    let job = node.enqueue(spec()).await.expect("enqueued").0.id;
    let poll = Poll { worker_id: id.clone(), max: 1, wait: Duration::from_secs(30) };
    let run = link.poll(poll).await.expect("a run").jobs.remove(0);
    let report = async |kind| {
        let event = Event { percent: Some(1), ..Event::new(job, run.execution_id, kind) };
        link.report(Report { worker_id: id.clone(), events: vec![event] }).await.expect("the bus has it");
    };
    report(EventKind::Started).await;
    until(&node, job, |job| job.status == Status::Running).await;
    let take = Handover::Take(NodeId::new("ghost").expect("a name"));
    let change = Reassign { job, execution: run.execution_id, from: node.node_id().clone(), to: take };
    assert_eq!(ports.store.reassign(vec![change]).await.expect("reassigned"), [Reassigned::Done]);
    tokio::time::sleep(Duration::from_secs(15)).await;
    report(EventKind::Progress).await;
    let heartbeat = async || {
        let heartbeat = Heartbeat { worker_id: id.clone(), running: Vec::new(), draining: false };
        link.heartbeat(heartbeat).await.expect("the bus has it");
        tokio::time::sleep(Duration::from_secs(5)).await;
        node.job(job, None).await.expect("it is there").execution_id == Some(run.execution_id)
    };
    for _ in 0..5 {
        assert!(heartbeat().await, "what is unread may be its end");
    }
    tokio::time::timeout(PATIENCE, async { while heartbeat().await {} }).await.expect("it is lost");
    let history = ports.store.history(job, 0, 100).await.expect("history").runs;
    assert!(history[0].error.as_deref().is_some_and(|error| error.contains("two of its heartbeats")), "{history:?}");
    haunting.abort();
    node.stop().await;
}
