//! Five contenders in processes of their own, rounds of whatever can happen to a process, fifty in a full run, and a referee who
//! records every claim of leadership.
//!
//! The same on every backend that several processes can reach: a further one joins by its address.

mod contender;
mod mixed;
mod record;
mod referee;
mod s3;
mod slow;
mod takeovers;
mod wiped;

use std::time::Duration;

use convoke::election::Policy;
use convoke_testkit::process::{RedisServer, S3Server, SharedPostgres};
use referee::{Backend, contest};

/// One contest at a time: they are about time.
static FIELD: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Not a test by itself: it is what the referee starts as a process, with orders in its environment.
#[test]
fn a_contender_does_as_it_is_told() {
    if let Some(orders) = contender::Orders::read() {
        contender::run(orders);
    }
}

#[tokio::test]
async fn one_leads_on_sqlite_whatever_happens() {
    let _field = FIELD.lock().await;
    let directory = tempfile::tempdir().expect("a directory");
    contest(
        format!("sqlite:{}", directory.path().join("leases.db").display()).into(),
        Policy::LowestId,
        Duration::ZERO,
    )
    .await;
}

#[tokio::test]
async fn one_leads_on_redis_whatever_happens() {
    let _field = FIELD.lock().await;
    let server = RedisServer::start().await;
    contest(server.url().into(), Policy::FirstCome, Duration::ZERO).await;
}

#[tokio::test]
async fn one_leads_on_postgres_whatever_happens() {
    let _field = FIELD.lock().await;
    contest(SharedPostgres::get().create_database().into(), Policy::LowestId, Duration::ZERO).await;
}

/// It is not read between heartbeats, so that everything takes one more.
#[tokio::test]
async fn one_leads_on_s3_whatever_happens() {
    let _field = FIELD.lock().await;
    let server = S3Server::start().await;
    for (bucket, policy) in [("first-come", Policy::FirstCome), ("lowest-id", Policy::LowestId)] {
        let backend = Backend { url: server.url(bucket), env: server.variables() };
        contest(backend, policy, contender::HEARTBEAT).await;
    }
}
