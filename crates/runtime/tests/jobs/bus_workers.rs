//! Workers and clients that use the bus, with a node on the memory adapters.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{ports, quick, until};
use convoke_core::jobs::channels::Channels;
use convoke_core::jobs::link::{ClientLink, Event, EventKind, Heartbeat, Poll, Polled, Register, Report, WorkerLink};
use convoke_core::jobs::wire::{Poison, WorkerState};
use convoke_core::jobs::{Job, JobSpec, LogLevel, Status};
use convoke_core::{ExecutionId, JobId, JobType, Json, NodeId, QueueName, WorkerId};
use convoke_runtime::jobs::worker::{
    BusLink, BusLinkSettings, Context, Failure, Handlers, Settings as WorkerSettings, Shutdown, Summary, Worker,
};
use convoke_runtime::jobs::{BusClient, Coordinator, Ports, Settings};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// Long enough for what runs, so that a busy machine kills nobody.
fn calm() -> Settings {
    let mut settings = quick();
    settings.worker.stale_after = Duration::from_secs(10);
    settings
}

async fn start(ports: &Ports, settings: Settings) -> Coordinator {
    let node = NodeId::new("n1").expect("a name");
    let coordinator = Coordinator::start(node, ports.clone(), settings).await.expect("it starts");
    coordinator.ready().await;
    coordinator
}

fn link(ports: &Ports, settings: &Settings) -> BusLink {
    let (heartbeat_interval, stale_after) = (settings.worker.heartbeat_interval, settings.worker.stale_after);
    let settings = BusLinkSettings { heartbeat_interval, stale_after };
    BusLink::new(ports.bus.clone(), Channels::new("convoke"), ports.clock.clone(), settings)
}

fn id(name: &str) -> WorkerId {
    WorkerId::new(name).expect("a name")
}

fn queue(name: &str) -> QueueName {
    QueueName::new(name).expect("a name")
}

fn spec(job_type: &str) -> JobSpec {
    JobSpec::new(JobType::new(job_type).expect("a name"))
}

/// A worker of the engine over the bus, until it is asked to drain.
struct Running {
    shutdown: Shutdown,
    task: JoinHandle<Summary>,
}

impl Running {
    fn start(ports: &Ports, settings: &Settings, name: &str, handlers: Handlers) -> Self {
        let worker = WorkerSettings {
            id: Some(id(name)),
            queues: vec![queue("default"), queue("other")],
            concurrency: 4,
            ..WorkerSettings::default()
        };
        let worker = Worker::new(Arc::new(link(ports, settings)), ports.clock.clone(), worker, handlers);
        let shutdown = Shutdown::default();
        let running = shutdown.clone();
        let task = tokio::spawn(async move { worker.run(running).await.expect("it works") });
        Running { shutdown, task }
    }

    async fn drain(self) -> Summary {
        self.shutdown.drain.cancel();
        self.task.await.expect("no panic")
    }
}

fn handler<F, Fut>(job_type: &str, handlers: &mut Handlers, run: F)
where
    F: Fn(Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Option<Json>, Failure>> + Send + 'static,
{
    handlers.add(JobType::new(job_type).expect("a name"), move |cx, _| Box::pin(run(cx)));
}

async fn ended(coordinator: &Coordinator, id: JobId) -> Job {
    until(coordinator, id, |job| !job.status.is_live()).await
}

async fn workers(coordinator: &Coordinator, is: impl Fn(&[(String, WorkerState)]) -> bool) {
    loop {
        let workers = coordinator.workers().await.expect("workers");
        let workers: Vec<_> = workers.iter().map(|worker| (worker.worker_id.to_string(), worker.state)).collect();
        if is(&workers) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn a_worker_over_the_bus_runs_jobs_with_logs_and_progress_and_is_in_the_registry() {
    let (ports, settings) = (ports(), calm());
    let coordinator = start(&ports, settings.clone()).await;
    let mut handlers = Handlers::default();
    handler("test", &mut handlers, |cx| async move {
        cx.log(LogLevel::Info, "one").await.expect("accepted");
        cx.log(LogLevel::Warn, "two").await.expect("accepted");
        cx.progress(40, "on the way").await.expect("accepted");
        Ok(Json::of(&7).ok())
    });
    let worker = Running::start(&ports, &settings, "w", handlers);
    workers(&coordinator, |workers| workers == [("w".to_owned(), WorkerState::Active)]).await;
    let shown = coordinator.workers().await.expect("workers").remove(0);
    assert_eq!((shown.concurrency, shown.via, shown.queues), (4, None, vec![queue("default"), queue("other")]));
    for name in ["default", "other"] {
        let spec = spec("test").with(|job| job.queue = Some(queue(name)));
        let (job, _) = coordinator.enqueue(spec).await.expect("enqueued");
        let job = ended(&coordinator, job.id).await;
        assert_eq!((job.status, job.attempt, job.worker_id), (Status::Completed, 1, Some(id("w"))));
        assert_eq!(job.result.as_ref().map(Json::as_str), Some("7"));
        assert_eq!(job.progress.map(|progress| progress.percent), Some(40));
        assert_eq!(job.owner_node.as_ref().map(NodeId::as_str), Some("n1"));
        loop {
            let logs = coordinator.store().logs(job.id, 0, 10).await.expect("logs");
            let lines: Vec<_> = logs.iter().map(|line| line.message.as_str()).collect();
            if lines == ["one", "two"] {
                break;
            }
            assert!(lines.len() < 2, "{lines:?}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
    let summary = worker.drain().await;
    assert_eq!((summary.completed, summary.unaccepted), (2, 0));
    workers(&coordinator, |workers| workers.is_empty()).await;
    coordinator.stop().await;
}

#[tokio::test]
async fn a_job_that_fails_over_the_bus_is_retried_until_it_is_a_dead_letter() {
    let (ports, settings) = (ports(), calm());
    let coordinator = start(&ports, settings.clone()).await;
    let mut handlers = Handlers::default();
    handler("test", &mut handlers, |cx| async move { Err(Failure::new(format!("attempt {}", cx.attempt()))) });
    let worker = Running::start(&ports, &settings, "w", handlers);
    let spec = spec("test").with(|job| job.max_retries = Some(2));
    let (job, _) = coordinator.enqueue(spec).await.expect("enqueued");
    let job = ended(&coordinator, job.id).await;
    assert_eq!((job.status, job.attempt, job.error.as_deref()), (Status::Failed, 3, Some("attempt 3")));
    assert_eq!(worker.drain().await.failed, 3);
    coordinator.stop().await;
}

#[tokio::test]
async fn a_cancelled_job_is_stopped_over_the_bus() {
    let (ports, settings) = (ports(), calm());
    let coordinator = start(&ports, settings.clone()).await;
    let (started, stopped) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (on_start, on_stop) = (started.clone(), stopped.clone());
    let mut handlers = Handlers::default();
    handler("test", &mut handlers, move |cx| {
        let (started, stopped) = (on_start.clone(), on_stop.clone());
        async move {
            started.notify_one();
            cx.cancelled().await;
            stopped.notify_one();
            Ok(None)
        }
    });
    let worker = Running::start(&ports, &settings, "w", handlers);
    let (job, _) = coordinator.enqueue(spec("test")).await.expect("enqueued");
    started.notified().await;
    coordinator.cancel(job.id, Some("enough".into())).await.expect("cancelled");
    stopped.notified().await;
    let job = ended(&coordinator, job.id).await;
    assert_eq!((job.status, job.error.as_deref()), (Status::Cancelled, Some("enough")));
    assert_eq!(worker.drain().await.cancelled, 1);
    coordinator.stop().await;
}

#[tokio::test]
async fn a_worker_that_drains_gives_back_what_does_not_end_and_no_attempt_is_counted() {
    let (ports, settings) = (ports(), calm());
    let coordinator = start(&ports, settings.clone()).await;
    let started = Arc::new(Notify::new());
    let on_start = started.clone();
    let mut endless = Handlers::default();
    handler("test", &mut endless, move |_| {
        let started = on_start.clone();
        async move {
            started.notify_one();
            std::future::pending().await
        }
    });
    let leaver = Running::start(&ports, &settings, "leaver", endless);
    let (job, _) = coordinator.enqueue(spec("test")).await.expect("enqueued");
    started.notified().await;
    leaver.shutdown.hurry.cancel();
    assert_eq!(leaver.drain().await.released, 1);
    let mut handlers = Handlers::default();
    handler("test", &mut handlers, |_| async { Ok(None) });
    let worker = Running::start(&ports, &settings, "next", handlers);
    let job = ended(&coordinator, job.id).await;
    assert_eq!((job.status, job.attempt, job.worker_id), (Status::Completed, 1, Some(id("next"))));
    worker.drain().await;
    coordinator.stop().await;
}

#[tokio::test]
async fn two_workers_share_a_queue_and_every_job_runs_once() {
    let (ports, settings) = (ports(), calm());
    let coordinator = start(&ports, settings.clone()).await;
    let ran = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let start_worker = |name: &'static str| {
        let ran = ran.clone();
        let mut handlers = Handlers::default();
        handler("test", &mut handlers, move |cx| {
            let ran = ran.clone();
            async move {
                ran.lock().push((cx.job_id(), name));
                // Until the other has had a job, too: neither may take all of them.
                while ran.lock().iter().all(|(_, by)| *by == name) {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                Ok(None)
            }
        });
        Running::start(&ports, &settings, name, handlers)
    };
    let both = [start_worker("a"), start_worker("b")];
    let jobs = coordinator.enqueue_batch((0..200).map(|_| spec("test")).collect()).await.expect("enqueued");
    for job in &jobs {
        assert_eq!(ended(&coordinator, job.id).await.attempt, 1);
    }
    let ran: Vec<_> = ran.lock().clone();
    assert_eq!((ran.len(), ran.iter().map(|(job, _)| *job).collect::<BTreeSet<_>>().len()), (200, 200));
    for worker in both {
        worker.drain().await;
    }
    coordinator.stop().await;
}

/// A worker's messages by hand.
struct ByHand {
    link: BusLink,
    id: WorkerId,
}

impl ByHand {
    async fn register(ports: &Ports, settings: &Settings, name: &str) -> Self {
        let link = link(ports, settings);
        let queues = vec![queue("default")];
        let register = Register { worker_id: Some(id(name)), name: Some(name.into()), queues, concurrency: 2 };
        link.register(register).await.expect("it registers");
        ByHand { link, id: id(name) }
    }

    async fn poll(&self, max: usize) -> Polled {
        let poll = Poll { worker_id: self.id.clone(), max, wait: Duration::from_secs(30) };
        self.link.poll(poll).await.expect("a poll returns")
    }

    async fn one(&self) -> (JobId, ExecutionId, u32) {
        let job = self.poll(1).await.jobs.remove(0);
        (job.job_id, job.execution_id, job.attempt)
    }

    async fn report(&self, (job, execution, _): (JobId, ExecutionId, u32), kind: EventKind) {
        let events = vec![Event::new(job, execution, kind)];
        let reported = self.link.report(Report { worker_id: self.id.clone(), events }).await.expect("accepted");
        assert_eq!((reported.accepted, reported.rejected.len()), (1, 0));
    }

    async fn heartbeat(&self, running: Vec<ExecutionId>) -> Vec<ExecutionId> {
        let heartbeat = Heartbeat { worker_id: self.id.clone(), running, draining: false };
        self.link.heartbeat(heartbeat).await.expect("the heartbeat is published").cancel
    }
}

#[tokio::test]
async fn the_runs_of_a_worker_that_dies_are_lost_and_run_again() {
    let (ports, settings) = (ports(), quick());
    let coordinator = start(&ports, settings.clone()).await;
    let dying = ByHand::register(&ports, &settings, "dying").await;
    let (job, _) = coordinator.enqueue(spec("test")).await.expect("enqueued");
    let run = dying.one().await;
    dying.report(run, EventKind::Started).await;
    until(&coordinator, job.id, |job| job.worker_id == Some(id("dying"))).await;
    drop(dying);
    workers(&coordinator, |workers| workers.is_empty()).await;
    let next = ByHand::register(&ports, &settings, "next").await;
    let again = next.one().await;
    assert_eq!((again.0, again.2), (job.id, 2), "a lost run counts as an attempt");
    next.report(again, EventKind::Completed).await;
    assert_eq!(ended(&coordinator, job.id).await.status, Status::Completed);
    next.link.leave(id("next")).await.expect("it leaves");
    coordinator.stop().await;
}

#[tokio::test]
async fn a_job_that_kills_its_workers_before_a_word_does_not_kill_for_ever() {
    let (ports, settings) = (ports(), quick());
    let coordinator = start(&ports, settings.clone()).await;
    let spec = spec("test").with(|job| job.max_retries = Some(1));
    let (job, _) = coordinator.enqueue(spec).await.expect("enqueued");
    let mut killed = 0;
    while coordinator.job(job.id, None).await.expect("there").status.is_live() {
        killed += 1;
        let victim = ByHand::register(&ports, &settings, &format!("victim-{killed}")).await;
        let poll = Poll { worker_id: victim.id.clone(), max: 1, wait: Duration::from_millis(20) };
        while victim.link.poll(poll.clone()).await.expect("a poll returns").jobs.is_empty() {
            if !coordinator.job(job.id, None).await.expect("there").status.is_live() {
                break;
            }
            victim.heartbeat(vec![]).await;
        }
        drop(victim);
    }
    let job = ended(&coordinator, job.id).await;
    assert_eq!((job.status, job.attempt), (Status::Failed, 2));
    assert!(job.error.is_some_and(|error| error.contains("stopped sending heartbeats")));
    coordinator.stop().await;
}

#[tokio::test]
async fn a_run_that_two_heartbeats_of_a_bus_worker_do_not_name_is_lost() {
    let (ports, settings) = (ports(), calm());
    let coordinator = start(&ports, settings.clone()).await;
    let worker = ByHand::register(&ports, &settings, "w").await;
    let (job, _) = coordinator.enqueue(spec("test")).await.expect("enqueued");
    let run = worker.one().await;
    worker.report(run, EventKind::Started).await;
    until(&coordinator, job.id, |job| job.worker_id == Some(id("w"))).await;
    worker.heartbeat(vec![run.1]).await;
    let mut stop = Vec::new();
    while coordinator.job(job.id, None).await.expect("there").execution_id == Some(run.1) {
        stop.extend(worker.heartbeat(vec![]).await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let history = coordinator.store().history(job.id, 0, 10).await.expect("history").runs;
    assert!(history[0].error.as_deref().is_some_and(|error| error.contains("two of its heartbeats")), "{history:?}");
    if stop.is_empty() {
        stop = worker.poll(0).await.cancel;
    }
    assert_eq!(stop, [run.1], "it is asked to stop what it may still run");
    coordinator.stop().await;
}

#[tokio::test]
async fn what_a_worker_took_and_never_started_is_taken_over() {
    let (ports, settings) = (ports(), calm());
    let coordinator = start(&ports, settings.clone()).await;
    let mut impatient = settings.clone();
    impatient.worker.stale_after = Duration::from_millis(50);
    let dying = ByHand::register(&ports, &settings, "dying").await;
    let (job, _) = coordinator.enqueue(spec("test")).await.expect("enqueued");
    let run = dying.one().await;
    drop(dying);
    let next = ByHand::register(&ports, &impatient, "next").await;
    let again = next.one().await;
    assert_eq!(again, run, "the same run, since nobody started it");
    next.report(again, EventKind::Completed).await;
    let job = ended(&coordinator, job.id).await;
    assert_eq!((job.status, job.attempt, job.worker_id), (Status::Completed, 1, Some(id("next"))));
    coordinator.stop().await;
}

#[tokio::test]
async fn what_was_cancelled_while_it_lay_on_the_bus_is_not_run() {
    let (ports, settings) = (ports(), calm());
    let coordinator = start(&ports, settings.clone()).await;
    let worker = ByHand::register(&ports, &settings, "w").await;
    let (cancelled, _) = coordinator.enqueue(spec("test")).await.expect("enqueued");
    until(&coordinator, cancelled.id, |job| job.status == Status::Dispatched).await;
    coordinator.cancel(cancelled.id, None).await.expect("cancelled");
    let (kept, _) = coordinator.enqueue(spec("test")).await.expect("enqueued");
    // By then the worker has received the cancellation, which came first.
    until(&coordinator, kept.id, |job| job.status == Status::Dispatched).await;
    assert_eq!(worker.one().await.0, kept.id);
    coordinator.stop().await;
}

#[tokio::test]
async fn a_dispatch_that_cannot_be_read_is_set_aside_and_hinders_no_other() {
    let (ports, settings) = (ports(), calm());
    let coordinator = start(&ports, settings.clone()).await;
    let channels = Channels::new("convoke");
    let garbage = (channels.dispatch(&queue("default")), "{\"v\":1}".into());
    ports.bus.push(vec![garbage]).await.expect("pushed");
    let worker = ByHand::register(&ports, &settings, "w").await;
    let (job, _) = coordinator.enqueue(spec("test")).await.expect("enqueued");
    assert_eq!(worker.one().await.0, job.id);
    let poison = poisoned(&ports).await;
    assert_eq!((poison.channel.as_str(), poison.body.as_str()), ("convoke.job.dispatch.default", "{\"v\":1}"));
    coordinator.stop().await;
}

async fn poisoned(ports: &Ports) -> Poison {
    let channels = Channels::new("convoke");
    let reader = ports.bus.consumer(&channels.poison(), "test", "reader").await.expect("a reader");
    let taken = reader.take(1).await.expect("taken");
    serde_json::from_slice(&taken[0].body).expect("what was set aside")
}

#[tokio::test]
async fn jobs_are_enqueued_by_the_bus_and_a_bad_message_hinders_no_other() {
    let (ports, settings) = (ports(), calm());
    let channels = Channels::new("convoke");
    let client = BusClient::new(ports.bus.clone(), channels.clone(), ports.clock.clone());
    // Before anybody is there to take them in.
    let first = client.enqueue(vec![spec("test"), spec("test")]).await.expect("the bus has them");
    for body in ["nonsense", r#"{"v":1,"type":"test"}"#] {
        ports.bus.push(vec![(channels.enqueue(), body.into())]).await.expect("pushed");
    }
    let second = client.enqueue(vec![spec("test")]).await.expect("the bus has it");
    let coordinator = start(&ports, settings).await;
    for job in first.iter().chain(&second) {
        loop {
            match coordinator.job(job.id, None).await {
                Ok(job) => break assert_eq!(job.status, Status::Pending),
                Err(_) => tokio::time::sleep(Duration::from_millis(2)).await,
            }
        }
    }
    let poison = poisoned(&ports).await;
    assert_eq!((poison.channel.as_str(), poison.body.as_str()), ("convoke.job.enqueue", "nonsense"));
    // The same message again makes no second job.
    let again = JobSpec { id: Some(first[0].id), ..spec("test") };
    client.enqueue(vec![again]).await.expect("the bus has it");
    let last = client.enqueue(vec![spec("test")]).await.expect("the bus has it");
    while coordinator.job(last[0].id, None).await.is_err() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let counts = coordinator.queue_view(&queue("default")).await.expect("a queue").queue.counts;
    assert_eq!(counts.get(Status::Pending), 4);
    coordinator.stop().await;
}

#[tokio::test]
async fn a_job_with_the_nil_or_the_max_id_is_rejected_on_the_bus() {
    let (ports, settings) = (ports(), calm());
    let channels = Channels::new("convoke");
    let client = BusClient::new(ports.bus.clone(), channels.clone(), ports.clock.clone());
    let reader = ports.bus.consumer(&channels.poison(), "test", "reader").await.expect("a reader");
    let coordinator = start(&ports, settings).await;
    for id in [uuid::Uuid::nil(), uuid::Uuid::max()] {
        let spec = JobSpec { id: Some(JobId(id)), ..spec("test") };
        let error = client.enqueue(vec![spec]).await.expect_err("rejected before it is sent").to_string();
        assert!(error.starts_with("jobs[0].id: expected a UUID other than"), "{error}");
        let body = format!(r#"{{"v":1,"id":"{id}","type":"test"}}"#);
        ports.bus.push(vec![(channels.enqueue(), body.clone().into())]).await.expect("pushed");
        let taken = reader.take(1).await.expect("taken");
        let poison: Poison = serde_json::from_slice(&taken[0].body).expect("a poison message");
        assert_eq!((poison.channel.as_str(), &poison.body), ("convoke.job.enqueue", &body));
        assert!(poison.reason.starts_with("id: expected a UUID other than"), "{}", poison.reason);
        assert!(coordinator.job(JobId(id), None).await.is_err(), "no such job");
    }
    coordinator.stop().await;
}

#[tokio::test]
async fn by_the_bus_a_client_can_only_enqueue_what_makes_sense() {
    let ports = ports();
    let client = BusClient::new(ports.bus.clone(), Channels::new("convoke"), ports.clock.clone());
    let unprocessable = spec("test").with(|job| job.unique_for = Some(Duration::from_secs(1)));
    let error = client.enqueue(vec![spec("test"), unprocessable]).await.expect_err("refused").to_string();
    assert!(error.starts_with("jobs[1].uniqueFor: "), "{error}");
    assert_eq!(ports.bus.backlog("convoke.job.enqueue", "any").await.expect("a count"), 0, "all or nothing");
    let job = JobId(uuid::Uuid::nil());
    for refused in [client.job(job, None).await, client.cancel(job, None).await, client.retry(job).await] {
        let error = refused.expect_err("refused").to_string();
        assert!(error.contains("expected an http:// or https:// address"), "{error}");
    }
}

/// The cluster expects a heartbeat every second, and the worker does not know it.
#[tokio::test(start_paused = true)]
async fn a_worker_over_the_bus_beats_as_often_as_the_cluster_expects() {
    let ports = Ports { clock: Arc::new(crate::common::TokioClock::default()), ..ports() };
    let mut settings = Settings::default();
    settings.worker.heartbeat_interval = Duration::from_secs(1);
    settings.worker.stale_after = Duration::from_secs(3);
    let coordinator = start(&ports, settings).await;
    let mut handlers = Handlers::default();
    handler("test", &mut handlers, |_| async {
        tokio::time::sleep(Duration::from_secs(600)).await;
        Ok(None)
    });
    let worker = Running::start(&ports, &Settings::default(), "w", handlers);
    let (job, _) = coordinator.enqueue(spec("test")).await.expect("enqueued");
    let job = ended(&coordinator, job.id).await;
    assert_eq!((job.status, job.attempt), (Status::Completed, 1), "its worker was never taken for dead");
    worker.drain().await;
    coordinator.stop().await;
}
