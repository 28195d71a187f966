use super::*;
use crate::shards::wire::Refusal;

const SECOND: Duration = Duration::from_secs(1);

fn worker(handoff: bool) -> Worker {
    let profile = Profile {
        service: ServiceName::new("s").expect("a name"),
        worker: WorkerId::new("w").expect("a name"),
        max_shards: 10,
        handoff,
        heartbeat_interval: None,
    };
    Worker::new(profile, 100, Duration::ZERO)
}

fn tick(worker: &mut Worker, now: Duration) -> Vec<Message> {
    let mut outgoing = Vec::new();
    worker.tick(now, &mut outgoing);
    outgoing
}

fn on_message(worker: &mut Worker, message: CoordinatorMessage, now: Duration) -> Vec<Message> {
    let mut outgoing = Vec::new();
    worker.on_message(message, now, &mut outgoing);
    outgoing
}

fn acknowledge(worker: &mut Worker) -> Vec<Message> {
    let mut outgoing = Vec::new();
    worker.acknowledge(&mut outgoing);
    outgoing
}

fn assignment(shards: &[Shard], version: u64, beat: Option<u64>) -> CoordinatorMessage {
    let heartbeat_timeout = Some(Duration::from_secs(10));
    CoordinatorMessage::Assignment(Assignment {
        assigned_shards: shards.to_vec(),
        version: Version(version),
        heartbeat_timeout,
        beat,
    })
}

/// Returns a worker that registered at zero and was granted `shards` under version 5.
fn with(shards: &[Shard], handoff: bool) -> Worker {
    let mut worker = worker(handoff);
    assert!(matches!(tick(&mut worker, Duration::ZERO)[..], [Message::Register(_)]));
    on_message(&mut worker, assignment(shards, 5, Some(100)), SECOND);
    let change = worker.change(SECOND).expect("news");
    assert_eq!((change.added, change.version), (shards.to_vec(), Version(5)));
    acknowledge(&mut worker);
    worker
}

#[test]
fn it_reports_again_at_once_when_it_hears_of_a_new_term() {
    let mut worker = with(&[1, 2], true);
    assert_eq!(tick(&mut worker, SECOND).len(), 1, "a heartbeat that is due");
    on_message(&mut worker, assignment(&[1, 2], 6, None), SECOND);
    assert_eq!(tick(&mut worker, SECOND), [], "the same term");
    let version = Version::PER_TERM + 1;
    on_message(&mut worker, assignment(&[1, 2], version, None), SECOND);
    let outgoing = tick(&mut worker, SECOND);
    let [Message::Heartbeat(report)] = &outgoing[..] else { panic!("expected a heartbeat, got {outgoing:?}") };
    assert_eq!((report.version, report.assigned_shards.as_deref()), (Some(Version(version)), Some(&[1, 2][..])));
    on_message(&mut worker, assignment(&[1, 2], version, report.beat), SECOND);
    assert_eq!(tick(&mut worker, SECOND), [], "once");
}

#[test]
fn it_owns_what_it_is_assigned_for_as_long_as_its_beat_vouches() {
    let worker = with(&[1, 2], false);
    assert_eq!(worker.shards(SECOND), [1, 2]);
    assert!(worker.owns(2, SECOND) && !worker.owns(3, SECOND));
    assert!(worker.owns(2, Duration::from_millis(8_999)), "counted from when the heartbeat was sent");
    assert!(!worker.owns(2, SECOND * 9));
}

#[test]
fn it_fences_itself_and_says_so_to_the_application() {
    let mut worker = with(&[1, 2], true);
    assert!(worker.change(SECOND * 8).is_none());
    let change = worker.change(SECOND * 9).expect("news");
    assert_eq!((change.removed, change.shards), (vec![1, 2], vec![]));
    let outgoing = tick(&mut worker, SECOND * 9);
    let [Message::Register(report)] = &outgoing[..] else { panic!("it registers again, {outgoing:?}") };
    assert_eq!(report.assigned_shards, Some(vec![1, 2]), "the application has not released them yet");
    assert_eq!(report.version, Some(Version(5)));
}

#[test]
fn news_that_come_by_themselves_vouch_for_nothing() {
    let mut worker = with(&[1], false);
    on_message(&mut worker, assignment(&[1, 2], 6, None), SECOND * 8);
    assert_eq!(worker.shards(SECOND * 8), [1, 2]);
    assert!(worker.shards(SECOND * 9).is_empty());
    on_message(&mut worker, assignment(&[1, 2], 6, Some(77)), SECOND * 9);
    assert!(worker.shards(SECOND * 9).is_empty(), "a reply to a former life");
}

#[test]
fn an_older_version_is_ignored_while_there_is_something_to_lose() {
    let mut worker = with(&[1], false);
    tick(&mut worker, SECOND * 4);
    on_message(&mut worker, assignment(&[9], 4, Some(101)), SECOND * 5);
    assert_eq!(worker.shards(SECOND * 5), [1]);
    worker.change(SECOND * 9).expect("it fences itself");
    tick(&mut worker, SECOND * 10);
    on_message(&mut worker, assignment(&[9], 4, Some(102)), SECOND * 11);
    assert!(worker.shards(SECOND * 11).is_empty(), "the application still works");
    acknowledge(&mut worker);
    on_message(&mut worker, assignment(&[9], 4, Some(102)), SECOND * 10);
    assert!(worker.shards(SECOND * 10).is_empty(), "it may have been overtaken on the way");
    on_message(&mut worker, assignment(&[9], 4, Some(102)), SECOND * 11);
    assert_eq!(worker.shards(SECOND * 11), [9], "its coordinator began anew");
}

#[test]
fn it_says_released_only_after_the_application_has_let_go() {
    let mut worker = with(&[1, 2], true);
    let revoke = || CoordinatorMessage::Revoke(Revoke { shards: vec![7, 2], version: Version(6) });
    let outgoing = on_message(&mut worker, revoke(), SECOND);
    let [Message::Released(released)] = &outgoing[..] else { panic!("it does not hold 7, {outgoing:?}") };
    assert_eq!((&released.shards[..], released.version), (&[7][..], Version(6)));
    let change = worker.change(SECOND).expect("news");
    assert_eq!((change.removed, change.shards), (vec![2], vec![1]));
    let outgoing = on_message(&mut worker, revoke(), SECOND);
    assert!(
        matches!(&outgoing[..], [Message::Released(released)] if released.shards == [7]),
        "not yet 2: {outgoing:?}"
    );
    on_message(&mut worker, assignment(&[1, 2], 7, None), SECOND);
    assert!(worker.change(SECOND).is_none(), "one change at a time");
    let outgoing = acknowledge(&mut worker);
    assert!(matches!(&outgoing[..], [Message::Released(released)] if released.shards == [2]), "{outgoing:?}");
    assert_eq!(worker.change(SECOND).expect("it is back").added, [2]);
}

#[test]
fn it_beats_three_times_a_timeout_and_tries_sooner_while_nobody_answers() {
    let mut worker = with(&[3], false);
    let first = worker.next_deadline(SECOND);
    assert!(first <= SECOND + Duration::from_secs(10) / 3, "{first:?}");
    assert!(matches!(tick(&mut worker, first)[..], [Message::Heartbeat(_)]));
    let mut lonely = self::worker(false);
    tick(&mut lonely, Duration::ZERO);
    assert!(lonely.next_deadline(Duration::ZERO) <= SECOND);
    assert!(!lonely.is_silent(SECOND) && lonely.is_silent(SECOND * 10));
    lonely.reconnected(SECOND * 10);
    assert!(!lonely.is_silent(SECOND * 10));
    assert!(matches!(tick(&mut lonely, SECOND * 10)[..], [Message::Register(_)]));
    on_message(&mut lonely, CoordinatorMessage::Error(Refusal::new(Refusal::LIMIT, "no")), SECOND * 19);
    assert!(!lonely.is_silent(SECOND * 20), "somebody is there");
}

#[test]
fn it_leaves_when_it_holds_nothing_and_says_so_until_it_is_heard() {
    let mut worker = with(&[1], true);
    worker.leave();
    assert!(worker.shards(SECOND).is_empty());
    assert!(!tick(&mut worker, SECOND).iter().any(|it| matches!(it, Message::Leave(_))));
    assert_eq!(worker.change(SECOND).expect("news").removed, [1]);
    acknowledge(&mut worker);
    assert!(matches!(&tick(&mut worker, SECOND)[..], [Message::Leave(leave)] if leave.version == Some(Version(5))));
    on_message(&mut worker, assignment(&[], 5, Some(100)), SECOND);
    assert!(!worker.is_gone(), "that was for a heartbeat");
    on_message(&mut worker, assignment(&[1], 6, None), SECOND);
    assert!(matches!(&tick(&mut worker, SECOND)[..], [Message::Leave(leave)] if leave.version == Some(Version(6))));
    on_message(&mut worker, assignment(&[], 6, None), SECOND);
    assert!(worker.is_gone());
    assert!(tick(&mut worker, SECOND * 60).is_empty());
}

#[test]
fn an_application_that_starts_over_is_told_everything_again() {
    let mut worker = with(&[1, 2], true);
    let mut outgoing = Vec::new();
    worker.start_over(&mut outgoing);
    assert_eq!(worker.change(SECOND).expect("news").added, [1, 2]);
}

#[test]
fn one_that_is_replaced_gives_up_everything_and_says_nothing_more() {
    for handoff in [false, true] {
        let mut worker = with(&[1, 2], handoff);
        let refusal = Refusal::new(Refusal::REPLACED, "another has its id");
        assert!(on_message(&mut worker, CoordinatorMessage::Error(refusal), SECOND * 2).is_empty());
        assert!(worker.is_replaced() && worker.shards(SECOND * 2).is_empty());
        assert!(!worker.is_gone(), "the application still works on its shards");
        on_message(&mut worker, assignment(&[1, 2], 9, Some(100)), SECOND * 2);
        assert!(worker.shards(SECOND * 2).is_empty(), "what comes late changes nothing");
        let change = worker.change(SECOND * 3).expect("news");
        assert_eq!((change.removed, change.shards), (vec![1, 2], vec![]));
        assert!(acknowledge(&mut worker).is_empty(), "the shards that it releases are another's already");
        for second in 3..60 {
            assert!(tick(&mut worker, SECOND * second).is_empty(), "it does not register again");
        }
        assert!(worker.is_gone());
    }
}
