use std::time::Duration;

use super::*;

const ID: &str = "0198c0de-0000-7000-8000-000000000001";

fn json(what: ClusterEvent) -> String {
    let at = "2026-03-01T12:00:00Z".parse().expect("an instant");
    let event = Event::new(at, what);
    assert!(NAMES.contains(&event.name()), "{} can be asked for", event.name());
    let text = serde_json::to_string(&event).expect("serialises");
    assert_eq!(read_back(&text), std::slice::from_ref(&event), "{text} is read back as what it was");
    let elsewhere = Event { node: Some(node("node-9")), ..event };
    let reported = serde_json::to_string(&elsewhere).expect("serialises");
    assert_eq!(reported, text.replacen("00Z\"", "00Z\",\"node\":\"node-9\"", 1));
    assert_eq!(read_back(&reported), [elsewhere]);
    text
}

fn read_back(text: &str) -> Vec<Event> {
    let text = format!("[{text}]");
    those_known(&mut serde_json::Deserializer::from_str(&text)).expect("reads")
}

fn node(name: &str) -> NodeId {
    NodeId::new(name).expect("a name")
}

fn job(status: Status) -> ClusterEvent {
    ClusterEvent::Job {
        status,
        job_id: ID.parse().expect("an id"),
        job_type: JobType::new("email.send").expect("a name"),
        queue: QueueName::new("email").expect("a name"),
        attempt: 2,
    }
}

#[test]
fn a_job_event_is_named_after_the_status() {
    for status in Status::ALL {
        let expected = format!(
            r#"{{"event":"job:{}","at":"2026-03-01T12:00:00Z","jobId":"{ID}","type":"email.send","queue":"email","attempt":2}}"#,
            status.as_str()
        );
        assert_eq!(json(job(status)), expected);
    }
}

#[test]
fn a_change_of_leader_names_both_and_the_epoch() {
    let what = ClusterEvent::LeaderChanged {
        namespace: "jobs".into(),
        previous_leader: None,
        new_leader: Some(node("node-1")),
        epoch: Epoch(7),
    };
    assert_eq!(
        json(what),
        r#"{"event":"leader:changed","at":"2026-03-01T12:00:00Z","namespace":"jobs","previousLeader":null,"newLeader":"node-1","epoch":7}"#
    );
}

#[test]
fn what_an_election_tells_can_be_asked_for_by_name() {
    use election::ElectionEvent as Elected;
    let slow = election::Contention { duration: Duration::ZERO, expected: Duration::ZERO, ratio: 1.0, threshold: 1.0 };
    for what in [
        Elected::LeaderChanged { previous_leader: None, new_leader: None, epoch: Epoch(1) },
        Elected::WorkersUpdated { workers: Vec::new() },
        Elected::ContentionDetected(slow),
        Elected::BreakerOpen { failure_count: 5 },
        Elected::BreakerHalfOpen { failure_count: 5 },
        Elected::BreakerClosed { failure_count: 5 },
    ] {
        assert!(NAMES.contains(&what.name()), "{}", what.name());
    }
}

#[test]
fn a_fired_schedule_names_its_tick_and_job() {
    let what = ClusterEvent::ScheduleFired {
        schedule: ScheduleName::new("nightly").expect("a name"),
        tick: "2026-03-01T11:00:00Z".parse().expect("an instant"),
        job_id: None,
    };
    assert_eq!(
        json(what),
        r#"{"event":"schedule:fired","at":"2026-03-01T12:00:00Z","schedule":"nightly","tick":"2026-03-01T11:00:00Z","jobId":null}"#
    );
}

#[test]
fn a_changed_schedule_is_named_with_the_change() {
    for (change, name) in [
        (ScheduleChange::Created, "created"),
        (ScheduleChange::Updated, "updated"),
        (ScheduleChange::Paused, "paused"),
        (ScheduleChange::Resumed, "resumed"),
        (ScheduleChange::Removed, "removed"),
    ] {
        let what = ClusterEvent::Schedule { change, schedule: ScheduleName::new("nightly").expect("a name") };
        let expected = format!(r#"{{"event":"schedule:{name}","at":"2026-03-01T12:00:00Z","schedule":"nightly"}}"#);
        assert_eq!(json(what), expected);
    }
}

#[test]
fn a_gap_says_how_much_is_missing() {
    assert_eq!(
        json(ClusterEvent::Lagged { missed: 7 }),
        r#"{"event":"lagged","at":"2026-03-01T12:00:00Z","missed":7}"#
    );
}

#[test]
fn what_is_not_an_event_is_passed_over() {
    for text in [
        r#"{"event":"moon:full","at":"2026-03-01T12:00:00Z"}"#,
        r#"{"event":"job:completed","at":"2026-03-01T12:00:00Z"}"#,
        r#"{"event":"job:eaten","at":"2026-03-01T12:00:00Z","jobId":"x"}"#,
        r#"{"event":"node:left","at":"yesterday","nodeId":"n"}"#,
        r#"{"event":"node:left","at":"2026-03-01T12:00:00Z","nodeId":""}"#,
        "7",
        "null",
        r#""job:completed""#,
        "[[]]",
    ] {
        assert_eq!(read_back(text), [], "{text}");
    }
}

#[test]
fn workers_and_nodes_come_and_go_by_name() {
    for (change, name) in [(WorkerChange::Joined, "joined"), (WorkerChange::Left, "left"), (WorkerChange::Dead, "dead")]
    {
        let what = ClusterEvent::Worker { change, worker_id: WorkerId::new("w-1").expect("a name") };
        let expected = format!(r#"{{"event":"worker:{name}","at":"2026-03-01T12:00:00Z","workerId":"w-1"}}"#);
        assert_eq!(json(what), expected);
    }
    for (change, name) in [
        (NodeChange::Joined, "joined"),
        (NodeChange::Draining, "draining"),
        (NodeChange::Left, "left"),
        (NodeChange::Dead, "dead"),
    ] {
        let what = ClusterEvent::Node { change, node_id: node("node-1") };
        let expected = format!(r#"{{"event":"node:{name}","at":"2026-03-01T12:00:00Z","nodeId":"node-1"}}"#);
        assert_eq!(json(what), expected);
    }
}

#[test]
fn a_handoff_event_has_only_the_fields_of_its_stage() {
    let handoff = |change, new_owner, tries| ClusterEvent::Handoff {
        change,
        job_id: ID.parse().expect("an id"),
        execution_id: ID.parse().expect("an id"),
        from_node: node("node-1"),
        new_owner,
        tries: NonZeroU32::new(tries),
    };
    let cases = [
        (handoff(HandoffChange::Started, None, 1), "started", r#","tries":1"#),
        (handoff(HandoffChange::Retried, None, 2), "retried", r#","tries":2"#),
        (handoff(HandoffChange::Acked, Some(node("node-2")), 0), "acked", r#","newOwner":"node-2""#),
        (handoff(HandoffChange::Orphaned, None, 0), "orphaned", ""),
    ];
    for (what, name, rest) in cases {
        let expected = format!(
            r#"{{"event":"handoff:{name}","at":"2026-03-01T12:00:00Z","jobId":"{ID}","executionId":"{ID}","fromNode":"node-1"{rest}}}"#
        );
        assert_eq!(json(what), expected);
    }
}

#[test]
fn a_rebalance_says_how_much_moved_and_a_worker_of_a_service_is_named_with_it() {
    let service = ServiceName::new("prices").expect("a name");
    let what = ClusterEvent::ShardsRebalanced { service: service.clone(), version: Version(9), moved: 4 };
    let expected =
        r#"{"event":"shards:rebalanced","at":"2026-03-01T12:00:00Z","service":"prices","version":9,"moved":4}"#;
    assert_eq!(json(what), expected);
    for (change, name) in [(WorkerChange::Joined, "joined"), (WorkerChange::Left, "left"), (WorkerChange::Dead, "dead")]
    {
        let worker_id = WorkerId::new("w-1").expect("a name");
        let what = ClusterEvent::ShardWorker { change, service: service.clone(), worker_id };
        let expected =
            format!(r#"{{"event":"shards:{name}","at":"2026-03-01T12:00:00Z","service":"prices","workerId":"w-1"}}"#);
        assert_eq!(json(what), expected);
    }
}
