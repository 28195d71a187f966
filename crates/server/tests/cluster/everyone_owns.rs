//! Runs are owned by all nodes, not by the leader: events are recorded by whoever owns the run, leader or none.

use std::collections::BTreeSet;

use convoke_core::jobs::Status;
use convoke_testkit::process::{Fleet, eventually};
use serde_json::json;

const RUNS: usize = 150;

#[tokio::test(flavor = "multi_thread")]
async fn each_node_owns_runs_and_followers_record_while_the_leader_is_stopped() {
    // Nobody else comes to lead meanwhile, and nobody is taken for dead.
    let builder = Fleet::builder(env!("CARGO_BIN_EXE_convoke")).set("cluster.lease_duration", "60s");
    let mut fleet = builder.set("cluster.dead_node_timeout", "60s").start().await;
    let chronicler = fleet.chronicler().await;
    let worker = fleet.bus_worker("bus", "bus", 2 * RUNS).await;
    let jobs = vec![json!({ "type": "held", "queue": "bus" }); RUNS];
    fleet.any().post("/v1/jobs/batch", json!({ "jobs": jobs })).await.expect("a response").expect(201);
    let rows = eventually("runs that all nodes own", || async {
        let rows = chronicler.rows().await;
        let owners: BTreeSet<&str> = rows.values().filter_map(|row| row.owned_by()).collect();
        let is_owned = rows.len() == RUNS && rows.values().all(|row| row.in_flight() && row.owned_by().is_some());
        (is_owned && owners.len() == 3).then_some(rows.clone())
    })
    .await;

    let leader = fleet.leader().await;
    let id = fleet.member(leader).id.clone();
    fleet.pause(leader);
    worker.release_all();
    let of_followers: Vec<&String> =
        rows.iter().filter(|(_, row)| row.owned_by() != Some(id.as_str())).map(|(job, _)| job).collect();
    assert!(!of_followers.is_empty());
    eventually("the ends of what followers own", || async {
        let rows = chronicler.rows().await;
        of_followers.iter().all(|job| rows[*job].status == Status::Completed).then_some(())
    })
    .await;
    for index in fleet.up() {
        let cluster = fleet.member(index).cluster().await.expect("a response");
        assert_eq!(cluster["leader"], id.as_str(), "nobody else led");
    }

    fleet.resume(leader);
    eventually("the ends of all", || async {
        let rows = chronicler.rows().await;
        rows.values().all(|row| row.status == Status::Completed && row.attempt == 1).then_some(())
    })
    .await;
}
