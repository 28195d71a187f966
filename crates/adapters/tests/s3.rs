//! Leases on S3 against the suite of their port, on a real server, and the files that other systems read.
#![cfg(feature = "s3")]

mod s3_stage;

use std::sync::Arc;
use std::time::Duration;

use convoke_adapters::s3::{Requests, S3Leases};
use convoke_core::ports::Leases;
use convoke_core::ports::leases::Floor;
use convoke_core::{Epoch, Error};
use convoke_testkit::conformance::Subject;
use convoke_testkit::conformance::leases::Clients;
use convoke_testkit::process::{IfMatch, S3Server};
use s3_stage::*;
use serde_json::json;

mod leases {
    use super::*;

    async fn fresh(count: usize) -> Clients {
        let server = S3Server::start().await;
        let mut clients: Vec<Arc<dyn Leases>> = Vec::new();
        for _ in 0..count {
            clients.push(Arc::new(super::connect(&server).await));
        }
        Subject::keeping(clients.into(), server)
    }

    convoke_testkit::leases_conformance!(fresh, tokio::time::sleep);
}

#[tokio::test]
async fn files_are_where_the_published_system_looks_for_them_and_hold_what_it_reads() {
    let server = S3Server::start().await;
    let leases = connect(&server).await;
    leases.enroll("ns", "pod-1", Duration::from_secs(20)).await.expect("enroll");
    leases.elect("ns", "pod-1", Duration::from_secs(15), Floor::UNKNOWN).await.expect("nobody leads");
    let folder = "some/prefix/plugin=coordinator/namespace=ns";
    let keys: Vec<String> = server.bucket().list("").await.into_iter().map(|(key, _)| key).collect();
    let expected = ["metadata.json", "state.json", "workers/worker=pod-1.json"].map(|name| format!("{folder}/{name}"));
    assert_eq!(keys, expected);

    let (state, _) = server.bucket().get(STATE).await.expect("a state");
    assert_eq!(
        (&state["leaderId"], &state["epoch"], &state["electedBy"]),
        (&json!("pod-1"), &json!(1), &json!("pod-1"))
    );
    let number = |name: &str| state[name].as_i64().unwrap_or_else(|| panic!("{name} in {state}"));
    assert_eq!(number("leaseEnd") - number("leaseStart"), 15_000);
    assert_eq!((number("leaseExpiresAt"), number("electedAt")), (number("leaseEnd"), number("leaseStart")));
    assert!(state["leaderPod"].is_string() && state.get("_expiresAt").is_none(), "{state}");

    let (worker, _) = server.bucket().get(&expected[2]).await.expect("a member");
    assert_eq!((&worker["workerId"], &worker["namespace"]), (&json!("pod-1"), &json!("ns")));
    assert_eq!(worker["registeredAt"], worker["startTime"]);
    let lasts = worker["_expiresAt"].as_i64().zip(worker["lastHeartbeat"].as_i64()).map(|(end, start)| end - start);
    assert_eq!(lasts, Some(20_000), "{worker}");
    let (metadata, _) = server.bucket().get(&expected[0]).await.expect("metadata");
    assert_eq!((&metadata["createdBy"], &metadata["plugins"]), (&json!("pod-1"), &json!([])));
}

#[tokio::test]
async fn a_resigned_state_is_over_by_every_clock_and_keeps_its_epoch() {
    let server = S3Server::start().await;
    let (one, other) = (connect(&server).await, connect(&server).await);
    let lease = one.elect("ns", "a", LONG, Floor::Received(Epoch(41))).await.expect("nobody leads");
    other.read("ns").await.expect("read").expect("a leads");
    one.resign("ns", "a", lease.epoch).await.expect("resign");
    let (state, _) = server.bucket().get(STATE).await.expect("a state");
    // Zero would be a lease without end to s3db.js.
    assert_eq!((&state["leaseEnd"], &state["epoch"], &state["leaderId"]), (&json!(1), &json!(42), &json!("a")));
    assert_eq!(other.elect("ns", "b", LONG, Floor::UNKNOWN).await.expect("at once").epoch, Epoch(43));
}

#[tokio::test]
async fn each_verb_costs_what_it_says() {
    let server = S3Server::start().await;
    let (one, other) = (connect(&server).await, connect(&server).await);
    let mut before = (one.requests(), other.requests());
    let mut cost = |leases: &S3Leases| {
        let now = leases.requests();
        let last = if std::ptr::eq(leases, &one) { &mut before.0 } else { &mut before.1 };
        let spent = [now.get - last.get, now.put - last.put, now.delete - last.delete, now.list - last.list];
        assert_eq!(now.other, 0);
        *last = now;
        spent
    };
    one.enroll("ns", "a", LONG).await.expect("enroll");
    assert_eq!(cost(&one), [0, 1, 0, 0]);
    one.roster("ns").await.expect("roster");
    assert_eq!(cost(&one), [0, 0, 0, 1]);
    one.withdraw("ns", "a").await.expect("withdraw");
    assert_eq!(cost(&one), [0, 0, 1, 0]);
    let first = one.elect("ns", "a", LONG, Floor::UNKNOWN).await.expect("nobody leads").epoch;
    assert_eq!(
        cost(&one),
        [2, 2, 0, 0],
        "the first of all also searches for a lost epoch, and describes the namespace"
    );
    for _ in 0..3 {
        one.renew("ns", "a", first, LONG).await.expect("its own term");
        assert_eq!(cost(&one), [0, 1, 0, 0]);
    }
    for _ in 0..3 {
        other.read("ns").await.expect("read").expect("a leads");
        assert_eq!(cost(&other), [1, 0, 0, 0]);
    }
    one.resign("ns", "a", first).await.expect("resign");
    assert_eq!(cost(&one), [0, 1, 0, 0]);
    let second = other.elect("ns", "b", LONG, Floor::UNKNOWN).await.expect("nobody leads").epoch;
    assert_eq!(cost(&other), [1, 1, 0, 0]);
    other.resign("ns", "b", second).await.expect("resign");
    cost(&other);
    let third = other.elect("ns", "b", LONG, Floor::UNKNOWN).await.expect("nobody leads").epoch;
    assert_eq!(cost(&other), [0, 1, 0, 0], "it knows that nobody leads");
    let refused = one.elect("ns", "a", LONG, Floor::UNKNOWN).await;
    assert!(matches!(refused, Err(Error::Conflict(_))), "{refused:?}");
    assert_eq!(cost(&one), [1, 1, 0, 0], "it knew of the first resignation, and reads the next leader");
    other.resign("ns", "b", third).await.expect("resign");
    assert_eq!(one.read("ns").await.expect("read"), None);
    let fourth = other.elect("ns", "b", LONG, Floor::UNKNOWN).await.expect("nobody leads").epoch;
    other.resign("ns", "b", fourth).await.expect("resign");
    cost(&one);
    one.elect("ns", "a", LONG, Floor::UNKNOWN).await.expect("nobody leads");
    assert_eq!(cost(&one), [1, 2, 0, 0], "it reads, and finds no leader");
    assert_eq!(one.lease_check_interval(), None, "nothing is asked between heartbeats");
    let Requests { get, put, delete, list, other: rest } = one.requests();
    assert_eq!(one.requests().total(), get + put + delete + list + rest);
}

#[tokio::test]
async fn an_epoch_outlives_the_loss_of_the_file() {
    let server = S3Server::start().await;
    let leases = connect(&server).await;
    let lost = leases.elect("ns", "a", LONG, Floor::Received(Epoch(6))).await.expect("nobody leads").epoch;
    server.bucket().delete(STATE).await;
    assert_eq!(leases.read("ns").await.expect("read"), None);
    let next = leases.elect("ns", "a", LONG, Floor::UNKNOWN).await.expect("nobody leads").epoch;
    assert!(next > lost, "this process remembers");
    server.bucket().delete(STATE).await;
    let checkpoint = STATE.replace("state", "checkpoint");
    server.bucket().put(&checkpoint, br#"{"namespace":"ns","leaderId":"a","epoch":99}"#, IfMatch::Any).await;
    let newcomer = connect(&server).await;
    let after = newcomer.elect("ns", "b", LONG, Floor::UNKNOWN).await.expect("nobody leads").epoch;
    assert_eq!(after, Epoch(100), "epochs that others recorded count as well");
}

#[tokio::test]
async fn a_state_that_is_no_lease_is_neither_believed_nor_overwritten() {
    let server = S3Server::start().await;
    let leases = connect(&server).await;
    let huge = format!(r#"{{"epoch":1,"x":"{}"}}"#, "x".repeat(1 << 20));
    for garbage in ["", "null", "{", r#"{"leaderId":"a"}"#, r#"{"epoch":-5}"#, r#"{"epoch":9e99}"#, huge.as_str()] {
        server.bucket().put(STATE, garbage.as_bytes(), IfMatch::Any).await;
        let read = leases.read("ns").await;
        assert!(matches!(read, Err(Error::Unavailable { .. })), "{read:?}");
        let elected = leases.elect("ns", "a", LONG, Floor::UNKNOWN).await;
        assert!(matches!(elected, Err(Error::Unavailable { .. })), "{elected:?}");
        let resigned = leases.resign("ns", "a", Epoch(1)).await;
        assert!(matches!(resigned, Err(Error::Unavailable { .. })), "{resigned:?}");
    }
    let highest = format!(r#"{{"leaderId":"a","epoch":{},"leaseStart":2,"leaseEnd":1}}"#, 1_u64 << 52);
    server.bucket().put(STATE, highest.as_bytes(), IfMatch::Any).await;
    let elected = leases.elect("ns", "a", LONG, Floor::UNKNOWN).await;
    assert!(matches!(elected, Err(Error::Unavailable { .. })), "there is no higher epoch: {elected:?}");
    let elected = leases.elect("ns", "a", LONG, Floor::Received(Epoch(u64::MAX))).await;
    assert!(matches!(elected, Err(Error::Invalid(_))), "{elected:?}");
}

#[tokio::test]
async fn names_of_any_kind_come_back_from_the_bucket() {
    let server = S3Server::start().await;
    let leases = connect(&server).await;
    let mut names = ["a/../b", "a b", "100%", "ä€", "..", "x=y.json", "pod:1@host+z"].map(str::to_owned).to_vec();
    for name in &names {
        leases.enroll("n/s %", name, LONG).await.expect("enroll");
        let lease = leases.elect("n/s %", name, LONG, Floor::UNKNOWN).await.expect("nobody leads");
        leases.resign("n/s %", name, lease.epoch).await.expect("resign");
    }
    names.sort_unstable();
    assert_eq!(leases.roster("n/s %").await.expect("roster"), names);
    for name in ["", &"x".repeat(256)] {
        assert!(matches!(leases.enroll("ns", name, LONG).await, Err(Error::Invalid(_))));
        assert!(matches!(leases.elect("ns", name, LONG, Floor::UNKNOWN).await, Err(Error::Invalid(_))));
        assert!(matches!(leases.read(name).await, Err(Error::Invalid(_))));
    }
}

#[tokio::test]
async fn members_of_other_processes_are_found_by_one_listing() {
    let server = S3Server::start().await;
    let (one, other) = (connect(&server).await, connect(&server).await);
    one.enroll("ns", "a", LONG).await.expect("enroll");
    other.enroll("ns", "b", LONG).await.expect("enroll");
    server.bucket().put("some/prefix/plugin=coordinator/namespace=ns/workers/README", b"hello", IfMatch::Any).await;
    let before = other.requests();
    assert_eq!(other.roster("ns").await.expect("roster"), ["a", "b"]);
    assert_eq!(other.requests().total() - before.total(), 1);
    one.withdraw("ns", "a").await.expect("withdraw");
    assert_eq!(other.roster("ns").await.expect("roster"), ["b"]);
    let namespace = one.roster("n").await.expect("roster");
    assert!(namespace.is_empty(), "of a name that another begins with: {namespace:?}");
}

#[tokio::test]
async fn a_bucket_that_is_not_there_is_found_at_once() {
    let server = S3Server::start().await;
    let clock = Arc::new(Skewed(jiff::SignedDuration::ZERO));
    let error = S3Leases::connect("s3://no-such-bucket/p", server.variables(), clock.clone()).await.err();
    let error = error.expect("no such bucket");
    assert!(matches!(error, Error::Unavailable { .. }) && error.to_string().contains("NoSuchBucket"), "{error}");
    let away = S3Server::variables_for(([127, 0, 0, 1], 1).into());
    let error = S3Leases::connect("s3://bucket", away, clock).await.err().expect("no such server");
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
}

#[tokio::test]
async fn a_leaders_report_is_in_its_file_and_costs_no_request() {
    let server = S3Server::start().await;
    let (leader, looker) = (connect(&server).await, connect(&server).await);
    leader.elect("ns", "pod-1", LONG, Floor::UNKNOWN).await.expect("nobody leads");
    leader.enroll("ns", "pod-1", LONG).await.expect("enroll");
    assert_eq!(looker.published("ns").await.expect("read"), None);
    let settings = convoke_core::election::Settings::default();
    let pulse = convoke_core::election::ElectionStats::new(&settings, jiff::Timestamp::UNIX_EPOCH);
    let report = convoke_core::election::Report {
        member: "pod-1".into(),
        epoch: Epoch(1),
        at: jiff::Timestamp::UNIX_EPOCH,
        metrics: pulse.metrics(),
        breaker: pulse.breaker(),
    };
    let text = serde_json::to_string(&report).expect("JSON");
    let before = leader.requests().total();
    leader.publish("ns", &text).await.expect("publish");
    leader.enroll("ns", "pod-2", LONG).await.expect("enroll");
    assert_eq!(leader.requests().total() - before, 1, "the enrolment alone");
    assert_eq!(looker.published("ns").await.expect("read"), None, "it is not of that member");
    leader.enroll("ns", "pod-1", LONG).await.expect("enroll");
    assert_eq!(looker.published("ns").await.expect("read").as_deref(), Some(text.as_str()));
    let worker = format!("{}/workers/worker=pod-1.json", STATE.strip_suffix("/state.json").expect("a folder"));
    let (worker, _) = server.bucket().get(&worker).await.expect("a member");
    assert_eq!((&worker["workerId"], &worker["report"]["epoch"]), (&json!("pod-1"), &json!(1)));
}
