//! Runs for workers over HTTP go to the node of their worker, which owns them from the dispatch on. Runs that
//! it has not handed out come back at the same attempt.

mod common;

use std::time::Duration;

use common::{one, quick, register, shared_ports, spec, start_as, until, worker};
use convoke_core::jobs::channels::Channels;
use convoke_core::jobs::link::{Heartbeat, WorkerLink};
use convoke_core::jobs::wire::{self, Dispatch, V1, WorkerHeartbeat, WorkerState};
use convoke_core::jobs::{Job, Ownership, QueuePatch, Status};
use convoke_core::{NodeId, QueueName, WorkerId};
use convoke_runtime::jobs::{Coordinator, Ports, Settings};

fn queue() -> QueueName {
    QueueName::new("default").expect("a name")
}

/// Nothing is stale: what is not released on purpose stays where it is.
fn patient() -> Settings {
    let mut settings = quick();
    settings.worker.stale_after = Duration::from_secs(3_600);
    settings.cluster.heartbeat_interval = Duration::from_millis(40);
    settings.cluster.dead_node_timeout = Duration::from_millis(1_000);
    settings
}

async fn join(ports: &Ports, id: &str, settings: Settings) -> Coordinator {
    let node = NodeId::new(id).expect("a name");
    let coordinator = Coordinator::start(node, ports.clone(), settings).await.expect("it starts");
    coordinator.ready().await;
    coordinator
}

/// A leader, and a node with a worker that does not poll and to which a job was dispatched.
async fn addressed(settings: Settings) -> (Ports, Coordinator, Coordinator, Job) {
    let ports = shared_ports();
    let leader = join(&ports, "n1", settings.clone()).await;
    let node = join(&ports, "n2", settings).await;
    register(&node, "w2", 1).await;
    let (job, _) = leader.enqueue(spec()).await.expect("it is enqueued");
    let job = until(&leader, job.id, |job| job.status == Status::Dispatched).await;
    assert_eq!((job.owner_node, job.ownership), (Some(node.node_id().clone()), Ownership::Owned));
    assert_eq!(job.worker_id, None);
    let job = leader.job(job.id, None).await.expect("it is there");
    (ports, leader, node, job)
}

#[tokio::test]
async fn a_run_is_handed_out_by_the_node_that_it_is_addressed_to() {
    let (_, leader, node, job) = addressed(patient()).await;
    let (id, execution, attempt) = one(&node, "w2").await;
    assert_eq!((id, Some(execution), attempt), (job.id, job.execution_id, 1));
    leader.stop().await;
    node.stop().await;
}

#[tokio::test]
async fn a_node_that_drains_gives_back_what_it_has_not_handed_out() {
    let (_, leader, node, job) = addressed(patient()).await;
    node.hand_over().await;
    let back = until(&leader, job.id, |job| job.status == Status::Pending).await;
    assert_eq!((back.attempt, back.owner_node), (0, None), "it never ran");
    register(&leader, "w1", 1).await;
    let (id, execution, attempt) = one(&leader, "w1").await;
    assert_eq!((id, attempt), (job.id, 1));
    assert_ne!(Some(execution), job.execution_id);
    node.stop().await;
    leader.stop().await;
}

#[tokio::test]
async fn the_leader_takes_back_what_a_dead_node_had_not_handed_out() {
    let (_, leader, node, job) = addressed(patient()).await;
    node.abort();
    register(&leader, "w1", 1).await;
    let again = async { until(&leader, job.id, |now| now.execution_id != job.execution_id).await };
    tokio::time::timeout(Duration::from_secs(20), again).await.expect("its node is dead");
    assert_eq!(one(&leader, "w1").await.2, 1, "the same attempt");
    leader.stop().await;
}

#[tokio::test]
async fn a_run_whose_message_was_lost_is_released_after_a_while() {
    let mut settings = patient();
    settings.worker.stale_after = Duration::from_secs(1);
    let (ports, leader, node, job) = addressed(settings).await;
    // Its worker left, and the node forgot the run: as if the message had never come.
    let channels = Channels::new("convoke");
    node.abort();
    let restarted = join(&ports, "n2", quick()).await;
    register(&leader, "w1", 1).await;
    let again = async { until(&leader, job.id, |now| now.execution_id != job.execution_id).await };
    let job = tokio::time::timeout(Duration::from_secs(20), again).await.expect("nobody has it");
    assert!(job.attempt <= 1, "{job:?}");
    assert_eq!(ports.bus.backlog(&channels.inbox(restarted.node_id()), "coordinators").await.expect("read"), 0);
    restarted.stop().await;
    leader.stop().await;
}

#[tokio::test]
async fn a_run_that_waits_for_one_node_goes_to_another_that_has_a_free_slot() {
    let (_, leader, node, job) = addressed(patient()).await;
    register(&leader, "w1", 1).await;
    // The worker of the other node lives, and does not poll.
    let heartbeats = async {
        loop {
            let heartbeat = Heartbeat { worker_id: worker("w2"), running: Vec::new(), draining: false };
            node.heartbeat(heartbeat).await.expect("it is known");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let given = async {
        loop {
            let poll = convoke_core::jobs::link::Poll { worker_id: worker("w1"), max: 1, wait: Duration::from_secs(1) };
            if let Some(run) = leader.poll(poll).await.expect("a poll returns").jobs.pop() {
                break run;
            }
        }
    };
    let run = tokio::select! {
        run = tokio::time::timeout(Duration::from_secs(30), given) => run.expect("it is recalled"),
        () = heartbeats => unreachable!("it keeps sending heartbeats"),
    };
    assert_eq!((run.job_id, run.attempt), (job.id, 1));
    leader.stop().await;
    node.stop().await;
}

#[tokio::test]
async fn a_paused_queue_is_recalled_from_the_inboxes_of_other_nodes() {
    let (_, leader, node, job) = addressed(patient()).await;
    let patch = QueuePatch { paused: Some(true), ..QueuePatch::default() };
    leader.configure_queue(&queue(), patch).await.expect("it is paused");
    let back = until(&leader, job.id, |job| job.status == Status::Pending).await;
    assert_eq!(back.attempt, 0);
    let patch = QueuePatch { paused: Some(false), ..QueuePatch::default() };
    leader.configure_queue(&queue(), patch).await.expect("it goes on");
    assert_eq!(one(&node, "w2").await.0, job.id);
    leader.stop().await;
    node.stop().await;
}

#[tokio::test]
async fn runs_for_a_worker_that_left_are_pending_again() {
    let (_, leader, node, job) = addressed(quick()).await;
    node.leave(worker("w2")).await.expect("it leaves");
    let back = until(&leader, job.id, |job| job.status == Status::Pending).await;
    assert_eq!(back.attempt, 0);
    leader.stop().await;
    node.stop().await;
}

/// A node of an older version: its gateway reads the dispatch queue.
#[tokio::test]
async fn a_node_without_an_inbox_is_served_by_the_bus() {
    let ports = shared_ports();
    let leader = start_as("n1", &ports).await;
    let channels = Channels::new("convoke");
    let runs = ports.bus.consumer(&channels.dispatch(&queue()), "workers", "old").await.expect("a consumer");
    let heartbeat = WorkerHeartbeat {
        v: V1,
        worker_id: WorkerId::new("w").expect("a name"),
        queues: vec![queue()],
        running: 0,
        free: 1,
        state: WorkerState::Active,
        at: jiff::Timestamp::now(),
        name: None,
        concurrency: None,
        via: Some(NodeId::new("old").expect("a name")),
        executions: None,
        inbox: None,
    };
    ports.bus.publish(&channels.worker_heartbeat(), wire::encode(&heartbeat)).await.expect("published");
    let (job, _) = leader.enqueue(spec()).await.expect("it is enqueued");
    let entry = runs.take(1).await.expect("read").pop().expect("an entry");
    let run: Dispatch = serde_json::from_slice(&entry.body).expect("a run");
    assert_eq!(run.job_id, job.id);
    leader.stop().await;
}
