//! Runs that a worker was given and does not have, although it lives: it was restarted under its id, or never got the response
//! to its poll.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{TokioClock, one, register, report, shared_ports, spec, until, worker};
use convoke_core::jobs::Status;
use convoke_core::jobs::channels::Channels;
use convoke_core::jobs::link::{Event, EventKind, Poll, WorkerLink};
use convoke_core::jobs::wire::{self, Dispatch, StatusKind, StatusMessage, V1, WorkerHeartbeat, WorkerState};
use convoke_core::{JobId, NodeId, QueueName};
use convoke_runtime::jobs::{Coordinator, Ports, Settings};

/// In virtual time: longer than anything that is waited for.
const PATIENCE: Duration = Duration::from_secs(3600);

fn virtual_ports() -> Ports {
    Ports { clock: Arc::new(TokioClock::default()), ..shared_ports() }
}

async fn join(ports: &Ports, id: &str) -> Coordinator {
    let node = NodeId::new(id).expect("a name");
    let node = Coordinator::start(node, ports.clone(), Settings::default()).await.expect("it starts");
    node.ready().await;
    node
}

/// Polls for one run until there is one. Its job and attempt.
async fn next(node: &Coordinator) -> (JobId, u32) {
    let polling = async {
        loop {
            let poll = Poll { worker_id: worker("w"), max: 1, wait: Duration::from_secs(20) };
            if let Some(job) = node.poll(poll).await.expect("a poll returns").jobs.first() {
                return (job.job_id, job.attempt);
            }
        }
    };
    tokio::time::timeout(PATIENCE, polling).await.expect("the run is lost, and the job runs again")
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_is_restarted_under_its_id_has_lost_what_it_had() {
    let node = join(&virtual_ports(), "a").await;
    register(&node, "w", 2).await;
    let job = node.enqueue(spec()).await.expect("enqueued").0.id;
    let (_, execution, _) = one(&node, "w").await;
    report(&node, "w", vec![Event::new(job, execution, EventKind::Started)]).await;
    register(&node, "w", 2).await;
    assert_eq!(next(&node).await, (job, 2), "a lost run counts as an attempt");
    let history = node.store().history(job, 0, 100).await.expect("history").runs;
    assert!(history[0].error.as_deref().is_some_and(|error| error.contains("lost the run")), "{history:?}");
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_is_restarted_and_comes_to_another_node_has_lost_what_it_had() {
    let ports = virtual_ports();
    let nodes = [join(&ports, "a").await, join(&ports, "b").await];
    // Once its record is in the store before it comes back, and once it is not yet.
    for pause in [Duration::from_secs(5), Duration::from_millis(10)] {
        register(&nodes[0], "w", 2).await;
        let job = nodes[0].enqueue(spec()).await.expect("enqueued").0.id;
        one(&nodes[0], "w").await;
        tokio::time::sleep(pause).await;
        register(&nodes[1], "w", 2).await;
        let (id, attempt) = next(&nodes[1]).await;
        assert_eq!((id, attempt), (job, 2));
        nodes[1].leave(worker("w")).await.expect("it leaves");
        nodes[1].cancel(job, None).await.expect("cancelled");
        // The first node forgets it, too.
        tokio::time::sleep(Duration::from_secs(60)).await;
    }
    for node in nodes {
        node.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_poll_was_never_answered_is_lost_once_the_worker_asks_for_all_it_can_take() {
    let node = join(&virtual_ports(), "a").await;
    register(&node, "w", 1).await;
    let job = node.enqueue(spec()).await.expect("enqueued").0.id;
    // As far as the worker knows, this poll failed.
    one(&node, "w").await;
    assert_eq!(next(&node).await, (job, 2));
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_named_after_its_worker_registered_again_is_kept() {
    let node = join(&virtual_ports(), "a").await;
    register(&node, "w", 2).await;
    let job = node.enqueue(spec()).await.expect("enqueued").0.id;
    let (_, execution, _) = one(&node, "w").await;
    register(&node, "w", 2).await;
    let progress = Event { percent: Some(1), ..Event::new(job, execution, EventKind::Progress) };
    assert_eq!(report(&node, "w", vec![progress]).await, (1, 0));
    for _ in 0..10 {
        // It has a slot left, and does not name the run.
        let poll = Poll { worker_id: worker("w"), max: 1, wait: Duration::from_secs(20) };
        assert_eq!(node.poll(poll).await.expect("a poll returns").jobs, []);
    }
    assert_eq!(report(&node, "w", vec![Event::new(job, execution, EventKind::Completed)]).await, (1, 0));
    let job = node.job(job, None).await.expect("it is there");
    assert_eq!((job.status, job.attempt), (Status::Completed, 1));
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_bus_worker_that_lists_nothing_and_runs_nothing_has_lost_what_it_had() {
    let ports = virtual_ports();
    let node = join(&ports, "a").await;
    let (channels, queue) = (Channels::new("convoke"), QueueName::new("default").expect("a name"));
    let runs = ports.bus.consumer(&channels.dispatch(&queue), "workers", "w").await.expect("a consumer");
    let heartbeat = async |running| {
        let heartbeat = WorkerHeartbeat {
            v: V1,
            worker_id: worker("w"),
            queues: vec![queue.clone()],
            running,
            free: 1 - running,
            state: WorkerState::Active,
            at: ports.clock.now(),
            name: None,
            concurrency: None,
            via: None,
            executions: None,
            inbox: None,
        };
        ports.bus.publish(&channels.worker_heartbeat(), wire::encode(&heartbeat)).await.expect("published");
        tokio::time::sleep(Duration::from_secs(5)).await;
    };
    heartbeat(0).await;
    let job = node.enqueue(spec()).await.expect("enqueued").0.id;
    let taken = runs.take(1).await.expect("a run").remove(0);
    let run: Dispatch = serde_json::from_slice(&taken.body).expect("a dispatch");
    let started = StatusMessage {
        v: V1,
        job_id: job,
        execution_id: run.execution_id,
        worker_id: worker("w"),
        kind: StatusKind::Started,
        at: ports.clock.now(),
        started_at: None,
        percent: None,
        message: None,
        result: None,
        error: None,
        retry: None,
    };
    ports.bus.push(vec![(channels.status(job), wire::encode(&started))]).await.expect("pushed");
    runs.ack(&[taken.id]).await.expect("acknowledged");
    until(&node, job, |job| job.status == Status::Running).await;
    for _ in 0..20 {
        heartbeat(1).await;
    }
    let execution = async || node.job(job, None).await.expect("it is there").execution_id;
    assert_eq!(execution().await, Some(run.execution_id), "it has the run");
    let lost = async {
        while execution().await == Some(run.execution_id) {
            heartbeat(0).await;
        }
    };
    tokio::time::timeout(PATIENCE, lost).await.expect("it is lost");
    node.stop().await;
}
