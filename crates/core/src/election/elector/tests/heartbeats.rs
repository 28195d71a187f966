//! When heartbeats are sent, what they request, and the effect of a failed request.

use super::*;
use crate::election::ContentionSettings;

/// Returns an elector whose requests are paid for.
fn thrifty(bench: &TestBench, me: &str) -> Elector {
    let settings = Settings { policy: Policy::LowestId, ..Settings::default() };
    Elector::new(me, settings, None, bench.time(), bench.now)
}

/// Runs a heartbeat in which all requests of one kind fail.
fn heartbeat_without(bench: &mut TestBench, elector: &mut Elector, missing: &Ask) {
    let mut next = elector.begin(Round::Heartbeat, bench.time());
    while let Some(ask) = next {
        let response = if ask == *missing { Reply::Failed } else { bench.reply(elector, ask) };
        next = elector.on_reply(response, bench.now, bench.time());
    }
    elector.plan(bench.now, bench.now, 0.5);
}

#[test]
fn a_heartbeat_comes_after_its_interval_and_up_to_its_jitter_later() {
    let mut bench = TestBench::new();
    let mut a = bench.elector("a", Policy::FirstCome);
    bench.heartbeat(&mut a);
    for (roll, after) in [(0.0, SECOND * 5), (0.5, SECOND * 11 / 2), (1.0, SECOND * 6), (7.0, SECOND * 6)] {
        a.plan(bench.now, bench.now, roll);
        assert_eq!(a.due(bench.now), (bench.now + after, Round::Heartbeat), "{roll}");
    }
}

#[test]
fn a_leader_that_can_renew_leads_on_whatever_else_fails() {
    let mut bench = TestBench::new();
    let mut a = bench.elector("a", Policy::FirstCome);
    bench.heartbeat(&mut a);
    for _ in 0..20 {
        bench.pass(SECOND * 5);
        heartbeat_without(&mut bench, &mut a, &Ask::Enroll);
        assert_eq!(leads(&a), Some(1));
    }
    let breaker = a.breaker();
    assert_eq!((breaker.state, breaker.failure_count, breaker.trips), (BreakerState::Closed, 0, 0));
}

#[test]
fn nothing_beside_a_renewal_is_waited_for_beyond_the_next_one() {
    let mut bench = TestBench::new();
    let mut a = bench.elector("a", Policy::FirstCome);
    bench.heartbeat(&mut a);
    bench.pass(SECOND * 5);
    let asked = bench.now;
    let ask = a.begin(Round::Heartbeat, bench.time()).expect("renews");
    let response = bench.reply(&a, ask);
    bench.pass(SECOND * 3);
    let enroll = a.on_reply(response, asked, bench.time()).expect("enrols");
    assert_eq!((a.patience(&enroll, bench.now), &enroll), (SECOND * 2, &Ask::Enroll));
    bench.pass(SECOND);
    let roster = a.on_reply(Reply::Done, bench.now, bench.time()).expect("lists");
    assert_eq!((a.patience(&roster, bench.now), &roster), (SECOND, &Ask::Roster));
}

#[test]
fn nothing_beside_a_look_at_the_lease_is_waited_for_beyond_a_heartbeat() {
    let bench = TestBench::new();
    let a = bench.elector("a", Policy::FirstCome);
    for (ask, patience) in [(Ask::Read, 15), (Ask::Elect { floor: Epoch(0) }, 15), (Ask::Enroll, 5), (Ask::Roster, 5)] {
        assert_eq!(a.patience(&ask, bench.now), SECOND * patience, "{ask:?}");
    }
}

#[test]
fn a_list_that_fails_is_asked_for_in_its_turn_and_nobody_seems_gone() {
    let mut bench = TestBench::new();
    let (mut a, mut b) = (thrifty(&bench, "a"), thrifty(&bench, "b"));
    for elector in [&mut a, &mut b] {
        bench.heartbeat(elector);
    }
    let mut listed = Vec::new();
    for heartbeat in 1..=12 {
        bench.pass(SECOND * 6);
        bench.heartbeat(&mut a);
        if heartbeat == 4 {
            heartbeat_without(&mut bench, &mut b, &Ask::Roster);
        } else if bench.heartbeat(&mut b).contains(&Ask::Roster) {
            listed.push(heartbeat);
        }
    }
    assert_eq!(listed, [1, 7, 10]);
    let updates = b.take_events().into_iter().filter(|what| what.name() == "workers:updated").count();
    assert_eq!(updates, 1, "when they were listed first");
    let metrics = b.metrics();
    assert_eq!((metrics.worker_registrations, metrics.worker_timeouts), (2, 0));
}

#[test]
fn a_follower_stays_enrolled_and_in_touch_although_every_list_fails() {
    let mut bench = TestBench::new();
    let (mut a, mut b) = (thrifty(&bench, "a"), thrifty(&bench, "b"));
    bench.heartbeat(&mut a);
    bench.heartbeat(&mut b);
    for _ in 0..20 {
        bench.pass(SECOND * 6);
        bench.heartbeat(&mut a);
        heartbeat_without(&mut bench, &mut b, &Ask::Roster);
        assert!(bench.roster["b"] > bench.now, "it is enrolled");
        assert_eq!(b.leader().map(|(leader, ..)| leader), Some("a"));
    }
    let breaker = b.breaker();
    assert_eq!((breaker.state, breaker.failure_count, breaker.trips), (BreakerState::Closed, 0, 0));
}

#[test]
fn a_list_that_an_election_waits_for_counts_as_any_other_question() {
    let mut bench = TestBench::new();
    let mut a = thrifty(&bench, "a");
    for _ in 0..20 {
        heartbeat_without(&mut bench, &mut a, &Ask::Roster);
        bench.pass(SECOND * 6);
    }
    assert_eq!(leads(&a), None);
    assert!(a.breaker().trips > 0, "{:?}", a.breaker());
}

#[test]
fn an_outage_is_nobody_s_timeout() {
    let mut bench = TestBench::new();
    let (mut a, mut b) = (bench.elector("a", Policy::FirstCome), bench.elector("b", Policy::FirstCome));
    bench.heartbeat(&mut a);
    bench.heartbeat(&mut b);
    bench.down = true;
    bench.run(&mut b, SECOND * 60);
    assert!(b.members(bench.now).is_empty());
    bench.down = false;
    for _ in 0..12 {
        bench.heartbeat(&mut a);
        bench.run(&mut b, SECOND * 5);
    }
    assert_eq!(b.members(bench.now), ["a", "b"]);
    let metrics = b.metrics();
    assert_eq!((metrics.worker_registrations, metrics.worker_timeouts), (2, 0));
}

#[test]
fn where_requests_are_paid_for_a_beat_has_two_and_a_renewal_three() {
    // Also if members expire after little more than a heartbeat interval.
    [Settings::default().worker_timeout, SECOND * 7].into_iter().for_each(a_beat_has_two_and_a_renewal_three);
}

fn a_beat_has_two_and_a_renewal_three(worker_timeout: Duration) {
    let mut bench = TestBench::new();
    let make = |bench: &TestBench, me: &str| {
        let settings = Settings { policy: Policy::LowestId, worker_timeout, ..Settings::default() };
        Elector::new(me, settings, None, bench.time(), bench.now)
    };
    let (mut a, mut b) = (make(&bench, "a"), make(&bench, "b"));
    bench.heartbeat(&mut a);
    assert_eq!(bench.heartbeat(&mut b).len(), 2);
    let mut lists = 0;
    for _ in 0..30 {
        bench.pass(SECOND * 6);
        let leader = bench.heartbeat(&mut a);
        assert_eq!(leader.len(), 2, "which leaves one for a second attempt: {leader:?}");
        assert_eq!(leader[0], Ask::Renew { epoch: Epoch(1) });
        let follower = bench.heartbeat(&mut b);
        assert_eq!(follower.len(), 2, "{follower:?}");
        assert_eq!(follower[0], Ask::Read);
        lists += follower.iter().filter(|ask| **ask == Ask::Roster).count();
        let (due, round) = b.due(bench.now);
        assert_eq!(round, Round::Heartbeat, "no read between heartbeats, {:?} from now", due - bench.now);
        assert_eq!(bench.roster.len(), 2, "both are always on the roster");
        assert!(bench.roster.values().all(|expires| *expires > bench.now));
    }
    assert_eq!(lists, 10, "every third heartbeat");
}

#[test]
fn a_slow_heartbeat_is_told_of_and_counted() {
    let mut bench = TestBench::new();
    let contention = ContentionSettings { threshold: 1.5, ..ContentionSettings::default() };
    let settings = Settings { contention, ..Settings::default() };
    let mut a = Elector::new("a", settings, None, bench.time(), bench.now);
    let mut next = a.begin(Round::Heartbeat, bench.time());
    while let Some(ask) = next {
        let (response, asked) = (bench.reply(&a, ask), bench.now);
        bench.pass(SECOND * 4);
        next = a.on_reply(response, asked, bench.time());
    }
    let contended: Vec<_> = a.take_events().into_iter().filter(|what| what.name() == "contention:detected").collect();
    let Some(ElectionEvent::ContentionDetected(found)) = contended.first() else { panic!("{contended:?}") };
    assert_eq!((found.duration, found.expected), (SECOND * 12, SECOND * 5));
    let metrics = a.metrics();
    assert_eq!((metrics.heartbeat_count, metrics.election_count, metrics.leader_changes), (1, 1, 1));
    assert_eq!(metrics.heartbeat_latency_ms.p99, 12_000.0);
    assert_eq!(metrics.last_heartbeat_time, Some(bench.time().wall));
}

#[test]
fn a_member_that_has_not_enrolled_does_not_stand_because_it_was_notified_of_a_vacancy() {
    let mut bench = TestBench::new();
    let mut a = bench.elector("a", Policy::FirstCome);
    assert_eq!(a.begin(Round::LeaseCheck, bench.time()), None);
    bench.heartbeat(&mut a);
    assert_eq!(leads(&a), Some(1));
    let mut b = bench.elector("b", Policy::FirstCome);
    bench.heartbeat(&mut b);
    assert_eq!(b.begin(Round::LeaseCheck, bench.time()), Some(Ask::Read));
}
