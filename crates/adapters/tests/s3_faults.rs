//! Leases on S3 if the server rejects, is slow, or executes a request without a reply.
#![cfg(feature = "s3")]

mod s3_stage;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use convoke_adapters::s3::S3Leases;
use convoke_core::ports::Leases;
use convoke_core::ports::leases::Floor;
use convoke_core::{Epoch, Error, Result};
use convoke_testkit::process::{Fault, HttpProxy, HttpRequest, S3Server, eventually};
use jiff::SignedDuration;
use s3_stage::*;

/// A server, one contender behind a proxy, and one that connects to the server directly.
struct Stage {
    server: S3Server,
    proxy: HttpProxy,
    behind: S3Leases,
    direct: S3Leases,
}

/// Long enough to be renewed on a busy machine, short enough for a test to wait until it expires.
const LEASE: Duration = Duration::from_secs(4);

/// A lease with a third of it as the time limit of a reply.
const UNANSWERED: Duration = Duration::from_secs(9);

async fn stage() -> Stage {
    let server = S3Server::start().await;
    let proxy = HttpProxy::start(server.address()).await;
    let behind = connect_by(&server, proxy.address(), SignedDuration::ZERO).await;
    let direct = connect(&server).await;
    proxy.take_requests();
    Stage { server, proxy, behind, direct }
}

fn is_state_write(request: &HttpRequest) -> bool {
    request.is_conditional && request.path.ends_with("state.json")
}

/// Applies the fault to the first `count` writes of the state, and to no other request.
fn to_writes(proxy: &HttpProxy, count: u32, fault: Fault) {
    let left = AtomicU32::new(count);
    proxy.rule(move |request| {
        let is_due = is_state_write(request)
            && left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
        if is_due { fault } else { Fault::None }
    });
}

async fn leader(leases: &S3Leases) -> Option<(String, Epoch)> {
    leases.read("ns").await.expect("read").map(|lease| (lease.holder, lease.epoch))
}

fn assert_unknown<T: std::fmt::Debug>(result: Result<T>) {
    assert!(matches!(result, Err(Error::Unknown { .. })), "expected not to know, got {result:?}");
}

fn assert_unavailable<T: std::fmt::Debug>(result: Result<T>) {
    assert!(matches!(result, Err(Error::Unavailable { .. })), "expected it to be away, got {result:?}");
}

#[tokio::test]
async fn a_409_is_not_a_lost_race_and_is_tried_again() {
    let Stage { server: _server, proxy, behind, direct } = stage().await;
    to_writes(&proxy, 2, Fault::Refused(409));
    let lease = behind.elect("ns", "a", LONG, Floor::UNKNOWN).await.expect("when the other write is over");
    to_writes(&proxy, 1, Fault::Refused(409));
    behind.renew("ns", "a", lease.epoch, LONG).await.expect("its own term");
    to_writes(&proxy, u32::MAX, Fault::Refused(409));
    proxy.take_requests();
    assert_unavailable(behind.renew("ns", "a", lease.epoch, LONG).await);
    assert_eq!(proxy.take_requests().len(), 2, "the next heartbeat tries again");
    assert_eq!(leader(&direct).await, Some(("a".into(), lease.epoch)));
    proxy.heal();
    behind.renew("ns", "a", lease.epoch, LONG).await.expect("still its own");
}

#[tokio::test]
async fn a_409_in_a_race_still_leaves_one_leader() {
    let Stage { server: _server, proxy, behind, direct } = stage().await;
    to_writes(&proxy, 1, Fault::Refused(409));
    let (one, other) =
        tokio::join!(behind.elect("ns", "a", LONG, Floor::UNKNOWN), direct.elect("ns", "b", LONG, Floor::UNKNOWN));
    let won: Vec<_> = [one, other].into_iter().flatten().collect();
    assert_eq!(won.len(), 1);
    assert_eq!(leader(&behind).await, Some((won[0].holder.clone(), won[0].epoch)));
}

#[tokio::test]
async fn a_write_that_was_done_but_answered_with_an_error_is_found_to_have_won() {
    let Stage { server: _server, proxy, behind, direct } = stage().await;
    for status in [500, 503] {
        to_writes(&proxy, 1, Fault::DoneWithStatus(status));
        let lease = behind.elect("ns", "a", LONG, Floor::UNKNOWN).await.expect("it won");
        assert_eq!(leader(&direct).await, Some(("a".into(), lease.epoch)));
        to_writes(&proxy, 1, Fault::DoneWithStatus(status));
        behind.renew("ns", "a", lease.epoch, LONG).await.expect("it was renewed");
        behind.renew("ns", "a", lease.epoch, LONG).await.expect("and can be again");
        to_writes(&proxy, 1, Fault::DoneWithStatus(status));
        behind.resign("ns", "a", lease.epoch).await.expect("it was resigned");
        assert_eq!(leader(&direct).await, None);
    }
}

#[tokio::test]
async fn a_write_that_was_done_but_never_answered_is_found_to_have_won() {
    let Stage { server: _server, proxy, behind, direct } = stage().await;
    to_writes(&proxy, 1, Fault::DoneButSilent);
    let ttl = Duration::from_secs(9);
    let lease = behind.elect("ns", "a", ttl, Floor::UNKNOWN).await.expect("it won");
    assert!(lease.remaining < ttl, "the waiting counts");
    assert_eq!(leader(&direct).await, Some(("a".into(), lease.epoch)));
    to_writes(&proxy, 1, Fault::DoneButSilent);
    behind.renew("ns", "a", lease.epoch, ttl).await.expect("it was renewed");
}

#[tokio::test]
async fn a_write_that_was_refused_changes_nothing_and_the_term_goes_on() {
    let Stage { server: _server, proxy, behind, direct } = stage().await;
    to_writes(&proxy, 1, Fault::Refused(503));
    assert_unknown(behind.elect("ns", "a", LONG, Floor::UNKNOWN).await);
    assert_eq!(leader(&direct).await, None);
    let lease = behind.elect("ns", "a", LONG, Floor::UNKNOWN).await.expect("nobody leads");
    for status in [503, 500, 403] {
        to_writes(&proxy, 1, Fault::Refused(status));
        let result = behind.renew("ns", "a", lease.epoch, LONG).await;
        assert!(result.as_ref().is_err_and(Error::is_transient), "{status}: {result:?}");
        assert_eq!(leader(&direct).await, Some(("a".into(), lease.epoch)));
        behind.renew("ns", "a", lease.epoch, LONG).await.expect("its own term");
    }
    proxy.rule(|_| Fault::Refused(503));
    assert_unavailable(behind.read("ns").await);
    assert_unavailable(behind.roster("ns").await);
    assert_unavailable(behind.ping().await);
    assert_unknown(behind.enroll("ns", "a", LONG).await);
    proxy.heal();
    behind.ping().await.expect("it is back");
    assert_eq!(leader(&behind).await, Some(("a".into(), lease.epoch)));
}

#[tokio::test]
async fn an_election_that_arrives_after_it_was_given_up_is_taken_over_under_a_new_epoch() {
    let Stage { server: _server, proxy, behind, direct } = stage().await;
    to_writes(&proxy, 1, Fault::Held);
    assert_unknown(behind.elect("ns", "a", UNANSWERED, Floor::UNKNOWN).await);
    assert_eq!(leader(&direct).await, None);
    proxy.release().await;
    assert_eq!(leader(&direct).await, Some(("a".into(), Epoch(1))), "and nobody knows that it leads");
    let lease = behind.elect("ns", "a", LONG, Floor::UNKNOWN).await.expect("its own, without a response");
    assert_eq!(lease.epoch, Epoch(2));
    assert_eq!(leader(&direct).await, Some(("a".into(), Epoch(2))));
    let again = behind.elect("ns", "a", LONG, Floor::UNKNOWN).await;
    assert!(matches!(again, Err(Error::Conflict(_))), "now it got the response: {again:?}");
}

#[tokio::test]
async fn an_election_that_arrives_after_another_was_elected_changes_nothing() {
    let Stage { server: _server, proxy, behind, direct } = stage().await;
    to_writes(&proxy, 1, Fault::Held);
    assert_unknown(behind.elect("ns", "a", UNANSWERED, Floor::UNKNOWN).await);
    let lease = direct.elect("ns", "b", LONG, Floor::UNKNOWN).await.expect("nobody leads");
    proxy.release().await;
    assert_eq!(leader(&behind).await, Some(("b".into(), lease.epoch)));
    direct.renew("ns", "b", lease.epoch, LONG).await.expect("its own term");
}

#[tokio::test]
async fn a_renewal_that_arrives_late_does_not_stand_in_the_way_of_the_next() {
    let Stage { server: _server, proxy, behind, direct } = stage().await;
    let lease = behind.elect("ns", "a", LONG, Floor::UNKNOWN).await.expect("nobody leads");
    to_writes(&proxy, 1, Fault::Held);
    assert_unknown(behind.renew("ns", "a", lease.epoch, UNANSWERED).await);
    proxy.release().await;
    proxy.take_requests();
    assert_unavailable(behind.renew("ns", "a", lease.epoch, LONG).await);
    assert_eq!(proxy.take_requests().len(), 2, "it has seen what is there, and leaves it to the next heartbeat");
    behind.renew("ns", "a", lease.epoch, LONG).await.expect("still its own term");
    assert_eq!(leader(&direct).await, Some(("a".into(), lease.epoch)));
    // A write that arrives after the resignation does not bring the term back.
    to_writes(&proxy, 1, Fault::Held);
    assert_unknown(behind.renew("ns", "a", lease.epoch, UNANSWERED).await);
    behind.resign("ns", "a", lease.epoch).await.expect("resign");
    proxy.release().await;
    assert_eq!(leader(&direct).await, None);
}

#[tokio::test]
async fn slow_answers_are_waited_for_and_shorten_what_is_left() {
    let Stage { server: _server, proxy, behind, direct } = stage().await;
    let delay = Duration::from_millis(300);
    proxy.rule(move |_| Fault::Slow(delay));
    let lease = behind.elect("ns", "a", LONG, Floor::UNKNOWN).await.expect("nobody leads");
    assert!(lease.remaining <= LONG - delay, "{:?}", lease.remaining);
    let renewed = behind.renew("ns", "a", lease.epoch, LONG).await.expect("its own term");
    assert!(renewed.remaining <= LONG - delay, "{:?}", renewed.remaining);
    assert_eq!(leader(&direct).await, Some(("a".into(), lease.epoch)));
}

#[tokio::test]
async fn a_server_that_says_nothing_is_given_up_within_the_lease() {
    let Stage { server, proxy, behind, direct: _ } = stage().await;
    let lease = behind.elect("ns", "a", LEASE, Floor::UNKNOWN).await.expect("nobody leads");
    proxy.rule(|_| Fault::Lost);
    let renewing = behind.renew("ns", "a", lease.epoch, LEASE);
    assert_unknown(tokio::time::timeout(Duration::from_secs(20), renewing).await.expect("not for ever"));
    proxy.heal();
    server.pause();
    assert_unavailable(tokio::time::timeout(Duration::from_secs(20), behind.read("ns")).await.expect("not for ever"));
    server.resume();
    behind.read("ns").await.expect("it is back");
}

#[tokio::test]
async fn clocks_ten_minutes_apart_have_one_leader_and_hand_over_in_time() {
    let server = S3Server::start().await;
    let ten_minutes = SignedDuration::from_mins(10);
    let ahead = connect_by(&server, server.address(), ten_minutes).await;
    let behind = connect_by(&server, server.address(), -ten_minutes).await;
    for (name, leads, heir, follows) in [("ahead", &ahead, "behind", &behind), ("behind", &behind, "ahead", &ahead)] {
        let term = leads.elect("ns", name, LEASE, Floor::UNKNOWN).await.expect("nobody leads").epoch;
        let mut renewed = tokio::time::Instant::now();
        // It renews for more than a lease, and no other is elected, whatever their clocks show.
        for _ in 0..4 {
            tokio::time::sleep(LEASE * 3 / 10).await;
            leads.renew("ns", name, term, LEASE).await.expect("its own term");
            renewed = tokio::time::Instant::now();
            let result = follows.elect("ns", heir, LEASE, Floor::UNKNOWN).await;
            assert!(matches!(result, Err(Error::Conflict(_))), "{heir} took over from {name}: {result:?}");
        }
        // Then it is silent, and the other is elected; not before the lease is over.
        let taking = || async { follows.elect("ns", heir, LEASE, Floor::UNKNOWN).await.ok() };
        let taken = eventually("the next leader", taking).await;
        assert!(taken.epoch > term && renewed.elapsed() >= LEASE, "{heir} after {:?}", renewed.elapsed());
        let result = leads.renew("ns", name, term, LEASE).await;
        assert!(matches!(result, Err(Error::Fenced { .. })), "{result:?}");
        follows.resign("ns", heir, taken.epoch).await.expect("resign");
    }
}

#[tokio::test]
async fn a_newcomer_waits_out_the_lease_of_whom_it_finds_even_if_it_looks_long_over() {
    let server = S3Server::start().await;
    // By this clock the lease was over ten minutes ago.
    let past = connect_by(&server, server.address(), -SignedDuration::from_mins(10)).await;
    let newcomer = connect(&server).await;
    let lease = past.elect("ns", "a", LEASE, Floor::UNKNOWN).await.expect("nobody leads");
    let result = newcomer.elect("ns", "b", LEASE, Floor::UNKNOWN).await;
    assert!(matches!(result, Err(Error::Conflict(_))), "{result:?}");
    // By this clock it lasts for another ten.
    let latecomer = connect_by(&server, server.address(), -SignedDuration::from_mins(20)).await;
    assert_eq!(leader(&latecomer).await, Some(("a".into(), lease.epoch)));
    eventually("the end of the lease", || async { leader(&latecomer).await.is_none().then_some(()) }).await;
    latecomer.elect("ns", "c", LEASE, Floor::UNKNOWN).await.expect("it is over");
}

/// Every epoch that a contender received, in that order.
type Claims = Arc<parking_lot::Mutex<Vec<(Epoch, String)>>>;

/// A contender that takes every term it can get, and continues after any error.
async fn contend(name: String, leases: S3Leases, claims: Claims, heartbeats: u32) {
    let ttl = Duration::from_millis(600);
    let mut term: Option<Epoch> = None;
    for _ in 0..heartbeats {
        match term {
            Some(epoch) => match leases.renew("ns", &name, epoch, ttl).await {
                Ok(_) => {}
                Err(error) if error.is_transient() => {}
                Err(_) => term = None,
            },
            None => {
                if let Ok(lease) = leases.elect("ns", &name, ttl, Floor::UNKNOWN).await {
                    claims.lock().push((lease.epoch, name.clone()));
                    term = Some(lease.epoch);
                }
            }
        }
        tokio::time::sleep(ttl / 6).await;
    }
}

#[tokio::test]
async fn under_every_fault_at_once_no_epoch_has_two_holders() {
    let server = S3Server::start().await;
    let claims = Claims::default();
    let mut proxies = Vec::new();
    let mut contenders = Vec::new();
    for n in 0..4 {
        let proxy = HttpProxy::start(server.address()).await;
        let skew = SignedDuration::from_mins(10 * (n - 2));
        let leases = connect_by(&server, proxy.address(), skew).await;
        let count = AtomicU32::new(u32::try_from(n).unwrap_or(0));
        // One request in three fails, each with another fault than the last.
        proxy.rule(move |_| match count.fetch_add(1, Ordering::Relaxed) % 15 {
            2 => Fault::Refused(503),
            5 => Fault::Refused(409),
            8 => Fault::DoneWithStatus(500),
            11 => Fault::DoneButSilent,
            14 => Fault::Slow(Duration::from_millis(150)),
            _ => Fault::None,
        });
        contenders.push(tokio::spawn(contend(format!("c{n}"), leases, claims.clone(), 30)));
        proxies.push(proxy);
    }
    for contender in contenders {
        contender.await.expect("it does not panic");
    }
    let claims = claims.lock();
    assert!(!claims.is_empty(), "somebody led");
    let mut epochs: Vec<Epoch> = claims.iter().map(|(epoch, _)| *epoch).collect();
    epochs.sort_unstable();
    epochs.dedup();
    assert_eq!(epochs.len(), claims.len(), "an epoch was given twice: {claims:?}");
    for name in ["c0", "c1", "c2", "c3"] {
        let own: Vec<_> = claims.iter().filter(|(_, holder)| holder == name).map(|(epoch, _)| *epoch).collect();
        assert!(own.is_sorted(), "an epoch fell: {claims:?}");
    }
}
