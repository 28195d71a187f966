//! SIGSTOP of the leader for longer than its lease, then SIGCONT.
//!
//! Before it is stopped its wire to the store is frozen, so that writes of its term are on their way when it stops and arrive
//! when another has long led. That is what a fence is for, and what no check of "am I still the leader?" could catch.

use convoke_testkit::process::{Way, eventually};

use super::stage::Stage;

#[tokio::test(flavor = "multi_thread")]
async fn its_late_writes_are_refused_and_counted_and_it_follows() {
    let mut stage = Stage::open().await;
    let paused = stage.fleet.leader().await;
    let before = stage.epoch(paused).await;
    let http = stage.fleet.member(paused).http().clone();
    let refused = http.metric("convoke_fenced_total", &["what=\"leader\""]).await;

    let wire = &stage.fleet.member(paused).postgres;
    wire.freeze_one_way(Way::ToServer);
    eventually("a write on its way", || async { (wire.held_bytes() > 0).then_some(()) }).await;
    let others = stage.others(paused);
    stage.fleet.pause(paused);
    let next = stage.fleet.leader_according_to(&others).await;
    assert!(stage.epoch(next).await > before, "epochs rise");
    stage.traffic.flows(60).await;

    stage.fleet.resume(paused);
    stage.fleet.member(paused).postgres.heal();
    eventually("the refusal of what it wrote as the leader", || async {
        let now = http.metric("convoke_fenced_total", &["what=\"leader\""]).await;
        (now > refused).then_some(())
    })
    .await;
    assert_ne!(stage.fleet.leader().await, paused, "it follows");
    stage.close().await;
}

/// Nothing on its way this time: it wakes up, its lease is long over, and it notices by itself.
#[tokio::test(flavor = "multi_thread")]
async fn it_notices_by_its_own_clock_that_its_term_is_over() {
    let mut stage = Stage::open().await;
    let paused = stage.fleet.leader().await;
    let others = stage.others(paused);
    stage.fleet.pause(paused);
    stage.fleet.leader_according_to(&others).await;
    stage.traffic.flows(60).await;
    stage.fleet.resume(paused);
    assert_ne!(stage.fleet.leader().await, paused, "it follows");
    stage.close().await;
}
