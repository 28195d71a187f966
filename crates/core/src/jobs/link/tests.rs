use serde::de::DeserializeOwned;

use super::super::wire::V1;
use super::*;
use crate::ids::JobType;

const JOB: &str = "0198c0de-0000-7000-8000-000000000001";
const RUN: &str = "0198c0de-0000-7000-8000-000000000002";

fn job() -> JobId {
    JOB.parse().expect("an id")
}

fn run() -> ExecutionId {
    RUN.parse().expect("an id")
}

fn worker() -> WorkerId {
    WorkerId::new("w-1").expect("a name")
}

fn queue() -> QueueName {
    QueueName::new("email").expect("a name")
}

fn is_exactly<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(value: T, text: &str) {
    let text = text.replace("JOB", JOB).replace("RUN", RUN);
    assert_eq!(serde_json::to_string(&value).expect("serialises"), text);
    assert_eq!(serde_json::from_str::<T>(&text).expect("reads"), value);
}

fn refuses<T: DeserializeOwned + std::fmt::Debug>(body: &str, named: &str) {
    let error = serde_json::from_str::<T>(body).expect_err(body).to_string();
    assert!(error.contains(named), "{error}");
}

#[test]
fn registering_is_exactly_this() {
    let register =
        Register { worker_id: Some(worker()), name: Some("mailer".into()), queues: vec![queue()], concurrency: 10 };
    is_exactly(register, r#"{"workerId":"w-1","name":"mailer","queues":["email"],"concurrency":10}"#);
    let nameless = Register { worker_id: None, name: None, queues: vec![queue()], concurrency: 1 };
    is_exactly(nameless, r#"{"queues":["email"],"concurrency":1}"#);
    let (heartbeat_interval, stale_after) = (Duration::from_secs(10), Duration::from_secs(30));
    is_exactly(
        Registered { worker_id: worker(), heartbeat_interval, stale_after },
        r#"{"workerId":"w-1","heartbeatInterval":"10s","staleAfter":"30s"}"#,
    );
}

#[test]
fn polling_is_exactly_this() {
    is_exactly(
        Poll { worker_id: worker(), max: 10, wait: Duration::from_secs(20) },
        r#"{"workerId":"w-1","max":10,"wait":"20s"}"#,
    );
    let silent: Poll = serde_json::from_str(r#"{"workerId":"w-1","max":10}"#).expect("reads");
    assert_eq!(silent.wait, Duration::from_secs(20));
    let assignment = Assignment {
        job_id: job(),
        execution_id: run(),
        input: RunInput {
            job_type: JobType::new("email.send").expect("a name"),
            queue: queue(),
            args: Json::parse(r#"{"to": 1}"#.into()).expect("valid JSON"),
            max_retries: 3,
            timeout: None,
            correlation_id: Some("c".into()),
            tags: Vec::new(),
        },
        attempt: 1,
        epoch: Epoch(7),
    };
    is_exactly(
        Polled { jobs: vec![assignment], cancel: vec![run()], drain: false },
        concat!(
            r#"{"jobs":[{"jobId":"JOB","executionId":"RUN","type":"email.send","queue":"email","args":{"to": 1},"#,
            r#""maxRetries":3,"timeout":null,"correlationId":"c","attempt":1,"epoch":7}],"cancel":["RUN"],"drain":false}"#
        ),
    );
}

#[test]
fn reporting_is_exactly_this() {
    let event = |kind| Event::new(job(), run(), kind);
    let events = [
        (event(EventKind::Started), "started", ""),
        (
            Event { percent: Some(40), message: Some("m".into()), ..event(EventKind::Progress) },
            "progress",
            r#","percent":40,"message":"m""#,
        ),
        (
            Event { level: Some(LogLevel::Error), message: Some("m".into()), ..event(EventKind::Log) },
            "log",
            r#","message":"m","level":"error""#,
        ),
        (
            Event { result: Some(Json::parse("[1]".into()).expect("valid JSON")), ..event(EventKind::Completed) },
            "completed",
            r#","result":[1]"#,
        ),
        (
            Event { error: Some("boom".into()), retry: Some(false), ..event(EventKind::Failed) },
            "failed",
            r#","error":"boom","retry":false"#,
        ),
        (event(EventKind::TimedOut), "timedOut", ""),
        (event(EventKind::Cancelled), "cancelled", ""),
        (event(EventKind::Released), "released", ""),
    ];
    for (event, kind, rest) in events {
        let text =
            format!(r#"{{"workerId":"w-1","events":[{{"executionId":"RUN","jobId":"JOB","kind":"{kind}"{rest}}}]}}"#);
        is_exactly(Report { worker_id: worker(), events: vec![event] }, &text);
    }
    let rejected = vec![Rejected { execution_id: run(), code: RejectedCode::StaleExecution }];
    is_exactly(
        Reported { accepted: 1, rejected },
        r#"{"accepted":1,"rejected":[{"executionId":"RUN","code":"stale_execution"}]}"#,
    );
}

#[test]
fn heartbeats_are_exactly_this() {
    let heartbeat = Heartbeat { worker_id: worker(), running: vec![run()], draining: false };
    is_exactly(heartbeat.clone(), r#"{"workerId":"w-1","running":["RUN"]}"#);
    is_exactly(Heartbeat { draining: true, ..heartbeat }, r#"{"workerId":"w-1","running":["RUN"],"draining":true}"#);
    // A missing list must not count as an empty one: every run would be lost.
    refuses::<Heartbeat>(r#"{"workerId":"w-1"}"#, "`running`");
    is_exactly(HeartbeatReply { cancel: vec![run()], drain: true }, r#"{"cancel":["RUN"],"drain":true}"#);
    is_exactly(Enqueued { id: job(), created: true }, r#"{"id":"JOB","created":true}"#);
}

#[test]
fn requests_with_unknown_fields_or_wrong_types_are_refused() {
    refuses::<Register>(r#"{"queues":["a"],"concurrency":1,"tags":[]}"#, "tags");
    refuses::<Register>(r#"{"queues":["a"]}"#, "`concurrency`");
    refuses::<Register>(r#"{"queues":[""],"concurrency":1}"#, "queue: expected a name");
    refuses::<Register>(r#"{"queues":["a"],"concurrency":-1}"#, "-1");
    refuses::<Register>(r#"{"queues":["a"],"concurrency":4294967296}"#, "4294967296");
    refuses::<Poll>(r#"{"workerId":"w","max":1,"timeout":"1s"}"#, "timeout");
    refuses::<Poll>(r#"{"workerId":"w","max":1,"wait":20}"#, "a duration");
    refuses::<Poll>(r#"{"workerId":"w","max":-1}"#, "-1");
    refuses::<Report>(r#"{"workerId":"w","events":[],"at":1}"#, "at");
    refuses::<Report>(
        &format!(r#"{{"workerId":"w","events":[{{"jobId":"{JOB}","kind":"started"}}]}}"#),
        "`executionId`",
    );
    let event = |rest: &str| format!(r#"{{"executionId":"{RUN}","jobId":"{JOB}",{rest}}}"#);
    refuses::<Event>(&event(r#""kind":"exploded""#), "exploded");
    refuses::<Event>(&event(r#""kind":"progress","percent":256"#), "256");
    refuses::<Event>(&event(r#""kind":"progress","percentage":1"#), "percentage");
    refuses::<Event>(&event(r#""kind":"log","level":"loud""#), "loud");
    refuses::<Event>(&event(r#""kind":"started","at":"noon""#), "expected an instant");
    refuses::<Heartbeat>(r#"{"workerId":"w","running":["x"]}"#, "UUID");
    refuses::<Heartbeat>(r#"{"workerId":"w","free":1}"#, "free");
}

#[test]
fn answers_may_say_more_in_a_newer_version() {
    let read: HeartbeatReply = serde_json::from_str(r#"{"cancel":[],"drain":false,"hint":1}"#).expect("reads");
    assert_eq!(read, HeartbeatReply::default());
    let text = format!(r#"{{"id":"{JOB}","created":false,"job":{{}}}}"#);
    assert!(!serde_json::from_str::<Enqueued>(&text).expect("reads").created);
}

#[test]
fn a_dispatch_becomes_what_a_worker_is_given() {
    let dispatch = Dispatch {
        v: V1,
        job_id: job(),
        execution_id: run(),
        input: RunInput {
            job_type: JobType::new("t").expect("a name"),
            queue: queue(),
            args: Json::null(),
            max_retries: 5,
            timeout: Some(Duration::from_secs(1)),
            correlation_id: Some("c".into()),
            tags: vec!["a".into()],
        },
        attempt: 4,
        epoch: Epoch(1),
        rate_limit: None,
    };
    let given = Assignment::from(dispatch);
    assert_eq!((given.job_id, given.execution_id, given.input.job_type.as_str()), (job(), run(), "t"));
    assert_eq!(given.epoch, Epoch(1));
    assert_eq!((given.attempt, given.input.max_retries, given.input.timeout), (4, 5, Some(Duration::from_secs(1))));
    assert_eq!((given.input.queue, given.input.correlation_id.as_deref()), (queue(), Some("c")));
    assert_eq!(given.input.tags, ["a"]);
}
