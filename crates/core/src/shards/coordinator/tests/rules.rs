//! The coordinator's rules, one at a time.

use super::super::*;
use crate::shards::wire::{self, Revoke};
use crate::shards::{Shard, Strategy};

pub(super) const TIMEOUT: Duration = Duration::from_secs(15);

pub(super) fn name(text: &str) -> ServiceName {
    ServiceName::new(text).expect("a name")
}

pub(super) fn peer(worker: &str) -> Peer {
    Peer(Bytes::copy_from_slice(worker.as_bytes()))
}

pub(super) fn report(worker: &str, max: u32) -> Report {
    Report {
        service_name: name("s"),
        worker_id: WorkerId::new(worker).expect("a name"),
        max_shard_count: max,
        assigned_shards: None,
        version: None,
        handoff: None,
        beat: None,
        instance: None,
    }
}

/// A coordinator, the time, and its messages so far.
pub(super) struct Stage {
    pub(super) coordinator: Coordinator,
    pub(super) now: Duration,
    pub(super) messages: Vec<(String, CoordinatorMessage)>,
    pub(super) events: Vec<ShardEvent>,
}

impl Stage {
    pub(super) fn new() -> Stage {
        Stage::with(Settings::default(), Start::Fresh)
    }

    pub(super) fn with(settings: Settings, start: Start) -> Stage {
        let coordinator = Coordinator::new(settings, start, Version(100));
        Stage { coordinator, now: Duration::ZERO, messages: Vec::new(), events: Vec::new() }
    }

    pub(super) fn take(&mut self, output: Output) {
        self.events.extend(output.events);
        for (peer, text) in output.sends {
            let response = wire::answer(&[text]).expect("it can be read");
            self.messages.push((String::from_utf8_lossy(&peer.0).into_owned(), response));
        }
    }

    pub(super) fn on_message(&mut self, message: Message) {
        let (Message::Register(Report { worker_id, .. })
        | Message::Heartbeat(Report { worker_id, .. })
        | Message::Leave(Leave { worker_id, .. })
        | Message::Released(Released { worker_id, .. })) = &message;
        let from = peer(worker_id.as_str());
        let mut output = Output::default();
        self.coordinator.on_message(&from, message, self.now, &mut output);
        self.take(output);
    }

    pub(super) fn register(&mut self, worker: &str, max: u32) {
        self.on_message(Message::Register(report(worker, max)));
    }

    pub(super) fn join(&mut self, worker: &str, max: u32, handoff: bool) {
        self.on_message(Message::Register(Report { handoff: Some(handoff), ..report(worker, max) }));
    }

    pub(super) fn heartbeat(&mut self, worker: &str, max: u32, shards: &[Shard]) {
        self.on_message(Message::Heartbeat(Report { assigned_shards: Some(shards.to_vec()), ..report(worker, max) }));
    }

    pub(super) fn released(&mut self, worker: &str, shards: &[Shard], version: Version) {
        let Report { service_name, worker_id, .. } = report(worker, 0);
        self.on_message(Message::Released(Released { service_name, worker_id, shards: shards.to_vec(), version }));
    }

    /// Lets time pass, and does everything that is due.
    pub(super) fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while self.coordinator.next_deadline() <= until {
            self.now = self.now.max(self.coordinator.next_deadline());
            let mut output = Output::default();
            self.coordinator.tick(self.now, &mut output);
            self.take(output);
        }
        self.now = until;
    }

    pub(super) fn run_until_quiet(&mut self) {
        self.pass(Duration::from_millis(100));
    }

    /// Returns the messages since the last call: the receiver, and its assigned or revoked shards.
    pub(super) fn sent(&mut self) -> Vec<(String, &'static str, Vec<Shard>)> {
        let messages = std::mem::take(&mut self.messages);
        let plain = |(worker, response)| match response {
            CoordinatorMessage::Assignment(assignment) => (worker, "has", assignment.assigned_shards),
            CoordinatorMessage::Revoke(Revoke { shards, .. }) => (worker, "loses", shards),
            CoordinatorMessage::Error(_) => (worker, "error", Vec::new()),
        };
        messages.into_iter().map(plain).collect()
    }

    pub(super) fn granted(&self, worker: &str) -> Vec<Shard> {
        let view = self.coordinator.view(&name("s")).expect("the service is known");
        let worker = view.workers.iter().find(|it| it.worker_id.as_str() == worker).expect("the worker is known");
        worker.shards.to_vec()
    }

    pub(super) fn version(&self) -> Version {
        self.coordinator.view(&name("s")).expect("the service is known").version
    }
}

pub(super) fn has(worker: &str, shards: &[Shard]) -> (String, &'static str, Vec<Shard>) {
    (worker.to_owned(), "has", shards.to_vec())
}

pub(super) fn loses(worker: &str, shards: &[Shard]) -> (String, &'static str, Vec<Shard>) {
    (worker.to_owned(), "loses", shards.to_vec())
}

#[test]
fn a_burst_of_registrations_is_one_rebalance_and_one_message_each() {
    let mut stage = Stage::new();
    for n in 0..1000 {
        stage.register(&format!("w{n:04}"), 10_000);
        stage.pass(Duration::from_micros(50));
    }
    assert!(stage.sent().is_empty(), "nothing is sent before it is quiet");
    stage.run_until_quiet();
    assert_eq!(stage.sent().len(), 1000);
    let rebalances = stage.events.iter().filter(|it| matches!(it, ShardEvent::Rebalanced { .. })).count();
    assert_eq!(rebalances, 1);
    assert_eq!(stage.granted("w0999"), (9_990..10_000).collect::<Vec<_>>());
}

#[test]
fn three_workers_share_ten_shards_as_four_three_and_three() {
    let mut stage = Stage::new();
    ["c", "a", "b"].iter().for_each(|worker| stage.register(worker, 10));
    stage.run_until_quiet();
    assert_eq!(stage.granted("a"), [0, 1, 2, 3]);
    assert_eq!(stage.granted("b"), [4, 5, 6]);
    assert_eq!(stage.granted("c"), [7, 8, 9]);
}

#[test]
fn only_those_whose_part_changed_are_told_and_the_one_that_registers() {
    let mut stage = Stage::new();
    ["a", "b"].iter().for_each(|worker| stage.register(worker, 4));
    stage.run_until_quiet();
    stage.sent();
    stage.register("a", 4);
    assert_eq!(stage.sent(), [has("a", &[0, 1])], "at once, from what is known");
    stage.register("c", 4);
    stage.run_until_quiet();
    assert_eq!(stage.sent(), [has("b", &[2]), has("c", &[3])]);
}

#[test]
fn a_heartbeat_is_answered_at_once_and_a_mismatch_is_normal() {
    let mut stage = Stage::new();
    stage.register("a", 3);
    stage.run_until_quiet();
    stage.sent();
    stage.heartbeat("a", 3, &[7, 99_999]);
    assert_eq!(stage.sent(), [has("a", &[0, 1, 2])]);
}

#[test]
fn the_last_shard_count_wins_also_by_a_heartbeat() {
    let mut stage = Stage::new();
    ["a", "b"].iter().for_each(|worker| stage.register(worker, 4));
    stage.run_until_quiet();
    stage.sent();
    stage.heartbeat("b", 2, &[2, 3]);
    stage.run_until_quiet();
    assert_eq!(stage.sent(), [has("b", &[2, 3]), has("a", &[0]), has("b", &[1])]);
    stage.register("a", 0);
    stage.run_until_quiet();
    assert_eq!(stage.sent(), [has("a", &[]), has("b", &[])]);
}

#[test]
fn the_silent_lose_their_shards_at_a_check_and_get_some_back_when_they_beat() {
    let mut stage = Stage::new();
    ["a", "b"].iter().for_each(|worker| stage.register(worker, 4));
    stage.run_until_quiet();
    for _ in 0..3 {
        stage.pass(Duration::from_secs(4));
        stage.heartbeat("a", 4, &[]);
    }
    stage.sent();
    stage.pass(Duration::from_secs(5));
    assert_eq!(stage.sent(), [has("a", &[0, 1, 2, 3])]);
    let dead = ShardEvent::Dead { service: name("s"), worker: WorkerId::new("b").expect("a name") };
    assert!(stage.events.contains(&dead));
    stage.heartbeat("b", 4, &[2, 3]);
    stage.run_until_quiet();
    assert_eq!(stage.sent(), [has("b", &[]), has("a", &[0, 1]), has("b", &[2, 3])]);
}

#[test]
fn the_silent_are_forgotten_and_their_service_begins_above_its_versions() {
    let mut stage = Stage::new();
    stage.register("a", 4);
    stage.run_until_quiet();
    let before = stage.version();
    stage.pass(TIMEOUT * 12);
    assert_eq!(stage.coordinator.views().count(), 0);
    stage.register("a", 4);
    stage.run_until_quiet();
    assert!(stage.version() > before);
}

#[test]
fn services_are_apart_also_where_workers_have_one_name_and_one_address() {
    let mut stage = Stage::new();
    stage.register("a", 2);
    let other = Report { service_name: name("t"), ..report("a", 3) };
    stage.on_message(Message::Register(other));
    stage.run_until_quiet();
    assert_eq!(stage.sent(), [has("a", &[0, 1]), has("a", &[0, 1, 2])]);
}

#[test]
fn a_worker_is_answered_where_it_last_spoke_from() {
    let mut stage = Stage::new();
    stage.register("a", 2);
    let mut output = Output::default();
    stage.coordinator.on_message(&peer("elsewhere"), Message::Register(report("a", 2)), stage.now, &mut output);
    stage.run_until_quiet();
    assert_eq!(stage.sent(), [has("elsewhere", &[0, 1])]);
}

#[test]
fn who_leaves_is_heard_and_its_shards_move() {
    let mut stage = Stage::new();
    ["a", "b"].iter().for_each(|worker| stage.register(worker, 4));
    stage.run_until_quiet();
    stage.sent();
    let Report { service_name, worker_id, .. } = report("a", 0);
    let leave = Leave { service_name, worker_id, version: None, beat: None };
    stage.on_message(Message::Leave(Leave { version: Some(Version(1)), ..leave.clone() }));
    assert_eq!(stage.sent(), [has("a", &[0, 1])], "the words of a former life");
    stage.on_message(Message::Leave(leave));
    stage.run_until_quiet();
    assert_eq!(stage.sent(), [has("a", &[]), has("b", &[0, 1, 2, 3])]);
}

#[test]
fn a_shard_waits_until_its_holder_has_let_go() {
    let mut stage = Stage::new();
    stage.join("a", 4, true);
    stage.run_until_quiet();
    stage.join("b", 4, true);
    stage.sent();
    stage.run_until_quiet();
    assert_eq!(stage.sent(), [has("a", &[0, 1]), loses("a", &[2, 3]), has("b", &[])]);
    stage.heartbeat("a", 4, &[0, 1, 2, 3]);
    assert_eq!(stage.sent(), [has("a", &[0, 1]), loses("a", &[2, 3])], "until its report is received");
    let version = stage.version();
    stage.released("a", &[2], Version(version.0 - 1));
    stage.run_until_quiet();
    assert!(stage.sent().is_empty(), "a word about an earlier grant");
    stage.released("a", &[3, 77], version);
    stage.run_until_quiet();
    assert_eq!(stage.sent(), [has("b", &[3])]);
    assert!(stage.version() > version);
    stage.pass(Duration::from_secs(10));
    stage.heartbeat("b", 4, &[]);
    stage.pass(Duration::from_secs(10));
    assert_eq!(stage.sent().last(), Some(&has("b", &[0, 1, 2, 3])), "its holder is dead");
}

#[test]
fn a_worker_of_the_original_protocol_is_answered_once_others_have_let_go_of_its_part() {
    let mut stage = Stage::new();
    stage.join("a", 4, true);
    stage.run_until_quiet();
    stage.sent();
    stage.on_message(Message::Register(report("b", 4)));
    stage.run_until_quiet();
    assert_eq!(stage.sent(), [has("a", &[0, 1]), loses("a", &[2, 3])], "it would keep an empty assignment for good");
    stage.released("a", &[2, 3], stage.version());
    stage.run_until_quiet();
    assert_eq!(stage.sent(), [has("b", &[2, 3])]);
}

#[test]
fn what_was_asked_back_is_not_given_again_while_a_service_is_held() {
    let mut stage = Stage::new();
    stage.join("a", 4, true);
    stage.run_until_quiet();
    stage.join("b", 4, true);
    stage.run_until_quiet();
    // An unlisted worker that has shards: there was a predecessor, whose workers are waited for.
    stage.heartbeat("c", 4, &[3]);
    stage.sent();
    stage.heartbeat("a", 4, &[0, 1, 2, 3]);
    assert_eq!(stage.sent(), [has("a", &[0, 1]), loses("a", &[2, 3])]);
}

#[test]
fn a_takeover_moves_nothing_when_all_are_back() {
    let settings = Settings { strategy: Strategy::Sticky, ..Settings::default() };
    let mut stage = Stage::with(settings, Start::Takeover);
    stage.register("new", 6);
    let heartbeat = |worker: &str, shards: &[Shard], version: u64| {
        let (assigned_shards, version) = (Some(shards.to_vec()), Some(Version(version)));
        Message::Heartbeat(Report { assigned_shards, version, ..report(worker, 6) })
    };
    stage.on_message(heartbeat("a", &[0, 3, 4], 50));
    stage.on_message(heartbeat("b", &[1, 2, 4, 5], 60));
    let messages = stage.sent();
    assert_eq!(messages, [has("a", &[0, 3, 4]), has("b", &[1, 2, 4, 5])], "the higher version wins");
    stage.pass(Duration::from_secs(14));
    stage.on_message(heartbeat("a", &[0, 3, 4], 50));
    stage.on_message(heartbeat("b", &[1, 2, 4, 5], 60));
    assert_eq!(stage.sent(), [has("a", &[0, 3]), has("b", &[1, 2, 4, 5])]);
    stage.heartbeat("new", 6, &[]);
    stage.sent();
    stage.pass(Duration::from_secs(2));
    assert_eq!(stage.sent(), [has("b", &[1, 2]), has("a", &[0, 3]), has("new", &[4, 5])]);
    assert!(stage.version() > Version(100));
}

#[test]
fn what_a_worker_no_longer_reports_is_free_after_a_takeover() {
    let mut stage = Stage::with(Settings::default(), Start::Takeover);
    let heartbeat = |worker: &str, beat: u64, shards: &[Shard]| {
        let (assigned_shards, handoff) = (Some(shards.to_vec()), Some(true));
        Message::Heartbeat(Report { assigned_shards, handoff, beat: Some(beat), ..report(worker, 4) })
    };
    stage.on_message(heartbeat("a", 5, &[0, 1]));
    stage.on_message(heartbeat("b", 5, &[1, 2]));
    assert_eq!(stage.sent(), [has("a", &[0, 1]), has("b", &[2])]);
    stage.on_message(heartbeat("a", 6, &[0]));
    stage.on_message(heartbeat("a", 5, &[0, 1]));
    stage.on_message(heartbeat("b", 6, &[1, 2]));
    assert_eq!(stage.sent(), [has("a", &[0]), has("a", &[0]), has("b", &[1, 2])]);
}

#[test]
fn a_worker_that_knows_beats_is_answered_while_nothing_is_granted() {
    let mut stage = Stage::with(Settings::default(), Start::Takeover);
    stage.on_message(Message::Register(Report { beat: Some(7), handoff: Some(false), ..report("a", 2) }));
    let Some((_, CoordinatorMessage::Assignment(assignment))) = stage.messages.first() else { panic!("a reply") };
    assert_eq!((assignment.beat, assignment.heartbeat_timeout), (Some(7), Some(TIMEOUT)));
    assert!(assignment.assigned_shards.is_empty());
}

#[test]
fn a_first_term_waits_where_a_worker_has_shards_of_somebody() {
    let mut stage = Stage::new();
    stage.register("a", 4);
    stage.run_until_quiet();
    stage.heartbeat("b", 4, &[2, 3]);
    stage.pass(Duration::from_secs(10));
    stage.heartbeat("a", 4, &[]);
    assert!(stage.granted("b").is_empty(), "they were granted already");
    let mut stage = Stage::new();
    stage.heartbeat("b", 4, &[2, 3]);
    stage.register("a", 4);
    stage.run_until_quiet();
    assert_eq!(stage.sent(), [has("b", &[2, 3])]);
    stage.pass(Duration::from_secs(10));
    stage.heartbeat("a", 4, &[]);
    stage.heartbeat("b", 4, &[2, 3]);
    stage.sent();
    stage.pass(Duration::from_secs(5));
    assert_eq!(stage.sent(), [has("a", &[0, 1])]);
}

#[test]
fn versions_begin_above_what_a_worker_has_seen_unless_it_is_absurd() {
    let mut stage = Stage::new();
    stage.on_message(Message::Register(Report { version: Some(Version(5_000)), ..report("a", 1) }));
    stage.run_until_quiet();
    assert_eq!(stage.version(), Version(5_002));
    stage.on_message(Message::Register(Report { version: Some(Version::MAX), ..report("a", 1) }));
    stage.run_until_quiet();
    assert_eq!(stage.version(), Version(5_002));
}

#[test]
fn a_term_that_has_used_up_its_versions_says_so() {
    let mut stage = Stage::new();
    stage.register("a", 1);
    stage.run_until_quiet();
    stage.coordinator.services.get_mut(&name("s")).expect("it").version = Version(100 + Version::PER_TERM - 2);
    assert!(!stage.coordinator.is_exhausted());
    stage.register("a", 2);
    stage.run_until_quiet();
    assert!(stage.coordinator.is_exhausted());
    assert_eq!(stage.granted("a"), [0, 1], "it works until its term ends");
}

#[test]
fn what_is_too_much_is_refused_and_not_remembered() {
    let limits = Limits { services_max: 1, workers_max: 2, shards_max: 10 };
    let mut stage = Stage::with(Settings { limits, ..Settings::default() }, Start::Fresh);
    stage.register("a", 8);
    stage.register("b", 8);
    stage.run_until_quiet();
    stage.sent();
    stage.register("c", 8);
    stage.on_message(Message::Register(Report { service_name: name("t"), ..report("a", 1) }));
    stage.register("a", 11);
    let errors = stage.sent();
    assert!(errors.len() == 3 && errors.iter().all(|(_, what, _)| *what == "error"), "{errors:?}");
    assert_eq!(stage.coordinator.views().map(|view| view.workers.len()).collect::<Vec<_>>(), [2]);
    stage.register("a", 10);
    stage.run_until_quiet();
    assert_eq!(stage.granted("b"), [5, 6, 7, 8, 9]);
}

impl Stage {
    /// Sends a report of a worker that identifies its process, from a connection of that name.
    fn report_of(&mut self, connection: &str, instance: Option<u64>, max: u32, registers: bool) {
        let report = Report { instance, beat: instance, handoff: instance.map(|_| false), ..report("w", max) };
        let message = if registers { Message::Register(report) } else { Message::Heartbeat(report) };
        let mut output = Output::default();
        self.coordinator.on_message(&peer(connection), message, self.now, &mut output);
        self.take(output);
    }

    /// Returns the connections that were notified lately that another has their id.
    fn replaced(&mut self) -> Vec<String> {
        let messages = std::mem::take(&mut self.messages).into_iter();
        let is_replaced = |response: &CoordinatorMessage| matches!(response, CoordinatorMessage::Error(refusal) if refusal.code == "replaced");
        messages.filter(|(_, response)| is_replaced(response)).map(|(to, _)| to).collect()
    }

    fn count(&self) -> u32 {
        self.coordinator.view(&name("s")).expect("the service").max_shard_count
    }

    fn replacements(&self) -> usize {
        self.events.iter().filter(|event| matches!(event, ShardEvent::Replaced { .. })).count()
    }
}

/// With and without the field that identifies a process.
#[test]
fn of_two_workers_with_one_id_the_newest_is_kept_and_the_other_is_told() {
    for (older, newer) in [(Some(1), Some(2)), (None, None)] {
        let mut stage = Stage::new();
        stage.report_of("older", older, 4, true);
        stage.pass(Duration::from_secs(1));
        assert!(stage.replaced().is_empty());
        stage.report_of("newer", newer, 8, true);
        assert_eq!(stage.replaced(), ["older"], "the error is sent at once");
        stage.pass(Duration::from_secs(1));
        stage.messages.clear();
        for _ in 0..3 {
            stage.report_of("older", older, 4, false);
            stage.report_of("older", older, 4, true);
            assert_eq!(stage.replaced(), ["older", "older"], "and whenever it speaks");
            assert_eq!(stage.count(), 8, "its reports do not count");
            stage.report_of("newer", newer, 8, false);
            assert!(stage.replaced().is_empty());
        }
        assert_eq!(stage.replacements(), 1);
    }
}

#[test]
fn a_worker_that_connects_again_is_replaced_by_nobody() {
    let mut stage = Stage::new();
    stage.report_of("first", Some(1), 4, true);
    stage.pass(Duration::from_secs(1));
    stage.report_of("second", Some(1), 4, true);
    stage.report_of("third", Some(1), 4, false);
    assert!(stage.replaced().is_empty());
    assert_eq!(stage.replacements(), 0);
}

#[test]
fn who_is_replaced_comes_back_when_its_successor_is_silent() {
    let mut stage = Stage::new();
    stage.report_of("older", None, 4, true);
    stage.report_of("newer", None, 4, true);
    stage.pass(TIMEOUT * 2);
    stage.messages.clear();
    stage.report_of("older", None, 4, true);
    stage.pass(Duration::from_secs(1));
    assert!(stage.replaced().is_empty(), "nobody else is there");
}
