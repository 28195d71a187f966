//! Many expensive requests at once: the other requests and the node's own duties go on.

use convoke_testkit::process::{OpenTransaction, SharedPostgres, eventually};
use serde_json::json;

use super::server;

#[tokio::test]
async fn a_flood_of_lists_on_postgresql_rejects_no_other_request_and_costs_no_leadership() {
    let url = SharedPostgres::get().create_database();
    let node = server().store(&url).start().await;
    let id = node.enqueued(json!({ "type": "t", "queue": "q" })).await;
    let epoch = node.http().read("/v1/cluster").await["epoch"].clone();
    // Makes every list of failed jobs slow, and nothing else that is requested below.
    let slow = OpenTransaction::begin(&url, "lock table convoke_ended in access exclusive mode").await;
    let mut lists = tokio::task::JoinSet::new();
    for _ in 0..64 {
        let http = node.http().clone();
        lists.spawn(async move { http.get("/v1/jobs?status=failed").await.expect("a response").status });
    }
    eventually("lists that wait", async || (slow.waiting_sessions().await >= 2).then_some(())).await;
    node.http().get(&format!("/v1/jobs/{id}")).await.expect("a response").expect(200);
    node.http().get("/v1/queues").await.expect("a response").expect(200);
    node.http().get("/v1/workers").await.expect("a response").expect(200);
    let job = json!({ "type": "another", "queue": "another" });
    node.http().post("/v1/jobs", job).await.expect("a response").expect(201);
    let patch = json!({ "concurrency": 5 });
    node.http().send("PATCH", "/v1/queues/q", Some(patch)).await.expect("a response").expect(200);
    assert_eq!(node.http().get("/v1/cluster").await.expect("a response").expect(200)["epoch"], epoch);
    slow.rollback().await;
    assert!(lists.join_all().await.iter().all(|status| *status == 200));
    assert_eq!(node.http().read("/v1/cluster").await["epoch"], epoch, "it led all the time");
}
