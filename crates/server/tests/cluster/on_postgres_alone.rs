//! The faults of the other files, in a cluster whose bus is PostgreSQL too.
//!
//! Faults of Redis and of workers on the bus do not exist there. A node that is parted from PostgreSQL has lost its store and
//! its bus at once, and a crash of PostgreSQL empties the bus.

use convoke_testkit::process::{Fleet, Handling, Plan};
use serde_json::{Value, json};

use super::stage::Stage;
use super::{
    all_down, follower_killed, leader_killed, leader_paused, node_drained, parted_from_postgres, postgres_restarted,
    shards_view, worker_killed,
};

async fn stage() -> Stage {
    Stage::open_on_postgres_alone(&[]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_leader_is_followed_by_another() {
    let mut stage = stage().await;
    leader_killed::kill_leader(&mut stage).await;
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_runs_of_a_killed_follower_find_another_owner() {
    let mut stage = stage().await;
    follower_killed::kill_follower(&mut stage).await;
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_drained_leaves_nothing_behind() {
    let mut stage = stage().await;
    node_drained::drain_leader(&mut stage).await;
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_runs_of_a_killed_worker_run_elsewhere() {
    let mut stage = stage().await;
    worker_killed::kill_worker(&mut stage).await;
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_parted_from_postgresql_gives_way() {
    let mut stage = stage().await;
    parted_from_postgres::part_leader(&mut stage).await;
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_whose_connections_freeze_spoils_nothing() {
    let mut stage = stage().await;
    parted_from_postgres::freeze_follower(&mut stage).await;
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_of_postgresql_loses_nothing_that_was_acknowledged() {
    let mut stage = Stage::open_durable_on_postgres_alone().await;
    postgres_restarted::restart_postgres(&mut stage).await;
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_if_all_coordinators_are_killed() {
    let mut stage = stage().await;
    all_down::kill_all(&mut stage).await;
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_late_writes_of_a_paused_leader_are_refused() {
    let mut stage = Stage::open_on_postgres_alone(&[leader_paused::OVERSTAYS]).await;
    leader_paused::pause_leader(&mut stage).await;
    stage.close().await;
}

/// Messages between nodes: events, shards of the leader, an end that another node waits for.
#[tokio::test(flavor = "multi_thread")]
async fn what_one_node_does_another_shows() {
    let builder = Fleet::builder(env!("CARGO_BIN_EXE_convoke")).on_postgres_alone().size(2);
    let mut fleet = builder.args(["--shards", "tcp://127.0.0.1:0"]).start().await;
    shards_view::shown_by_every_node(&fleet).await;
    fleet.start_worker(0, Plan::new("w", "q", |_| Handling::Complete(Value::Null))).await;
    let other = fleet.member(1).http().clone();
    let mut events = other.sse("/v1/events").await.expect("a stream");
    let job = json!({ "type": "mail", "queue": "q" });
    let job = fleet.member(0).http().post("/v1/jobs", job).await.expect("a response").expect(201);
    let id = job["id"].as_str().expect("an id");
    events
        .wait_for("the end, published by the other node", |event| {
            event.json()["jobId"] == id && event.event.as_deref() == Some("job:completed")
        })
        .await;
    let health = other.read("/health").await;
    assert_eq!(health["status"], "healthy", "{health}");
    let printed = fleet.member(1).printed().join("\n");
    assert!(printed.contains("bus        postgres://"), "{printed}");
    let nodes = fleet.member(1).node().cli().run(["cluster", "status"]).await;
    assert!(nodes.expect(0).contains("node-2"), "{nodes:?}");
}
