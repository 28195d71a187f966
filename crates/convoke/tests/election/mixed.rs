//! Electors and workers of the published system (s3db.js) in one namespace of a bucket: one leader between them, and all name the
//! same one.

use std::collections::BTreeMap;
use std::time::Duration;

use convoke::election::{Policy, Settings};
use convoke_testkit::process::{Fault, S3Server, S3Worker, S3WorkerSettings, eventually};
use jiff::SignedDuration;

use super::s3::{ProxiedElector, seat};

const INTERVAL: Duration = Duration::from_millis(250);
const LEASE: Duration = Duration::from_secs(3);
const WORKER_TIMEOUT: Duration = Duration::from_secs(2);

/// Dropping one kills it: its file and its lease stay behind.
enum Member {
    Ours(ProxiedElector),
    Theirs(S3Worker),
}

impl Member {
    fn leader(&self) -> Option<(String, u64)> {
        match self {
            Member::Ours(ProxiedElector { elector, .. }) => elector.leader().map(|leader| (leader, elector.epoch().0)),
            Member::Theirs(worker) => worker.leader(),
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // An elector resigns; the others receive no message of it.
        if let Member::Ours(seat) = self {
            seat.proxy.rule(|_| Fault::Lost);
        }
    }
}

fn theirs(server: &S3Server, id: &str) -> Member {
    let settings = S3WorkerSettings {
        folder: "elect/plugin=coordinator/namespace=default".to_owned(),
        worker_id: id.to_owned(),
        heartbeat: INTERVAL,
        jitter: INTERVAL / 5,
        lease: LEASE,
        worker_timeout: WORKER_TIMEOUT,
        skew: SignedDuration::ZERO,
    };
    Member::Theirs(S3Worker::start(server.bucket().clone(), settings))
}

async fn ours(server: &S3Server, id: &str, policy: Policy, yield_to_foreign: bool) -> Member {
    let settings = Settings {
        policy,
        yield_to_foreign,
        heartbeat_interval: INTERVAL,
        heartbeat_jitter: INTERVAL / 5,
        lease_timeout: LEASE,
        worker_timeout: WORKER_TIMEOUT,
        startup_jitter_max: Duration::ZERO,
        ..Settings::default()
    };
    Member::Ours(seat(server, id, SignedDuration::ZERO, settings).await)
}

/// Waits until all name the same, and it is one of them.
async fn agreed(fleet: &BTreeMap<&str, Member>) -> (String, u64) {
    eventually("one leader that all agree on", || async {
        let mut views = fleet.values().map(Member::leader);
        let first = views.next()??;
        (views.all(|view| view.as_ref() == Some(&first)) && fleet.contains_key(first.0.as_str())).then_some(first)
    })
    .await
}

async fn elects_one_after_another(policy: Policy) {
    let server = S3Server::start().await;
    let mut fleet = BTreeMap::from([
        ("b-theirs", theirs(&server, "b-theirs")),
        ("d-theirs", theirs(&server, "d-theirs")),
        ("a-ours", ours(&server, "a-ours", policy, false).await),
        ("c-ours", ours(&server, "c-ours", policy, false).await),
    ]);
    let mut last = 0;
    while !fleet.is_empty() {
        let (leader, epoch) = agreed(&fleet).await;
        assert!(epoch > last, "{leader} leads in {epoch} after {last}");
        // Of ours, whom all call the leader believes it too, or will as soon as it has taken what others gave it.
        if let Some(Member::Ours(seat)) = fleet.get(leader.as_str()) {
            eventually("that it leads", || async { seat.elector.is_leader().then_some(()) }).await;
        }
        last = epoch;
        fleet.remove(leader.as_str());
    }
}

#[tokio::test]
async fn a_mixed_fleet_has_one_leader_after_another_where_ours_come_first_come() {
    elects_one_after_another(Policy::FirstCome).await;
}

#[tokio::test]
async fn a_mixed_fleet_has_one_leader_after_another_where_ours_go_by_their_ids() {
    elects_one_after_another(Policy::LowestId).await;
}

#[tokio::test]
async fn a_service_of_theirs_gives_way_to_ours_that_do_not_yield() {
    let server = S3Server::start().await;
    let mut fleet = BTreeMap::from([("gcs-1", theirs(&server, "gcs-1"))]);
    assert_eq!(agreed(&fleet).await.0, "gcs-1", "where there is no other");
    fleet.insert("z-ours", ours(&server, "z-ours", Policy::LowestId, false).await);
    let leader = eventually("ours", || async { Some(agreed(&fleet).await).filter(|(id, _)| id == "z-ours") }).await;
    assert!(leader.1 > 1);
}

#[tokio::test]
async fn ours_lead_until_one_of_theirs_comes_and_again_when_it_is_gone() {
    let server = S3Server::start().await;
    let ours = ours(&server, "a-ours", Policy::FirstCome, Settings::default().yield_to_foreign).await;
    let Member::Ours(seat) = &ours else { unreachable!("it is ours") };
    let leads = || async { seat.elector.is_leader().then_some(()) };
    eventually("that ours leads", leads).await;
    let theirs = theirs(&server, "z-theirs");
    eventually("that theirs leads", || async { theirs.leader().filter(|(leader, _)| leader == "z-theirs") }).await;
    let follows = || async { seat.elector.is_leader_of("z-theirs").then_some(()) };
    eventually("that ours follows", follows).await;
    assert!(seat.elector.is_yielding() && !seat.elector.is_leader());
    let members = seat.elector.members().await.expect("they are listed");
    assert!(!members.contains(&"a-ours".to_owned()), "theirs would elect it: {members:?}");
    drop(theirs);
    eventually("that ours leads again", leads).await;
    let members = seat.elector.members().await.expect("they are listed");
    assert!(members.contains(&"a-ours".to_owned()), "{members:?}");
}
