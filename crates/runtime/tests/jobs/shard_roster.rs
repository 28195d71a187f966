//! A shard coordinator whose store lists its workers, over sockets in memory, in paused time.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::common::counting::CountingStore;
use convoke_adapters::memory::{MemoryRouting, MemoryStore, SystemClock};
use convoke_core::Epoch;
use convoke_core::ports::Store;
use convoke_core::ports::router::{Dealer, DealerConnecting};
use convoke_core::ports::store::{EpochStore, RosterStore};
use convoke_core::shards::Shard;
use convoke_core::shards::coordinator::Settings;
use convoke_core::shards::wire::{self, CoordinatorMessage};
use convoke_runtime::election::Term;
use convoke_runtime::shards::{ShardWorker, ShardsDuty, ShardsState, WorkerOptions};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

const ADDRESS: &str = "memory://shards";
const TIMEOUT: Duration = Duration::from_secs(60);

struct Stage {
    network: MemoryRouting,
    store: Arc<CountingStore>,
    epoch: u64,
}

impl Stage {
    fn new() -> Stage {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        Stage { network: MemoryRouting::default(), store: CountingStore::new(store), epoch: 0 }
    }

    /// Begins the next term.
    async fn lead(&mut self) -> (Term, JoinHandle<()>) {
        self.epoch += 1;
        let fence = self.store.seal(Epoch(self.epoch)).await.expect("it is sealed");
        let settings = Settings { heartbeat_timeout: TIMEOUT, ..Settings::default() };
        let duty = ShardsDuty::new(Arc::new(self.network.binding(ADDRESS)), settings, true, Arc::new(SystemClock))
            .listing_workers(self.store.clone());
        let mut state = duty.view().watch();
        let term = Term::new(fence, Instant::now() + Duration::from_secs(86_400));
        let leading = term.clone();
        let task = tokio::spawn(async move { duty.lead(leading, Arc::new(|_| {}), Arc::new(|_| {})).await });
        state.wait_for(|state| matches!(state, ShardsState::Listening(_))).await.expect("it runs");
        (term, task)
    }

    async fn end(&self, (term, task): (Term, JoinHandle<()>)) {
        term.end();
        task.await.expect("it ends");
    }

    async fn original(&self, name: &str) -> Original {
        Original { dealer: self.network.connect(ADDRESS).await.expect("it connects"), name: name.to_owned() }
    }

    async fn listed(&self) -> Vec<String> {
        let roster = self.store.shard_roster().await.expect("the roster");
        roster.into_iter().map(|member| member.worker.to_string()).collect()
    }
}

/// A worker of the original protocol.
struct Original {
    dealer: Box<dyn Dealer>,
    name: String,
}

impl Original {
    async fn register(&mut self, max: u32) {
        let name = &self.name;
        let text =
            format!(r#"{{"type":"register","data":{{"serviceName":"s","workerId":"{name}","maxShardCount":{max}}}}}"#);
        self.dealer.send(text.into()).await.expect("it is sent");
    }

    async fn heartbeat(&mut self, max: u32, shards: &[Shard]) {
        let name = &self.name;
        let text = format!(
            r#"{{"type":"heartbeat","data":{{"serviceName":"s","workerId":"{name}","maxShardCount":{max},"assignedShards":{shards:?}}}}}"#
        );
        self.dealer.send(text.into()).await.expect("it is sent");
    }

    async fn assignment(&mut self) -> Vec<Shard> {
        let frames = self.dealer.receive().await.expect("frames");
        match wire::answer(&frames).expect("it can be read") {
            CoordinatorMessage::Assignment(assignment) => assignment.assigned_shards,
            other => panic!("expected an assignment, got {other:?}"),
        }
    }

    /// Its next assignment, if one comes within ten seconds.
    async fn soon(&mut self) -> Option<Vec<Shard>> {
        timeout(Duration::from_secs(10), self.assignment()).await.ok()
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_a_service_without_listed_workers_is_granted_at_once() {
    let mut stage = Stage::new();
    let first = stage.lead().await;
    let worker = ShardWorker::connect(
        Arc::new(stage.network.clone()),
        vec![ADDRESS.into()],
        WorkerOptions { handoff: true, ..WorkerOptions::new("s", "a", 4) },
    )
    .await
    .expect("it starts");
    worker.ready().await;
    assert_eq!(stage.listed().await, ["a"]);
    assert!(worker.leave().await);
    while !stage.listed().await.is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    stage.end(first).await;
    let second = stage.lead().await;
    let mut newcomer = stage.original("new").await;
    newcomer.register(4).await;
    assert_eq!(newcomer.soon().await, Some(vec![0, 1, 2, 3]));
    assert_eq!(stage.listed().await, ["new"]);
    stage.end(second).await;
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_a_newcomer_waits_for_listed_workers_and_no_longer() {
    let mut stage = Stage::new();
    let first = stage.lead().await;
    let (mut a, mut b) = (stage.original("a").await, stage.original("b").await);
    a.register(4).await;
    b.register(4).await;
    let (of_a, of_b) = (a.assignment().await, b.assignment().await);
    stage.end(first).await;
    let second = stage.lead().await;
    let (mut a, mut b) = (stage.original("a").await, stage.original("b").await);
    let mut newcomer = stage.original("c").await;
    newcomer.register(4).await;
    a.heartbeat(4, &of_a).await;
    assert_eq!(a.soon().await, Some(of_a));
    assert_eq!(newcomer.soon().await, None, "what b has is not known");
    b.heartbeat(4, &of_b).await;
    assert_eq!(b.soon().await, Some(of_b));
    assert_eq!(newcomer.soon().await, Some(vec![3]));
    stage.end(second).await;
}

#[tokio::test(start_paused = true)]
async fn a_live_two_phase_worker_ends_the_wait_by_itself() {
    let mut stage = Stage::new();
    let first = stage.lead().await;
    let network = Arc::new(stage.network.clone());
    let options = WorkerOptions { handoff: true, ..WorkerOptions::new("s", "a", 4) };
    let worker = ShardWorker::connect(network, vec![ADDRESS.into()], options).await.expect("it starts");
    let mut changes = worker.changes();
    assert_eq!(changes.next().await.expect("its shards").shards, [0, 1, 2, 3]);
    changes.done();
    stage.end(first).await;
    let second = stage.lead().await;
    let began = Instant::now();
    let mut newcomer = stage.original("b").await;
    newcomer.register(4).await;
    let change = changes.next().await.expect("it is asked to release");
    assert_eq!(change.removed, [2, 3]);
    changes.done();
    assert_eq!(newcomer.assignment().await, [2, 3]);
    assert!(began.elapsed() < TIMEOUT, "nobody waited for the timeout");
    assert!(worker.owns(0) && !worker.owns(2));
    stage.end(second).await;
}

#[tokio::test(start_paused = true)]
async fn while_the_store_is_away_listed_workers_go_on_and_new_ones_wait() {
    let mut stage = Stage::new();
    let term = stage.lead().await;
    let (mut a, mut b) = (stage.original("a").await, stage.original("b").await);
    a.register(4).await;
    assert_eq!(a.assignment().await, [0, 1, 2, 3]);
    stage.store.roster_fails.store(true, Ordering::SeqCst);
    b.register(4).await;
    assert_eq!(b.soon().await, None);
    a.heartbeat(4, &[0, 1, 2, 3]).await;
    assert_eq!(a.soon().await, Some(vec![0, 1, 2, 3]));
    assert_eq!(stage.listed().await, ["a"]);
    stage.store.roster_fails.store(false, Ordering::SeqCst);
    assert_eq!(b.soon().await, Some(vec![2, 3]));
    assert_eq!(stage.listed().await, ["a", "b"]);
    stage.end(term).await;
}

#[tokio::test(start_paused = true)]
async fn a_thousand_registrations_are_few_writes_and_a_rebalance_none() {
    let mut stage = Stage::new();
    let term = stage.lead().await;
    let mut workers = Vec::new();
    for n in 0..1_000 {
        workers.push(stage.original(&format!("w{n:04}")).await);
    }
    for worker in &mut workers {
        worker.register(10_000).await;
    }
    for worker in &mut workers {
        assert_eq!(worker.assignment().await.len(), 10);
    }
    let writes = stage.store.roster_writes.load(Ordering::SeqCst);
    assert!(writes <= 20, "{writes} writes");
    for worker in &mut workers {
        worker.heartbeat(20_000, &[]).await;
    }
    while workers[0].assignment().await.len() < 20 {}
    assert_eq!(stage.store.roster_writes.load(Ordering::SeqCst), writes);
    stage.end(term).await;
}

#[tokio::test(start_paused = true)]
async fn a_former_leader_that_cannot_list_a_worker_grants_nothing_and_ends_its_term() {
    let mut stage = Stage::new();
    let (term, task) = stage.lead().await;
    stage.store.seal(Epoch(9)).await.expect("another leads");
    let mut worker = stage.original("a").await;
    worker.register(4).await;
    assert_eq!(worker.soon().await, None);
    timeout(Duration::from_secs(60), task).await.expect("it ends").expect("without a panic");
    assert!(term.is_over());
}
