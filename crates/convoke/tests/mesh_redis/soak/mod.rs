//! Fifty processes call each other without a pause while they are killed, stopped and started and Redis drops connections.
//!
//! Checked: every call ends, once, with its own reply or an error that is true; no handler runs twice for one request; each
//! undisturbed call gets its reply; and when all have ended, no call is open, no handler and no task is left and the memory has
//! not grown.
//!
//! `CONVOKE_SOAK_SECONDS` makes it longer. Shorter, it would leave too few undisturbed calls to check.

mod message;
mod peer;
mod record;
mod verifier;

use std::time::Duration;

const SECONDS: u64 = 30;

/// Not a test by itself: it is what the judge starts as a process, with orders in its environment.
#[test]
fn a_peer_does_as_it_is_told() {
    if let Some(orders) = peer::Orders::read() {
        peer::run(orders);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_ends_once_while_processes_and_connections_come_and_go() {
    let seconds = std::env::var("CONVOKE_SOAK_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(SECONDS);
    verifier::soak(Duration::from_secs(seconds)).await;
}
