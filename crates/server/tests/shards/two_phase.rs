//! Workers that are asked to release: no shard is worked on by two, not even for a moment.
//!
//! Each worker writes down which shard it works on under which version, when it begins and when it stops. Workers come, leave
//! and fall silent all the time; a checker reads it all at the end.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use convoke::ShardWorker;
use parking_lot::Mutex;
use tokio::task::JoinHandle;

use super::stage::Stage;

const SERVICE: &str = "ledger";
const SHARDS: u32 = 24;
const WORKERS: usize = 6;
const ROUNDS: usize = 60;

/// One stretch of work on a shard.
#[derive(Debug, Clone)]
struct Stretch {
    worker: String,
    shard: u32,
    version: u64,
    from: Instant,
    until: Instant,
}

type Observations = Arc<Mutex<Vec<Stretch>>>;

struct Employed {
    shards: ShardWorker,
    work: JoinHandle<()>,
}

/// Works on what it has, and stops working on a shard before it asks for the next change.
async fn start_worker(address: &str, worker: String, observations: Observations) -> Employed {
    let shards = ShardWorker::builder(address, SERVICE, &worker, SHARDS).handoff(true);
    let shards = shards.heartbeat_interval(Duration::from_millis(50)).connect().await.expect("an address");
    let mut changes = shards.changes();
    let (works, own) = (observations, shards.clone());
    let work = tokio::spawn(async move {
        let (mut owned, mut version) = (Vec::new(), 0);
        loop {
            let change = tokio::select! {
                change = changes.next() => change,
                () = tokio::time::sleep(Duration::from_millis(2)) => {
                    for &shard in &owned {
                        let from = Instant::now();
                        // A paused worker learns here that its time is up; what it does then must be short.
                        if own.owns(shard) {
                            let until = Instant::now();
                            works.lock().push(Stretch { worker: worker.clone(), shard, version, from, until });
                        }
                    }
                    continue;
                }
            };
            let Some(change) = change else { return };
            (owned, version) = (change.shards, change.version.0);
        }
    });
    Employed { shards, work }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_shard_is_worked_on_by_two_while_workers_come_and_go() {
    let mut stage = Stage::start("sticky", Duration::from_millis(600), Duration::from_millis(50)).await;
    come_and_go(&mut stage, None).await;
}

/// The workers are listed in a store that lasts: nobody waits for a whole timeout.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nor_while_their_coordinator_is_killed_and_restarted() {
    let mut stage = Stage::lasting(Duration::from_secs(3)).await;
    come_and_go(&mut stage, Some(10)).await;
}

/// Lets workers come, leave and fall silent, and the coordinator crash every so many rounds, and judges what they did.
async fn come_and_go(stage: &mut Stage, crash_every: Option<usize>) {
    let observations = Observations::default();
    let mut employed = HashMap::new();
    let mut lives = 0;
    for round in 0..ROUNDS {
        if crash_every.is_some_and(|every| round % every == every - 1) {
            stage.crash().await;
        }
        let place = (round * 7 + round / 3) % WORKERS;
        match employed.remove(&place) {
            // In turn: a farewell, and silence.
            Some(Employed { shards, work }) if round % 2 == 0 => {
                assert!(shards.leave().await, "it is received");
                work.await.expect("it works");
            }
            Some(Employed { work, .. }) => work.abort(),
            None => {}
        }
        lives += 1;
        let worker = format!("worker-{place}-{lives}");
        employed.insert(place, start_worker(stage.address(), worker, observations.clone()).await);
        tokio::time::sleep(Duration::from_millis(60)).await;
    }
    let all: Vec<u32> = (0..SHARDS).collect();
    convoke_testkit::process::wait_for_value("that all are owned", all, || async {
        let mut shards: Vec<u32> = stage.owned(SERVICE).await.into_iter().flat_map(|(_, shards)| shards).collect();
        shards.sort_unstable();
        shards
    })
    .await;
    let observations = std::mem::take(&mut *observations.lock());
    assert!(observations.len() > 1_000, "they worked: {}", observations.len());
    assert!(
        observations.iter().map(|it| it.version).max() > observations.iter().map(|it| it.version).min(),
        "shards moved"
    );
    assert_eq!(conflicts(&observations), Vec::<String>::new());
}

/// Two workers on one shard under one version, or at one time.
fn conflicts(observations: &[Stretch]) -> Vec<String> {
    let mut found = Vec::new();
    let mut by_version = HashMap::new();
    let mut by_shard: HashMap<u32, Vec<&Stretch>> = HashMap::new();
    for stretch in observations {
        let holder = by_version.entry((stretch.shard, stretch.version)).or_insert(&stretch.worker);
        if *holder != &stretch.worker {
            found.push(format!(
                "shard {} under version {}: {holder} and {}",
                stretch.shard, stretch.version, stretch.worker
            ));
        }
        by_shard.entry(stretch.shard).or_default().push(stretch);
    }
    for stretches in by_shard.values_mut() {
        stretches.sort_by_key(|it| it.from);
        for pair in stretches.windows(2) {
            let (before, after) = (pair[0], pair[1]);
            if before.worker != after.worker && after.from < before.until {
                found.push(format!("{before:?} and {after:?} at one time"));
            }
            if before.worker != after.worker && after.version <= before.version {
                found.push(format!("{after:?} after {before:?} has no higher version"));
            }
        }
    }
    found
}

#[test]
fn the_checker_finds_two_holders() {
    let begin = Instant::now();
    let at = |ms| begin + Duration::from_millis(ms);
    let stretch = |worker: &str, version, from, until| Stretch {
        worker: worker.into(),
        shard: 1,
        version,
        from: at(from),
        until: at(until),
    };
    assert!(conflicts(&[stretch("a", 1, 0, 1), stretch("a", 1, 2, 3), stretch("b", 2, 4, 5)]).is_empty());
    assert_eq!(conflicts(&[stretch("a", 1, 0, 1), stretch("b", 1, 2, 3)]).len(), 2, "one version");
    assert_eq!(conflicts(&[stretch("a", 1, 0, 5), stretch("b", 2, 4, 6)]).len(), 1, "one moment");
    assert_eq!(conflicts(&[stretch("a", 2, 0, 1), stretch("b", 1, 2, 3)]).len(), 1, "a lower version");
}
