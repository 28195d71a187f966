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
    assert_eq!(read(r#"{"v":1,"new":[{}],"#).expect("a newer node may say more"), message);
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
            let beat = CoordinatorHeartbeat {
                v: V1,
                node_id: node("n-1"),
                job_count: 12,
                state,
                role: Some(role),
                epoch: Epoch(7),
                at: at(),
                worker_heartbeat_interval: Some(Duration::from_secs(10)),
                worker_stale_after: Some(Duration::from_millis(2_500)),
            };
            let text = format!(
                r#"{{"v":1,"nodeId":"n-1","jobCount":12,"state":"{name}","role":"{role_name}","epoch":7,"at":"AT","workerHeartbeatInterval":"10s","workerStaleAfter":"2s500ms"}}"#
            );
            is_exactly(beat, &text);
        }
    }
    for (state, name) in
        [(WorkerState::Active, "active"), (WorkerState::Draining, "draining"), (WorkerState::Gone, "gone")]
    {
        let beat = WorkerHeartbeat {
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
        };
        let text =
            format!(r#"{{"v":1,"workerId":"w-1","queues":["email"],"running":3,"free":7,"state":"{name}","at":"AT"}}"#);
        assert_eq!(beat.slots(), 10);
        is_exactly(beat.clone(), &text);
        let text = text.replace(
            r#""AT""#,
            &format!(r#""AT","name":"mailer","concurrency":8,"via":"node-1","executions":["{RUN}"]"#),
        );
        let (name, concurrency) = (Some("mailer".into()), Some(8));
        let beat =
            WorkerHeartbeat { name, concurrency, via: Some(node("node-1")), executions: Some(vec![run()]), ..beat };
        assert_eq!(beat.slots(), 8);
        is_exactly(beat, &text);
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

/// Returns the message with all keys but `v` in PascalCase.
fn pascal(text: &str) -> String {
    let Ok(serde_json::Value::Object(fields)) = serde_json::from_str(text) else { panic!("{text} is no object") };
    let name = |name: String| if name == "v" { name } else { name[..1].to_uppercase() + &name[1..] };
    let fields: serde_json::Map<_, _> = fields.into_iter().map(|(key, value)| (name(key), value)).collect();
    serde_json::Value::Object(fields).to_string()
}

#[test]
fn what_others_send_is_also_read_in_pascal_case() {
    fn reads<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(message: T) {
        let text = String::from_utf8(encode(&message).to_vec()).expect("UTF-8");
        let text = pascal(&text);
        assert_eq!(serde_json::from_str::<T>(&text).unwrap_or_else(|error| panic!("{text}: {error}")), message);
        let history = text.replace("ExecutionId", "HistoryId").replace(r#""At""#, r#""Timestamp""#);
        assert_eq!(serde_json::from_str::<T>(&history).unwrap_or_else(|error| panic!("{history}: {error}")), message);
    }
    let text = Some("x".to_owned());
    let result = Some(Json::parse("7".into()).expect("valid JSON"));
    let args = Json::parse("[7]".into()).expect("valid JSON");
    reads(Dispatch { input: RunInput { correlation_id: text.clone(), args, ..dispatch().input }, ..dispatch() });
    let (percent, retry) = (Some(4), Some(true));
    reads(StatusMessage {
        percent,
        result,
        retry,
        message: text.clone(),
        error: text.clone(),
        ..status(StatusKind::Failed)
    });
    let (level, message) = (LogLevel::Warn, "line".into());
    reads(LogMessage { v: V1, job_id: job(), execution_id: run(), seq: 9, at: at(), level, message });
    reads(Cancel { v: V1, job_id: job(), execution_id: run(), reason: text });
    reads(Bell { v: V1, jobs: vec![job()], logs: Some(vec![job()]) });
    let both: WorkerHeartbeat = serde_json::from_str(&format!(
        r#"{{"workerId":"w","queues":["q"],"running":1,"free":2,"state":"Draining","at":"{AT}","name":"n","concurrency":3,"via":"n-1","executions":["{RUN}"]}}"#
    ))
    .expect("a heartbeat");
    assert_eq!(both.state, WorkerState::Draining);
    reads(both);
}

#[test]
fn keys_in_pascal_case_do_not_let_garbage_pass() {
    for (text, complaint) in [
        (format!(r#"{{"jobId":"{JOB}","JobId":"{JOB}","newOwner":"n"}}"#), "duplicate field `jobId`"),
        (format!(r#"{{"JOBID":"{JOB}","NewOwner":"n"}}"#), "missing field `jobId`"),
        (format!(r#"{{"JobId":"{JOB}"}}"#), "missing field `newOwner`"),
        (format!(r#"{{"JobId":"{JOB}","NewOwner":7}}"#), "invalid type"),
    ] {
        let error = serde_json::from_str::<HandoffAck>(&text).expect_err(&text).to_string();
        assert!(error.contains(complaint), "{error}");
    }
    for (text, complaint) in [
        (format!(r#"{{"Id":"{JOB}","id":"{JOB}","Type":"t"}}"#), "duplicate field `id`"),
        (format!(r#"{{"Id":"{JOB}","Type":"t","Queu":"q"}}"#), "unknown field `queu`"),
        (format!(r#"{{"Id":"{JOB}"}}"#), "missing field `type`"),
    ] {
        let error = serde_json::from_str::<Enqueue>(&text).expect_err(&text).to_string();
        assert!(error.contains(complaint), "{error}");
    }
    let text = format!(r#"{{"Id":"{JOB}","JobType":"t","Queue":"q","MaxRetries":2,"ScheduledAt":"{AT}"}}"#);
    let spec = serde_json::from_str::<Enqueue>(&text).expect("an enqueue").spec;
    assert_eq!(
        (spec.id, spec.template.job_type.as_str(), spec.template.max_retries, spec.run_at),
        (Some(job()), "t", Some(2), Some(at()))
    );
}

#[test]
fn a_worker_heartbeat_needs_an_id_and_queues_only() {
    let read = |text: &str| serde_json::from_str::<WorkerHeartbeat>(text).expect("a heartbeat");
    let beat = read(r#"{"workerId":"w-1","queues":["email"]}"#);
    assert_eq!((beat.running, beat.free, beat.slots(), beat.state), (0, 10, 10, WorkerState::Active));
    assert_eq!((beat.at, beat.executions), (heartbeat::unknown_time(), None), "nothing was said of its runs");
    let beat = read(r#"{"WorkerId":"w-1","Queues":["email"],"Concurrency":4,"Running":1}"#);
    assert_eq!((beat.running, beat.free, beat.executions), (1, 3, None));
    let beat = read(&format!(r#"{{"workerId":"w-1","queues":[],"executions":["{RUN}"],"concurrency":4}}"#));
    assert_eq!((beat.running, beat.free, beat.executions), (1, 3, Some(vec![run()])));
    let beat = read(r#"{"workerId":"w-1","queues":[],"running":0}"#);
    assert_eq!((beat.executions, beat.free), (Some(vec![]), 10), "it says that it runs nothing");
    for missing in [r#"{"queues":["email"]}"#, r#"{"workerId":"w-1"}"#, r#"{"workerId":"","queues":[]}"#] {
        serde_json::from_str::<WorkerHeartbeat>(missing).expect_err(missing);
    }
}

#[test]
fn what_nodes_say_is_read_and_written_in_the_shape_of_orchestrix() {
    let (job_id, execution_id) = (job(), run());
    let written = |bytes: Bytes| String::from_utf8(bytes.to_vec()).expect("UTF-8");
    let is_json = |text: &str, expected: &str| {
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("JSON");
        assert_eq!(value(text), value(expected));
    };
    let orchestrix = seed::Format::Orchestrix;

    let assigned = Assigned { v: V1, epoch: Epoch(7), jobs: vec![RunRef { job_id, execution_id }; 2] };
    let entries = orchestrix.encode_assigned(&assigned);
    assert_eq!(entries.len(), 2, "an entry for each run");
    let text = written(entries[0].clone());
    is_json(&text, &format!(r#"{{"JobId":"{JOB}","HistoryId":"{RUN}","Epoch":7}}"#));
    let one = Assigned { jobs: vec![RunRef { job_id, execution_id }], ..assigned };
    assert_eq!(serde_json::from_str::<Assigned>(&text).expect("reads"), one);
    let least = format!(r#"{{"JobId":"{JOB}","HistoryId":"{RUN}"}}"#);
    assert_eq!(serde_json::from_str::<Assigned>(&least).expect("reads"), Assigned { epoch: Epoch(0), ..one });
    for (wrong, complaint) in [
        (format!(r#"{{"JobId":"{JOB}"}}"#), "missing field `executionId`"),
        (format!(r#"{{"HistoryId":"{RUN}"}}"#), "missing field `jobId`"),
        ("{}".into(), "missing field `jobs`"),
        (format!(r#"{{"JobId":"{JOB}","HistoryId":"{RUN}","jobs":[]}}"#), "got both"),
    ] {
        let error = serde_json::from_str::<Assigned>(&wrong).expect_err(&wrong).to_string();
        assert!(error.contains(complaint), "{error}");
    }

    for (reason, name) in [(HandoffReason::Shutdown, "Shutdown"), (HandoffReason::NodeCrash, "NodeCrash")] {
        let least = format!(r#"{{"JobId":"{JOB}","Reason":"{name}"}}"#);
        let foreign = Handoff { v: V1, job_id, execution_id: None, from_node: None, reason, tries: 0 };
        assert_eq!(serde_json::from_str::<Handoff>(&least).expect("reads"), foreign);
        let own = Handoff { execution_id: Some(execution_id), from_node: Some(node("n-1")), tries: 1, ..foreign };
        let text = written(orchestrix.encode(&own));
        let expected = r#"{"JobId":"JOB","HistoryId":"RUN","FromNode":"n-1","Reason":"NAME","Tries":1}"#;
        is_json(&text, &expected.replace("JOB", JOB).replace("RUN", RUN).replace("NAME", name));
        assert_eq!(serde_json::from_str::<Handoff>(&text).expect("reads"), own);
    }

    let ack = HandoffAck { v: V1, job_id, new_owner: node("n-2") };
    let text = written(orchestrix.encode(&ack));
    is_json(&text, &format!(r#"{{"JobId":"{JOB}","NewOwner":"n-2"}}"#));
    assert_eq!(serde_json::from_str::<HandoffAck>(&text).expect("reads"), ack);

    let least = format!(r#"{{"NodeId":"coord-1","JobCount":50,"Timestamp":"{AT}"}}"#);
    let beat = serde_json::from_str::<CoordinatorHeartbeat>(&least).expect("reads");
    assert_eq!((beat.node_id.as_str(), beat.job_count, beat.at, beat.role), ("coord-1", 50, at(), None));
    let interval = Some(Duration::from_secs(10));
    let own = CoordinatorHeartbeat { role: Some(NodeRole::Leader), worker_heartbeat_interval: interval, ..beat };
    let text = written(orchestrix.encode(&own));
    let expected = r#"{"NodeId":"coord-1","JobCount":50,"State":"Active","Role":"Leader","Epoch":0,"Timestamp":"AT","WorkerHeartbeatInterval":"10s"}"#;
    is_json(&text, &expected.replace("AT\"", &format!("{AT}\"")));
    assert_eq!(serde_json::from_str::<CoordinatorHeartbeat>(&text).expect("reads"), own);
    assert_eq!(written(seed::Format::Convoke.encode(&ack)), written(encode(&ack)));
}
