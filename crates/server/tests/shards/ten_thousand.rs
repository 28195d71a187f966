//! Ten thousand workers on one coordinator, a thousand in a quick run, half of whom die at once.

use std::time::Duration;

use convoke_testkit::process::wait_for_value;
use convoke_testkit::scale::Scaled;

use super::crowd::Crowd;
use super::stage::Stage;

const WORKERS: Scaled<usize> = Scaled { quick: 1_000, full: 10_000 };
const SHARDS_EACH: u32 = 2;
const JOIN_LATER: usize = 20;
const HEARTBEAT_TIMEOUT: Scaled<Duration> = Scaled { quick: Duration::from_secs(5), full: Duration::from_secs(12) };

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_of_workers_shares_evenly_beats_and_takes_over_from_those_that_die() {
    let (workers, heartbeat_timeout) = (WORKERS.get(), HEARTBEAT_TIMEOUT.get());
    let shards = SHARDS_EACH * workers as u32;
    let stage = Stage::start("sticky", heartbeat_timeout, Duration::from_secs(1)).await;
    let mut crowd = Crowd::new(stage.address(), "crowd", shards, heartbeat_timeout / 3);
    crowd.join(workers);
    wait_for_value("they share all shards evenly", crowd.balanced(), async || crowd.census()).await;
    wait_for_value("each got a reply to its heartbeat", true, async || {
        crowd.received().iter().all(|received| received.responses > 0)
    })
    .await;
    let active = stage.workers("crowd").await.iter().filter(|worker| worker.active).count();
    assert_eq!(active, workers, "some were taken for dead");

    // A few more: only they and those that give up a shard get a message.
    let before = crowd.news();
    crowd.join(JOIN_LATER);
    wait_for_value("they share all shards evenly again", crowd.balanced(), async || crowd.census()).await;
    let received = crowd.news() - before;
    let moved = JOIN_LATER as u64 * u64::from(SHARDS_EACH);
    assert!(received <= 2 * (JOIN_LATER as u64 + moved), "{received} got messages about {moved} shards that moved");

    // Half of them die at once: the others get one message each and own everything.
    let half = (workers + JOIN_LATER) / 2;
    crowd.kill(half);
    let (survivors, before) = (half as u64, crowd.news());
    wait_for_value("the rest own everything", crowd.balanced(), async || crowd.census()).await;
    let received = crowd.news() - before;
    assert!(received <= 2 * survivors, "{received} messages for {survivors} survivors");
}
