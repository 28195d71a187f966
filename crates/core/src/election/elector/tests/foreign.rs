//! Members of another system in the namespace: here, their ids begin with `x-`.

use super::*;

fn is_foreign(id: &str) -> bool {
    id.starts_with("x-")
}

fn shared(bench: &TestBench, me: &str, yield_to_foreign: bool) -> Elector {
    let settings = Settings { yield_to_foreign, ..Settings::default() };
    Elector::new(me, settings, None, bench.time(), bench.now).sharing_with(Some(is_foreign))
}

/// Puts a foreign member on the roster. It does not expire.
fn join(bench: &mut TestBench, id: &str) {
    bench.roster.insert(id.into(), bench.now + SECOND * 1_000_000);
}

/// Lets one of them write a lease, whatever is stored.
fn write(bench: &mut TestBench, leader: &str, epoch: u64) {
    bench.lease = Some((leader.into(), Epoch(epoch), bench.now + SECOND * 15));
    (bench.highest, bench.is_foreign) = (bench.highest.max(Epoch(epoch)), true);
}

#[test]
fn a_term_after_one_of_theirs_is_two_above_and_acted_on_once_a_renewal_two_heartbeats_later_is_granted() {
    let mut bench = TestBench::new();
    write(&mut bench, "x-1", 7);
    let mut a = shared(&bench, "a", false);
    bench.heartbeat(&mut a);
    assert_eq!(a.leader().map(|(leader, epoch, _)| (leader, epoch)), Some(("x-1", Epoch(7))));
    bench.pass(SECOND * 15);
    bench.check_lease(&mut a);
    let elected = bench.now;
    assert_eq!(bench.present().map(|lease| (lease.holder, lease.epoch)), Some(("a".into(), Epoch(9))));
    bench.run(&mut a, SECOND * 9);
    assert_eq!((leads(&a), a.leader()), (None, None), "one of theirs may believe to lead until its next heartbeat");
    bench.run(&mut a, SECOND * 2);
    assert_eq!(leads(&a), Some(9));
    assert!(a.term().is_some_and(|held| held.certain_until > elected + SECOND * 20), "it was renewed meanwhile");
}

#[test]
fn a_term_among_ours_alone_is_the_next_and_acted_on_at_once() {
    let mut bench = TestBench::new();
    let mut a = shared(&bench, "a", true);
    bench.highest = Epoch(7);
    let asked = bench.heartbeat(&mut a);
    assert_eq!(leads(&a), Some(8));
    assert_eq!(asked[..3], [Ask::Roster, Ask::Enroll, Ask::Read]);
}

#[test]
fn a_late_decision_of_theirs_that_replaces_our_term_is_noticed_before_it_is_acted_on() {
    let mut bench = TestBench::new();
    write(&mut bench, "x-1", 7);
    let mut a = shared(&bench, "a", false);
    bench.heartbeat(&mut a);
    bench.pass(SECOND * 15);
    bench.check_lease(&mut a);
    bench.pass(SECOND);
    write(&mut bench, "x-2", 8);
    a.take_events();
    bench.run(&mut a, SECOND * 14);
    assert_eq!(leads(&a), None);
    assert_eq!(a.leader().map(|(leader, epoch, _)| (leader, epoch)), Some(("x-2", Epoch(8))), "it follows");
    assert!(!a.take_events().iter().any(|what| matches!(
        what,
        ElectionEvent::LeaderChanged { new_leader: Some(leader), .. } if leader == "a"
    )));
    bench.run(&mut a, SECOND * 2);
    assert_eq!(bench.present().map(|lease| lease.epoch), Some(Epoch(11)), "above what it held for a moment");
}

#[test]
fn a_number_under_which_ours_led_is_not_left_to_theirs_even_if_ours_yields() {
    for yields in [false, true] {
        let mut bench = TestBench::new();
        let mut a = shared(&bench, "a", yields);
        bench.highest = Epoch(7);
        bench.heartbeat(&mut a);
        assert_eq!(leads(&a), Some(8));
        join(&mut bench, "x-1");
        bench.pass(SECOND);
        // A process of theirs that was paused for long.
        write(&mut bench, "x-1", 8);
        bench.heartbeat(&mut a);
        assert_eq!(leads(&a), None);
        bench.pass(SECOND * 5);
        bench.heartbeat(&mut a);
        assert!(bench.highest >= Epoch(9), "{:?}", bench.highest);
        assert_eq!(leads(&a), None);
    }
}

#[test]
fn whoever_yields_neither_stands_nor_is_on_the_roster_while_one_of_theirs_is() {
    let mut bench = TestBench::new();
    join(&mut bench, "x-1");
    let mut a = shared(&bench, "a", true);
    bench.run(&mut a, SECOND * 120);
    assert!(a.yields() && bench.present().is_none());
    assert_eq!(a.metrics().election_count, 0);
    assert!(!bench.roster.contains_key("a"));
    bench.roster.remove("x-1");
    bench.run(&mut a, SECOND * 20);
    assert_eq!(leads(&a), Some(1));
    assert!(bench.roster.contains_key("a"));
}

#[test]
fn a_leader_that_yields_is_to_resign_when_one_of_theirs_comes() {
    for yields in [true, false] {
        let mut bench = TestBench::new();
        let mut a = shared(&bench, "a", yields);
        bench.heartbeat(&mut a);
        join(&mut bench, "x-1");
        bench.run(&mut a, SECOND * 30);
        assert_eq!(a.should_yield(), yields);
        if yields {
            bench.step_down(&mut a);
            bench.run(&mut a, SECOND * 60);
            assert!(bench.present().is_none() && !bench.roster.contains_key("a"));
        }
        assert_eq!(leads(&a).is_some(), !yields);
    }
}

#[test]
fn whoever_yields_and_is_elected_by_theirs_resigns_so_that_they_elect_again() {
    let mut bench = TestBench::new();
    let mut a = shared(&bench, "a", true);
    write(&mut bench, "x-1", 4);
    bench.heartbeat(&mut a);
    assert!(bench.roster.contains_key("a"), "it was alone");
    join(&mut bench, "x-1");
    write(&mut bench, "a", 5);
    bench.run(&mut a, SECOND * 30);
    assert!(bench.present().is_none() && leads(&a).is_none());
    assert!(!bench.roster.contains_key("a"));
}
