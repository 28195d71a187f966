//! The shard coordinator and its workers over sockets in memory, in paused time.

use std::sync::Arc;
use std::time::Duration;

use convoke_adapters::memory::{MemoryRouting, MemoryStore, SystemClock};
use convoke_core::jobs::event::ClusterEvent;
use convoke_core::ports::router::{Dealer, DealerConnecting};
use convoke_core::ports::store::EpochStore;
use convoke_core::shards::coordinator::Settings;
use convoke_core::shards::wire::{self, Assignment, CoordinatorMessage};
use convoke_core::shards::{Shard, Strategy};
use convoke_core::{Epoch, NodeId, ServiceName};
use convoke_runtime::election::{EventSink, Term};
use convoke_runtime::jobs::Coordinator;
use convoke_runtime::shards::{
    Changes, ServiceStatus, ShardWorker, ShardsDuty, ShardsState, ShardsView, WorkerOptions,
};
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

const ADDRESS: &str = "memory://shards";
const TIMEOUT: Duration = Duration::from_secs(15);

fn service() -> ServiceName {
    ServiceName::new("s").expect("a name")
}

/// One term of a coordinator.
struct Leader {
    term: Term,
    view: ShardsView,
    events: Arc<Mutex<Vec<ClusterEvent>>>,
    task: JoinHandle<()>,
}

impl Leader {
    async fn start(network: &MemoryRouting, epoch: u64) -> Leader {
        Leader::with(network, epoch, ADDRESS, Settings::default()).await
    }

    async fn with(network: &MemoryRouting, epoch: u64, address: &str, settings: Settings) -> Leader {
        let duty = ShardsDuty::new(Arc::new(network.binding(address)), settings, true, Arc::new(SystemClock));
        let view = duty.view();
        let certain_until = Instant::now() + Duration::from_secs(86_400);
        let fence = MemoryStore::new().seal(Epoch(epoch)).await.expect("nothing is sealed yet");
        let term = Term::new(fence, certain_until);
        let events = Arc::new(Mutex::new(Vec::new()));
        let received = events.clone();
        let sink: EventSink = Arc::new(move |what| received.lock().push(what));
        let leading = term.clone();
        let task = tokio::spawn(async move { duty.lead(leading, sink, Arc::new(|_| {})).await });
        let mut state = view.watch();
        state.wait_for(|state| *state != ShardsState::Standby).await.expect("it runs");
        Leader { term, view, events, task }
    }

    async fn end(self) {
        self.term.end();
        self.task.await.expect("it ends");
        assert_eq!(self.view.services(), [], "a standby shows nothing");
    }

    fn status(&self) -> ServiceStatus {
        self.view.service(&service()).expect("the service is known")
    }

    fn rebalances(&self) -> usize {
        self.events.lock().iter().filter(|what| matches!(what, ClusterEvent::ShardsRebalanced { .. })).count()
    }
}

/// A worker as the original protocol has it.
struct Original {
    dealer: Box<dyn Dealer>,
    name: String,
}

impl Original {
    async fn connect(network: &MemoryRouting, name: &str) -> Original {
        Original { dealer: network.connect(ADDRESS).await.expect("it connects"), name: name.to_owned() }
    }

    async fn register(&mut self, max: u32) {
        let name = self.name.clone();
        self.send_text(format!(
            r#"{{"type":"register","data":{{"serviceName":"s","workerId":"{name}","maxShardCount":{max}}}}}"#
        ))
        .await;
    }

    async fn heartbeat(&mut self, max: u32, shards: &[Shard]) {
        let name = self.name.clone();
        self.send_text(format!(
            r#"{{"type":"heartbeat","data":{{"serviceName":"s","workerId":"{name}","maxShardCount":{max},"assignedShards":{shards:?}}}}}"#
        ))
        .await;
    }

    async fn send_text(&mut self, text: String) {
        self.dealer.send(text.into()).await.expect("it is sent");
    }

    async fn receive(&mut self) -> CoordinatorMessage {
        let frames =
            timeout(Duration::from_secs(60), self.dealer.receive()).await.expect("a response").expect("frames");
        wire::answer(&frames).expect("it can be read")
    }

    async fn assignment(&mut self) -> Assignment {
        match self.receive().await {
            CoordinatorMessage::Assignment(assignment) => assignment,
            other => panic!("expected an assignment, got {other:?}"),
        }
    }

    /// How many more messages there are within a second.
    async fn rest(&mut self) -> usize {
        let mut count = 0;
        while timeout(Duration::from_secs(1), self.dealer.receive()).await.is_ok() {
            count += 1;
        }
        count
    }
}

async fn join(network: &MemoryRouting, name: &str, max: u32, handoff: bool) -> ShardWorker {
    join_at(network, name, max, handoff, vec![ADDRESS.into()]).await
}

async fn join_at(network: &MemoryRouting, name: &str, max: u32, handoff: bool, addresses: Vec<String>) -> ShardWorker {
    let options = WorkerOptions { handoff, ..WorkerOptions::new("s", name, max) };
    ShardWorker::connect(Arc::new(network.clone()), addresses, options).await.expect("it starts")
}

/// Waits for something that comes with time.
async fn until(what: &str, is: impl Fn() -> bool) {
    let waiting = async {
        while !is() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(300), waiting).await.unwrap_or_else(|_| panic!("never: {what}"));
}

#[tokio::test(start_paused = true)]
async fn a_thousand_registrations_are_one_rebalance_and_a_thousand_messages_and_half_may_die() {
    let network = MemoryRouting::default();
    let leader = Leader::start(&network, 1).await;
    let mut workers = Vec::new();
    for n in 0..1_000 {
        workers.push(Original::connect(&network, &format!("w{n:04}")).await);
    }
    for worker in &mut workers {
        worker.register(10_000).await;
    }
    for (n, worker) in workers.iter_mut().enumerate() {
        let expected: Vec<Shard> = (n as Shard * 10..n as Shard * 10 + 10).collect();
        assert_eq!(worker.assignment().await.assigned_shards, expected);
    }
    assert_eq!(leader.rebalances(), 1);
    let dead = workers.split_off(500);
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_secs(7)).await;
        for worker in &mut workers {
            worker.heartbeat(10_000, &[]).await;
            assert_eq!(worker.assignment().await.assigned_shards.len(), 10);
        }
    }
    drop(dead);
    until("the rest own everything", || leader.status().workers.iter().filter(|it| it.active).count() == 500).await;
    let mut owned = 0;
    for worker in &mut workers {
        owned += worker.assignment().await.assigned_shards.len();
        assert_eq!(worker.rest().await, 0, "one message for one change");
    }
    assert_eq!((owned, leader.rebalances()), (10_000, 2));
    leader.end().await;
}

#[tokio::test(start_paused = true)]
async fn garbage_is_answered_and_harms_nobody() {
    let network = MemoryRouting::default();
    let leader = Leader::start(&network, 1).await;
    let mut worker = Original::connect(&network, "w").await;
    for text in ["", "nonsense", "{}", r#"{"type":"register","data":{"serviceName":"s"}}"#, "[[[[", "\u{0}"] {
        worker.send_text(text.into()).await;
        assert!(matches!(worker.receive().await, CoordinatorMessage::Error(_)), "{text:?}");
    }
    worker.register(2).await;
    assert_eq!(worker.assignment().await.assigned_shards, [0, 1]);
    leader.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_takeover_moves_nothing_and_its_versions_are_higher() {
    let network = MemoryRouting::default();
    let sticky = Settings { strategy: Strategy::Sticky, ..Settings::default() };
    let leader = Leader::with(&network, 1, ADDRESS, sticky.clone()).await;
    let mut workers = Vec::new();
    for name in ["c", "a", "b"] {
        let worker = join(&network, name, 10, name != "b").await;
        worker.ready().await;
        workers.push(worker);
    }
    until("all is owned", || workers.iter().map(|it| it.shards().len()).sum::<usize>() == 10).await;
    let before: Vec<Vec<Shard>> = workers.iter().map(ShardWorker::shards).collect();
    let version = workers[0].version();
    let mut changes: Vec<Changes> = workers.iter().map(ShardWorker::changes).collect();
    for (changes, before) in changes.iter_mut().zip(&before) {
        assert_eq!(changes.next().await.expect("news").added, *before);
        changes.done();
    }
    leader.end().await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let leader = Leader::with(&network, 2, ADDRESS, sticky).await;
    until("they are known again", || leader.view.service(&service()).is_some_and(|it| it.workers.len() == 3)).await;
    tokio::time::sleep(TIMEOUT * 2).await;
    assert_eq!(workers.iter().map(ShardWorker::shards).collect::<Vec<_>>(), before);
    assert!(workers.iter().all(|worker| worker.version() > version));
    for changes in &mut changes {
        assert!(timeout(Duration::from_secs(1), changes.next()).await.is_err(), "nothing changed for the application");
    }
    leader.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_shard_moves_when_the_application_has_let_go() {
    let network = MemoryRouting::default();
    let leader = Leader::start(&network, 1).await;
    let first = join(&network, "a", 4, true).await;
    let mut of_first = first.changes();
    assert_eq!(of_first.next().await.expect("news").added, [0, 1, 2, 3]);
    of_first.done();
    let second = join(&network, "b", 4, true).await;
    let change = of_first.next().await.expect("it is asked to release");
    assert_eq!((&change.removed[..], &change.shards[..]), (&[2, 3][..], &[0, 1][..]));
    tokio::time::sleep(TIMEOUT * 3).await;
    assert_eq!(second.shards(), [0u32; 0], "the application of the first still works on them");
    assert_eq!(leader.status().workers[0].revoking, [2, 3]);
    assert!(first.owns(1) && !first.owns(2));
    let mut of_second = second.changes();
    let (waiting, news) = tokio::join!(timeout(Duration::from_secs(5), of_first.next()), of_second.next());
    assert!(waiting.is_err(), "nothing more for the first");
    assert_eq!(news.expect("news").added, [2, 3]);
    assert!(second.version() > first.version() || second.owns(3));
    leader.end().await;
}

#[tokio::test(start_paused = true)]
async fn who_leaves_lets_go_first_and_is_heard() {
    let network = MemoryRouting::default();
    let leader = Leader::start(&network, 1).await;
    let (first, second) = (join(&network, "a", 4, true).await, join(&network, "b", 4, false).await);
    until("both have some", || first.shards().len() == 2 && second.shards().len() == 2).await;
    let mut changes = first.changes();
    assert_eq!(changes.next().await.expect("news").shards, [0, 1]);
    let application = tokio::spawn(async move {
        let last = changes.next().await.expect("a last change");
        assert_eq!(last.removed, [0, 1]);
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert!(changes.next().await.is_none());
    });
    let asked = Instant::now();
    assert!(first.leave().await);
    assert!(asked.elapsed() >= Duration::from_secs(3), "it waited for the application");
    application.await.expect("it went as it should");
    until("the other has all", || second.shards().len() == 4).await;
    assert_eq!(leader.status().workers.len(), 1);
    leader.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_without_a_coordinator_fences_itself_and_finds_another_address() {
    let network = MemoryRouting::default();
    let elsewhere = "memory://elsewhere";
    let leader = Leader::start(&network, 1).await;
    let worker = join_at(&network, "a", 2, false, vec![ADDRESS.into(), elsewhere.into()]).await;
    let mut changes = worker.changes();
    assert_eq!(changes.next().await.expect("news").added, [0, 1]);
    leader.end().await;
    let change = timeout(TIMEOUT, changes.next()).await.expect("before anybody else can have them").expect("news");
    assert_eq!(change.removed, [0, 1]);
    assert!(!worker.owns(0) && !worker.is_connected());
    let leader = Leader::with(&network, 2, elsewhere, Settings::default()).await;
    assert_eq!(changes.next().await.expect("news").added, [0, 1]);
    leader.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_address_that_is_taken_is_tried_until_it_is_free() {
    let network = MemoryRouting::default();
    let first = Leader::start(&network, 1).await;
    let second = Leader::start(&network, 2).await;
    assert!(matches!(second.view.state(), ShardsState::Refused(why) if why.contains("already bound")));
    first.end().await;
    until("it listens", || second.view.state() == ShardsState::Listening(ADDRESS.into())).await;
    second.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_term_that_is_no_longer_certain_answers_nobody() {
    let network = MemoryRouting::default();
    let leader = Leader::start(&network, 1).await;
    let mut worker = Original::connect(&network, "w").await;
    worker.register(1).await;
    worker.assignment().await;
    leader.term.prolong(Instant::now());
    worker.heartbeat(1, &[0]).await;
    assert_eq!(worker.rest().await, 0);
    assert_eq!(leader.view.state(), ShardsState::Standby);
}

#[tokio::test(start_paused = true)]
async fn it_is_a_duty_of_the_node_that_leads() {
    let network = MemoryRouting::default();
    let ports = crate::common::ports();
    let settings = Settings::default();
    let duty = Arc::new(ShardsDuty::new(Arc::new(network.binding(ADDRESS)), settings, false, ports.clock.clone()));
    let view = duty.view();
    let id = NodeId::new("n1").expect("a name");
    let coordinator =
        Coordinator::start_with(id, ports, crate::common::quick(), vec![duty.into()]).await.expect("it starts");
    let mut events = coordinator.events();
    let worker = join(&network, "w", 3, false).await;
    let mut changes = worker.changes();
    assert_eq!(changes.next().await.expect("news").shards, [0, 1, 2]);
    let rebalanced = loop {
        let event = events.recv().await.expect("an event");
        if let ClusterEvent::ShardsRebalanced { service, moved, .. } = &event.what {
            break (service.clone(), *moved);
        }
    };
    assert_eq!(rebalanced, (service(), 3));
    assert_eq!(view.services().len(), 1);
    let last_heartbeat = view.service(&service()).expect("it").workers[0].last_heartbeat_at;
    assert!(last_heartbeat <= jiff::Timestamp::now());
    coordinator.stop().await;
    assert_eq!(view.state(), ShardsState::Standby);
}

/// Two processes that were given one id by mistake.
#[tokio::test(start_paused = true)]
async fn of_two_workers_with_one_id_the_older_gives_up_and_does_not_fight_back() {
    let network = MemoryRouting::default();
    let leader = Leader::start(&network, 1).await;
    let older = join(&network, "a", 4, false).await;
    let mut changes = older.changes();
    assert_eq!(changes.next().await.expect("its shards").shards, [0, 1, 2, 3]);
    let version = older.version();
    // In paused time both would begin in the same microsecond of the wall clock only by chance.
    let newer = join(&network, "a", 8, false).await;
    let change = timeout(Duration::from_secs(60), changes.next()).await.expect("it gets a change").expect("a change");
    assert_eq!((change.removed, change.shards), (vec![0, 1, 2, 3], vec![]));
    assert!(timeout(Duration::from_secs(60), changes.next()).await.expect("it ends").is_none());
    assert!(older.is_replaced() && !newer.is_replaced());
    until("all shards of the newer", || newer.shards().len() == 8).await;
    tokio::time::sleep(TIMEOUT * 3).await;
    assert!(older.shards().is_empty());
    assert_eq!(newer.shards().len(), 8, "nobody takes them from it");
    assert!(newer.version() > version, "versions differ even if both held it for a moment");
    let status = leader.status();
    assert_eq!((status.max_shard_count, status.workers.len()), (8, 1));
    leader.end().await;
}
