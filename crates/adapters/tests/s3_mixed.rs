//! Ours and workers of the published system in one namespace: one leader between them, and both say who it is.
#![cfg(feature = "s3")]

mod s3_stage;

use std::collections::BTreeMap;
use std::time::Duration;

use convoke_adapters::s3::S3Leases;
use convoke_core::ports::Leases;
use convoke_core::{Epoch, Error};
use convoke_testkit::process::{IfMatch, S3Server, S3Worker, S3WorkerSettings, eventually};
use jiff::SignedDuration;
use s3_stage::*;
use serde_json::json;
use tokio::sync::watch;
use tokio::task::AbortHandle;

const BEAT: Duration = Duration::from_millis(250);
const LEASE: Duration = Duration::from_secs(3);
const WORKER_TIMEOUT: Duration = Duration::from_secs(2);

/// One of ours, driven as simply as can be: it claims what others gave it, and elects itself where it is the first of those
/// who are there and nobody leads. Dropping it kills it.
struct Ours {
    view: watch::Receiver<Option<(String, u64)>>,
    beating: AbortHandle,
}

impl Ours {
    fn start(name: &str, leases: S3Leases) -> Self {
        let (seen, view) = watch::channel(None);
        let name = name.to_owned();
        let beating = tokio::spawn(async move {
            let mut term = None;
            loop {
                let leader = beat(&name, &leases, &mut term).await;
                let _ = seen.send(leader);
                tokio::time::sleep(BEAT).await;
            }
        });
        Ours { view, beating: beating.abort_handle() }
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        self.beating.abort();
    }
}

async fn beat(name: &str, leases: &S3Leases, term: &mut Option<Epoch>) -> Option<(String, u64)> {
    leases.enroll("ns", name, WORKER_TIMEOUT).await.expect("enroll");
    if let Some(epoch) = *term {
        match leases.renew("ns", name, epoch, LEASE).await {
            Ok(lease) => return Some((lease.holder, lease.epoch.0)),
            Err(Error::Fenced { .. }) => *term = None,
            Err(error) => panic!("{error}"),
        }
    }
    let present = leases.read("ns").await.expect("read");
    let is_due = match &present {
        Some(lease) => lease.holder == name,
        None => leases.roster("ns").await.expect("roster").first().is_some_and(|first| first == name),
    };
    if is_due && let Ok(lease) = leases.elect("ns", name, LEASE, Epoch(0)).await {
        *term = Some(lease.epoch);
        return Some((lease.holder, lease.epoch.0));
    }
    present.map(|lease| (lease.holder, lease.epoch.0))
}

enum Member {
    Ours(Ours),
    Theirs(S3Worker),
}

impl Member {
    fn leader(&self) -> Option<(String, u64)> {
        match self {
            Member::Ours(ours) => ours.view.borrow().clone(),
            Member::Theirs(worker) => worker.leader(),
        }
    }
}

fn theirs(server: &S3Server, id: &str) -> Member {
    let settings = S3WorkerSettings {
        folder: STATE.strip_suffix("/state.json").expect("a folder").to_owned(),
        worker_id: id.to_owned(),
        heartbeat: BEAT,
        lease: LEASE,
        worker_timeout: WORKER_TIMEOUT,
        skew: SignedDuration::ZERO,
    };
    Member::Theirs(S3Worker::start(server.bucket().clone(), settings))
}

async fn ours(server: &S3Server, id: &str) -> Member {
    Member::Ours(Ours::start(id, connect(server).await))
}

/// Waits until all say the same, and that it is one of them.
async fn agreed(fleet: &BTreeMap<&str, Member>) -> (String, u64) {
    eventually("one leader that all agree on", || async {
        let mut views = fleet.values().map(Member::leader);
        let first = views.next()??;
        (views.all(|view| view.as_ref() == Some(&first)) && fleet.contains_key(first.0.as_str())).then_some(first)
    })
    .await
}

#[tokio::test]
async fn a_mixed_fleet_has_one_leader_after_another_and_all_say_who() {
    let server = S3Server::start().await;
    let mut fleet = BTreeMap::from([
        ("b-theirs", theirs(&server, "b-theirs")),
        ("d-theirs", theirs(&server, "d-theirs")),
        ("a-ours", ours(&server, "a-ours").await),
        ("c-ours", ours(&server, "c-ours").await),
    ]);
    let mut last = 0;
    while !fleet.is_empty() {
        let (leader, epoch) = agreed(&fleet).await;
        assert!(epoch > last, "{leader} leads in {epoch} after {last}");
        last = epoch;
        // Killed, not stopped: its file and its lease stay behind.
        fleet.remove(leader.as_str());
    }
}

#[tokio::test]
async fn while_ours_renews_theirs_elect_nobody_else() {
    let server = S3Server::start().await;
    let leases = connect(&server).await;
    let epoch = leases.elect("ns", "m", LEASE, Epoch(0)).await.expect("nobody leads").epoch;
    let fleet = BTreeMap::from([("a", theirs(&server, "a")), ("z", theirs(&server, "z"))]);
    for _ in 0..16 {
        leases.renew("ns", "m", epoch, LEASE).await.expect("its own term, for longer than a lease");
        tokio::time::sleep(LEASE / 12).await;
    }
    for member in fleet.values() {
        assert_eq!(member.leader(), Some(("m".into(), epoch.0)));
    }
    // What it gives up is another's at once, long before it would have ended.
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
    assert_eq!((read.holder.as_str(), read.epoch), ("a", Epoch(7)));
    let rival = b.elect("ns", "b", LONG, Epoch(0)).await;
    assert!(matches!(rival, Err(Error::Conflict(_))), "{rival:?}");
    let claimed = a.elect("ns", "a", LONG, Epoch(0)).await.expect("it was elected");
    assert_eq!(claimed.epoch, Epoch(8));
    // A second process of that name is not given the same.
    for leases in [&a, &b] {
        let again = leases.elect("ns", "a", LONG, Epoch(0)).await;
        assert!(matches!(again, Err(Error::Conflict(_))), "{again:?}");
    }
    a.renew("ns", "a", claimed.epoch, LONG).await.expect("its own term");
}

#[tokio::test]
async fn a_service_of_theirs_gives_way_to_ours() {
    let server = S3Server::start().await;
    let mut fleet = BTreeMap::from([("gcs-1", theirs(&server, "gcs-1"))]);
    assert_eq!(agreed(&fleet).await.0, "gcs-1", "where there is no other");
    fleet.insert("z-ours", ours(&server, "z-ours").await);
    let leader = eventually("ours", || async { Some(agreed(&fleet).await).filter(|(id, _)| id == "z-ours") }).await;
    assert!(leader.1 > 1);
}
