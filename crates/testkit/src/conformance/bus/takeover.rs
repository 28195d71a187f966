//! Entries of consumers that died: taken over, counted, never lost.

use std::time::Duration;

use convoke_core::ports::Bus;

use super::stage::*;

/// How long an entry lies idle in these cases, and what must pass for that.
const IDLE: Duration = Duration::from_millis(300);
const PASSED: Duration = Duration::from_millis(400);
/// Longer than any case takes.
const LONG: Duration = Duration::from_secs(600);

pub async fn what_lies_idle_is_taken_over(bus: &dyn Bus, advance: impl AsyncFn(Duration)) {
    let (dead, heir) = (join(bus, "q", "g", "dead").await, join(bus, "q", "g", "heir").await);
    push(bus, "q", &["a", "b", "c"]).await;
    let given = take(&*dead, 2).await;
    advance(PASSED).await;
    assert!(soon(heir.take_over(LONG, 9)).await.is_empty(), "not idle for so long");
    let taken = soon(heir.take_over(IDLE, 9)).await;
    assert_eq!(texts(&taken), ["a", "b"]);
    assert_eq!(ids(&taken), ids(&given), "the same entries");
    assert!(taken.iter().all(|delivery| delivery.deliveries == 2), "given a second time");
    assert!(soon(dead.take_over(LONG, 9)).await.is_empty());
    assert_eq!(texts(&take(&*heir, 1).await), ["c"], "what nobody was given is taken as ever");
}

pub async fn what_was_acknowledged_is_not_taken_over(bus: &dyn Bus, advance: impl AsyncFn(Duration)) {
    let (dead, heir) = (join(bus, "q", "g", "dead").await, join(bus, "q", "g", "heir").await);
    push(bus, "q", &["a", "b", "c"]).await;
    let given = take(&*dead, 3).await;
    dead.ack(&ids(&given[1..2])).await.expect("ack");
    dead.ack(&["nonsense".into(), "0-0".into(), String::new()]).await.expect("passed over");
    advance(PASSED).await;
    let taken = soon(heir.take_over(IDLE, 1)).await;
    assert_eq!(texts(&taken), ["a"], "at most what was asked for");
    assert_eq!(texts(&soon(heir.take_over(IDLE, 9)).await), ["c"]);
    heir.ack(&ids(&given)).await.expect("ack");
    advance(PASSED).await;
    assert!(soon(dead.take_over(IDLE, 9)).await.is_empty());
}

pub async fn a_consumer_does_not_take_over_its_own(bus: &dyn Bus, advance: impl AsyncFn(Duration)) {
    let slow = join(bus, "q", "g", "slow").await;
    push(bus, "q", &["a"]).await;
    take(&*slow, 1).await;
    advance(PASSED).await;
    assert!(soon(slow.take_over(IDLE, 9)).await.is_empty());
}

pub async fn taking_over_begins_the_idle_time_anew(bus: &dyn Bus, advance: impl AsyncFn(Duration)) {
    let (a, b) = (join(bus, "q", "g", "a").await, join(bus, "q", "g", "b").await);
    push(bus, "q", &["x"]).await;
    take(&*a, 1).await;
    advance(PASSED).await;
    assert_eq!(soon(b.take_over(IDLE, 9)).await[0].deliveries, 2);
    let long = Duration::from_secs(60);
    assert!(soon(a.take_over(long, 9)).await.is_empty());
    advance(PASSED).await;
    assert_eq!(soon(a.take_over(IDLE, 9)).await[0].deliveries, 3);
}

pub async fn who_leaves_leaves_its_entries_at_once(bus: &dyn Bus, _advance: impl AsyncFn(Duration)) {
    let (left, stays) = (join(bus, "q", "g", "left").await, join(bus, "q", "g", "stays").await);
    push(bus, "q", &["a", "b"]).await;
    let given = take(&*left, 2).await;
    left.ack(&ids(&given[..1])).await.expect("ack");
    assert!(soon(stays.take_over(LONG, 9)).await.is_empty());
    left.leave().await.expect("leave");
    let taken = soon(stays.take_over(LONG, 9)).await;
    assert_eq!(texts(&taken), ["b"]);
    assert_eq!(taken[0].deliveries, 2);
}

pub async fn who_vanishes_is_taken_over_once_idle(bus: &dyn Bus, advance: impl AsyncFn(Duration)) {
    let vanished = join(bus, "q", "g", "vanished").await;
    push(bus, "q", &["a"]).await;
    take(&*vanished, 1).await;
    drop(vanished);
    let heir = join(bus, "q", "g", "heir").await;
    assert!(soon(heir.take_over(LONG, 9)).await.is_empty());
    advance(PASSED).await;
    assert_eq!(texts(&soon(heir.take_over(IDLE, 9)).await), ["a"]);
}
