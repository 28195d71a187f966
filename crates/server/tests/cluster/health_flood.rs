//! A flood of `/health`, which needs no token.

use convoke_testkit::process::{Fleet, eventually};
use serde_json::Value;

const CLIENTS: usize = 64;

fn renewals(cluster: &Value) -> u64 {
    cluster["election"]["metrics"]["heartbeatCount"].as_u64().expect("a count")
}

#[tokio::test(flavor = "multi_thread")]
async fn it_costs_the_leader_neither_its_term_nor_its_health() {
    let fleet = Fleet::builder(env!("CARGO_BIN_EXE_convoke")).size(2).start().await;
    let leader = fleet.leader().await;
    let http = fleet.member(leader).http().clone();
    let before = http.read("/v1/cluster").await;
    let mut flood = tokio::task::JoinSet::new();
    for _ in 0..CLIENTS {
        let http = http.clone();
        flood.spawn(async move {
            loop {
                let response = http.get("/health").await.expect("a response");
                assert_eq!(response.status, 200, "{}", response.text());
            }
        });
    }
    let first = renewals(&before);
    let after = eventually("ten renewals of the lease", || async {
        let cluster = http.read("/v1/cluster").await;
        (renewals(&cluster) >= first + 10).then_some(cluster)
    })
    .await;
    assert_eq!((&after["leader"], &after["epoch"]), (&before["leader"], &before["epoch"]));
    let ended = flood.try_join_next().map(|ended| ended.map_err(|error| error.to_string()));
    assert!(ended.is_none(), "a request failed: {ended:?}");
}
