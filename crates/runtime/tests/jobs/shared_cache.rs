//! Nodes that share a cache in Redis: what one has read the others find there, nothing that has changed is shown, and a Redis
//! that is away fails nobody.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::common::counting::CountingStore;
use crate::common::{failed, one, quick, register, report, shared_ports, spec, worker};
use convoke_adapters::redis::RedisCache;
use convoke_core::jobs::Status;
use convoke_core::jobs::link::WorkerLink;
use convoke_core::ports::SharedCache;
use convoke_core::{JobId, NodeId};
use convoke_runtime::jobs::{Coordinator, Ports};
use convoke_testkit::process::RedisServer;

struct Cluster {
    nodes: [Coordinator; 2],
    stores: [Arc<CountingStore>; 2],
}

/// Two nodes, each with a connection of its own to the cache.
async fn cluster(server: &RedisServer) -> Cluster {
    let shared = shared_ports();
    let stores = [(); 2].map(|()| CountingStore::new(shared.store.clone()));
    let mut nodes = Vec::new();
    for (id, store) in ["n1", "n2"].into_iter().zip(&stores) {
        let cache: Arc<dyn SharedCache> = Arc::new(RedisCache::open(&server.url()).expect("an address"));
        let ports = Ports { store: store.clone(), cache: Some(cache), ..shared.clone() };
        let mut settings = quick();
        settings.bus.prefix = "orchestrix".into();
        // Entries from before the cache was reachable are soon read again.
        settings.cluster.heartbeat_interval = Duration::from_millis(100);
        // The worker of these tests sends no heartbeats.
        settings.worker.stale_after = Duration::from_secs(300);
        let node = NodeId::new(id).expect("a name");
        let coordinator = Coordinator::start(node, ports, settings).await.expect("it starts");
        coordinator.ready().await;
        // Only this node reads its own entry, so it has reached the cache.
        let (node, key) = (NodeId::new(id).expect("a name"), format!("orchestrix:coordinator:{id}"));
        read_until_shared(server, &key, async || coordinator.node_view(&node).await).await;
        nodes.push(coordinator);
    }
    Cluster { nodes: nodes.try_into().unwrap_or_else(|_| panic!("two nodes")), stores }
}

impl Cluster {
    async fn stop(&self) {
        for node in &self.nodes {
            node.stop().await;
        }
    }

    /// Reads until the store was not asked.
    async fn kept(&self, place: usize, id: JobId) {
        loop {
            let before = self.stores[place].gets.load(Ordering::SeqCst);
            self.nodes[place].job_view(id).await.expect("it is there");
            if self.stores[place].gets.load(Ordering::SeqCst) == before {
                return;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

async fn dead_letter(coordinator: &Coordinator) -> JobId {
    register(coordinator, "w", 1).await;
    coordinator.enqueue(spec().with(|job| job.max_retries = Some(0))).await.expect("it is enqueued");
    let (id, execution, _) = one(coordinator, "w").await;
    assert_eq!(report(coordinator, "w", vec![failed(id, execution)]).await, (1, 0));
    coordinator.leave(worker("w")).await.expect("it leaves");
    id
}

async fn asked<T: redis::FromRedisValue>(server: &RedisServer, arguments: &[&str]) -> T {
    let client = redis::Client::open(server.url()).expect("an address");
    let mut connection = client.get_multiplexed_async_connection().await.expect("a connection");
    redis::cmd(arguments[0]).arg(&arguments[1..]).query_async(&mut connection).await.expect("a response")
}

/// Waits until the key holds a value, not a mark that it was outdated.
async fn value_of(server: &RedisServer, key: &str) -> String {
    loop {
        let held: Option<String> = asked(server, &["GET", key]).await;
        if let Some(held) = held.filter(|held| held.starts_with(r#"{"v":1,"value":"#)) {
            return held;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Reads until the result is shared under `key`.
async fn read_until_shared<T>(
    server: &RedisServer,
    key: &str,
    read: impl AsyncFn() -> convoke_core::Result<T>,
) -> String {
    let sharing = async {
        loop {
            read().await.expect("it is there");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let sharing = tokio::time::timeout(Duration::from_secs(30), sharing);
    tokio::select! {
        _ = sharing => panic!("{key} is not shared"),
        value = value_of(server, key) => value,
    }
}

#[tokio::test]
async fn what_one_node_has_read_another_finds_under_the_promised_key() {
    let server = RedisServer::start().await;
    let cluster = cluster(&server).await;
    let [first, second] = &cluster.nodes;
    let left = async |key: &str| asked::<i64>(&server, &["PTTL", key]).await;
    let id = dead_letter(first).await;
    let key = format!("orchestrix:job:{id}");
    let value = read_until_shared(&server, &key, async || first.job_view(id).await).await;
    assert!(value.contains(&format!(r#""id":"{id}""#)) && value.contains(r#""status":"failed""#), "{value}");
    assert!((1..=300_000).contains(&left(&key).await));
    let before = cluster.stores[1].gets.load(Ordering::SeqCst);
    assert_eq!(second.job_view(id).await.expect("it is there").status, Status::Failed);
    assert_eq!(cluster.stores[1].gets.load(Ordering::SeqCst), before, "the second node need not read the store");
    register(first, "w", 1).await;
    let (n1, w) = (NodeId::new("n1").expect("a name"), worker("w"));
    read_until_shared(&server, "orchestrix:coordinators", async || first.nodes().await).await;
    read_until_shared(&server, "orchestrix:coordinator:n1", async || first.node_view(&n1).await).await;
    read_until_shared(&server, "orchestrix:jobs:follower:n1", async || first.jobs_of(&n1).await).await;
    read_until_shared(&server, "orchestrix:workers", async || first.workers().await).await;
    read_until_shared(&server, "orchestrix:worker:w", async || first.worker(&w).await).await;
    cluster.stop().await;
}

#[tokio::test]
async fn a_retried_job_is_not_shown_as_finished_by_any_node() {
    let server = RedisServer::start().await;
    let cluster = cluster(&server).await;
    for retrier in [0, 1] {
        let id = dead_letter(&cluster.nodes[0]).await;
        cluster.kept(0, id).await;
        cluster.kept(1, id).await;
        cluster.nodes[retrier].retry(id).await.expect("it is retried");
        let here = cluster.nodes[retrier].job_view(id).await.expect("it is there").status;
        assert_eq!(here, Status::Pending, "at once where it was retried");
        let other = &cluster.nodes[1 - retrier];
        while other.job_view(id).await.expect("it is there").status != Status::Pending {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        for _ in 0..50 {
            for node in &cluster.nodes {
                assert_eq!(node.job_view(id).await.expect("it is there").status, Status::Pending, "and it stays so");
            }
        }
        cluster.nodes[0].cancel(id, None).await.expect("it is cancelled");
    }
    cluster.stop().await;
}

/// While it holds what others wrote, is frozen, or away.
#[tokio::test]
async fn a_cache_that_is_away_or_holds_nonsense_fails_and_delays_nobody() {
    let mut server = RedisServer::start().await;
    let cluster = cluster(&server).await;
    let [first, second] = &cluster.nodes;
    // A list, as another program might keep it, then something that is no job.
    for (place, verb) in ["LPUSH", "SET"].into_iter().enumerate() {
        let id = dead_letter(first).await;
        let key = format!("orchestrix:job:{id}");
        asked::<redis::Value>(&server, &[verb, &key, r#"{"v":1,"value":{"no":"job"}}"#]).await;
        let held: String = asked(&server, &["TYPE", &key]).await;
        assert_eq!(second.job_view(id).await.expect("it is there").status, Status::Failed);
        second.retry(id).await.expect("it is retried");
        assert_eq!(second.job_view(id).await.expect("it is there").status, Status::Pending, "{place}");
        assert_eq!(asked::<String>(&server, &["TYPE", &key]).await, held);
        second.cancel(id, None).await.expect("it is cancelled");
    }
    let id = dead_letter(first).await;
    server.pause();
    let requests = async {
        for _ in 0..200 {
            for node in &cluster.nodes {
                assert_eq!(node.job_view(id).await.expect("it is there").status, Status::Failed);
                node.nodes().await.expect("a list");
            }
        }
    };
    // If each of them waited for the cache, it would be 80 seconds.
    tokio::time::timeout(Duration::from_secs(40), requests).await.expect("requests do not wait for the cache");
    server.resume();
    server.kill().await;
    second.retry(id).await.expect("it is retried");
    assert_eq!(second.job_view(id).await.expect("it is there").status, Status::Pending);
    server.restart_empty().await;
    read_until_shared(&server, "orchestrix:coordinators", async || first.nodes().await).await;
    cluster.stop().await;
}
