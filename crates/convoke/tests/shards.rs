//! The worker that applications link, over real sockets.

#![cfg(feature = "zmq")]

use std::sync::Arc;
use std::time::Duration;

use convoke::connect::{self, ZmqSecurity};
use convoke::{Shard, ShardWorker};
use convoke_adapters::memory::MemoryStore;
use convoke_core::Epoch;
use convoke_core::ports::store::EpochStore;
use convoke_core::shards::Settings;
use convoke_runtime::election::Term;
use convoke_runtime::shards::{ShardsDuty, ShardsState};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

const PATIENCE: Duration = Duration::from_secs(30);

/// A coordinator's term, with where it listens.
async fn lead(bind: &str, epoch: u64) -> (Term, String, JoinHandle<()>) {
    let settings = Settings {
        heartbeat_timeout: Duration::from_millis(1_500),
        check_interval: Duration::from_millis(200),
        ..Settings::default()
    };
    let router = connect::shard_router(bind, ZmqSecurity::Open).expect("an address");
    let duty = ShardsDuty::new(router, settings, true, connect::clock());
    let fence = MemoryStore::new().seal(Epoch(epoch)).await.expect("nothing is sealed yet");
    let term = Term::new(fence, Instant::now() + Duration::from_secs(3_600));
    let mut state = duty.view().watch();
    let leading = term.clone();
    let task = tokio::spawn(async move { duty.lead(leading, Arc::new(|_| {}), Arc::new(|_| {})).await });
    let listening = state.wait_for(|state| matches!(state, ShardsState::Listening(_)));
    let listening = timeout(PATIENCE, listening).await.expect("in time").expect("it runs").clone();
    let ShardsState::Listening(address) = listening else { panic!("it listens") };
    (term, address, task)
}

async fn worker(url: &str, id: &str) -> ShardWorker {
    ShardWorker::builder(url, "s", id, 4).handoff(true).connect().await.expect("it connects")
}

async fn until(what: &str, is: impl Fn() -> bool) {
    let waiting = async {
        while !is() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("never: {what}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn shards_move_by_release_and_survive_a_takeover() {
    let (term, address, task) = lead("tcp://127.0.0.1:0", 1).await;
    let first = worker(&address, "a").await;
    let mut changes = first.changes();
    let change = timeout(PATIENCE, changes.next()).await.expect("in time").expect("news");
    assert_eq!(change.added, [0, 1, 2, 3]);
    let second = worker(&address, "b").await;
    let change = timeout(PATIENCE, changes.next()).await.expect("in time").expect("news");
    assert_eq!(change.removed, [2, 3]);
    second.ready().await;
    assert_eq!(second.shards(), [0 as Shard; 0], "the first still works on them");
    changes.done();
    until("the second has them", || second.shards() == [2, 3]).await;
    let version = first.version();
    term.end();
    task.await.expect("it ends");
    let (term, _, task) = lead(&address, 2).await;
    until("both know the successor", || first.version() > version && second.version() > version).await;
    let unchanged = timeout(Duration::from_secs(3), changes.next()).await;
    assert!(unchanged.is_err(), "nothing moved: {unchanged:?}");
    assert_eq!((first.shards(), second.shards()), (vec![0, 1], vec![2, 3]));
    drop(changes);
    assert!(first.leave().await);
    until("the second has all", || second.shards() == [0, 1, 2, 3]).await;
    term.end();
    task.await.expect("it ends");
}

#[tokio::test]
async fn what_is_no_address_or_name_is_refused_at_once() {
    for (url, service, id, max, field) in [
        ("http://127.0.0.1:1", "s", "w", 1, "url"),
        ("tcp://127.0.0.1:1,", "s", "w", 1, "url"),
        ("tcp://127.0.0.1:1", "", "w", 1, "serviceName"),
        ("tcp://127.0.0.1:1", "s", "", 1, "workerId"),
        ("tcp://127.0.0.1:1", "s", "w", 100_001, "maxShardCount"),
    ] {
        let refused = ShardWorker::connect(url, service, id, max).await.err().expect("it is refused");
        assert!(refused.to_string().starts_with(field), "{refused}");
    }
}
