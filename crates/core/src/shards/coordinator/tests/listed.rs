//! The rules of a coordinator whose store lists its workers.

use super::super::*;
use super::rules::{Stage, TIMEOUT, has, loses, name, peer, report};
use crate::shards::Shard;

fn member(worker: &str) -> ShardMember {
    key(&name("s"), &WorkerId::new(worker).expect("a name"))
}

/// Returns the successor of a coordinator that listed these workers.
fn successor(workers: &[&str]) -> Stage {
    Stage::with(Settings::default(), Start::Listed(workers.iter().map(|worker| member(worker)).collect()))
}

impl Stage {
    /// Confirms all changes that are to be written. Returns the added and the removed workers.
    fn write(&mut self) -> (Vec<String>, Vec<String>) {
        let names = |members: &[ShardMember]| members.iter().map(|it| it.worker.to_string()).collect::<Vec<_>>();
        let (mut added, mut removed) = (Vec::new(), Vec::new());
        while let Some(change) = self.coordinator.roster_change() {
            added.extend(names(&change.add));
            removed.extend(names(&change.remove));
            self.coordinator.roster_written(change, self.now);
        }
        (added, removed)
    }

    /// Sends a report of a two-phase worker that has seen a version.
    fn two_phase(&mut self, worker: &str, shards: &[Shard], beat: u64, version: Option<Version>) {
        let (assigned_shards, handoff) = (Some(shards.to_vec()), Some(true));
        let report = Report { assigned_shards, handoff, beat: Some(beat), version, ..report(worker, 4) };
        self.on_message(Message::Heartbeat(report));
    }
}

#[test]
fn a_service_of_which_nobody_is_listed_is_granted_at_once() {
    let mut stage = Stage::with(Settings::default(), Start::Listed(vec![key(&name("other"), &member("x").worker)]));
    stage.register("a", 4);
    assert_eq!(stage.write(), (vec!["a".to_owned()], vec![]));
    stage.run_until_quiet();
    assert_eq!(stage.sent(), [has("a", &[0, 1, 2, 3])]);
    assert!(stage.now < TIMEOUT);
}

#[test]
fn a_worker_is_granted_nothing_before_the_store_lists_it() {
    let mut stage = successor(&[]);
    stage.register("a", 4);
    stage.write();
    stage.run_until_quiet();
    stage.sent();
    stage.register("b", 4);
    stage.pass(Duration::from_secs(10));
    assert_eq!(stage.sent(), [], "its register waits");
    stage.heartbeat("a", 4, &[0, 1, 2, 3]);
    stage.heartbeat("b", 4, &[]);
    assert_eq!(stage.sent(), [has("a", &[0, 1, 2, 3]), has("b", &[])], "all others go on");
    assert_eq!(stage.write(), (vec!["b".to_owned()], vec![]));
    stage.run_until_quiet();
    assert_eq!(stage.sent(), [has("a", &[0, 1]), has("b", &[2, 3])]);
}

#[test]
fn a_worker_that_left_or_died_is_removed_from_the_list_and_listed_again_when_it_is_back() {
    let mut stage = successor(&[]);
    ["a", "b", "c"].iter().for_each(|worker| stage.register(worker, 4));
    stage.write();
    stage.run_until_quiet();
    let Report { service_name, worker_id, .. } = report("a", 0);
    stage.on_message(Message::Leave(Leave { service_name, worker_id, version: None, beat: None }));
    assert_eq!(stage.write(), (vec![], vec!["a".to_owned()]));
    stage.pass(Duration::from_secs(10));
    stage.heartbeat("b", 4, &[]);
    stage.pass(Duration::from_secs(10));
    assert_eq!(stage.write(), (vec![], vec!["c".to_owned()]));
    assert_eq!(stage.granted("b"), [0, 1, 2, 3]);
    stage.heartbeat("c", 4, &[2, 3]);
    stage.run_until_quiet();
    assert_eq!(stage.granted("c"), [] as [Shard; 0]);
    assert_eq!(stage.write(), (vec!["c".to_owned()], vec![]));
    stage.run_until_quiet();
    assert_eq!(stage.granted("c"), [2, 3]);
}

#[test]
fn a_newcomer_waits_only_until_all_that_are_listed_have_reported() {
    let mut stage = successor(&["a", "b"]);
    stage.register("new", 6);
    stage.write();
    stage.heartbeat("a", 6, &[0, 1, 2]);
    stage.run_until_quiet();
    assert_eq!(stage.sent(), [has("a", &[0, 1, 2])], "the shards of b are not known yet");
    stage.heartbeat("b", 6, &[3, 4, 5]);
    stage.run_until_quiet();
    let sent = stage.sent();
    assert_eq!(sent, [has("b", &[3, 4, 5]), has("a", &[0, 1]), has("b", &[2, 3]), has("new", &[4, 5])]);
    assert!(stage.now < Duration::from_secs(1));
}

#[test]
fn only_the_service_of_a_listed_worker_that_is_dead_waits_for_the_timeout() {
    let mut stage = successor(&["dead"]);
    let other = Report { service_name: name("t"), ..report("x", 2) };
    stage.on_message(Message::Register(other));
    stage.register("a", 4);
    stage.write();
    stage.run_until_quiet();
    assert_eq!(stage.sent(), [has("x", &[0, 1])]);
    stage.pass(TIMEOUT - Duration::from_secs(2));
    stage.heartbeat("a", 4, &[]);
    assert_eq!(stage.sent(), [has("a", &[])]);
    stage.pass(Duration::from_secs(3));
    assert_eq!(stage.sent(), [has("a", &[0, 1, 2, 3])]);
    stage.pass(Duration::from_secs(5));
    let dead = ShardEvent::Dead { service: name("s"), worker: member("dead").worker };
    assert!(stage.events.contains(&dead));
    assert!(stage.write().1.contains(&"dead".to_owned()));
}

#[test]
fn a_listed_worker_that_was_restarted_counts_as_reported() {
    let mut stage = successor(&["a", "b"]);
    stage.register("a", 4);
    stage.register("b", 4);
    assert_eq!(stage.write(), (vec![], vec![]), "both are listed");
    stage.run_until_quiet();
    assert_eq!(stage.sent(), [has("a", &[0, 1]), has("b", &[2, 3])]);
}

#[test]
fn a_two_phase_worker_has_reported_once_it_has_seen_this_term() {
    let mut stage = successor(&["a"]);
    stage.register("new", 4);
    stage.write();
    // Sent before a grant of the predecessor arrived, and delivered after that one's term.
    stage.two_phase("a", &[], 1, Some(Version(50)));
    stage.pass(Duration::from_secs(1));
    assert_eq!(stage.sent(), [has("a", &[])]);
    stage.two_phase("a", &[0, 1, 2, 3], 2, Some(Version(60)));
    stage.pass(Duration::from_secs(1));
    assert_eq!(stage.sent(), [has("a", &[0, 1, 2, 3])], "it is still awaited, and keeps what it has");
    stage.two_phase("a", &[0, 1, 2, 3], 3, Some(stage.version()));
    stage.run_until_quiet();
    assert_eq!(stage.sent(), [has("a", &[0, 1, 2, 3]), has("a", &[0, 1]), loses("a", &[2, 3])]);
    assert!(stage.now < TIMEOUT);
}

#[test]
fn a_farewell_ends_the_wait_if_its_worker_has_reported() {
    let mut stage = successor(&["a"]);
    stage.register("new", 4);
    stage.write();
    let Report { service_name, worker_id, .. } = report("a", 0);
    let leave = Leave { service_name, worker_id, version: None, beat: Some(9) };
    stage.on_message(Message::Leave(leave.clone()));
    stage.run_until_quiet();
    assert_eq!(stage.sent(), [has("a", &[])], "it may be of a former life: nobody knows this one");
    stage.two_phase("a", &[], 8, None);
    stage.on_message(Message::Leave(leave));
    stage.run_until_quiet();
    assert_eq!(stage.sent(), [has("a", &[]), has("a", &[]), has("new", &[0, 1, 2, 3])]);
    assert_eq!(stage.write(), (vec![], vec!["a".to_owned()]));
}

/// The store has lost what it confirmed.
#[test]
fn a_worker_that_is_not_listed_and_has_shards_keeps_them_and_is_waited_for() {
    let mut stage = successor(&[]);
    stage.heartbeat("a", 4, &[2, 3]);
    stage.register("b", 4);
    stage.run_until_quiet();
    assert_eq!(stage.sent(), [], "a is not listed yet, b waits");
    stage.write();
    stage.heartbeat("a", 4, &[2, 3]);
    stage.pass(Duration::from_secs(10));
    assert_eq!(stage.sent(), [has("a", &[2, 3])]);
    stage.heartbeat("a", 4, &[2, 3]);
    stage.heartbeat("b", 4, &[]);
    stage.sent();
    stage.pass(Duration::from_secs(6));
    assert_eq!(stage.granted("a").len() + stage.granted("b").len(), 4);
}

#[test]
fn what_the_store_lists_counts_against_the_limit_of_workers() {
    let limits = Limits { workers_max: 2, ..Limits::default() };
    let settings = Settings { limits, ..Settings::default() };
    let mut stage = Stage::with(settings, Start::Listed(vec![member("a"), member("b")]));
    stage.register("c", 4);
    assert!(matches!(stage.messages.as_slice(), [(to, CoordinatorMessage::Error(_))] if to == "c"));
    stage.messages.clear();
    stage.register("a", 4);
    stage.register("b", 4);
    stage.run_until_quiet();
    assert_eq!(stage.sent(), [has("a", &[0, 1]), has("b", &[2, 3])]);
    let mut output = Output::default();
    stage.coordinator.on_message(&peer("c"), Message::Register(report("c", 4)), stage.now, &mut output);
    assert_eq!(output.events, []);
}
