//! A worker of several queues takes as many runs as it has room for, whichever of its queues they are in. The others are
//! for workers elsewhere: on the bus they stay there, and to the node of a gateway no more are sent than its workers take.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{ports, quick, shared_ports, spec, until, worker};
use convoke_adapters::redis::RedisBus;
use convoke_core::jobs::Status;
use convoke_core::jobs::channels::Channels;
use convoke_core::jobs::link::{Poll, Register, WorkerLink};
use convoke_core::ports::Bus;
use convoke_core::{ExecutionId, JobId, NodeId, QueueName};
use convoke_runtime::jobs::worker::{BusLink, BusLinkSettings};
use convoke_runtime::jobs::{Coordinator, Ports, Settings};
use convoke_testkit::process::RedisServer;

const QUEUES: [&str; 5] = ["a", "b", "c", "d", "e"];
/// Nothing here takes long: whoever waits for so long waits for ever.
const PATIENCE: Duration = Duration::from_secs(20);

fn queues() -> Vec<QueueName> {
    QUEUES.iter().map(|name| QueueName::new(*name).expect("a name")).collect()
}

/// Nobody is stale and nothing is dispatched a second time: what is hidden stays hidden.
fn patient() -> Settings {
    let mut settings = quick();
    settings.worker.stale_after = Duration::from_secs(3_600);
    settings
}

async fn start(id: &str, ports: Ports) -> Coordinator {
    let node = NodeId::new(id).expect("a name");
    let coordinator = Coordinator::start(node, ports, patient()).await.expect("it starts");
    coordinator.ready().await;
    coordinator
}

async fn register(link: &dyn WorkerLink, id: &str, concurrency: u32) {
    let register = Register { worker_id: Some(worker(id)), name: None, queues: queues(), concurrency };
    link.register(register).await.expect("it registers");
}

async fn poll(link: &dyn WorkerLink, id: &str, max: usize) -> Vec<(JobId, ExecutionId)> {
    let poll = Poll { worker_id: worker(id), max, wait: Duration::from_secs(1) };
    let polled = link.poll(poll).await.expect("a poll returns");
    polled.jobs.iter().map(|job| (job.job_id, job.execution_id)).collect()
}

/// `busy` has one slot and polls once. `idle`, elsewhere, must get all that it left.
async fn the_rest_is_for_others(leader: &Coordinator, busy: &dyn WorkerLink, idle: &dyn WorkerLink) {
    register(busy, "busy", 1).await;
    register(idle, "idle", 10).await;
    let mut dispatched = BTreeSet::new();
    for queue in queues() {
        let spec = spec().with(|job| job.queue = Some(queue));
        let id = leader.enqueue(spec).await.expect("it is enqueued").0.id;
        let job = until(leader, id, |job| job.status == Status::Dispatched).await;
        dispatched.insert((id, job.execution_id.expect("its run")));
    }
    let mut taken: BTreeSet<_> = poll(busy, "busy", 1).await.into_iter().collect();
    assert_eq!(taken.len(), 1, "it has one slot");
    let rest = async {
        while taken.len() < QUEUES.len() {
            taken.extend(poll(idle, "idle", 10).await);
        }
    };
    tokio::time::timeout(PATIENCE, rest).await.expect("what the busy worker did not take is there for the idle one");
    assert_eq!(taken, dispatched, "each as it was dispatched");
}

/// Returns the reply of Redis to this command.
async fn asked<T: redis::FromRedisValue>(server: &RedisServer, arguments: &[&str]) -> T {
    let client = redis::Client::open(server.url()).expect("an address");
    let mut connection = client.get_multiplexed_async_connection().await.expect("a connection");
    redis::cmd(arguments[0]).arg(&arguments[1..]).query_async(&mut connection).await.expect("a response")
}

async fn consumers(server: &RedisServer, queue: &str) -> usize {
    let channel = format!("convoke.job.dispatch.{queue}");
    asked::<Vec<redis::Value>>(server, &["XINFO", "CONSUMERS", &channel, "workers"]).await.len()
}

async fn redis_bus(server: &RedisServer) -> Arc<dyn Bus> {
    Arc::new(RedisBus::connect(&server.url(), Channels::new("convoke")).await.expect("connects"))
}

fn bus_link(ports: &Ports) -> BusLink {
    let settings = BusLinkSettings { heartbeat_interval: Duration::from_millis(50), stale_after: PATIENCE * 100 };
    BusLink::new(ports.bus.clone(), Channels::new("convoke"), ports.clock.clone(), settings)
}

/// `busy` has one slot for all its queues. `idle`, at another node, comes later and must get the rest.
async fn a_slot_is_filled_once(one: &Coordinator, two: &Coordinator) {
    register(one, "busy", 1).await;
    let mut jobs = BTreeSet::new();
    for queue in queues() {
        jobs.insert(one.enqueue(spec().with(|job| job.queue = Some(queue))).await.expect("it is enqueued").0.id);
    }
    let count = async |status| {
        let mut count = 0;
        for id in &jobs {
            count += usize::from(one.job(*id, None).await.expect("it is there").status == status);
        }
        count
    };
    let sent = async {
        while count(Status::Dispatched).await == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, sent).await.expect("it has a slot");
    assert_eq!(count(Status::Pending).await, QUEUES.len() - 1, "it has no other");
    register(two, "idle", 10).await;
    let mut taken: BTreeSet<JobId> = BTreeSet::new();
    let rest = async {
        while taken.len() < QUEUES.len() - 1 {
            taken.extend(poll(two, "idle", 10).await.into_iter().map(|(job, _)| job));
        }
        while taken.len() < QUEUES.len() {
            taken.extend(poll(one, "busy", 1).await.into_iter().map(|(job, _)| job));
        }
    };
    tokio::time::timeout(PATIENCE, rest).await.expect("the rest is there for the idle worker");
    assert_eq!(taken, jobs);
}

#[tokio::test]
async fn a_gateway_is_sent_what_its_workers_take_over_the_memory_bus() {
    let ports = shared_ports();
    let (one, two) = (start("n1", ports.clone()).await, start("n2", ports).await);
    a_slot_is_filled_once(&one, &two).await;
}

#[tokio::test]
async fn a_gateway_is_sent_what_its_workers_take_over_redis() {
    let (server, ports) = (RedisServer::start().await, ports());
    let one = start("n1", Ports { bus: redis_bus(&server).await, ..ports.clone() }).await;
    let two = start("n2", Ports { bus: redis_bus(&server).await, ..ports }).await;
    a_slot_is_filled_once(&two, &one).await;
}

#[tokio::test]
async fn a_worker_on_the_memory_bus_leaves_the_rest() {
    let ports = shared_ports();
    let node = start("n1", ports.clone()).await;
    the_rest_is_for_others(&node, &bus_link(&ports), &bus_link(&ports)).await;
}

#[tokio::test]
async fn a_worker_on_redis_leaves_the_rest() {
    let (server, ports) = (RedisServer::start().await, ports());
    let node = start("n1", Ports { bus: redis_bus(&server).await, ..ports.clone() }).await;
    let busy = bus_link(&Ports { bus: redis_bus(&server).await, ..ports.clone() });
    let idle = bus_link(&Ports { bus: redis_bus(&server).await, ..ports });
    the_rest_is_for_others(&node, &busy, &idle).await;
}

/// Its runs come by the inbox of its node: the queue has no channel on the bus.
#[tokio::test]
async fn a_gateway_reads_no_dispatch_queue_and_leaves_its_inbox_when_it_stops() {
    let (server, ports) = (RedisServer::start().await, ports());
    let one = start("n1", Ports { bus: redis_bus(&server).await, ..ports.clone() }).await;
    let two = start("n2", Ports { bus: redis_bus(&server).await, ..ports }).await;
    for (node, worker) in [(&one, "w1"), (&two, "w2")] {
        register(node, worker, 1).await;
        let queue = queues().into_iter().next();
        one.enqueue(spec().with(|job| job.queue = queue)).await.expect("it is enqueued");
        let polls = async { while poll(node, worker, 1).await.is_empty() {} };
        tokio::time::timeout(PATIENCE, polls).await.expect("it is given a run");
    }
    let channel = format!("convoke.job.dispatch.{}", QUEUES[0]);
    assert_eq!(asked::<u64>(&server, &["EXISTS", &channel]).await, 0);
    for node in [one, two] {
        node.stop().await;
        let inbox = format!("convoke.job.inbox.{}", node.node_id());
        let names: Vec<redis::Value> = asked(&server, &["XINFO", "CONSUMERS", &inbox, "coordinators"]).await;
        assert!(names.is_empty(), "{names:?}");
    }
}

/// No other worker uses the bus: without a leader that checks, no worker would take the entry over.
#[tokio::test]
async fn the_leader_takes_over_what_a_dead_worker_on_the_bus_was_given_and_keeps_its_name_until_then() {
    let (server, ports) = (RedisServer::start().await, ports());
    let mut settings = patient();
    settings.worker.stale_after = Duration::from_secs(2);
    let node = NodeId::new("n1").expect("a name");
    let bus = redis_bus(&server).await;
    let node = Coordinator::start(node, Ports { bus, ..ports.clone() }, settings).await.expect("it starts");
    node.ready().await;
    let dead = bus_link(&Ports { bus: redis_bus(&server).await, ..ports });
    register(&dead, "dead", 5).await;
    let (job, _) = node.enqueue(spec().with(|job| job.queue = queues().pop())).await.expect("it is enqueued");
    let taken = async { while poll(&dead, "dead", 1).await.is_empty() {} };
    tokio::time::timeout(PATIENCE, taken).await.expect("it is dispatched");
    drop(dead);
    assert_eq!(consumers(&server, QUEUES[4]).await, 1, "with its name the entry would be lost");
    register(&node, "w", 1).await;
    let reclaimed = async {
        loop {
            if let Some((id, _)) = poll(&node, "w", 1).await.pop() {
                break id;
            }
        }
    };
    let id = tokio::time::timeout(PATIENCE, reclaimed).await.expect("it is taken over");
    assert_eq!(id, job.id);
    let channel = format!("convoke.job.dispatch.{}", QUEUES[4]);
    let acknowledged = async {
        loop {
            let (pending, ..): (u64, redis::Value, redis::Value, redis::Value) =
                asked(&server, &["XPENDING", &channel, "workers"]).await;
            if pending == 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, acknowledged).await.expect("the dead worker's entry is taken over, and done with");
}
