//! SIGSTOP of the leader for longer than its lease, then SIGCONT.

use convoke_testkit::process::eventually;

use super::stage::Stage;

/// With this it does not notice that its term is over, as a process that was paused between the check of its clock and the
/// write. No check of "am I still the leader?" can catch that; the fence must.
pub const OVERSTAYS: (&str, &str) = ("failpoint", "overstay");

#[tokio::test(flavor = "multi_thread")]
async fn its_late_writes_are_refused_and_counted_and_it_follows() {
    let mut stage = Stage::open_with(&[OVERSTAYS]).await;
    pause_leader(&mut stage).await;
    stage.close().await;
}

pub async fn pause_leader(stage: &mut Stage) {
    let paused = stage.fleet.leader().await;
    let before = stage.epoch(paused).await;
    let http = stage.fleet.member(paused).http().clone();
    let refused = http.metric("convoke_fenced_total", &["what=\"leader\""]).await;

    let others = stage.others(paused);
    stage.fleet.pause(paused);
    let next = stage.fleet.leader_according_to(&others).await;
    assert!(stage.epoch(next).await > before, "epochs rise");
    stage.traffic.flows(60).await;

    stage.fleet.resume(paused);
    eventually("the refusal of what it wrote as the leader", || async {
        let now = http.metric("convoke_fenced_total", &["what=\"leader\""]).await;
        (now > refused).then_some(())
    })
    .await;
    assert_eq!(stage.fleet.leader().await, next, "it follows");
}

/// The usual case: it wakes up, its lease is long over, and it notices by itself.
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
