//! Timeouts where the clocks of workers and nodes are minutes apart: a run has its whole time, and no more than that for long.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{TokioClock, one, register, report, shared_ports, spec, until, worker};
use convoke_core::jobs::channels::Channels;
use convoke_core::jobs::link::{Event, EventKind, Heartbeat, Poll, Register, Report, WorkerLink};
use convoke_core::jobs::{JobSpec, Status};
use convoke_core::ports::Clock;
use convoke_core::{ExecutionId, JobId, NodeId, QueueName};
use convoke_runtime::jobs::worker::{BusLink, BusLinkSettings};
use convoke_runtime::jobs::{Coordinator, Ports, Settings};

const TIMEOUT: Duration = Duration::from_secs(30);
/// Within the timeout.
const SOON: Duration = Duration::from_secs(20);
/// The timeout and the difference of any two clocks here, twice.
const LATE: Duration = Duration::from_secs(250);
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(5);

async fn join(ports: &Ports, id: &str, clock: Arc<TokioClock>) -> Coordinator {
    let mut settings = Settings::default();
    // Whether a node lives is not the question here.
    settings.cluster.dead_node_timeout = Duration::from_secs(3600);
    let (node, ports) = (NodeId::new(id).expect("a name"), Ports { clock, ..ports.clone() });
    let node = Coordinator::start(node, ports, settings).await.expect("it starts");
    node.ready().await;
    node
}

fn timed() -> JobSpec {
    spec().with(|job| {
        job.timeout = Some(TIMEOUT);
        job.max_retries = Some(0);
    })
}

/// A worker that sends heartbeats, over the bus or by a gateway.
struct LiveWorker<'a> {
    link: &'a dyn WorkerLink,
    run: ExecutionId,
}

impl LiveWorker<'_> {
    async fn go_on(&self, node: &Coordinator, job: JobId, time: Duration, until: Status) -> Status {
        let mut status = node.job(job, None).await.expect("it is there").status;
        for _ in 0..time.as_secs() / HEARTBEAT_INTERVAL.as_secs() {
            if status == until {
                break;
            }
            let heartbeat = Heartbeat { worker_id: worker("w"), running: vec![self.run], draining: false };
            self.link.heartbeat(heartbeat).await.expect("the heartbeat is received");
            tokio::time::sleep(HEARTBEAT_INTERVAL).await;
            status = node.job(job, None).await.expect("it is there").status;
        }
        status
    }

    /// Runs on and on.
    async fn is_ended_in_time(&self, node: &Coordinator, job: JobId) {
        assert_eq!(self.go_on(node, job, SOON, Status::TimedOut).await, Status::Running, "it has its whole time");
        assert_eq!(self.go_on(node, job, LATE, Status::TimedOut).await, Status::TimedOut, "and no more");
    }
}

async fn start_over_the_bus(
    ports: &Ports,
    clock: Arc<TokioClock>,
    node: &Coordinator,
) -> (BusLink, JobId, ExecutionId) {
    let link = BusLink::new(ports.bus.clone(), Channels::new("convoke"), clock, BusLinkSettings::default());
    let queues = vec![QueueName::new("default").expect("a name")];
    let register = Register { worker_id: Some(worker("w")), name: None, queues, concurrency: 1 };
    link.register(register).await.expect("it registers");
    let job = node.enqueue(timed()).await.expect("enqueued").0.id;
    let poll = Poll { worker_id: worker("w"), max: 1, wait: Duration::from_secs(30) };
    let run = link.poll(poll).await.expect("a run").jobs.remove(0).execution_id;
    let events = vec![Event::new(job, run, EventKind::Started)];
    link.report(Report { worker_id: worker("w"), events }).await.expect("the bus has it");
    until(node, job, |job| job.status != Status::Dispatched).await;
    (link, job, run)
}

#[tokio::test(start_paused = true)]
async fn a_bus_worker_whose_clock_is_off_has_its_whole_timeout() {
    for seconds in [-60, 60] {
        let (clock, ports) = (TokioClock::default(), shared_ports());
        let node = join(&ports, "a", clock.ahead(0)).await;
        let (link, job, run) = start_over_the_bus(&ports, clock.ahead(seconds), &node).await;
        let shown = node.job(job, None).await.expect("it is there");
        assert!(shown.started_at.is_some_and(|at| at <= clock.now()), "{shown:?}");
        LiveWorker { link: &link, run }.is_ended_in_time(&node, job).await;
        node.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_clock_is_off_leaves_runs_their_whole_timeout() {
    for seconds in [-90, 90] {
        let (clock, ports) = (TokioClock::default(), shared_ports());
        let leader = join(&ports, "a", clock.ahead(seconds)).await;
        let follower = join(&ports, "b", clock.ahead(0)).await;
        assert!(leader.cluster().is_me);
        register(&follower, "w", 1).await;
        let job = follower.enqueue(timed()).await.expect("enqueued").0.id;
        let (_, run, _) = one(&follower, "w").await;
        report(&follower, "w", vec![Event::new(job, run, EventKind::Started)]).await;
        LiveWorker { link: &follower, run }.is_ended_in_time(&follower, job).await;
        follower.stop().await;
        leader.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_whose_clock_is_off_leaves_runs_their_whole_timeout() {
    for seconds in [-90, 90] {
        let (clock, ports) = (TokioClock::default(), shared_ports());
        let leader = join(&ports, "a", clock.ahead(0)).await;
        let next = join(&ports, "b", clock.ahead(seconds)).await;
        let (link, job, run) = start_over_the_bus(&ports, clock.ahead(0), &leader).await;
        leader.stop().await;
        while !next.cluster().is_me {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        LiveWorker { link: &link, run }.is_ended_in_time(&next, job).await;
        next.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_clock_is_set_leaves_runs_their_whole_timeout() {
    for seconds in [-90, 90] {
        let (clock, ports) = (TokioClock::default().ahead(0), shared_ports());
        let node = join(&ports, "a", clock.clone()).await;
        let (link, job, run) = start_over_the_bus(&ports, clock.ahead(0), &node).await;
        clock.set_ahead(seconds);
        LiveWorker { link: &link, run }.is_ended_in_time(&node, job).await;
        node.stop().await;
    }
}
