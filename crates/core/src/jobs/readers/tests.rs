use super::*;
use crate::ports::GroupReader;

const STALE_AFTER: Duration = Duration::from_secs(30);

fn at(ms: u64) -> Moment {
    Moment(Duration::from_millis(ms))
}

fn queue(name: &str) -> QueueName {
    QueueName::new(name).expect("a name")
}

fn worker(name: &str) -> WorkerId {
    WorkerId::new(name).expect("a name")
}

fn reader(name: &str, idle_ms: u64, pending: u64) -> GroupReader {
    GroupReader { name: name.into(), idle: Duration::from_millis(idle_ms), pending, is_consumer: false }
}

fn seen(readers: &[GroupReader], is_awaited: bool) -> QueueReaders {
    QueueReaders { readers: readers.to_vec(), is_awaited }
}

/// An inspection that took ten milliseconds.
fn observe(readers: &mut Readers, queue: &QueueName, seen: Option<&QueueReaders>, received: Moment) {
    readers.observe(queue, seen, Moment(received.0 - Duration::from_millis(10)), received);
}

/// Watches queue `a` from the beginning, and has inspected it once without finding a reader.
fn watching() -> Readers {
    let mut readers = Readers::new(STALE_AFTER, BTreeSet::new());
    readers.watch(&queue("a"), at(0));
    observe(&mut readers, &queue("a"), Some(&seen(&[], false)), at(1_000));
    readers
}

#[test]
fn a_reader_that_comes_is_a_worker_with_ten_slots_less_what_it_has_not_acknowledged() {
    let mut readers = watching();
    observe(&mut readers, &queue("a"), Some(&seen(&[reader("r", 50, 3)], false)), at(2_000));
    let found = readers.readers(at(2_000));
    assert_eq!((found.len(), &found[0].worker, found[0].is_reading), (1, &worker("r"), true));
    let heartbeat = found[0].heartbeat(false, jiff::Timestamp::UNIX_EPOCH);
    assert_eq!(
        (heartbeat.free, heartbeat.running, heartbeat.slots(), heartbeat.state),
        (7, 3, 10, WorkerState::Active)
    );
    assert_eq!((heartbeat.name.as_deref(), heartbeat.via, heartbeat.executions), (Some("r (reader)"), None, None));
    observe(&mut readers, &queue("a"), Some(&seen(&[reader("r", 50, 30)], false)), at(3_000));
    assert_eq!(readers.readers(at(3_000))[0].heartbeat(true, jiff::Timestamp::UNIX_EPOCH).free, 0);
}

#[test]
fn consumers_of_the_port_and_names_that_no_worker_can_have_are_no_readers() {
    let mut readers = watching();
    let own = GroupReader { is_consumer: true, ..reader("own", 0, 0) };
    observe(&mut readers, &queue("a"), Some(&seen(&[own, reader("", 0, 0)], false)), at(2_000));
    assert_eq!(readers.readers(at(2_000)), []);
    assert!(!readers.probe(&queue("a"), at(2_000)));
}

#[test]
fn a_reader_that_was_there_at_the_first_look_counts_once_it_reads_again() {
    let mut readers = Readers::new(STALE_AFTER, BTreeSet::new());
    readers.watch(&queue("a"), at(0));
    for (now, idle) in [(1_000, 400), (2_000, 1_408), (3_000, 2_391)] {
        observe(&mut readers, &queue("a"), Some(&seen(&[reader("r", idle, 0)], false)), at(now));
        assert_eq!(readers.readers(at(now)), [], "the same read, however exactly it was measured");
    }
    observe(&mut readers, &queue("a"), Some(&seen(&[reader("r", 3_370, 1)], false)), at(4_000));
    assert_eq!(readers.readers(at(4_000)).len(), 1, "it read a moment after the first inspection");
}

#[test]
fn a_reader_of_several_queues_is_one_worker() {
    let mut readers = watching();
    readers.watch(&queue("b"), at(0));
    observe(&mut readers, &queue("b"), Some(&seen(&[], false)), at(1_000));
    observe(&mut readers, &queue("a"), Some(&seen(&[reader("r", 900, 2)], false)), at(2_000));
    observe(&mut readers, &queue("b"), Some(&seen(&[reader("r", 10, 1)], false)), at(2_000));
    let found = readers.readers(at(2_000));
    assert_eq!((found.len(), found[0].pending, found[0].silent_for), (1, 3, Duration::from_millis(20)));
    assert_eq!(found[0].queues, [queue("a"), queue("b")]);
}

#[test]
fn a_silent_reader_is_busy_with_what_it_has_and_gone_without() {
    let mut readers = watching();
    observe(&mut readers, &queue("a"), Some(&seen(&[reader("r", 0, 1)], false)), at(2_000));
    let state = |readers: &Readers, now: u64, has_runs: bool| {
        readers.readers(at(now))[0].heartbeat(has_runs, jiff::Timestamp::UNIX_EPOCH)
    };
    assert_eq!(state(&readers, 31_989, false).state, WorkerState::Active);
    let busy = state(&readers, 32_000, false);
    assert_eq!((busy.state, busy.free), (WorkerState::Draining, 0));
    assert_eq!(readers.queues_held(at(32_000)), BTreeSet::from([queue("a")]));
    assert_eq!(readers.queues_held(at(302_000)), BTreeSet::new(), "nor does it hold them without end");
    observe(&mut readers, &queue("a"), Some(&seen(&[reader("r", 31_000, 0)], false)), at(33_000));
    assert_eq!(state(&readers, 33_000, true).state, WorkerState::Draining, "the store has runs of it");
    assert_eq!(state(&readers, 33_000, false).state, WorkerState::Gone);
}

#[test]
fn a_worker_that_left_comes_back_with_its_next_read_only() {
    let mut readers = watching();
    observe(&mut readers, &queue("a"), Some(&seen(&[reader("r", 0, 0)], false)), at(2_000));
    readers.leave(&worker("r"), at(2_500));
    readers.leave(&worker("unseen"), at(2_500));
    let same = seen(&[reader("r", 1_000, 0), reader("unseen", 900, 0)], false);
    observe(&mut readers, &queue("a"), Some(&same), at(3_000));
    assert_eq!(readers.readers(at(3_000)), []);
    observe(&mut readers, &queue("a"), Some(&seen(&[reader("r", 10, 0)], false)), at(4_000));
    assert_eq!(readers.readers(at(4_000)).len(), 1);
}

#[test]
fn the_next_leader_knows_the_readers_in_the_registry_at_once() {
    let mut readers = Readers::new(STALE_AFTER, BTreeSet::from([worker("r")]));
    readers.watch(&queue("a"), at(0));
    observe(
        &mut readers,
        &queue("a"),
        Some(&seen(&[reader("r", 100_000, 1), reader("s", 100, 0)], false)),
        at(200_000),
    );
    let found = readers.readers(at(200_000));
    assert_eq!((found.len(), &found[0].worker, found[0].silent_for), (1, &worker("r"), Duration::from_millis(100_010)));
}

#[test]
fn who_may_read_is_probed_with_one_run_and_then_less_and_less_often() {
    let mut readers = watching();
    assert!(!readers.probe(&queue("a"), at(1_000)), "nobody waits");
    observe(&mut readers, &queue("a"), Some(&seen(&[], true)), at(2_000));
    let probes: Vec<u64> = (2..80).filter(|second| readers.probe(&queue("a"), at(second * 1_000))).collect();
    assert_eq!(probes, [2, 6, 14, 30, 60], "after four, eight, sixteen, thirty seconds");
    observe(&mut readers, &queue("a"), Some(&seen(&[], false)), at(100_000));
    assert!(!readers.probe(&queue("a"), at(100_000)));
    observe(&mut readers, &queue("a"), Some(&seen(&[reader("r", 0, 0)], false)), at(101_000));
    assert!(readers.probe(&queue("a"), at(101_000)), "it may read again");
    assert!(readers.probe(&queue("a"), at(105_000)), "it has read, so the pauses are short again");
}

#[test]
fn queues_that_nobody_reads_or_asks_for_are_forgotten_and_their_number_is_bounded() {
    let mut readers = watching();
    readers.watch(&queue("b"), at(0));
    observe(&mut readers, &queue("a"), Some(&seen(&[reader("r", 0, 0)], false)), at(2_000));
    assert_eq!(readers.watched(at(90_000)), [queue("a")], "it has a reader");
    observe(&mut readers, &queue("a"), None, at(90_000));
    assert!(readers.watched(at(90_000)).is_empty());
    for n in 0..WATCHED_MAX + 10 {
        readers.watch(&queue(&format!("q{n}")), at(100_000));
    }
    assert_eq!(readers.watched(at(100_000)).len(), WATCHED_MAX);
    for n in 0..LEFT_MAX as u64 + 10 {
        readers.leave(&worker(&format!("w{n}")), at(100_000 + n));
    }
    assert_eq!(readers.left.len(), LEFT_MAX, "nor are more remembered that left");
    readers.leave(&worker("late"), at(200_000));
    assert_eq!(readers.left.len(), 1);
}

#[test]
fn looks_are_frequent_only_while_readers_have_work() {
    let mut readers = watching();
    assert_eq!(readers.pause(at(1_000)), PAUSE_IDLE);
    observe(&mut readers, &queue("a"), Some(&seen(&[reader("r", 0, 0)], false)), at(2_000));
    assert_eq!(readers.pause(at(2_000)), PAUSE_IDLE, "nothing waits there");
    readers.watch(&queue("a"), at(2_000));
    assert_eq!(readers.pause(at(2_100)), PAUSE_BUSY);
    assert_eq!(readers.pause(at(4_000)), PAUSE_IDLE);
    assert!(readers.probe(&queue("a"), at(4_000)));
    assert_eq!(readers.pause(at(4_100)), PAUSE_BUSY, "whoever takes it is to be seen soon");
}
