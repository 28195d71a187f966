mod other_shapes;

use std::time::Duration;

use serde::de::DeserializeOwned;

use super::*;
use crate::ids::JobType;
use crate::jobs::event::{ClusterEvent, WorkerChange};

const JOB: &str = "0198c0de-0000-7000-8000-000000000001";
const RUN: &str = "0198c0de-0000-7000-8000-000000000002";
const AT: &str = "2026-03-01T12:00:00Z";

fn job() -> JobId {
    JOB.parse().expect("an id")
}

fn run() -> ExecutionId {
    RUN.parse().expect("an id")
}

fn at() -> Timestamp {
    AT.parse().expect("an instant")
}

fn queue() -> QueueName {
    QueueName::new("email").expect("a name")
}

fn worker() -> WorkerId {
    WorkerId::new("w-1").expect("a name")
}

fn node(name: &str) -> NodeId {
    NodeId::new(name).expect("a name")
}

fn dispatch() -> Dispatch {
    Dispatch {
        v: V1,
        job_id: job(),
        execution_id: run(),
        input: RunInput {
            job_type: JobType::new("email.send").expect("a name"),
            queue: queue(),
            args: Json::parse(r#"{"to": "a@b.c"}"#.into()).expect("valid JSON"),
            max_retries: 3,
            timeout: Some(Duration::from_secs(30)),
            correlation_id: None,
            tags: Vec::new(),
        },
        attempt: 2,
        epoch: Epoch(7),
        rate_limit: None,
    }
}

fn status(kind: StatusKind) -> StatusMessage {
    StatusMessage {
        v: V1,
        job_id: job(),
        execution_id: run(),
        worker_id: worker(),
        kind,
        at: at(),
        started_at: None,
        percent: None,
        message: None,
        result: None,
        error: None,
        retry: None,
    }
}

/// Checks that the message is encoded as `text` and decoded again, with and without `v`, but not with another version.
fn is_exactly<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(message: T, text: &str) {
    let text = text.replace("JOB", JOB).replace("RUN", RUN).replace("AT\"", &format!("{AT}\""));
    assert_eq!(String::from_utf8_lossy(&encode(&message)), text);
    assert_eq!(serde_json::from_str::<T>(&text).expect("reads"), message);
    let read = |v: &str| serde_json::from_str::<T>(&text.replacen(r#"{"v":1,"#, v, 1));
    assert_eq!(read("{").expect("an absent version is the first"), message);
    assert_eq!(read(r#"{"v":1,"new":[{}],"#).expect("a newer node may send more fields"), message);
    let error = read(r#"{"v":2,"#).expect_err("another version").to_string();
    assert!(error.contains("expected v 1, got 2"), "{error}");
    for wrong in [r#"{"v":"1","#, r#"{"v":-1,"#, r#"{"v":null,"#] {
        assert!(read(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_dispatch_is_exactly_this() {
    is_exactly(
        dispatch(),
        concat!(
            r#"{"v":1,"jobId":"JOB","executionId":"RUN","type":"email.send","queue":"email","args":{"to": "a@b.c"},"#,
            r#""maxRetries":3,"timeout":"30s","correlationId":null,"attempt":2,"epoch":7}"#
        ),
    );
}

#[test]
fn an_assignment_is_exactly_this() {
    is_exactly(
        Assigned { v: V1, epoch: Epoch(7), jobs: vec![RunRef { job_id: job(), execution_id: run() }] },
        r#"{"v":1,"epoch":7,"jobs":[{"jobId":"JOB","executionId":"RUN"}]}"#,
    );
}

#[test]
fn a_status_is_exactly_this_and_has_only_the_fields_of_its_kind() {
    let head = |kind: &str, rest: &str| {
        format!(r#"{{"v":1,"jobId":"JOB","executionId":"RUN","workerId":"w-1","kind":"{kind}","at":"AT"{rest}}}"#)
    };
    is_exactly(status(StatusKind::Started), &head("started", ""));
    is_exactly(
        StatusMessage { percent: Some(40), message: Some("on it".into()), ..status(StatusKind::Progress) },
        &head("progress", r#","percent":40,"message":"on it""#),
    );
    let result = Some(Json::parse("[1, 2]".into()).expect("valid JSON"));
    is_exactly(
        StatusMessage { started_at: Some(at()), ..status(StatusKind::Released) },
        &head("released", r#","startedAt":"AT""#),
    );
    is_exactly(StatusMessage { result, ..status(StatusKind::Completed) }, &head("completed", r#","result":[1, 2]"#));
    is_exactly(
        StatusMessage { error: Some("boom".into()), retry: Some(false), ..status(StatusKind::Failed) },
        &head("failed", r#","error":"boom","retry":false"#),
    );
    is_exactly(status(StatusKind::TimedOut), &head("timedOut", ""));
    is_exactly(status(StatusKind::Cancelled), &head("cancelled", ""));
    is_exactly(status(StatusKind::Released), &head("released", ""));
}

#[test]
fn a_log_is_exactly_this() {
    let log = LogMessage {
        v: V1,
        job_id: job(),
        execution_id: run(),
        seq: 9,
        at: at(),
        level: LogLevel::Warn,
        message: "line\nbreak".into(),
    };
    is_exactly(
        log,
        r#"{"v":1,"jobId":"JOB","executionId":"RUN","seq":9,"at":"AT","level":"warn","message":"line\nbreak"}"#,
    );
}

#[test]
fn a_bell_is_exactly_this() {
    is_exactly(Bell { v: V1, jobs: vec![job()], logs: None }, r#"{"v":1,"jobs":["JOB"]}"#);
    is_exactly(Bell { v: V1, jobs: vec![], logs: Some(vec![job()]) }, r#"{"v":1,"jobs":[],"logs":["JOB"]}"#);
}

#[test]
fn a_poisoned_message_is_exactly_this() {
    is_exactly(
        Poison {
            v: V1,
            channel: "convoke.job.assigned".into(),
            reason: "no JSON".into(),
            body: "{".into(),
            body_bytes: 1,
        },
        r#"{"v":1,"channel":"convoke.job.assigned","reason":"no JSON","body":"{","bodyBytes":1}"#,
    );
}

#[test]
fn a_cancellation_is_exactly_this() {
    is_exactly(
        Cancel { v: V1, job_id: job(), execution_id: run(), reason: Some("no need".into()) },
        r#"{"v":1,"jobId":"JOB","executionId":"RUN","reason":"no need"}"#,
    );
}

#[test]
fn a_handoff_and_its_ack_are_exactly_this() {
    for (reason, name) in [
        (HandoffReason::Shutdown, "shutdown"),
        (HandoffReason::NodeCrash, "nodeCrash"),
        (HandoffReason::Rebalance, "rebalance"),
        (HandoffReason::Orphan, "orphan"),
    ] {
        let (execution_id, from_node) = (Some(run()), Some(node("n-1")));
        let handoff = Handoff { v: V1, job_id: job(), execution_id, from_node, reason, tries: 1 };
        let text =
            format!(r#"{{"v":1,"jobId":"JOB","executionId":"RUN","fromNode":"n-1","reason":"{name}","tries":1}}"#);
        is_exactly(handoff, &text);
    }
    is_exactly(
        HandoffAck { v: V1, job_id: job(), new_owner: node("n-2") },
        r#"{"v":1,"jobId":"JOB","newOwner":"n-2"}"#,
    );
}

#[test]
fn heartbeats_are_exactly_this() {
    for (state, name) in [
        (NodeState::Active, "active"),
        (NodeState::Suspect, "suspect"),
        (NodeState::Draining, "draining"),
        (NodeState::Dead, "dead"),
        (NodeState::Left, "left"),
    ] {
        for (role, role_name) in [(NodeRole::Leader, "leader"), (NodeRole::Follower, "follower")] {
            let heartbeat = CoordinatorHeartbeat {
                v: V1,
                node_id: node("n-1"),
                job_count: 12,
                state,
                role: Some(role),
                epoch: Epoch(7),
                leader: Some(node("n-2")),
                lease_read_at: Some(at()),
                at: at(),
                worker_heartbeat_interval: Some(Duration::from_secs(10)),
                worker_stale_after: Some(Duration::from_millis(2_500)),
            };
            let text = format!(
                r#"{{"v":1,"nodeId":"n-1","jobCount":12,"state":"{name}","role":"{role_name}","epoch":7,"leader":"n-2","leaseReadAt":"AT","at":"AT","workerHeartbeatInterval":"10s","workerStaleAfter":"2s500ms"}}"#
            );
            is_exactly(heartbeat, &text);
        }
    }
    for (state, name) in
        [(WorkerState::Active, "active"), (WorkerState::Draining, "draining"), (WorkerState::Gone, "gone")]
    {
        let heartbeat = WorkerHeartbeat {
            v: V1,
            worker_id: worker(),
            queues: vec![queue()],
            running: 3,
            free: 7,
            state,
            at: at(),
            name: None,
            concurrency: None,
            via: None,
            executions: None,
            inbox: None,
        };
        let text =
            format!(r#"{{"v":1,"workerId":"w-1","queues":["email"],"running":3,"free":7,"state":"{name}","at":"AT"}}"#);
        assert_eq!(heartbeat.slots(), 10);
        is_exactly(heartbeat.clone(), &text);
        let text = text.replace(
            r#""AT""#,
            &format!(r#""AT","name":"mailer","concurrency":8,"via":"node-1","executions":["{RUN}"]"#),
        );
        let (name, concurrency) = (Some("mailer".into()), Some(8));
        let heartbeat = WorkerHeartbeat {
            name,
            concurrency,
            via: Some(node("node-1")),
            executions: Some(vec![run()]),
            ..heartbeat
        };
        assert_eq!(heartbeat.slots(), 8);
        is_exactly(heartbeat.clone(), &text);
        let inbox = r#","inbox":{"epoch":7,"seq":12,"waiting":{"email":3},"prefetch":20}}"#;
        let text = format!("{}{inbox}", text.strip_suffix('}').expect("an object"));
        let waiting = [(queue(), 3)].into();
        let inbox = Some(InboxReport { epoch: Epoch(7), seq: 12, waiting, prefetch: 20 });
        is_exactly(WorkerHeartbeat { inbox, ..heartbeat }, &text);
    }
}

#[test]
fn a_poisoned_message_is_kept_with_its_channel_and_the_reason() {
    is_exactly(
        Poison::of("convoke.job.enqueue", "expected an object", b"{\"\xff"),
        "{\"v\":1,\"channel\":\"convoke.job.enqueue\",\"reason\":\"expected an object\",\"body\":\"{\\\"\u{fffd}\",\"bodyBytes\":3}",
    );
}

#[test]
fn a_hint_of_readiness_is_exactly_this() {
    is_exactly(
        Ready { v: V1, queues: vec![queue()], configured: vec![], due_at: None, schedules: true },
        r#"{"v":1,"queues":["email"],"configured":[],"dueAt":null,"schedules":true}"#,
    );
}

#[test]
fn what_nodes_tell_each_other_for_their_watchers_is_exactly_this() {
    is_exactly(
        Outdated { v: V1, keys: vec![format!("convoke:job:{JOB}"), "convoke:workers".into()] },
        r#"{"v":1,"keys":["convoke:job:JOB","convoke:workers"]}"#,
    );
    is_exactly(
        Interest { v: V1, node_id: node("n-1"), events: true, jobs: vec![job()], asks: false },
        r#"{"v":1,"nodeId":"n-1","events":true,"jobs":["JOB"],"asks":false}"#,
    );
    is_exactly(Ended { v: V1, jobs: vec![job()] }, r#"{"v":1,"jobs":["JOB"]}"#);
}

#[test]
fn forwarded_events_are_exactly_this_and_unknown_ones_are_passed_over() {
    let joined = ClusterEvent::Worker { change: WorkerChange::Joined, worker_id: worker() };
    let event = Event { node: Some(node("n-1")), ..Event::new(at(), joined) };
    let message = Events { v: V1, node_id: node("n-1"), events: vec![event], missed: 3 };
    let known = r#"{"event":"worker:joined","at":"AT","node":"n-1","workerId":"w-1"}"#;
    let text = format!(r#"{{"v":1,"nodeId":"n-1","events":[{known}],"missed":3}}"#);
    is_exactly(message.clone(), &text);
    let text = text.replace("AT\"", &format!("{AT}\""));
    let newer = text.replace(r#""events":["#, r#""events":[{"event":"moon:full","at":"2026-03-01T12:00:00Z"},7,"#);
    assert_eq!(serde_json::from_str::<Events>(&newer).expect("reads"), message);
}

#[test]
fn an_enqueue_is_a_request_with_an_id_and_a_version() {
    let text =
        format!(r#"{{"v":1,"id":"{JOB}","type":"email.send","queue":"email","args":{{"to": "a@b.c"}},"delay":"5s"}}"#);
    let enqueue: Enqueue = serde_json::from_str(&text).expect("reads");
    assert_eq!((enqueue.spec.id, enqueue.spec.delay), (Some(job()), Some(Duration::from_secs(5))));
    assert_eq!(enqueue.spec.template.args.as_ref().map(Json::as_str), Some(r#"{"to": "a@b.c"}"#));
    assert_eq!(String::from_utf8_lossy(&encode(&enqueue)), text);
    for (change, named) in [
        ((r#""v":1"#, r#""v":2"#), "expected v 1, got 2"),
        ((r#""queue""#, r#""queu""#), "queu"),
        ((r#""5s""#, r#"5"#), "a duration"),
        ((r#""id""#, r#""correlationId""#), "`id`"),
        ((r#""type":"email.send","#, ""), "`type`"),
    ] {
        let error = serde_json::from_str::<Enqueue>(&text.replace(change.0, change.1)).expect_err(named).to_string();
        assert!(error.contains(named), "{error}");
    }
}

#[test]
fn garbage_is_refused_and_nothing_worse() {
    let bodies: [&[u8]; 8] =
        [b"", b"{", b"null", b"[]", b"\xff\xfe", b"{\"v\":1}", b"{\"v\":1e400}", b"{\"v\":99999999999999999999}"];
    for body in bodies {
        assert!(serde_json::from_slice::<Dispatch>(body).is_err());
        assert!(serde_json::from_slice::<Enqueue>(body).is_err());
        assert!(serde_json::from_slice::<WorkerHeartbeat>(body).is_err());
    }
    let deep = "[".repeat(1_000_000);
    assert!(serde_json::from_str::<Enqueue>(&format!(r#"{{"id":{deep}"#)).is_err());
    let text = String::from_utf8(encode(&dispatch()).to_vec()).expect("UTF-8");
    for (from, to) in [
        (r#""attempt":2"#, r#""attempt":4294967296"#),
        (r#""epoch":7"#, r#""epoch":-7"#),
        (RUN, "not-an-id"),
        (r#""email.send""#, r#""""#),
        (r#""30s""#, r#""∞""#),
    ] {
        assert!(serde_json::from_str::<Dispatch>(&text.replace(from, to)).is_err(), "{to}");
    }
}

#[test]
fn of_a_message_that_cannot_be_read_the_beginning_is_kept_and_its_length() {
    for body in ["x".repeat(1 << 20), "é".repeat(1 << 19), "\u{1F600}".repeat(1 << 18)] {
        let poison = Poison::of("convoke.job.enqueue", "no JSON", body.as_bytes());
        assert_eq!(poison.body_bytes, 1 << 20);
        assert!(body.starts_with(poison.body.trim_end_matches('\u{FFFD}')));
        assert!((4_093..=4_096).contains(&poison.body.len()), "{}", poison.body.len());
    }
    let garbage = Poison::of("convoke.job.enqueue", "y".repeat(1 << 20), &[0xff; 1 << 20]);
    assert!(encode(&garbage).len() < 3 * 4_096, "also of what is no text, and of a reason that quotes it");
    let short = Poison::of("convoke.job.enqueue", "no JSON", b"{");
    assert_eq!((short.body.as_str(), short.body_bytes), ("{", 1));
}

#[test]
fn an_enqueue_over_the_bus_is_as_strict_as_over_http() {
    let message = |policy: &str| format!(r#"{{"v":1,"id":"{JOB}","type":"t","retryPolicy":{policy}}}"#);
    assert!(serde_json::from_str::<Enqueue>(&message(r#"{"multiplier":3}"#)).is_ok());
    for policy in ["[]", r#"["1s"]"#, r#"{"jitter":{"full":null}}"#] {
        let error = serde_json::from_str::<Enqueue>(&message(policy)).expect_err(policy).to_string();
        assert!(error.contains("expected"), "{policy}: {error}");
    }
    assert!(serde_json::from_str::<Enqueue>(&format!(r#"["{JOB}","t"]"#)).is_err());
}
