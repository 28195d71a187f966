//! The duties of a leader and of an owner, on the memory adapters.

use std::time::Duration;

use crate::common::{self, one, poll, ports, register, report, spec, start, until};
use convoke_core::jobs::channels::Channels;
use convoke_core::jobs::link::{Event, EventKind, Poll, WorkerLink};
use convoke_core::jobs::schedule::ScheduleSpec;
use convoke_core::jobs::wire::{
    self, Dispatch, EventMessage, LogMessage, StatusKind, StatusMessage, V1, WorkerHeartbeat, WorkerState,
};
use convoke_core::jobs::{JobSpec, LogLevel, Ownership, Priority, QueuePatch, RateLimit, Status};
use convoke_core::ports::store::JobQuery;
use convoke_core::{Epoch, Json, QueueName, ScheduleName, WorkerId};
use convoke_runtime::jobs::{Coordinator, Ports};

#[tokio::test]
async fn a_delayed_job_runs_when_it_is_due_and_not_before() {
    let coordinator = start(&ports()).await;
    register(&coordinator, "w", 1).await;
    let delay = Duration::from_millis(150);
    let (job, _) = coordinator.enqueue(JobSpec { delay: Some(delay), ..spec() }).await.expect("it is enqueued");
    assert_eq!(job.status, Status::Scheduled);
    let (id, ..) = one(&coordinator, "w").await;
    assert_eq!(id, job.id);
    let job = coordinator.job(id, None).await.expect("it is there");
    assert!(job.dispatched_at >= job.scheduled_at, "{job:?}");
    coordinator.stop().await;
}

#[tokio::test]
async fn a_run_that_takes_too_long_is_ended_and_its_job_tried_again() {
    let coordinator = start(&ports()).await;
    register(&coordinator, "w", 1).await;
    let timeout = Some(Duration::from_millis(30));
    let spec = spec().with(|job| {
        job.timeout = timeout;
        job.max_retries = Some(1);
    });
    let (job, _) = coordinator.enqueue(spec).await.expect("it is enqueued");
    let mut next = None;
    for expected in 1..=2 {
        let (id, execution, attempt) = match next.take() {
            Some(run) => run,
            None => one(&coordinator, "w").await,
        };
        assert_eq!(attempt, expected);
        report(&coordinator, "w", vec![Event::new(id, execution, EventKind::Started)]).await;
        // The worker receives that it should stop, perhaps with the next attempt; its report now is too late.
        let polled = poll(&coordinator, "w", 1).await;
        assert_eq!(polled.cancel, [execution]);
        let late = Event::new(id, execution, EventKind::Completed);
        assert_eq!(report(&coordinator, "w", vec![late]).await, (0, 1));
        next = polled.jobs.first().map(|job| (job.job_id, job.execution_id, job.attempt));
    }
    let job = coordinator.job(job.id, Some(Duration::from_secs(5))).await.expect("it is there");
    assert_eq!((job.status, job.attempt), (Status::TimedOut, 2));
    coordinator.stop().await;
}

#[tokio::test]
async fn a_later_job_of_higher_priority_overtakes_what_is_not_dispatched() {
    let coordinator = start(&ports()).await;
    register(&coordinator, "w", 1).await;
    let (first, _) = coordinator.enqueue(spec()).await.expect("it is enqueued");
    let (id, execution, _) = one(&coordinator, "w").await;
    assert_eq!(id, first.id);
    let (low, _) = coordinator.enqueue(spec().with(|job| job.priority = Some(Priority::Low))).await.expect("enqueued");
    let critical = spec().with(|job| job.priority = Some(Priority::Critical));
    let (critical, _) = coordinator.enqueue(critical).await.expect("it is enqueued");
    report(&coordinator, "w", vec![Event::new(id, execution, EventKind::Completed)]).await;
    let (id, execution, _) = one(&coordinator, "w").await;
    assert_eq!(id, critical.id);
    report(&coordinator, "w", vec![Event::new(id, execution, EventKind::Completed)]).await;
    assert_eq!(one(&coordinator, "w").await.0, low.id);
    coordinator.stop().await;
}

#[tokio::test]
async fn what_a_worker_left_on_the_bus_is_pending_again() {
    let coordinator = start(&ports()).await;
    register(&coordinator, "w", 1).await;
    let (job, _) = coordinator.enqueue(spec()).await.expect("it is enqueued");
    until(&coordinator, job.id, |job| job.status == Status::Dispatched).await;
    coordinator.leave(WorkerId::new("w").expect("a name")).await.expect("it leaves");
    let job = until(&coordinator, job.id, |job| job.status == Status::Pending).await;
    assert_eq!(job.attempt, 0, "nobody ran it");
    // The next one is given the job anew, and only once.
    register(&coordinator, "next", 2).await;
    let (id, execution, attempt) = one(&coordinator, "next").await;
    assert_eq!((id, attempt), (job.id, 1));
    let done = Event::new(id, execution, EventKind::Completed);
    assert_eq!(report(&coordinator, "next", vec![done]).await, (1, 0));
    let nothing = Poll { worker_id: WorkerId::new("next").expect("a name"), max: 1, wait: Duration::ZERO };
    assert_eq!(coordinator.poll(nothing).await.expect("a poll returns").jobs, []);
    coordinator.stop().await;
}

#[tokio::test]
async fn a_rate_limit_holds_across_a_restart() {
    let ports = ports();
    let queue = QueueName::new("default").expect("a name");
    let first = start(&ports).await;
    let rate_limit = Some(Some(RateLimit { limit: 2, per: Duration::from_secs(3600) }));
    first.configure_queue(&queue, QueuePatch { rate_limit, ..QueuePatch::default() }).await.expect("it is limited");
    register(&first, "w", 10).await;
    first.enqueue_batch(vec![spec(), spec(), spec(), spec()]).await.expect("they are enqueued");
    let mut given = 0;
    while given < 2 {
        given += poll(&first, "w", 10).await.jobs.len();
    }
    assert_eq!(given, 2);
    first.stop().await;
    let second = start(&ports).await;
    let more = second.poll(Poll { worker_id: common::worker("w"), max: 10, wait: Duration::from_millis(100) }).await;
    assert!(more.expect("a poll returns").jobs.is_empty());
    second.stop().await;
}

#[tokio::test]
async fn a_schedule_fires_and_a_tick_while_its_job_is_live_makes_none() {
    let coordinator = start(&ports()).await;
    let name = ScheduleName::new("often").expect("a name");
    let spec: ScheduleSpec = serde_json::from_str(r#"{"type":"test","every":"100ms"}"#).expect("a schedule");
    coordinator.put_schedule(name.clone(), spec).await.expect("it is stored");
    register(&coordinator, "w", 5).await;
    let (first, execution, _) = one(&coordinator, "w").await;
    let live = coordinator.job(first, None).await.expect("it is there");
    assert_eq!(live.schedule, Some(name.clone()));
    // Ticks go by while the first job runs.
    let moved_on = live.scheduled_at.expect("a tick") + Duration::from_millis(300);
    while coordinator.schedule(&name).await.expect("it is there").next_run_at < Some(moved_on) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let query = JobQuery { limit: 10, ..JobQuery::default() };
    assert_eq!(coordinator.store().list(query).await.expect("a list").jobs.len(), 1);
    report(&coordinator, "w", vec![Event::new(first, execution, EventKind::Completed)]).await;
    assert_ne!(one(&coordinator, "w").await.0, first);
    coordinator.stop().await;
}

#[tokio::test]
async fn the_writes_of_a_leader_whose_epoch_was_surpassed_are_refused_and_it_leads_anew() {
    let coordinator = start(&ports()).await;
    let before = coordinator.cluster().epoch;
    let usurped = Epoch(before.0 + 10);
    coordinator.store().seal(usurped).await.expect("it is sealed");
    register(&coordinator, "w", 1).await;
    let (job, _) = coordinator.enqueue(spec()).await.expect("it is enqueued");
    let (id, ..) = one(&coordinator, "w").await;
    assert_eq!(id, job.id);
    assert!(coordinator.cluster().epoch > usurped, "dispatched by a term above the one that was sealed");
    coordinator.stop().await;
}

/// A worker that uses the bus: takes one run, reports that it started, logs, reports progress.
async fn run_by_bus(ports: &Ports, coordinator: &Coordinator) -> (Channels, Dispatch, WorkerId) {
    let channels = Channels::new("convoke");
    let queue = QueueName::new("default").expect("a name");
    let worker_id = WorkerId::new("by-bus").expect("a name");
    let consumer = ports.bus.consumer(&channels.dispatch(&queue), "workers", "by-bus").await.expect("a consumer");
    coordinator.enqueue(spec()).await.expect("it is enqueued");
    let heartbeat = WorkerHeartbeat {
        v: V1,
        worker_id: worker_id.clone(),
        queues: vec![queue],
        running: 0,
        free: 1,
        state: WorkerState::Active,
        at: coordinator.clock().now(),
        name: None,
        concurrency: None,
        via: None,
        executions: None,
        inbox: None,
    };
    ports.bus.publish(&channels.worker_heartbeat(), wire::encode(&heartbeat)).await.expect("published");
    let taken = consumer.take(1).await.expect("a run");
    let run: Dispatch = serde_json::from_slice(&taken[0].body).expect("a dispatch");
    consumer.ack(&[taken[0].id.clone()]).await.expect("acknowledged");
    (channels, run, worker_id)
}

#[tokio::test]
async fn what_a_worker_says_by_the_bus_is_recorded_by_the_owner_and_its_channels_are_closed() {
    let ports = ports();
    let mut settings = crate::common::quick();
    settings.channels.cleanup_delay = Duration::ZERO;
    settings.channels.scan_interval = Duration::from_millis(20);
    let node = convoke_core::NodeId::new("n1").expect("a name");
    let coordinator = Coordinator::start(node.clone(), ports.clone(), settings).await.expect("it starts");
    coordinator.ready().await;
    let (channels, run, worker_id) = run_by_bus(&ports, &coordinator).await;
    let status = |kind| StatusMessage {
        v: V1,
        job_id: run.job_id,
        execution_id: run.execution_id,
        worker_id: worker_id.clone(),
        kind,
        at: coordinator.clock().now(),
        started_at: None,
        percent: None,
        message: None,
        result: None,
        error: None,
        retry: None,
    };
    let log = LogMessage {
        v: V1,
        job_id: run.job_id,
        execution_id: run.execution_id,
        seq: 1,
        at: coordinator.clock().now(),
        level: LogLevel::Info,
        message: "hello".into(),
    };
    let started = wire::encode(&status(StatusKind::Started));
    // The line comes twice, as it does when a node dies between its commit and its acknowledgement.
    let log = (channels.logs(run.job_id), wire::encode(&log));
    let entries = vec![(channels.status(run.job_id), started), log.clone(), log.clone()];
    ports.bus.push(entries).await.expect("pushed");
    let job = until(&coordinator, run.job_id, |job| job.status == Status::Running).await;
    assert_eq!((job.ownership, job.owner_node, job.worker_id), (Ownership::Owned, Some(node), Some(worker_id.clone())));

    ports.bus.push(vec![log]).await.expect("pushed");
    let result = Some(Json::parse("42".into()).expect("JSON"));
    let done = wire::encode(&StatusMessage { result: result.clone(), ..status(StatusKind::Completed) });
    ports.bus.push(vec![(channels.status(run.job_id), done)]).await.expect("pushed");
    let job = until(&coordinator, run.job_id, |job| job.status == Status::Completed).await;
    assert_eq!(job.result, result);
    let logs = coordinator.store().logs(run.job_id, 0, 10).await.expect("logs");
    assert_eq!(logs.iter().map(|line| line.message.as_str()).collect::<Vec<_>>(), ["hello"]);
    until(&coordinator, run.job_id, |job| job.channels_cleaned).await;
    assert_eq!(ports.bus.backlog(&channels.status(run.job_id), "any").await.expect("a response"), 0);

    // An entry that is published now creates the channel again.
    let late = wire::encode(&status(StatusKind::Started));
    ports.bus.push(vec![(channels.status(run.job_id), late)]).await.expect("pushed");
    while !ports.bus.queues(&channels.status(run.job_id)).await.expect("queues").is_empty() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    coordinator.stop().await;
}

#[tokio::test]
async fn one_event_by_the_bus_is_a_whole_short_run_and_its_channels_are_gone_before_the_cleanup() {
    let ports = ports();
    let mut settings = common::quick();
    settings.channels.cleanup_delay = Duration::from_secs(3_600);
    let node = convoke_core::NodeId::new("n1").expect("a name");
    let coordinator = Coordinator::start(node, ports.clone(), settings).await.expect("it starts");
    coordinator.ready().await;
    let (channels, run, worker_id) = run_by_bus(&ports, &coordinator).await;
    let (job, execution_id, at) = (run.job_id, run.execution_id, coordinator.clock().now());
    let completed = Event { at: Some(at), started_at: Some(at), ..Event::new(job, execution_id, EventKind::Completed) };
    let failed = Event { error: Some("too late".into()), ..Event::new(job, execution_id, EventKind::Failed) };
    let status = [completed, failed].map(|event| match EventMessage::of(&worker_id, &event, at) {
        EventMessage::Status(status) => (channels.status(job), wire::encode(&status)),
        EventMessage::Log(_) => panic!("not a line"),
    });
    let line =
        LogMessage { v: V1, job_id: job, execution_id, seq: 1, at, level: LogLevel::Info, message: "hello".into() };
    let line = (channels.logs(job), wire::encode(&line));
    ports.bus.push(status.into_iter().chain([line]).collect()).await.expect("pushed");
    let ended = until(&coordinator, job, |job| !job.status.is_live()).await;
    assert_eq!((ended.status, ended.error), (Status::Completed, None), "the first end counts");
    assert_eq!((ended.started_at, ended.completed_at), (Some(at), Some(at)));
    let logs = coordinator.store().logs(job, 0, 10).await.expect("logs");
    assert_eq!(logs.len(), 1, "a line that came with the end is part of the run");
    while !ports.bus.queues(&format!("{}{job}", channels.jobs())).await.expect("queues").is_empty() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let ended = until(&coordinator, job, |_| true).await;
    assert!(!ended.channels_cleaned, "only the leader marks them, after the delay");
    coordinator.stop().await;
}

#[tokio::test]
async fn a_run_that_never_says_started_is_timed_from_when_it_was_handed_out() {
    let coordinator = start(&ports()).await;
    register(&coordinator, "w", 1).await;
    let spec = spec().with(|job| {
        job.timeout = Some(Duration::from_millis(30));
        job.max_retries = Some(0);
    });
    let (job, _) = coordinator.enqueue(spec).await.expect("it is enqueued");
    let (_, execution, _) = one(&coordinator, "w").await;
    assert_eq!(poll(&coordinator, "w", 0).await.cancel, [execution]);
    let job = coordinator.job(job.id, Some(Duration::from_secs(5))).await.expect("it is there");
    assert_eq!(job.status, Status::TimedOut);
    coordinator.stop().await;
}

#[tokio::test]
async fn what_was_cancelled_while_it_lay_on_the_bus_is_not_handed_out() {
    let coordinator = start(&ports()).await;
    register(&coordinator, "w", 2).await;
    let (dropped, _) = coordinator.enqueue(spec()).await.expect("it is enqueued");
    until(&coordinator, dropped.id, |job| job.status == Status::Dispatched).await;
    coordinator.cancel(dropped.id, None).await.expect("it is cancelled");
    // Old enough not to be taken on trust, and its worker alive meanwhile.
    for _ in 0..11 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        poll_for_nothing(&coordinator).await;
    }
    let (wanted, _) = coordinator.enqueue(spec()).await.expect("it is enqueued");
    let given = poll(&coordinator, "w", 2).await.jobs;
    assert_eq!(given.iter().map(|job| job.job_id).collect::<Vec<_>>(), [wanted.id]);
    coordinator.stop().await;
}

async fn poll_for_nothing(coordinator: &Coordinator) {
    let poll = Poll { worker_id: common::worker("w"), max: 0, wait: Duration::ZERO };
    coordinator.poll(poll).await.expect("a poll returns");
}
