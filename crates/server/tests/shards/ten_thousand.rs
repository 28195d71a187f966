//! Ten thousand workers on one coordinator, half of whom die at once.

use std::time::Duration;

use convoke_testkit::process::wait_for_value;

use super::crowd::Crowd;
use super::stage::Stage;

const WORKERS: usize = 10_000;
const SHARDS: u32 = 20_000;
const JOIN_LATER: usize = 20;
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(12);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_workers_share_evenly_beat_and_take_over_from_those_that_die() {
    let stage = Stage::start("sticky", HEARTBEAT_TIMEOUT, Duration::from_secs(1)).await;
    let mut crowd = Crowd::new(stage.address(), "crowd", SHARDS, HEARTBEAT_TIMEOUT / 3);
    crowd.join(WORKERS);
    wait_for_value("they share all shards evenly", crowd.balanced(), async || crowd.census()).await;
    wait_for_value("each was answered when it beat", true, async || {
        crowd.received().iter().all(|received| received.answers > 0)
    })
    .await;
    let active = stage.workers("crowd").await.iter().filter(|worker| worker.active).count();
    assert_eq!(active, WORKERS, "some were taken for dead");

    // A few more: only they and those that give something up are told.
    let before = crowd.news();
    crowd.join(JOIN_LATER);
    wait_for_value("they share all shards evenly again", crowd.balanced(), async || crowd.census()).await;
    let received = crowd.news() - before;
    let moved = JOIN_LATER as u64 * u64::from(SHARDS).div_ceil(WORKERS as u64);
    assert!(received <= 2 * (JOIN_LATER as u64 + moved), "{received} were told of {moved} shards that moved");

    // Half of them die at once: the others are told once each and own everything.
    let half = (WORKERS + JOIN_LATER) / 2;
    crowd.kill(half);
    let (survivors, before) = (half as u64, crowd.news());
    wait_for_value("the rest own everything", crowd.balanced(), async || crowd.census()).await;
    let received = crowd.news() - before;
    assert!(received <= 2 * survivors, "{received} messages for {survivors} survivors");
}
