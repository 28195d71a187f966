//! Requests that take long, and what they must not delay: the other requests and the node's own duties.

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

#[tokio::test]
async fn a_unique_key_that_an_application_has_locked_is_unavailable_and_no_other_is() {
    let url = SharedPostgres::get().create_database();
    let node = server().store(&url).start().await;
    node.enqueued(json!({ "type": "t" })).await;
    let open = OpenTransaction::begin(&url, "select convoke_enqueue('t', unique_key => 'mine')").await;
    let mut requests = tokio::task::JoinSet::new();
    for n in 0..20 {
        for (expected, job) in [
            (503, json!({ "type": "t", "uniqueKey": "mine" })),
            (201, json!({ "type": "t", "queue": "q", "uniqueKey": format!("other-{n}") })),
            (201, json!({ "type": "t", "queue": format!("new-{n}") })),
        ] {
            let http = node.http().clone();
            requests.spawn(async move { (expected, http.post("/v1/jobs", job).await.expect("a response")) });
        }
    }
    for (expected, response) in requests.join_all().await {
        let body = response.expect(expected);
        if expected == 503 {
            assert_eq!(response.header("retry-after"), Some("1"));
            let message = body["error"]["message"].as_str().expect("a message");
            assert!(message.contains("unique key") && message.contains("another transaction"), "{message}");
        }
    }
    open.rollback().await;
    eventually("the key to be free", async || {
        let again =
            node.http().post("/v1/jobs", json!({ "type": "t", "uniqueKey": "mine" })).await.expect("a response");
        (again.status != 503).then(|| again.expect(201))
    })
    .await;
}
