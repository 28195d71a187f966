//! Holders that are not members of a namespace: a coordinator, whose terms are sealed, and whoever wants a lock.

use super::*;
use crate::election::Conduct;

const RENEWAL: Duration = Duration::from_secs(5);
const RETRY: Duration = Duration::from_secs(3);

fn coordinator(bench: &TestBench, me: &str) -> Elector {
    let settings = Settings { heartbeat_jitter: Duration::ZERO, ..Settings::default() };
    Elector::new(me, settings, None, bench.time(), bench.now).with_conduct(Conduct::coordinator(RENEWAL))
}

fn lock(bench: &TestBench, me: &str) -> Elector {
    let settings = Settings { heartbeat_jitter: Duration::ZERO, ..Settings::default() };
    Elector::new(me, settings, None, bench.time(), bench.now).with_conduct(Conduct::lock(RETRY))
}

#[test]
fn a_coordinator_acts_on_a_term_only_once_it_is_sealed() {
    let mut bench = TestBench::new();
    let mut a = coordinator(&bench, "a");
    let mut asked = Vec::new();
    let mut next = a.begin(Round::Heartbeat, bench.time());
    while let Some(ask) = next {
        assert_eq!(a.term(), None, "before the reply to {ask:?}");
        assert_eq!(a.leader(), None, "nor is it shown as the leader");
        asked.push(ask.name());
        let response = bench.reply(&a, ask);
        next = a.on_reply(response, bench.now, bench.time());
    }
    assert_eq!(asked, ["read", "elect", "seal"], "it enrols nowhere");
    assert_eq!((leads(&a), bench.sealed), (Some(1), Some(Epoch(1))));
    bench.pass(RENEWAL);
    assert_eq!(bench.heartbeat(&mut a), [Ask::Renew { epoch: Epoch(1) }]);
}

#[test]
fn a_term_that_cannot_be_sealed_is_given_back_and_counts_as_a_failure() {
    let mut bench = TestBench::new();
    let mut a = coordinator(&bench, "a");
    bench.sealed = None;
    for failures in 1..=4 {
        let asked = bench.heartbeat(&mut a);
        assert!(matches!(asked.last(), Some(Ask::Resign { .. })), "{asked:?}");
        assert_eq!((leads(&a), bench.present(), a.breaker().failure_count), (None, None, failures));
        let (due, round) = a.due(bench.now);
        assert_eq!((due, round), (bench.now + SECOND, Round::Heartbeat), "it retries soon");
        bench.pass(SECOND);
    }
    bench.sealed = Some(Epoch(0));
    let mut next = a.begin(Round::Heartbeat, bench.time());
    while let Some(ask) = next {
        if matches!(ask, Ask::Seal { .. }) {
            // Another has sealed a higher one meanwhile.
            bench.sealed = Some(Epoch(9));
        }
        let response = bench.reply(&a, ask);
        next = a.on_reply(response, bench.now, bench.time());
    }
    assert_eq!((leads(&a), bench.present()), (None, None), "the seal is rejected");
    bench.pass(SECOND * 30);
    bench.heartbeat(&mut a);
    assert_eq!(leads(&a), Some(10), "above what is sealed");
}

#[test]
fn a_term_that_was_sealed_too_late_is_given_back() {
    let mut bench = TestBench::new();
    let mut a = coordinator(&bench, "a");
    let mut next = a.begin(Round::Heartbeat, bench.time());
    while let Some(ask) = next {
        let (is_seal, asked) = (matches!(ask, Ask::Seal { .. }), bench.now);
        let response = bench.reply(&a, ask);
        if is_seal {
            bench.pass(SECOND * 14);
        }
        next = a.on_reply(response, asked, bench.time());
        assert_eq!(a.term(), None);
    }
    assert_eq!(bench.present(), None, "it resigned");
}

#[test]
fn a_coordinator_whose_election_was_not_answered_gives_back_what_it_won() {
    let mut bench = TestBench::new();
    let mut a = coordinator(&bench, "a");
    let mut next = a.begin(Round::Heartbeat, bench.time());
    while let Some(ask) = next {
        let is_election = matches!(ask, Ask::Elect { .. });
        let response = bench.reply(&a, ask);
        next = a.on_reply(if is_election { Reply::Failed } else { response }, bench.now, bench.time());
    }
    assert_eq!((leads(&a), bench.present(), bench.sealed), (None, None, Some(Epoch(0))));
    bench.pass(SECOND);
    bench.heartbeat(&mut a);
    assert_eq!(leads(&a), Some(2));
}

#[test]
fn nobody_ends_a_term_that_the_store_judges() {
    let mut bench = TestBench::new();
    let (mut a, mut b) = (coordinator(&bench, "a"), coordinator(&bench, "b"));
    bench.highest = Epoch(6);
    bench.heartbeat(&mut a);
    bench.heartbeat(&mut b);
    // The leases have lost their data; the store has not.
    (bench.lease, bench.highest) = (None, Epoch(6));
    let mut c = coordinator(&bench, "c");
    bench.sealed = Some(Epoch(6));
    bench.heartbeat(&mut c);
    assert_eq!(bench.heartbeat(&mut b), [Ask::Read]);
    assert_eq!(b.leader().map(|(leader, epoch, _)| (leader, epoch)), Some(("c", Epoch(7))));
}

#[test]
fn a_coordinator_that_is_not_fit_follows_and_stands_once_it_is() {
    let mut bench = TestBench::new();
    let mut a = coordinator(&bench, "a");
    a.set_fit(false);
    for _ in 0..3 {
        assert_eq!(bench.heartbeat(&mut a), [Ask::Read]);
        let (due, _) = a.due(bench.now);
        assert_eq!(due, bench.now + RENEWAL, "it does not ask more often than a follower");
        bench.pass(RENEWAL);
    }
    a.set_fit(true);
    bench.check_lease(&mut a);
    assert_eq!(leads(&a), Some(1));
    a.set_fit(false);
    bench.step_down(&mut a);
    assert_eq!((leads(&a), bench.present()), (None, None));
    bench.run(&mut a, SECOND * 60);
    assert_eq!(leads(&a), None);
}

#[test]
fn a_coordinator_that_stepped_down_stands_again_soon() {
    let mut bench = TestBench::new();
    let mut a = coordinator(&bench, "a");
    bench.heartbeat(&mut a);
    bench.step_down(&mut a);
    bench.run(&mut a, SECOND / 5);
    assert_eq!(leads(&a), Some(2));
}

#[test]
fn a_predecessor_of_the_same_name_is_who_holds_the_lease() {
    let mut bench = TestBench::new();
    let mut before = coordinator(&bench, "a");
    bench.heartbeat(&mut before);
    let mut a = coordinator(&bench, "a");
    bench.heartbeat(&mut a);
    assert_eq!((leads(&a), a.leader()), (None, None));
    assert_eq!(a.holder().map(|(holder, epoch, _)| (holder, epoch)), Some(("a", Epoch(1))));
    assert_eq!(a.leader_read_at(), Some(bench.now));
}

#[test]
fn an_open_breaker_keeps_followers_from_asking_and_no_leader_from_renewing() {
    for make in [coordinator as fn(&TestBench, &str) -> Elector, lock] {
        let mut bench = TestBench::new();
        let mut a = make(&bench, "a");
        bench.heartbeat(&mut a);
        bench.down = true;
        bench.pass(RENEWAL);
        for _ in 0..5 {
            assert_eq!(bench.heartbeat(&mut a), [Ask::Renew { epoch: Epoch(1) }]);
            let (due, _) = a.due(bench.now);
            assert!(due > bench.now, "it does not ask again at once");
        }
        assert_eq!(a.breaker().state, BreakerState::Open);
        assert_eq!(bench.heartbeat(&mut a), [Ask::Renew { epoch: Epoch(1) }], "its lease lasts");
        bench.pass(SECOND * 14);
        assert!(bench.heartbeat(&mut a).is_empty(), "its term is over: now it waits");
        assert_eq!((leads(&a), a.metrics().heartbeats_skipped), (None, 1));
        bench.down = false;
        bench.pass(SECOND * 30);
        bench.heartbeat(&mut a);
        assert_eq!((leads(&a), a.breaker().state), (Some(2), BreakerState::Closed));
    }
}

#[test]
fn a_renewal_that_succeeds_closes_the_breaker() {
    let mut bench = TestBench::new();
    let mut a = lock(&bench, "a");
    bench.heartbeat(&mut a);
    bench.down = true;
    for _ in 0..6 {
        bench.heartbeat(&mut a);
    }
    assert_eq!(a.breaker().state, BreakerState::Open);
    bench.down = false;
    bench.heartbeat(&mut a);
    assert_eq!((leads(&a), a.breaker().state), (Some(1), BreakerState::Closed));
    assert_eq!(a.due(bench.now).0, bench.now + RENEWAL);
}

#[test]
fn whoever_wants_a_lock_asks_for_it_and_for_nothing_else() {
    let mut bench = TestBench::new();
    let (mut a, mut b) = (lock(&bench, "a"), lock(&bench, "b"));
    assert_eq!(bench.heartbeat(&mut a), [Ask::Elect { floor: Epoch(0) }]);
    assert_eq!(a.due(bench.now), (bench.now + RENEWAL, Round::Heartbeat));
    for _ in 0..3 {
        assert_eq!(bench.heartbeat(&mut b), [Ask::Elect { floor: Epoch(0) }]);
        assert_eq!(b.due(bench.now), (bench.now + RETRY, Round::Heartbeat), "every retry delay");
    }
    assert_eq!((a.metrics().election_count, b.metrics().election_count), (1, 0), "who is rejected was no candidate");
    bench.pass(RENEWAL);
    assert_eq!(bench.heartbeat(&mut a), [Ask::Renew { epoch: Epoch(1) }]);
    bench.lease = None;
    assert_eq!(bench.heartbeat(&mut a), [Ask::Renew { epoch: Epoch(1) }], "lost, and the round is over");
    assert_eq!((leads(&a), a.due(bench.now).0), (None, bench.now + RETRY));
}

#[test]
fn a_lock_that_was_lost_or_given_up_is_asked_for_again_after_the_retry_delay() {
    let mut bench = TestBench::new();
    let mut a = lock(&bench, "a");
    bench.heartbeat(&mut a);
    bench.step_down(&mut a);
    assert_eq!(bench.present(), None);
    assert!(bench.heartbeat(&mut a).is_empty(), "others first");
    let mut a = lock(&bench, "a");
    bench.heartbeat(&mut a);
    bench.step_down(&mut a);
    assert_eq!(a.due(bench.now), (bench.now + RETRY, Round::Heartbeat));
    bench.pass(RETRY);
    bench.heartbeat(&mut a);
    assert!(leads(&a).is_some());
}

#[test]
fn a_lock_whose_answer_was_lost_is_resigned_by_one_that_leaves() {
    let mut bench = TestBench::new();
    let mut a = lock(&bench, "a");
    bench.mute = true;
    bench.heartbeat(&mut a);
    bench.mute = false;
    assert!(bench.present().is_some() && leads(&a).is_none());
    let asks = a.step_down(bench.time());
    assert!(matches!(&asks[..], [Ask::Resign { holder, .. }] if holder == "a"), "{asks:?}");
}
