//! A backend that lost its data, and has given an old number to somebody new.

use convoke_core::ports::leases::Floor;

use super::*;

const LEASE: Duration = Duration::from_secs(15);

/// `a` followed a leader of a high number, and leaves in the middle of the question by which it ends, or would end, the
/// term of one who was given a low one. Gives what is there when it has left.
async fn left_by_one_that_leaves_at(verb: &'static str) -> (Arc<Faulty>, Option<(String, Epoch)>) {
    let (before, after) = (memory(), memory());
    before.elect("production", "former", LEASE, Floor::Received(Epoch(6))).await.expect("elected");
    let faulty = Arc::new(Faulty::over(before));
    let leases: Arc<dyn Leases> = faulty.clone();
    let a = elector(&leases, "a");
    a.events().next().await.expect("receives the leader");
    assert_eq!(a.epoch(), Epoch(7));
    after.elect("production", "usurper", LEASE, Floor::UNKNOWN).await.expect("elected");
    let weak = a.downgrade();
    faulty.become_another(after.clone());
    faulty.at_next(verb, move || drop(a));
    weak.left().await;
    let lease = after.read("production").await.expect("read");
    (faulty, lease.map(|lease| (lease.holder, lease.epoch)))
}

#[tokio::test(start_paused = true)]
async fn one_that_leaves_does_not_begin_to_depose() {
    let (faulty, left) = left_by_one_that_leaves_at("read").await;
    assert_eq!(left, Some(("usurper".into(), Epoch(1))));
    assert!(faulty.times_of("resign").is_empty());
}

#[tokio::test(start_paused = true)]
async fn one_that_leaves_while_it_deposes_keeps_the_place_from_others_all_the_same() {
    let (faulty, left) = left_by_one_that_leaves_at("resign").await;
    assert_eq!(left, Some(("a".into(), Epoch(8))));
    assert_eq!(faulty.times_of("resign").len(), 1, "its own is not ended: it runs out");
}
