//! Leases on PostgreSQL if a reply is lost after its change was committed.
#![cfg(feature = "postgres")]

use std::time::Duration;

use convoke_adapters::postgres::PostgresLeases;
use convoke_core::ports::Leases;
use convoke_core::ports::leases::Floor;
use convoke_core::{Epoch, Error, Result};
use convoke_testkit::process::{LosingProxy, SharedPostgres};

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(600);

/// Leases behind a proxy, and others that connect to the same database directly.
async fn stage() -> (LosingProxy, PostgresLeases, PostgresLeases) {
    let url = SharedPostgres::get().create_database();
    let host = url.split(['@', '/']).find(|part| part.starts_with("127.0.0.1:")).expect("an address");
    let proxy = LosingProxy::to(host.parse().expect("an address")).await;
    let behind = url.replace(host, &proxy.address().to_string());
    let connect = async |url: &str| PostgresLeases::connect(url).await.expect("connects");
    (proxy, connect(&behind).await, connect(&url).await)
}

async fn leader(leases: &PostgresLeases) -> Option<(String, Epoch)> {
    leases.read("ns").await.expect("read").map(|lease| (lease.holder, lease.epoch))
}

/// Asserts that the reply was lost and that the result is `Unknown`.
fn assert_lost<T: std::fmt::Debug>(proxy: &LosingProxy, result: Result<T>) {
    assert!(proxy.has_lost_one(), "the response was lost, or this shows nothing");
    assert!(matches!(result, Err(Error::Unknown { .. })), "expected not to know, got {result:?}");
}

#[tokio::test]
async fn an_election_whose_answer_was_lost_is_found_by_reading_back() {
    let (proxy, behind, direct) = stage().await;
    // A name is among a statement's values, so that the lost reply is that of the election and not of its preparation.
    proxy.lose_response_to("candidate-1");
    assert_lost(&proxy, behind.elect("ns", "candidate-1", LONG, Floor::UNKNOWN).await);
    let read = leader(&direct).await;
    assert_eq!(read, Some(("candidate-1".into(), Epoch(1))), "it was committed, once");
    assert_eq!(leader(&behind).await, read, "and it can find so itself");
    assert!(matches!(direct.elect("ns", "candidate-2", LONG, Floor::UNKNOWN).await, Err(Error::Conflict(_))));
    assert!(matches!(behind.elect("ns", "candidate-1", LONG, Floor::UNKNOWN).await, Err(Error::Conflict(_))));
    behind.renew("ns", "candidate-1", Epoch(1), LONG).await.expect("the term that is read is its own");
    behind.resign("ns", "candidate-1", Epoch(1)).await.expect("resign");
    let next = direct.elect("ns", "candidate-2", LONG, Floor::UNKNOWN).await.expect("nobody leads").epoch;
    assert_eq!(next, Epoch(2));
}

#[tokio::test]
async fn a_renewal_and_a_resignation_whose_answers_were_lost_happened() {
    let (proxy, behind, direct) = stage().await;
    let short = Duration::from_secs(60);
    let epoch = direct.elect("ns", "the-holder", short, Floor::UNKNOWN).await.expect("nobody leads").epoch;
    proxy.lose_response_to("the-holder");
    assert_lost(&proxy, behind.renew("ns", "the-holder", epoch, LONG).await);
    let lease = direct.read("ns").await.expect("read").expect("it leads");
    assert!(lease.epoch == epoch && lease.remaining > short, "it was renewed: {lease:?}");
    behind.renew("ns", "the-holder", epoch, LONG).await.expect("and can be again");
    proxy.lose_response_to("the-holder");
    assert_lost(&proxy, behind.resign("ns", "the-holder", epoch).await);
    assert_eq!(leader(&direct).await, None, "it was resigned");
    behind.resign("ns", "the-holder", epoch).await.expect("not an error where it is over");
}
