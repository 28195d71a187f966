use bytes::Bytes;
use convoke_core::jobs::wire::V1;

use super::*;

fn channel(n: u128) -> Channel {
    (JobId(uuid::Uuid::from_u128(n)), JobChannel::Status)
}

fn bell(jobs: &[u128]) -> Bell {
    Bell { v: V1, jobs: jobs.iter().map(|n| channel(*n).0).collect(), logs: Some(Vec::new()) }
}

fn entry(id: &str) -> Entry {
    Entry { id: id.into(), body: Bytes::new() }
}

fn names(round: &Option<Round>) -> Vec<&str> {
    round.iter().flat_map(|round| &round.orders).map(|order| order.name.as_str()).collect()
}

#[test]
fn a_channel_is_read_when_its_bell_rings_and_not_before() {
    let now = Instant::now();
    let mut readings = Readings::new(now);
    readings.add(channel(1), "one", now);
    readings.add(channel(2), "two", now);
    assert!(readings.next_round(now).is_none());
    assert!(readings.ring(&bell(&[2, 2, 3]), now));
    assert!(!readings.ring(&bell(&[3]), now), "nothing of ours");
    assert_eq!(names(&readings.next_round(now)), ["two"], "once, however often it rang");
    assert!(readings.next_round(now).is_none());
}

#[test]
fn a_bell_that_made_no_difference_is_for_both_channels_of_a_job() {
    let now = Instant::now();
    let mut readings = Readings::new(now);
    let job = channel(1).0;
    readings.add((job, JobChannel::Status), "status", now);
    readings.add((job, JobChannel::Logs), "logs", now);
    readings.ring(&Bell { v: V1, jobs: vec![job], logs: None }, now);
    assert_eq!(names(&readings.next_round(now)), ["logs", "status"], "lines before the end");
    readings.ring(&Bell { v: V1, jobs: vec![job], logs: Some(vec![]) }, now);
    assert_eq!(names(&readings.next_round(now)), ["status"]);
    readings.ring(&Bell { v: V1, jobs: vec![], logs: Some(vec![job]) }, now);
    assert_eq!(names(&readings.next_round(now)), ["logs"]);
}

#[test]
fn a_bell_that_rang_before_the_channel_was_added_is_remembered() {
    let now = Instant::now();
    let mut readings = Readings::new(now);
    readings.ring(&bell(&[1]), now);
    readings.add(channel(1), "one", now);
    assert_eq!(names(&readings.next_round(now)), ["one"]);
}

#[test]
fn every_channel_is_read_a_moment_after_it_was_added_unless_it_was_or_is_gone() {
    let now = Instant::now();
    let mut readings = Readings::new(now);
    for (n, name) in [(1, "silent"), (2, "rung"), (3, "removed")] {
        readings.add(channel(n), name, now);
    }
    readings.ring(&bell(&[2]), now);
    assert_eq!(names(&readings.next_round(now)), ["rung"]);
    readings.remove(&channel(3));
    let later = readings.next_at();
    assert!(later > now && later <= now + POLL_DELAYS[0]);
    assert_eq!(names(&readings.next_round(later)), ["silent"]);
}

#[test]
fn a_channel_is_looked_at_less_and_less_often_until_a_bell_of_its_job_is_heard() {
    let start = Instant::now();
    let mut readings = Readings::new(start);
    for (n, name) in [(1, "silent"), (2, "rung")] {
        readings.add(channel(n), name, start);
        readings.add((channel(n).0, JobChannel::Logs), &format!("{name}, logs"), start);
    }
    let (mut now, mut rounds) = (start, Vec::new());
    while readings.next_at() < start + SWEEP_INTERVAL {
        now = readings.next_at();
        rounds.push((now - start, names(&readings.next_round(now)).join(" + ")));
        readings.ring(&bell(&[2]), now);
        assert_eq!(names(&readings.next_round(now)), ["rung"]);
    }
    let silent = "silent + silent, logs".to_owned();
    let all = format!("{silent} + rung + rung, logs");
    let expected = [(100, &all), (400, &silent), (1_400, &silent), (4_400, &silent), (14_400, &silent)];
    assert_eq!(rounds, expected.map(|(ms, names)| (Duration::from_millis(ms), names.clone())));
    assert_eq!(names(&readings.next_round(now)), [""; 0], "nothing but the sweep is left");
}

#[test]
fn everything_is_read_now_and_then_and_when_bells_were_lost() {
    let now = Instant::now();
    let mut readings = Readings::new(now);
    readings.add(channel(1), "one", now);
    let later = readings.next_at();
    assert_eq!(names(&readings.next_round(later)), ["one"]);
    readings.make_all_ready();
    assert_eq!(names(&readings.next_round(later)), ["one"]);
    let sweep = now + SWEEP_INTERVAL;
    assert_eq!(names(&readings.next_round(sweep)), ["one"]);
    assert!(readings.next_round(sweep).is_none());
}

#[test]
fn a_channel_is_read_on_from_what_is_not_acknowledged() {
    let now = Instant::now();
    let mut readings = Readings::new(now);
    readings.add(channel(1), "one", now);
    readings.ring(&bell(&[1]), now);
    let round = readings.next_round(now).expect("a round");
    assert_eq!(round.orders[0].after, None);
    assert_eq!(readings.give(round, vec![vec![entry("5-0"), entry("5-1")]])[0].1.len(), 2);
    readings.ring(&bell(&[1]), now);
    let round = readings.next_round(now).expect("a round");
    assert_eq!(round.orders[0].after, EntryId::parse("5-1"));
    assert!(readings.give(round, vec![vec![entry("5-1")]]).is_empty(), "nothing is given twice");
    let ids = ["5-0", "5-1"].map(|id| EntryId::parse(id).expect("an id"));
    let ticket = readings.begin_ack(channel(1)).expect("it is read");
    readings.ring(&bell(&[1]), now);
    assert!(readings.next_round(now).is_none(), "not while it is being acknowledged");
    assert!(readings.end_ack(ticket, &ids), "it rang meanwhile");
    let round = readings.next_round(now).expect("a round");
    assert_eq!(round.orders[0].after, None, "its next entry may have any id");
    assert_eq!(readings.give(round, vec![vec![entry("5-0")]]).len(), 1);
}

#[test]
fn a_channel_that_did_not_ring_is_not_read_after_its_acknowledgement() {
    let now = Instant::now();
    let mut readings = Readings::new(now);
    readings.add(channel(1), "one", now);
    readings.ring(&bell(&[1]), now);
    let round = readings.next_round(now).expect("a round");
    readings.give(round, vec![vec![entry("5-0")]]);
    let (one, two) = (readings.begin_ack(channel(1)), readings.begin_ack(channel(1)));
    let (one, two) = (one.expect("it is read"), two.expect("it is read"));
    let id = EntryId::parse("5-0").expect("an id");
    assert!(!readings.end_ack(one, &[id]));
    readings.ring(&bell(&[1]), now);
    assert!(readings.next_round(now).is_none(), "the other is not done");
    assert!(readings.end_ack(two, &[]));
    assert_eq!(names(&readings.next_round(now)), ["one"]);
    assert!(readings.next_round(now).is_none(), "once");
    readings.remove(&channel(1));
    readings.add(channel(1), "one", now);
    assert!(!readings.end_ack(two, &[id]), "of an earlier addition");
    assert!(readings.begin_ack(channel(2)).is_none(), "it is not read");
}

#[test]
fn what_was_removed_meanwhile_is_not_given_and_comes_again_when_it_is_added_again() {
    let now = Instant::now();
    let mut readings = Readings::new(now);
    readings.add(channel(1), "one", now);
    readings.ring(&bell(&[1]), now);
    let round = readings.next_round(now).expect("a round");
    readings.remove(&channel(1));
    readings.add(channel(1), "one", now);
    assert!(readings.give(round, vec![vec![entry("5-0")]]).is_empty(), "of another time");
    readings.ring(&bell(&[1]), now);
    let round = readings.next_round(now).expect("a round");
    readings.put_back(round);
    let round = readings.next_round(now).expect("what failed is tried again");
    assert_eq!(readings.give(round, vec![vec![entry("5-0")]]).len(), 1);
}

#[test]
fn a_round_is_bounded_and_what_is_left_is_read_next() {
    let now = Instant::now();
    let mut readings = Readings::new(now);
    // Recent entries were small.
    (0..4).for_each(|_| readings.sizes.observe(std::iter::once(0)));
    let count = CHANNELS_MAX as u128 + 1;
    (0..count).for_each(|n| readings.add(channel(n), &n.to_string(), now));
    readings.make_all_ready();
    let round = readings.next_round(now).expect("a round");
    assert_eq!(round.orders.len(), CHANNELS_MAX);
    let entries_max = round.entries_max;
    let full: Vec<Entry> = (0..entries_max).map(|n| entry(&format!("1-{n}"))).collect();
    let first = round.orders[0].name.clone();
    readings
        .give(round, std::iter::once(full).chain(std::iter::repeat_with(Vec::new).take(CHANNELS_MAX - 1)).collect());
    let rest = readings.next_round(now);
    assert_eq!(names(&rest).len(), 2, "the one too many, and the one that may hold more");
    assert!(names(&rest).contains(&first.as_str()));
}

#[test]
fn channels_that_bring_much_are_read_by_the_few() {
    let now = Instant::now();
    let mut readings = Readings::new(now);
    (1..=100).for_each(|n| readings.add(channel(n), &n.to_string(), now));
    readings.make_all_ready();
    let mut rounds = Vec::new();
    while let Some(round) = readings.next_round(now) {
        let large = |_: &Order| vec![Entry { id: "1-1".into(), body: vec![0; 1 << 20].into() }];
        let found: Vec<_> = round.orders.iter().map(large).collect();
        rounds.push(round.orders.len());
        readings.give(round, found);
    }
    assert_eq!(rounds.iter().sum::<usize>(), 100, "all are read");
    assert!(rounds.iter().skip(1).all(|channels| *channels <= 8), "{rounds:?}");
}
