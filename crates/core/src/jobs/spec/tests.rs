use super::*;
use crate::error::InvalidKind;
use crate::jobs::{Priority, RetryPolicy};
use crate::limits::{ARGS_BYTES_MAX, NAME_BYTES_MAX, RETRIES_MAX};

const OWN: &str = "0198c0de-0000-7000-8000-000000000001";

fn fresh() -> JobId {
    "0198c0de-0000-7000-8000-000000000009".parse().expect("an id")
}

fn now() -> Timestamp {
    "2026-03-01T12:00:00Z".parse().expect("an instant")
}

fn read(fields: &str) -> serde_json::Result<JobSpec> {
    serde_json::from_str(&format!(r#"{{"type":"email.send"{fields}}}"#))
}

fn job(fields: &str) -> Result<NewJob, Invalid> {
    read(fields).expect("a readable body").into_job(fresh(), now(), &RetrySettings::default())
}

#[test]
fn a_request_with_nothing_but_a_type_gets_the_defaults() {
    let job = job("").expect("valid");
    assert_eq!(
        (job.id, job.definition.job_type.as_str(), job.definition.queue.as_str()),
        (fresh(), "email.send", "default")
    );
    assert!(job.definition.args.is_null());
    assert_eq!(
        (job.definition.priority, job.definition.max_retries, job.definition.retry_policy),
        (Priority::Normal, 3, RetryPolicy::default())
    );
    assert_eq!((job.definition.timeout, job.run_at, job.unique_until), (None, None, None));
    assert_eq!((job.status(), job.due_at()), (Status::Pending, now()));
}

#[test]
fn a_full_request_is_kept() {
    let fields = concat!(
        r#","id":"0198c0de-0000-7000-8000-000000000001","queue":"email","args":{"to": 1},"priority":"critical","delay":"5s","#,
        r#""maxRetries":0,"retryPolicy":{"initialDelay":"1s","multiplier":3.0,"maxDelay":"9s"},"timeout":"30s","#,
        r#""correlationId":"c","uniqueKey":"u","uniqueFor":"1h""#
    );
    let job = job(fields).expect("valid");
    assert_eq!(
        (job.id.to_string().as_str(), job.definition.queue.as_str(), job.definition.args.as_str()),
        (OWN, "email", r#"{"to": 1}"#)
    );
    assert_eq!(
        (job.definition.priority, job.definition.max_retries, job.definition.retry_policy.multiplier),
        (Priority::Critical, 0, 3.0)
    );
    assert_eq!(
        (job.definition.timeout, job.definition.correlation_id.as_deref()),
        (Some(Duration::from_secs(30)), Some("c"))
    );
    assert_eq!(
        (job.definition.unique_key.as_deref(), job.unique_until),
        (Some("u"), Some(now() + Duration::from_secs(3_600)))
    );
    let due = now() + Duration::from_secs(5);
    assert_eq!((job.run_at, job.status(), job.due_at()), (Some(due), Status::Scheduled, due));
    let stored = job.into_stored();
    assert_eq!((stored.status, stored.scheduled_at, stored.attempt), (Status::Scheduled, Some(due), 0));
}

#[test]
fn what_was_read_is_written_again() {
    let text = concat!(
        r#"{"id":"0198c0de-0000-7000-8000-000000000001","type":"t","queue":"q","args":[1, 2],"priority":"low","#,
        r#""maxRetries":1,"timeout":"30s","correlationId":"c","uniqueKey":"u","uniqueFor":"1h","delay":"5s"}"#
    );
    let spec: JobSpec = serde_json::from_str(text).expect("reads");
    assert_eq!(serde_json::to_string(&spec).expect("serialises"), text);
    let bare = JobSpec::new(JobType::new("t").expect("a name"));
    assert_eq!(serde_json::to_string(&bare).expect("serialises"), r#"{"type":"t"}"#);
}

#[test]
fn null_is_as_good_as_silence() {
    let fields = concat!(
        r#","id":null,"queue":null,"args":null,"priority":null,"delay":null,"runAt":null,"maxRetries":null,"#,
        r#""retryPolicy":null,"timeout":null,"correlationId":null,"uniqueKey":null,"uniqueFor":null"#
    );
    let job = job(fields).expect("valid");
    assert_eq!(
        (job.id, job.definition.queue.as_str(), job.run_at, job.definition.timeout),
        (fresh(), "default", None, None)
    );
}

#[test]
fn a_time_that_has_come_is_at_once() {
    for fields in [r#","runAt":"2026-03-01T12:00:00Z""#, r#","runAt":"1970-01-01T00:00:00Z""#, r#","delay":"0s""#] {
        let job = job(fields).expect("valid");
        assert_eq!((job.run_at, job.status(), job.due_at()), (None, Status::Pending, now()), "{fields}");
    }
    let zoned = job(r#","runAt":"2026-03-01T15:00:00+02:00""#).expect("valid");
    assert_eq!(zoned.run_at.map(|at| at.to_string()).as_deref(), Some("2026-03-01T13:00:00Z"));
}

#[test]
fn a_request_that_makes_no_sense_is_refused_by_its_field() {
    use InvalidKind::{Argument, TooLarge, Unprocessable};
    let long = "x".repeat(NAME_BYTES_MAX + 1);
    let stubborn = format!(r#","maxRetries":{}"#, RETRIES_MAX + 1);
    let huge = format!(r#","args":"{}""#, "x".repeat(ARGS_BYTES_MAX));
    let deep = format!(r#","args":{}1{}"#, r#"{"a":"#.repeat(100), "}".repeat(100));
    let (long_key, long_correlation) = (format!(r#","uniqueKey":"{long}""#), format!(r#","correlationId":"{long}""#));
    let cases = [
        (r#","delay":"5s","runAt":"2026-03-02T00:00:00Z""#, "runAt", Unprocessable),
        (r#","uniqueFor":"5s""#, "uniqueFor", Unprocessable),
        (r#","retryPolicy":{"initialDelay":"1h","maxDelay":"1s"}"#, "retryPolicy.maxDelay", Unprocessable),
        (r#","retryPolicy":{"multiplier":0.5}"#, "retryPolicy.multiplier", Argument),
        (r#","id":"00000000-0000-0000-0000-000000000000""#, "id", Argument),
        (r#","id":"ffffffff-ffff-ffff-ffff-ffffffffffff""#, "id", Argument),
        (r#","timeout":"0s""#, "timeout", Argument),
        (r#","uniqueKey":"""#, "uniqueKey", Argument),
        (r#","correlationId":"""#, "correlationId", Argument),
        (&long_key, "uniqueKey", Argument),
        (&long_correlation, "correlationId", Argument),
        (&stubborn, "maxRetries", Argument),
        (&deep, "args", Argument),
        (&huge, "args", TooLarge),
    ];
    for (fields, field, kind) in cases {
        let refused = job(fields).expect_err(field);
        assert_eq!((refused.field.as_str(), refused.kind), (field, kind), "{refused}");
        assert!(refused.message.contains("expected"), "{refused}");
    }
}

#[test]
fn what_is_at_a_limit_is_fine() {
    let args = format!(r#","args":"{}""#, "x".repeat(ARGS_BYTES_MAX - 2));
    assert_eq!(job(&args).expect("valid").definition.args.as_str().len(), ARGS_BYTES_MAX);
    let key = format!(r#","uniqueKey":"{}""#, "x".repeat(NAME_BYTES_MAX));
    assert!(job(&key).is_ok());
    assert_eq!(job(&format!(r#","maxRetries":{RETRIES_MAX}"#)).expect("valid").definition.max_retries, RETRIES_MAX);
    assert!(job(r#","delay":"36500d""#).is_ok(), "the longest delay does not overflow");
}

#[test]
fn what_is_no_request_is_refused_by_what_is_wrong() {
    for (fields, named) in [
        (r#","colour":"red""#, "colour"),
        (r#","job_type":"x""#, "job_type"),
        (r#","delay":5"#, "a duration"),
        (r#","delay":"-5s""#, "a duration"),
        (r#","delay":"99999999999999999999s""#, "100 years"),
        (r#","priority":"urgent""#, "critical"),
        (r#","maxRetries":-1"#, "-1"),
        (r#","maxRetries":4294967296"#, "4294967296"),
        (r#","maxRetries":1.5"#, "1.5"),
        (r#","retryPolicy":{"delay":"1s"}"#, "delay"),
        (r#","queue":"a\u0000b""#, "control"),
        (r#","queue":7"#, "string"),
        (r#","id":"7""#, "UUID"),
        (r#","runAt":"tomorrow""#, "expected an instant"),
        (r#","args":{"#, "EOF"),
    ] {
        let error = read(fields).expect_err(fields).to_string();
        assert!(error.contains(named), "{error}");
    }
    let error = serde_json::from_str::<JobSpec>("{}").expect_err("no type").to_string();
    assert!(error.contains("`type`"), "{error}");
}

#[test]
fn numbers_that_no_number_type_holds_are_carried_as_they_are() {
    let numbers = r#"[123456789012345678901234567890, 1e300, -0.0]"#;
    assert_eq!(job(&format!(r#","args":{numbers}"#)).expect("valid").definition.args.as_str(), numbers);
}

#[test]
fn a_key_that_not_every_store_can_keep_is_refused_by_all() {
    for field in ["correlationId", "uniqueKey"] {
        let refused = job(&format!(r#","{field}":"a\u0000b""#)).expect_err("a NUL in it");
        assert_eq!((refused.field.as_str(), refused.kind), (field, InvalidKind::Argument));
        assert_eq!(refused.message, "expected no NUL character, got one in it");
        job(&format!(r#","{field}":"a\tb ✓""#)).expect("any other text");
    }
}
