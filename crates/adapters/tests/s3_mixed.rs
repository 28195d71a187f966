//! Leases of Convoke and workers of the published system in one namespace: neither takes the place of the other.
#![cfg(feature = "s3")]

mod s3_stage;

use std::collections::BTreeMap;
use std::time::Duration;

use convoke_core::ports::Leases;
use convoke_core::ports::leases::Floor;
use convoke_core::{Epoch, Error};
use convoke_testkit::process::{IfMatch, S3Server, S3Worker, S3WorkerSettings, eventually};
use jiff::SignedDuration;
use s3_stage::*;
use serde_json::json;

const HEARTBEAT: Duration = Duration::from_millis(250);
const LEASE: Duration = Duration::from_secs(3);
const WORKER_TIMEOUT: Duration = Duration::from_secs(2);

fn theirs(server: &S3Server, id: &str) -> S3Worker {
    let settings = S3WorkerSettings {
        folder: STATE.strip_suffix("/state.json").expect("a folder").to_owned(),
        worker_id: id.to_owned(),
        heartbeat: HEARTBEAT,
        jitter: HEARTBEAT / 5,
        lease: LEASE,
        worker_timeout: WORKER_TIMEOUT,
        skew: SignedDuration::ZERO,
    };
    S3Worker::start(server.bucket().clone(), settings)
}

/// Waits until all name the same leader, one of them.
async fn agreed(fleet: &BTreeMap<&str, S3Worker>) -> (String, u64) {
    eventually("one leader that all agree on", || async {
        let mut views = fleet.values().map(S3Worker::leader);
        let first = views.next()??;
        (views.all(|view| view.as_ref() == Some(&first)) && fleet.contains_key(first.0.as_str())).then_some(first)
    })
    .await
}

#[tokio::test]
async fn while_ours_renews_theirs_elect_nobody_else() {
    let server = S3Server::start().await;
    let leases = connect(&server).await;
    let epoch = leases.elect("ns", "m", LEASE, Floor::UNKNOWN).await.expect("nobody leads").epoch;
    let fleet = BTreeMap::from([("a", theirs(&server, "a")), ("z", theirs(&server, "z"))]);
    for _ in 0..16 {
        leases.renew("ns", "m", epoch, LEASE).await.expect("its own term, for longer than a lease");
        tokio::time::sleep(LEASE / 12).await;
    }
    for member in fleet.values() {
        assert_eq!(member.leader(), Some(("m".into(), epoch.0)));
    }
    // A resigned term is free for another at once, long before it would have expired.
    leases.renew("ns", "m", epoch, LONG).await.expect("its own term");
    leases.resign("ns", "m", epoch).await.expect("resign");
    let (_, next) = agreed(&fleet).await;
    assert!(next > epoch.0);
}

#[tokio::test]
async fn who_is_elected_by_others_is_told_once_and_under_an_epoch_of_its_own() {
    let server = S3Server::start().await;
    let (a, b) = (connect(&server).await, connect(&server).await);
    let now = jiff::Timestamp::now().as_millisecond();
    let state = json!({
        "leaderId": "a", "leaderPod": "p", "epoch": 7, "leaseStart": now, "leaseEnd": now + 600_000,
        "electedBy": "gcs-x", "electedAt": now, "_expiresAt": now + 660_000,
    });
    server.bucket().put(STATE, state.to_string().as_bytes(), IfMatch::Any).await;
    let read = a.read("ns").await.expect("read").expect("a leads");
    assert_eq!((read.holder.as_str(), read.epoch, read.is_foreign), ("a", Epoch(7), true));
    let rival = b.elect("ns", "b", LONG, Floor::UNKNOWN).await;
    assert!(matches!(rival, Err(Error::Conflict(_))), "{rival:?}");
    let claimed = a.elect("ns", "a", LONG, Floor::UNKNOWN).await.expect("it was elected");
    assert_eq!(claimed.epoch, Epoch(9), "not the next: another process of theirs may be about to use that");
    // A second process of that name does not receive the same term.
    for leases in [&a, &b] {
        let again = leases.elect("ns", "a", LONG, Floor::UNKNOWN).await;
        assert!(matches!(again, Err(Error::Conflict(_))), "{again:?}");
    }
    a.renew("ns", "a", claimed.epoch, LONG).await.expect("its own term");
    assert!(!b.read("ns").await.expect("read").expect("a leads").is_foreign);
    let is_foreign_name = a.foreign().expect("namespaces are shared");
    assert!(is_foreign_name("gcs-pod-1") && !is_foreign_name("pod-1"));
}
