//! When heartbeats come, what they ask, and what it means that one of them fails.

use super::*;
use crate::election::ContentionSettings;

/// An elector where requests are paid for.
fn thrifty(desk: &Desk, me: &str) -> Elector {
    let settings = Settings { policy: Policy::LowestId, ..Settings::default() };
    Elector::new(me, settings, None, desk.time(), desk.now)
}

/// A beat in which all questions of one kind fail.
fn beat_without(desk: &mut Desk, elector: &mut Elector, missing: &Ask) {
    let mut next = elector.begin(Round::Beat, desk.time());
    while let Some(ask) = next {
        let answer = if ask == *missing { Answer::Failed } else { desk.answer(elector, ask) };
        next = elector.hear(answer, desk.now, desk.time());
    }
    elector.plan(desk.now, desk.now, 0.5);
}

#[test]
fn a_heartbeat_comes_after_its_interval_and_up_to_its_jitter_later() {
    let mut desk = Desk::new();
    let mut a = desk.elector("a", Policy::FirstCome);
    desk.beat(&mut a);
    for (roll, after) in [(0.0, SECOND * 5), (0.5, SECOND * 11 / 2), (1.0, SECOND * 6), (7.0, SECOND * 6)] {
        a.plan(desk.now, desk.now, roll);
        assert_eq!(a.due(desk.now), (desk.now + after, Round::Beat), "{roll}");
    }
}

#[test]
fn a_leader_that_can_renew_leads_on_whatever_else_fails() {
    let mut desk = Desk::new();
    let mut a = desk.elector("a", Policy::FirstCome);
    desk.beat(&mut a);
    for _ in 0..20 {
        desk.pass(SECOND * 5);
        beat_without(&mut desk, &mut a, &Ask::Enroll);
        assert_eq!(leads(&a), Some(1));
    }
    let breaker = a.breaker();
    assert_eq!((breaker.state, breaker.failure_count, breaker.trips), (BreakerState::Closed, 0, 0));
}

#[test]
fn nothing_beside_a_renewal_is_waited_for_beyond_the_next_one() {
    let mut desk = Desk::new();
    let mut a = desk.elector("a", Policy::FirstCome);
    desk.beat(&mut a);
    desk.pass(SECOND * 5);
    let asked = desk.now;
    let ask = a.begin(Round::Beat, desk.time()).expect("renews");
    let answer = desk.answer(&a, ask);
    desk.pass(SECOND * 3);
    let enroll = a.hear(answer, asked, desk.time()).expect("enrols");
    assert_eq!((a.patience(&enroll, desk.now), &enroll), (SECOND * 2, &Ask::Enroll));
    desk.pass(SECOND);
    let roster = a.hear(Answer::Done, desk.now, desk.time()).expect("lists");
    assert_eq!((a.patience(&roster, desk.now), &roster), (SECOND, &Ask::Roster));
}

#[test]
fn nothing_beside_a_look_at_the_lease_is_waited_for_beyond_a_heartbeat() {
    let desk = Desk::new();
    let a = desk.elector("a", Policy::FirstCome);
    for (ask, patience) in [(Ask::Read, 15), (Ask::Elect { floor: Epoch(0) }, 15), (Ask::Enroll, 5), (Ask::Roster, 5)] {
        assert_eq!(a.patience(&ask, desk.now), SECOND * patience, "{ask:?}");
    }
}

#[test]
fn a_list_that_fails_is_asked_for_in_its_turn_and_nobody_seems_gone() {
    let mut desk = Desk::new();
    let (mut a, mut b) = (thrifty(&desk, "a"), thrifty(&desk, "b"));
    for elector in [&mut a, &mut b] {
        desk.beat(elector);
    }
    let mut listed = Vec::new();
    for beat in 1..=12 {
        desk.pass(SECOND * 6);
        desk.beat(&mut a);
        if beat == 4 {
            beat_without(&mut desk, &mut b, &Ask::Roster);
        } else if desk.beat(&mut b).contains(&Ask::Roster) {
            listed.push(beat);
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
    let mut desk = Desk::new();
    let (mut a, mut b) = (thrifty(&desk, "a"), thrifty(&desk, "b"));
    desk.beat(&mut a);
    desk.beat(&mut b);
    for _ in 0..20 {
        desk.pass(SECOND * 6);
        desk.beat(&mut a);
        beat_without(&mut desk, &mut b, &Ask::Roster);
        assert!(desk.roster["b"] > desk.now, "it is enrolled");
        assert_eq!(b.leader().map(|(leader, ..)| leader), Some("a"));
    }
    let breaker = b.breaker();
    assert_eq!((breaker.state, breaker.failure_count, breaker.trips), (BreakerState::Closed, 0, 0));
}

#[test]
fn a_list_that_an_election_waits_for_counts_as_any_other_question() {
    let mut desk = Desk::new();
    let mut a = thrifty(&desk, "a");
    for _ in 0..20 {
        beat_without(&mut desk, &mut a, &Ask::Roster);
        desk.pass(SECOND * 6);
    }
    assert_eq!(leads(&a), None);
    assert!(a.breaker().trips > 0, "{:?}", a.breaker());
}

#[test]
fn an_outage_is_nobody_s_timeout() {
    let mut desk = Desk::new();
    let (mut a, mut b) = (desk.elector("a", Policy::FirstCome), desk.elector("b", Policy::FirstCome));
    desk.beat(&mut a);
    desk.beat(&mut b);
    desk.down = true;
    desk.run(&mut b, SECOND * 60);
    assert!(b.members(desk.now).is_empty());
    desk.down = false;
    for _ in 0..12 {
        desk.beat(&mut a);
        desk.run(&mut b, SECOND * 5);
    }
    assert_eq!(b.members(desk.now), ["a", "b"]);
    let metrics = b.metrics();
    assert_eq!((metrics.worker_registrations, metrics.worker_timeouts), (2, 0));
}

#[test]
fn where_requests_are_paid_for_a_beat_has_two_and_a_renewal_three() {
    // Also where members are given up after little more than a beat.
    [Settings::default().worker_timeout, SECOND * 7].into_iter().for_each(a_beat_has_two_and_a_renewal_three);
}

fn a_beat_has_two_and_a_renewal_three(worker_timeout: Duration) {
    let mut desk = Desk::new();
    let make = |desk: &Desk, me: &str| {
        let settings = Settings { policy: Policy::LowestId, worker_timeout, ..Settings::default() };
        Elector::new(me, settings, None, desk.time(), desk.now)
    };
    let (mut a, mut b) = (make(&desk, "a"), make(&desk, "b"));
    desk.beat(&mut a);
    assert_eq!(desk.beat(&mut b).len(), 2);
    let mut lists = 0;
    for _ in 0..30 {
        desk.pass(SECOND * 6);
        let leader = desk.beat(&mut a);
        assert_eq!(leader.len(), 2, "which leaves one for a second attempt: {leader:?}");
        assert_eq!(leader[0], Ask::Renew { epoch: Epoch(1) });
        let follower = desk.beat(&mut b);
        assert_eq!(follower.len(), 2, "{follower:?}");
        assert_eq!(follower[0], Ask::Read);
        lists += follower.iter().filter(|ask| **ask == Ask::Roster).count();
        let (due, round) = b.due(desk.now);
        assert_eq!(round, Round::Beat, "no look between beats, {:?} from now", due - desk.now);
        assert_eq!(desk.roster.len(), 2, "both are always on the roster");
        assert!(desk.roster.values().all(|expires| *expires > desk.now));
    }
    assert_eq!(lists, 10, "every third beat");
}

#[test]
fn a_slow_heartbeat_is_told_of_and_counted() {
    let mut desk = Desk::new();
    let contention = ContentionSettings { threshold: 1.5, ..ContentionSettings::default() };
    let settings = Settings { contention, ..Settings::default() };
    let mut a = Elector::new("a", settings, None, desk.time(), desk.now);
    let mut next = a.begin(Round::Beat, desk.time());
    while let Some(ask) = next {
        let (answer, asked) = (desk.answer(&a, ask), desk.now);
        desk.pass(SECOND * 4);
        next = a.hear(answer, asked, desk.time());
    }
    let contended: Vec<_> = a.take_events().into_iter().filter(|what| what.name() == "contention:detected").collect();
    let Some(Happening::ContentionDetected(found)) = contended.first() else { panic!("{contended:?}") };
    assert_eq!((found.duration, found.expected), (SECOND * 12, SECOND * 5));
    let metrics = a.metrics();
    assert_eq!((metrics.heartbeat_count, metrics.election_count, metrics.leader_changes), (1, 1, 1));
    assert_eq!(metrics.heartbeat_latency_ms.p99, 12_000.0);
    assert_eq!(metrics.last_heartbeat_time, Some(desk.time().wall));
}
