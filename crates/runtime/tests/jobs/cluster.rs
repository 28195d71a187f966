//! Several nodes on one store and one bus: who owns what, and how it changes hands.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{one, ports, quick, register, report, skewed, spec, until};
use convoke_adapters::memory::MemoryBus;
use convoke_core::jobs::channels::Channels;
use convoke_core::jobs::event::{ClusterEvent, NodeChange};
use convoke_core::jobs::link::{Event, EventKind};
use convoke_core::jobs::wire::{
    self, Dispatch, Handoff, HandoffAck, HandoffReason, StatusKind, StatusMessage, V1, WorkerHeartbeat, WorkerState,
};
use convoke_core::jobs::{Job, Ownership, Status};
use convoke_core::ports::{Bus, Consumer};
use convoke_core::{Error, JobId, NodeId, QueueName, WorkerId};
use convoke_runtime::jobs::{Coordinator, Ports, Settings};
use convoke_testkit::shared_bus::SharedBus;

fn fleet() -> Ports {
    Ports { bus: Arc::new(SharedBus(Arc::new(MemoryBus::default()))), ..ports() }
}

fn node(id: &str) -> NodeId {
    NodeId::new(id).expect("a name")
}

fn settings() -> Settings {
    let mut settings = quick();
    // Workers here send one heartbeat, by hand.
    settings.worker.stale_after = Duration::from_secs(60);
    let cluster = &mut settings.cluster;
    cluster.heartbeat_interval = Duration::from_millis(40);
    cluster.dead_node_timeout = Duration::from_millis(1_500);
    cluster.lease_duration = Duration::from_millis(1_500);
    cluster.renew_interval = Duration::from_millis(100);
    cluster.orphan_check_interval = Duration::from_secs(3600);
    cluster.rebalance = false;
    cluster.handoff_ack_timeout = Duration::from_millis(150);
    cluster.handoff_max_retries = 2;
    cluster.handoff_orphan_wait = Duration::from_millis(80);
    cluster.handoff_hard_timeout = Duration::from_millis(2_500);
    settings
}

async fn join(ports: &Ports, id: &str, settings: Settings) -> Coordinator {
    let coordinator = Coordinator::start(node(id), ports.clone(), settings).await.expect("it starts");
    coordinator.ready().await;
    coordinator
}

/// A node in a runtime of its own, so that it can die without a message.
struct Mortal {
    runtime: Option<tokio::runtime::Runtime>,
}

impl Mortal {
    async fn join(ports: &Ports, id: &str, settings: Settings) -> Mortal {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let (ports, id) = (ports.clone(), id.to_owned());
        let started = runtime.spawn(async move { std::mem::forget(join(&ports, &id, settings).await) });
        started.await.expect("it starts");
        Mortal { runtime: Some(runtime) }
    }

    fn die(mut self) {
        self.runtime.take().expect("alive").shutdown_background();
    }
}

impl Drop for Mortal {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// A worker that uses the bus, by hand.
struct BusWorker {
    bus: Arc<dyn Bus>,
    channels: Channels,
    runs: Box<dyn Consumer>,
    slots: u32,
}

impl BusWorker {
    async fn join(ports: &Ports, slots: u32) -> BusWorker {
        let channels = Channels::new("convoke");
        let queue = QueueName::new("default").expect("a name");
        let runs = ports.bus.consumer(&channels.dispatch(&queue), "workers", "w").await.expect("a consumer");
        BusWorker { bus: ports.bus.clone(), channels, runs, slots }
    }

    async fn heartbeat(&self) {
        let heartbeat = WorkerHeartbeat {
            v: V1,
            worker_id: WorkerId::new("w").expect("a name"),
            queues: vec![QueueName::new("default").expect("a name")],
            running: 0,
            free: self.slots,
            state: WorkerState::Active,
            at: jiff::Timestamp::now(),
            name: None,
            concurrency: None,
            via: None,
            executions: None,
            inbox: None,
        };
        self.bus.publish(&self.channels.worker_heartbeat(), wire::encode(&heartbeat)).await.expect("published");
    }

    async fn take(&self, count: usize) -> Vec<Dispatch> {
        let mut runs = Vec::new();
        while runs.len() < count {
            // A heartbeat that was lost is followed by another.
            self.heartbeat().await;
            let taking = tokio::time::timeout(Duration::from_millis(50), self.runs.take(count - runs.len()));
            let Ok(taken) = taking.await else { continue };
            for delivery in taken.expect("runs") {
                self.runs.ack(&[delivery.id]).await.expect("ack");
                runs.push(serde_json::from_slice(&delivery.body).expect("a dispatch"));
            }
        }
        runs
    }

    async fn report(&self, run: &Dispatch, kind: StatusKind) {
        let message = StatusMessage {
            v: V1,
            job_id: run.job_id,
            execution_id: run.execution_id,
            worker_id: WorkerId::new("w").expect("a name"),
            kind,
            at: jiff::Timestamp::now(),
            started_at: None,
            percent: None,
            message: None,
            result: None,
            error: None,
            retry: None,
        };
        self.bus.push(vec![(self.channels.status(run.job_id), wire::encode(&message))]).await.expect("pushed");
    }
}

/// `count` jobs that run on a bus worker and have an owner that is written down.
async fn run_jobs(ports: &Ports, leader: &Coordinator, count: usize) -> (BusWorker, Vec<Dispatch>) {
    let worker = BusWorker::join(ports, count as u32).await;
    for _ in 0..count {
        leader.enqueue(spec()).await.expect("it is enqueued");
    }
    let runs = worker.take(count).await;
    for run in &runs {
        worker.report(run, StatusKind::Started).await;
    }
    for run in &runs {
        until(leader, run.job_id, |job| job.status == Status::Running && job.ownership == Ownership::Owned).await;
    }
    (worker, runs)
}

async fn owned_by(coordinator: &Coordinator, job: JobId, owner: &str) -> Job {
    until(coordinator, job, |job| job.owner_node == Some(node(owner)) && job.ownership == Ownership::Owned).await
}

/// Waits until a node is shown in this state.
async fn becomes(coordinator: &Coordinator, id: &str, state: wire::NodeState) {
    while coordinator.node_view(&node(id)).await.expect("it is listed").state != state {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn leads(coordinator: &Coordinator) {
    while !coordinator.cluster().is_me {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_drains_hands_every_run_over_and_goes_cleanly() {
    let ports = fleet();
    let first = join(&ports, "a", settings()).await;
    let (worker, runs) = run_jobs(&ports, &first, 20).await;
    let second = join(&ports, "b", settings()).await;
    assert!(first.hand_over().await, "each run was acknowledged");
    for run in &runs {
        let job = first.job(run.job_id, None).await.expect("it is there");
        assert_eq!((job.owner_node, job.ownership), (Some(node("b")), Ownership::Owned));
        assert_eq!((job.execution_id, job.attempt), (Some(run.execution_id), 1), "the same run goes on");
    }
    leads(&second).await;
    first.stop().await;
    for run in &runs {
        worker.report(run, StatusKind::Completed).await;
        until(&second, run.job_id, |job| job.status == Status::Completed).await;
    }
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_ends_at_the_gateway_of_a_node_that_has_handed_it_over_is_recorded_as_that_nodes() {
    let ports = fleet();
    let first = join(&ports, "a", settings()).await;
    register(&first, "w", 1).await;
    let id = first.enqueue(spec()).await.expect("enqueued").0.id;
    let (job, execution, _) = one(&first, "w").await;
    assert_eq!(job, id);
    owned_by(&first, id, "a").await;
    let second = join(&ports, "b", settings()).await;
    assert!(first.hand_over().await, "the run was acknowledged");
    owned_by(&first, id, "b").await;
    let ended = Event::new(id, execution, EventKind::Completed);
    assert_eq!(report(&first, "w", vec![ended]).await, (1, 0));
    let job = until(&first, id, |job| job.status == Status::Completed).await;
    assert_eq!(job.owner_node, Some(node("a")), "the node that recorded it");
    first.stop().await;
    second.stop().await;
}

fn as_orchestrix() -> Settings {
    let mut settings = settings();
    settings.bus.seed_format = true;
    settings
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_with_and_without_the_format_of_orchestrix_hand_runs_over_to_each_other() {
    for (former, next) in [(as_orchestrix(), settings()), (settings(), as_orchestrix())] {
        let ports = fleet();
        let first = join(&ports, "a", former).await;
        let (worker, runs) = run_jobs(&ports, &first, 5).await;
        let second = join(&ports, "b", next).await;
        assert!(first.hand_over().await, "each run was acknowledged");
        leads(&second).await;
        first.stop().await;
        for run in &runs {
            owned_by(&second, run.job_id, "b").await;
            worker.report(run, StatusKind::Completed).await;
            until(&second, run.job_id, |job| job.status == Status::Completed).await;
        }
        second.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_the_format_of_orchestrix_its_own_keys_are_on_the_channels() {
    let ports = fleet();
    let channels = Channels::new("convoke");
    let mut heartbeats = ports.bus.subscribe(&[channels.coordinator_heartbeat()]).await.expect("subscribed");
    let assigned = ports.bus.consumer(&channels.assigned(), "watchers", "x").await.expect("a consumer");
    let offers = ports.bus.consumer(&channels.handoff(), "watchers", "x").await.expect("a consumer");
    let first = join(&ports, "a", as_orchestrix()).await;
    let (_, runs) = run_jobs(&ports, &first, 2).await;
    let second = join(&ports, "b", as_orchestrix()).await;
    let mut acks = ports.bus.subscribe(&[channels.handoff_ack(&node("a"))]).await.expect("subscribed");
    assert!(first.hand_over().await);
    let json = |body: &[u8]| serde_json::from_slice::<serde_json::Value>(body).expect("JSON");
    let heartbeat = json(&heartbeats.next().await.expect("a heartbeat").expect("none was missed").body);
    assert_eq!((&heartbeat["NodeId"], heartbeat["JobCount"].as_u64()), (&serde_json::json!("a"), Some(0)));
    assert!(heartbeat["Timestamp"].is_string() && heartbeat.get("nodeId").is_none(), "{heartbeat}");
    for _ in &runs {
        let entry = json(&assigned.take(1).await.expect("an entry")[0].body);
        let run = runs.iter().find(|run| entry["JobId"] == run.job_id.to_string()).expect("one of the runs");
        assert_eq!(entry["HistoryId"], run.execution_id.to_string());
        let offer = json(&offers.take(1).await.expect("an entry")[0].body);
        assert_eq!(offer["Reason"], "Shutdown", "{offer}");
        let ack = json(&acks.next().await.expect("an ack").expect("none was missed").body);
        assert_eq!(ack["NewOwner"], "b", "{ack}");
    }
    first.stop().await;
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_offer_that_names_no_owner_takes_nothing_from_one_that_lives_and_all_from_one_that_gave_up() {
    let ports = fleet();
    let first = join(&ports, "a", settings()).await;
    let (_, runs) = run_jobs(&ports, &first, 1).await;
    let second = join(&ports, "b", settings()).await;
    let job = runs[0].job_id;
    let channel = Channels::new("convoke").handoff();
    let offer = || async {
        let offer = format!(r#"{{"JobId":"{job}","Reason":"NodeCrash"}}"#);
        ports.bus.push(vec![(channel.clone(), offer.into())]).await.expect("pushed");
        while ports.bus.backlog(&channel, "coordinators").await.expect("backlog") > 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    for _ in 0..10 {
        offer().await;
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    let shown = second.job(job, None).await.expect("it is there");
    assert_eq!((shown.owner_node, shown.ownership), (Some(node("a")), Ownership::Owned), "its owner lives");
    let orphan = convoke_core::ports::store::Reassign {
        job,
        execution: runs[0].execution_id,
        from: node("a"),
        to: convoke_core::ports::store::Handover::Orphan,
    };
    ports.store.reassign(vec![orphan]).await.expect("reassigned");
    while second.job(job, None).await.expect("it is there").ownership != Ownership::Owned {
        offer().await;
    }
    first.stop().await;
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_said_while_a_run_changes_hands_is_recorded_once() {
    let ports = fleet();
    let first = join(&ports, "a", settings()).await;
    let (worker, runs) = run_jobs(&ports, &first, 50).await;
    let second = join(&ports, "b", settings()).await;
    let (clean, ()) = tokio::join!(first.hand_over(), async {
        for run in &runs {
            worker.report(run, StatusKind::Completed).await;
        }
    });
    assert!(clean);
    first.stop().await;
    for run in &runs {
        until(&second, run.job_id, |job| job.status == Status::Completed).await;
        assert_eq!(second.store().history(run.job_id, 0, 10).await.expect("a history").runs.len(), 1);
    }
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_is_alone_goes_at_once_and_reads_its_runs_back_when_it_returns() {
    let ports = fleet();
    let first = join(&ports, "a", settings()).await;
    let (worker, runs) = run_jobs(&ports, &first, 5).await;
    assert!(first.hand_over().await);
    first.stop().await;
    for run in &runs {
        worker.report(run, StatusKind::Completed).await;
    }
    let again = join(&ports, "a", settings()).await;
    for run in &runs {
        until(&again, run.job_id, |job| job.status == Status::Completed).await;
    }
    again.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_runs_of_a_node_that_died_are_handed_to_the_living() {
    let ports = fleet();
    let leader = join(&ports, "b", settings()).await;
    let mortal = Mortal::join(&ports, "a", settings()).await;
    let (worker, runs) = run_jobs(&ports, &leader, 40).await;
    mortal.die();
    for run in &runs {
        owned_by(&leader, run.job_id, "b").await;
        worker.report(run, StatusKind::Completed).await;
        let job = until(&leader, run.job_id, |job| job.status == Status::Completed).await;
        assert_eq!(job.attempt, 1);
    }
    becomes(&leader, "a", wire::NodeState::Dead).await;
    leader.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_leader_dies_another_leads_and_takes_over_its_runs() {
    let ports = fleet();
    let mortal = Mortal::join(&ports, "a", settings()).await;
    let second = join(&ports, "b", settings()).await;
    let (worker, runs) = run_jobs(&ports, &second, 10).await;
    let before = second.cluster().epoch;
    mortal.die();
    leads(&second).await;
    assert!(second.cluster().epoch > before);
    for run in &runs {
        owned_by(&second, run.job_id, "b").await;
        worker.report(run, StatusKind::Completed).await;
        until(&second, run.job_id, |job| job.status == Status::Completed).await;
    }
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_whose_clock_is_wrong_by_minutes_declares_no_beating_node_dead() {
    for minutes in [5, -5] {
        let ports = fleet();
        let leader = join(&skewed(&ports, minutes), "a", settings()).await;
        let mut events = leader.events();
        let follower = join(&ports, "b", settings()).await;
        assert!(leader.cluster().is_me);
        let mut heartbeats = std::collections::HashSet::new();
        // The leader searches for dead nodes once in six heartbeats.
        while heartbeats.len() < 40 {
            let nodes = leader.store().nodes().await.expect("nodes");
            heartbeats.extend(nodes.iter().filter(|it| it.node_id == node("b")).map(|it| it.last_heartbeat_at));
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        while let Ok(event) = events.try_recv() {
            let is_dead = matches!(event.what, ClusterEvent::Node { change: NodeChange::Dead, .. });
            assert!(!is_dead, "{minutes} minutes off: {event:?}");
        }
        follower.stop().await;
        leader.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_died_is_found_however_wrong_its_clock_was() {
    for minutes in [5, -5] {
        let ports = fleet();
        let leader = join(&ports, "b", settings()).await;
        let mortal = Mortal::join(&skewed(&ports, minutes), "a", settings()).await;
        let (worker, runs) = run_jobs(&ports, &leader, 10).await;
        mortal.die();
        for run in &runs {
            owned_by(&leader, run.job_id, "b").await;
            worker.report(run, StatusKind::Completed).await;
            until(&leader, run.job_id, |job| job.status == Status::Completed).await;
        }
        becomes(&leader, "a", wire::NodeState::Dead).await;
        leader.stop().await;
    }
}

/// A node that is in the registry and takes offers as it likes: what is on the wire, seen from the other side.
struct Puppet {
    bus: Arc<dyn Bus>,
    channels: Channels,
    offers: Box<dyn Consumer>,
    ports: Ports,
}

impl Puppet {
    async fn join(ports: &Ports) -> Puppet {
        let channels = Channels::new("convoke");
        let offers = ports.bus.consumer(&channels.handoff(), "coordinators", "puppet").await.expect("a consumer");
        let puppet = Puppet { bus: ports.bus.clone(), channels, offers, ports: ports.clone() };
        puppet.heartbeat().await;
        puppet
    }

    async fn heartbeat(&self) {
        let now = jiff::Timestamp::now();
        let record = convoke_core::ports::store::NodeRecord {
            node_id: node("puppet"),
            role: wire::NodeRole::Follower,
            state: wire::NodeState::Active,
            since: now,
            job_count: 0,
            started_at: now,
            last_heartbeat_at: now,
            version: "0".into(),
        };
        self.ports.store.record_node_heartbeat(record).await.expect("the heartbeat is recorded");
    }

    async fn heartbeat_for_ever(&self) {
        loop {
            self.heartbeat().await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn next(&self) -> Handoff {
        let delivery = self.offers.take(1).await.expect("an offer").pop().expect("one");
        self.offers.ack(&[delivery.id]).await.expect("ack");
        serde_json::from_slice(&delivery.body).expect("a handoff")
    }

    async fn acknowledge(&self, offer: &Handoff) {
        let ack = HandoffAck { v: V1, job_id: offer.job_id, new_owner: node("puppet") };
        let topic = self.channels.handoff_ack(offer.from_node.as_ref().expect("it names the node that offers"));
        self.bus.publish(&topic, wire::encode(&ack)).await.expect("published");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_offer_that_is_not_acknowledged_is_made_again_until_it_is() {
    let ports = fleet();
    let first = join(&ports, "a", settings()).await;
    run_jobs(&ports, &first, 1).await;
    let puppet = Puppet::join(&ports).await;
    let responses = async {
        for tries in 1..=3 {
            let offer = puppet.next().await;
            assert_eq!(
                (offer.tries, offer.reason, offer.from_node.as_ref()),
                (tries, HandoffReason::Shutdown, Some(&node("a")))
            );
            if tries == 3 {
                puppet.acknowledge(&offer).await;
            }
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        clean = first.hand_over() => assert!(clean),
        () = responses => {}
        () = puppet.heartbeat_for_ever() => {}
    }
    first.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_nobody_acknowledges_is_left_as_an_orphan_and_found_by_the_next_leader() {
    let ports = fleet();
    let first = join(&ports, "a", settings()).await;
    let (worker, runs) = run_jobs(&ports, &first, 1).await;
    let puppet = Puppet::join(&ports).await;
    let offers = async {
        for tries in 1..=3 {
            assert_eq!(puppet.next().await.tries, tries);
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        clean = first.hand_over() => assert!(!clean, "an orphan was left"),
        () = offers => {}
        () = puppet.heartbeat_for_ever() => {}
    }
    let job = first.job(runs[0].job_id, None).await.expect("it is there");
    assert_eq!((job.ownership, job.owner_node), (Ownership::OrphanPending, Some(node("a"))));
    first.stop().await;
    let mut settings = settings();
    settings.cluster.orphan_check_interval = Duration::from_millis(30);
    let second = join(&ports, "b", settings).await;
    owned_by(&second, runs[0].job_id, "b").await;
    worker.report(&runs[0], StatusKind::Completed).await;
    until(&second, runs[0].job_id, |job| job.status == Status::Completed).await;
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_all_others_dead_a_node_waits_for_one_to_return_and_then_goes() {
    let ports = fleet();
    let mut patient = settings();
    // Nobody strikes the silent node off while this one waits for it.
    patient.cluster.dead_node_timeout = Duration::from_millis(100);
    let first = join(&ports, "a", patient).await;
    let (_, runs) = run_jobs(&ports, &first, 1).await;
    let puppet = Puppet::join(&ports).await;
    let (clean, ()) = tokio::join!(first.hand_over(), async {
        assert_eq!(puppet.next().await.tries, 1);
    });
    assert!(!clean);
    let job = first.job(runs[0].job_id, None).await.expect("it is there");
    assert_eq!(job.ownership, Ownership::OrphanPending);
    first.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_all_drain_do_not_wait_for_each_other() {
    let ports = fleet();
    let mut slow = settings();
    slow.cluster.handoff_ack_timeout = Duration::from_secs(600);
    slow.cluster.handoff_hard_timeout = Duration::from_secs(600);
    let (first, second) = (join(&ports, "a", slow.clone()).await, join(&ports, "b", slow).await);
    run_jobs(&ports, &first, 10).await;
    tokio::join!(first.hand_over(), second.hand_over());
    first.stop().await;
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_with_far_more_than_its_share_gives_half_the_difference_away() {
    let ports = fleet();
    let mut balancing = settings();
    balancing.cluster.rebalance = true;
    let first = join(&ports, "a", balancing.clone()).await;
    let (worker, runs) = run_jobs(&ports, &first, 60).await;
    let second = join(&ports, "b", balancing).await;
    loop {
        let mut counts = (0, 0);
        for run in &runs {
            let job = first.job(run.job_id, None).await.expect("it is there");
            counts.0 += usize::from(job.owner_node == Some(node("a")));
            counts.1 += usize::from(job.owner_node == Some(node("b")));
        }
        if counts == (30, 30) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for run in &runs {
        worker.report(run, StatusKind::Completed).await;
        until(&second, run.job_id, |job| job.status == Status::Completed).await;
    }
    first.stop().await;
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_stops_is_followed_at_once() {
    let ports = fleet();
    let mut patient = settings();
    patient.cluster.lease_duration = Duration::from_secs(600);
    patient.cluster.renew_interval = Duration::from_secs(200);
    let (first, second) = (join(&ports, "a", patient.clone()).await, join(&ports, "b", patient).await);
    assert!(first.cluster().is_me && !second.cluster().is_me);
    first.hand_over().await;
    // By the lease alone it would take minutes.
    leads(&second).await;
    first.stop().await;
    second.stop().await;
}

#[tokio::test]
async fn a_bus_in_the_process_refuses_to_join_a_store_that_others_use() {
    let ports = fleet();
    let first = join(&ports, "a", settings()).await;
    let alone = Ports { bus: Arc::new(MemoryBus::default()), ..ports.clone() };
    let refused = Coordinator::start(node("b"), alone, settings()).await.err().expect("refused");
    assert!(matches!(&refused, Error::Invalid(invalid) if invalid.field == "bus.url"), "{refused:?}");
    assert!(refused.to_string().contains("node a uses this store too"), "{refused}");
    first.stop().await;
}
