//! A queue's rate limit is the queue's, not a leader's: it holds across the death of the one who counted.

use convoke_testkit::process::{Fleet, Handling, Plan, eventually, wait_for_value};
use jiff::Timestamp;
use serde_json::{Value, json};

const LIMIT: usize = 20;
/// Longer than it takes until another leads: a window that is over by then would prove nothing.
const PER_MS: i64 = 7_000;
const JOBS: usize = LIMIT + 10;

#[tokio::test(flavor = "multi_thread")]
async fn a_new_leader_grants_no_more_than_the_dead_one_left() {
    let mut fleet = Fleet::builder(env!("CARGO_BIN_EXE_convoke")).start().await;
    let limits = json!({ "rateLimit": { "limit": LIMIT, "per": format!("{PER_MS}ms") } });
    fleet.any().send("PATCH", "/v1/queues/slow", Some(limits)).await.expect("a response").expect(200);
    let leader = fleet.leader().await;
    let home = fleet.follower().await;
    fleet.start_worker(home, Plan::new("swift", "slow", |_| Handling::Complete(Value::Null)).concurrency(100)).await;
    let jobs = vec![json!({ "type": "plain", "queue": "slow", "maxRetries": 5 }); JOBS];
    fleet.any().post("/v1/jobs/batch", json!({ "jobs": jobs })).await.expect("a response").expect(201);
    let completed = async |fleet: &Fleet, home: usize| {
        let queue = fleet.member(home).http().read("/v1/queues/slow").await;
        queue["counts"]["completed"].as_u64().unwrap_or(0) as usize
    };
    // Killed when it has just granted all that the window allows.
    eventually("a window that is used up", || async { (completed(&fleet, home).await >= LIMIT).then_some(()) }).await;
    fleet.kill(leader).await;
    assert_ne!(fleet.leader().await, leader);
    assert_eq!(completed(&fleet, home).await, LIMIT, "the window is not over, and nothing more was granted");
    wait_for_value("completed jobs", JOBS, || completed(&fleet, home)).await;

    let mut at = Vec::new();
    for job in fleet.any().all("/v1/jobs?queue=slow", "jobs").await {
        let dispatched: Timestamp = job["dispatchedAt"].as_str().expect("a time").parse().expect("a time");
        at.push(dispatched.as_millisecond());
    }
    at.sort_unstable();
    // Of any so many and one in a row, the last came no sooner than a window after the first.
    for some in at.windows(LIMIT + 1) {
        assert!(some[LIMIT] - some[0] >= PER_MS - 1, "{} ms for {}: {at:?}", some[LIMIT] - some[0], LIMIT + 1);
    }
}
