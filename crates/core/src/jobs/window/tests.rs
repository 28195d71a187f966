use proptest::prelude::*;

use super::super::wire::{InboxReport, V1};
use super::*;

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millisecond(ms).expect("in range")
}

fn queue(name: &str) -> QueueName {
    QueueName::new(name).expect("a name")
}

fn heartbeat(worker: &str, queues: &[&str], running: u32, free: u32, ms: i64) -> WorkerHeartbeat {
    WorkerHeartbeat {
        v: V1,
        worker_id: WorkerId::new(worker).expect("a name"),
        queues: queues.iter().map(|name| queue(name)).collect(),
        running,
        free,
        state: WorkerState::Active,
        at: at(ms),
        name: None,
        concurrency: None,
        via: None,
        executions: None,
        inbox: None,
    }
}

/// A worker of the gateway of `node`, which wants to have `prefetch` runs beside those that it executes.
fn via(node: &str, prefetch: u32, heartbeat: WorkerHeartbeat) -> WorkerHeartbeat {
    let inbox = Some(InboxReport { prefetch, ..InboxReport::default() });
    WorkerHeartbeat { via: Some(NodeId::new(node).expect("a name")), inbox, ..heartbeat }
}

fn at_node(node: &str) -> Place {
    Place::Node(NodeId::new(node).expect("a name"))
}

fn untaken(of_queue: u64) -> WaitingRuns {
    WaitingRuns { of_queue, of_place: of_queue }
}

fn after(heartbeats: &[WorkerHeartbeat]) -> Windows {
    let (mut windows, mut now) = (Windows::new(), Timestamp::MIN);
    for heartbeat in heartbeats {
        now = now.max(heartbeat.at);
        windows.on_heartbeat(heartbeat, now);
    }
    windows
}

#[test]
fn without_a_worker_nothing_is_dispatched() {
    let mut windows = Windows::new();
    windows.dispatched(&queue("a"), &Place::Bus, 1_000_000, at(0));
    assert_eq!((windows.limit(&queue("a"), &Place::Bus, untaken(0), at(0)), windows.free(&queue("a"))), (0, 0));
    assert_eq!(windows.queues().count(), 0);
}

#[test]
fn the_window_is_what_is_free_less_what_waits_on_the_bus() {
    let mut windows = after(&[heartbeat("w1", &["a"], 2, 3, 0), heartbeat("w2", &["a", "b"], 0, 4, 0)]);
    assert_eq!((windows.free(&queue("a")), windows.workers(&queue("a"))), (7, 2));
    assert_eq!((windows.free(&queue("b")), windows.workers(&queue("b"))), (4, 1));
    assert_eq!(windows.limit(&queue("a"), &Place::Bus, untaken(0), at(0)), 7);
    assert_eq!(windows.limit(&queue("a"), &Place::Bus, untaken(5), at(0)), 2);
    assert_eq!(windows.limit(&queue("a"), &Place::Bus, untaken(u64::MAX), at(0)), 0);
    assert_eq!(windows.queues().map(QueueName::as_str).collect::<Vec<_>>(), ["a", "b"]);
}

#[test]
fn a_new_report_takes_the_place_of_the_old() {
    let windows = after(&[heartbeat("w", &["a", "b"], 0, 9, 0), heartbeat("w", &["b", "c", "c"], 5, 4, 1)]);
    assert_eq!(windows.queues().map(QueueName::as_str).collect::<Vec<_>>(), ["b", "c"]);
    assert_eq!((windows.free(&queue("c")), windows.workers(&queue("c"))), (4, 1));
}

#[test]
fn a_late_report_is_ignored() {
    let windows = after(&[heartbeat("w", &["a"], 9, 1, 10), heartbeat("w", &["a"], 0, 10, 9)]);
    assert_eq!(windows.free(&queue("a")), 1);
}

#[test]
fn a_clock_that_was_set_back_silences_nobody() {
    let hour = 3_600_000;
    let mut windows = after(&[heartbeat("w", &["a"], 10, 0, hour)]);
    windows.on_heartbeat(&heartbeat("w", &["a"], 0, 10, 1_000), at(1_000));
    assert_eq!(windows.free(&queue("a")), 10);
    let mut windows = after(&[heartbeat("w", &["a"], 0, 10, hour)]);
    windows.forget_stale(at(1_000), Duration::from_secs(30));
    windows.forget_stale(at(32_000), Duration::from_secs(30));
    assert_eq!(windows.workers(&queue("a")), 0);
}

#[test]
fn a_worker_that_drains_or_is_gone_offers_nothing_even_if_an_older_report_follows() {
    for state in [WorkerState::Draining, WorkerState::Gone] {
        let last = WorkerHeartbeat { state, ..heartbeat("w", &["a"], 1, 9, 10) };
        let mut windows = after(&[heartbeat("w", &["a"], 0, 10, 0), last, heartbeat("w", &["a"], 0, 10, 5)]);
        assert_eq!((windows.workers(&queue("a")), windows.limit(&queue("a"), &Place::Bus, untaken(0), at(10))), (0, 0));
        windows.on_heartbeat(&heartbeat("w", &["a"], 0, 3, 11), at(11));
        assert_eq!(windows.limit(&queue("a"), &Place::Bus, untaken(0), at(11)), 3);
    }
}

#[test]
fn a_silent_worker_is_forgotten_by_our_clock() {
    let mut windows = after(&[heartbeat("w1", &["a"], 0, 1, 0), heartbeat("w2", &["a"], 0, 2, 500)]);
    windows.forget_stale(at(999), Duration::from_secs(1));
    assert_eq!(windows.free(&queue("a")), 3);
    windows.forget_stale(at(1_000), Duration::from_secs(1));
    assert_eq!((windows.free(&queue("a")), windows.workers(&queue("a"))), (2, 1));
    // A forgotten worker may return, even with a wrong clock.
    windows.on_heartbeat(&heartbeat("w1", &["a"], 0, 5, -1_000_000), at(1_001));
    assert_eq!(windows.free(&queue("a")), 7);
    windows.forget_stale(at(10_000), Duration::from_secs(1));
    assert_eq!((windows.queues().count(), windows.workers.len()), (0, 0));
}

#[test]
fn fast_jobs_are_sent_ahead() {
    let mut windows = after(&[heartbeat("w", &["a"], 100, 0, 0)]);
    // Fifty per millisecond for three seconds: the turnover converges to 50,000 per second.
    for ms in 0..3_000 {
        windows.dispatched(&queue("a"), &Place::Bus, 50, at(ms));
    }
    // The turnover allows 2,000, the worker executes fewer at once.
    assert_eq!(windows.limit(&queue("a"), &Place::Bus, untaken(0), at(3_000)), 100);
    assert_eq!(windows.limit(&queue("a"), &Place::Bus, untaken(60), at(3_000)), 40);
    windows.on_heartbeat(&heartbeat("w", &["a"], 9_000, 20, 3_000), at(3_000));
    let limit = windows.limit(&queue("a"), &Place::Bus, untaken(0), at(3_000));
    // Less the 18,040 per second that would fill its 9,020 slots twice a second.
    assert!((1_240..=1_310).contains(&limit), "{limit}");
    // The lookahead decays after the last dispatch.
    assert_eq!(windows.limit(&queue("a"), &Place::Bus, untaken(0), at(10_000)), 20);
}

#[test]
fn a_fast_place_with_runs_waiting_is_sent_no_small_batch() {
    let mut windows = after(&[heartbeat("w", &["a"], 100, 0, 0)]);
    for ms in 0..3_000 {
        windows.dispatched(&queue("a"), &Place::Bus, 50, at(ms));
    }
    let mut limit = |waiting| windows.limit(&queue("a"), &Place::Bus, untaken(waiting), at(3_000));
    assert_eq!([limit(75), limit(76), limit(99)], [25, 0, 0], "a quarter of its slots");
    assert_eq!(limit(0), 100, "nothing waits");
    // A place with little to do is sent every job at once.
    let mut windows = after(&[heartbeat("w", &["a"], 1, 9, 0)]);
    windows.dispatched(&queue("a"), &Place::Bus, 1, at(0));
    assert_eq!(windows.limit(&queue("a"), &Place::Bus, untaken(8), at(1)), 1);
}

#[test]
fn filling_idle_workers_with_long_jobs_is_no_turnover() {
    let mut windows = after(&[heartbeat("w", &["a"], 0, 100, 0)]);
    windows.dispatched(&queue("a"), &Place::Bus, 100, at(0));
    windows.on_heartbeat(&heartbeat("w", &["a"], 100, 0, 1), at(1));
    assert_eq!(windows.limit(&queue("a"), &Place::Bus, untaken(0), at(1)), 0);
    // Nor is a single job that ends and is followed by another.
    for ms in (0..5_000).step_by(50) {
        windows.dispatched(&queue("a"), &Place::Bus, 1, at(ms));
    }
    assert_eq!(windows.limit(&queue("a"), &Place::Bus, untaken(0), at(5_000)), 0);
}

#[test]
fn each_place_has_a_window_of_its_own() {
    let heartbeats = [
        via("n1", 0, heartbeat("w1", &["a"], 0, 3, 0)),
        via("n2", 0, heartbeat("w2", &["a"], 0, 4, 0)),
        heartbeat("w3", &["a"], 0, 5, 0),
        WorkerHeartbeat { inbox: None, ..via("old", 0, heartbeat("w4", &["a"], 0, 6, 0)) },
    ];
    let mut windows = after(&heartbeats);
    let places: Vec<Place> = windows.places(&queue("a")).cloned().collect();
    assert_eq!(places, [at_node("n1"), at_node("n2"), Place::Bus], "a node without an inbox reads the bus");
    let mut limit = |place: &Place, waiting| windows.limit(&queue("a"), place, untaken(waiting), at(0));
    assert_eq!([limit(&at_node("n1"), 0), limit(&at_node("n2"), 1), limit(&Place::Bus, 0)], [3, 3, 11]);
    assert_eq!((windows.free(&queue("a")), windows.workers(&queue("a"))), (18, 4));
    // A worker that moves to another node takes its slots along.
    windows.on_heartbeat(&via("n2", 0, heartbeat("w1", &["a"], 0, 3, 1)), at(1));
    assert_eq!([&at_node("n1"), &at_node("n2")].map(|place| windows.free_at(&queue("a"), place)), [0, 7]);
    assert_eq!(windows.limit(&queue("a"), &at_node("n1"), untaken(0), at(1)), 0);
}

#[test]
fn a_slot_that_several_queues_share_is_filled_once() {
    let mut windows =
        after(&[via("n1", 0, heartbeat("w", &["a", "b"], 0, 1, 0)), via("n1", 0, heartbeat("x", &["c"], 0, 5, 0))]);
    let mut limit = |name, of_queue, of_place| {
        windows.limit(&queue(name), &at_node("n1"), WaitingRuns { of_queue, of_place }, at(0))
    };
    assert_eq!([limit("a", 0, 0), limit("b", 0, 0), limit("c", 0, 0)], [1, 1, 5]);
    assert_eq!([limit("a", 0, 6), limit("b", 0, 6), limit("c", 0, 6)], [0, 0, 0], "all six slots have their run");
    assert_eq!(limit("c", 0, 1), 5, "a run that waits for one worker does not keep another from its queue");
}

#[test]
fn a_worker_gets_what_it_wants_beside_its_slots_if_it_is_fast() {
    let place = at_node("n1");
    let mut windows = after(&[via("n1", 1_000, heartbeat("w", &["a"], 10, 0, 0))]);
    assert_eq!(windows.limit(&queue("a"), &place, untaken(0), at(0)), 0, "it has shown nothing yet");
    for ms in 0..3_000 {
        windows.dispatched(&queue("a"), &place, 50, at(ms));
    }
    assert_eq!(windows.limit(&queue("a"), &place, untaken(0), at(3_000)), 1_010);
    // The runs that it has beside those that it executes are ahead already.
    let full = WorkerHeartbeat { concurrency: Some(10), ..heartbeat("w", &["a"], 1_010, 0, 3_000) };
    windows.on_heartbeat(&via("n1", 1_000, full), at(3_000));
    assert_eq!(windows.limit(&queue("a"), &place, untaken(0), at(3_000)), 10);
}

#[test]
fn a_clock_that_goes_back_does_not_inflate_the_turnover() {
    let mut windows = after(&[heartbeat("w", &["a"], 1_000_000, 0, 0)]);
    windows.dispatched(&queue("a"), &Place::Bus, 10_000_000, at(10_000));
    let limit = windows.limit(&queue("a"), &Place::Bus, untaken(0), at(10_000));
    assert_eq!(windows.limit(&queue("a"), &Place::Bus, untaken(0), at(0)), limit);
    windows.dispatched(&queue("a"), &Place::Bus, 0, at(0));
    assert_eq!(windows.limit(&queue("a"), &Place::Bus, untaken(0), at(10_000)), limit);
}

#[test]
fn places_take_turns_and_the_bus_comes_last() {
    let [n1, n2] = ["n1", "n2"].map(at_node);
    assert_eq!(deal(&[(n1.clone(), 1)], 5), [(n1.clone(), 1)]);
    let wants = [(n1.clone(), 2), (n2.clone(), 3)];
    let turns = [&n1, &n2, &n1, &n2].map(|place| (place.clone(), 1));
    assert_eq!(deal(&wants, 4), turns);
    assert_eq!(deal(&wants, 9)[3..], [(n2.clone(), 2)]);
    let wants = [(Place::Bus, 10), (n1.clone(), 10)];
    assert_eq!(deal(&wants, 20), [(n1.clone(), 10), (Place::Bus, 10)]);
    assert_eq!(deal(&wants, 3), [(n1.clone(), 1), (Place::Bus, 2)]);
    assert_eq!(deal(&[(Place::Bus, 1)], 1), [(Place::Bus, 1)]);
    assert_eq!(deal(&[], 3), []);
}

proptest! {
    /// As many as may be dealt are dealt, and no place gets more than it may.
    #[test]
    fn what_is_dealt_fits(wants in prop::collection::vec(0..3_000usize, 0..6), bus in 0..3_000usize, limit in 0..5_000usize) {
        let mut all: Vec<(Place, usize)> =
            wants.iter().enumerate().map(|(n, want)| (at_node(&format!("n{n}")), *want)).collect();
        all.push((Place::Bus, bus));
        let dealt = deal(&all, limit);
        let total: usize = all.iter().map(|(_, want)| want).sum();
        prop_assert_eq!(dealt.iter().map(|(_, runs)| runs).sum::<usize>(), limit.min(total));
        prop_assert!(dealt.iter().all(|(_, runs)| *runs > 0));
        for (place, want) in &all {
            let got: usize = dealt.iter().filter(|(to, _)| to == place).map(|(_, runs)| runs).sum();
            prop_assert!(got <= *want, "{} of {} to {:?}", got, want, place);
        }
        let at = dealt.iter().position(|(place, _)| *place == Place::Bus);
        prop_assert!(at.is_none_or(|at| at == dealt.len() - 1), "{:?}", dealt);
    }

    /// The totals equal a count over the last heartbeats.
    #[test]
    fn totals_agree_with_a_count(heartbeats in prop::collection::vec(
        (0..4usize, prop::collection::vec(0..4usize, 0..5), 0..10u32, 0..10u32, 0..3usize, 0..100i64), 1..60,
    )) {
        let (workers, names) = (["w0", "w1", "w2", "w3"], ["a", "b", "c", "d"]);
        let mut windows = Windows::new();
        let mut last: BTreeMap<usize, WorkerHeartbeat> = BTreeMap::new();
        for (worker, queues, running, free, state, ms) in heartbeats {
            let queues: Vec<&str> = queues.into_iter().map(|index| names[index]).collect();
            let state = [WorkerState::Active, WorkerState::Draining, WorkerState::Gone][state];
            let heartbeat = WorkerHeartbeat { state, ..heartbeat(workers[worker], &queues, running, free, ms) };
            windows.on_heartbeat(&heartbeat, at(0));
            if last.get(&worker).is_none_or(|last| last.at <= heartbeat.at) {
                last.insert(worker, heartbeat);
            }
            for name in names {
                let of = |it: &&WorkerHeartbeat| it.state == WorkerState::Active && it.queues.contains(&queue(name));
                prop_assert_eq!(windows.workers(&queue(name)), last.values().filter(of).count());
                prop_assert_eq!(windows.free(&queue(name)), last.values().filter(of).map(|it| it.free).sum::<u32>());
            }
        }
    }
}
