//! Actions on all jobs that match a filter.

use serde_json::{Value, json};

use super::World;

async fn act(world: &World, action: &str, filter: Value) -> Value {
    let (mut cursor, mut done, mut slices) = (Value::Null, 0, 0);
    loop {
        let body = json!({"action": action, "filter": filter, "cursor": cursor});
        let response = world.post("/v1/jobs/bulk", body).await;
        assert_eq!(response.status.as_u16(), 200, "{}", response.body);
        done += response.body["done"].as_u64().expect("a number");
        slices += 1;
        cursor = response.body["nextCursor"].clone();
        if cursor.is_null() {
            return json!({"done": done, "slices": slices});
        }
    }
}

async fn count(world: &World, action: &str, filter: Value) -> Value {
    let body = json!({"action": action, "filter": filter, "dryRun": true});
    let response = world.post("/v1/jobs/bulk", body).await;
    assert_eq!(response.status.as_u16(), 200, "{}", response.body);
    response.body["count"].clone()
}

#[tokio::test]
async fn jobs_are_counted_cancelled_retried_and_deleted_by_a_filter() {
    let world = World::new().await;
    let jobs: Vec<Value> = (0..1_200)
        .map(|n| json!({"type": if n % 3 == 0 { "email.send" } else { "web" }, "queue": "bulk", "tags": ["t"]}))
        .collect();
    assert_eq!(world.post("/v1/jobs/batch", json!({ "jobs": jobs })).await.status.as_u16(), 201);
    let email = json!({"typePrefix": "email."});
    assert_eq!(count(&world, "cancel", email.clone()).await, 400);
    assert_eq!(count(&world, "cancel", json!({"queue": "bulk"})).await, 1_200);
    assert_eq!(count(&world, "cancel", json!({"tag": "t", "after": "1h"})).await, 1_200);
    assert_eq!(count(&world, "cancel", json!({"tag": "t", "before": "1h"})).await, 0);
    assert_eq!(count(&world, "delete", json!({"all": true})).await, 0, "nothing has ended");
    assert_eq!(act(&world, "cancel", email.clone()).await["done"], 400);
    let all = act(&world, "cancel", json!({"queue": "bulk"})).await;
    assert_eq!((&all["done"], all["slices"].as_u64() >= Some(2)), (&json!(800), true));
    let cancelled = json!({"status": ["cancelled"], "typePrefix": "email."});
    assert_eq!(act(&world, "retry", cancelled).await["done"], 400);
    let jobs = world.get("/v1/jobs?status=pending&limit=1000&typePrefix=email.&after=1h").await.body;
    assert_eq!(jobs["jobs"].as_array().map(Vec::len), Some(400));
    assert_eq!(act(&world, "delete", json!({"all": true})).await["done"], 800, "what is pending stays");
    let left = world.get("/v1/queues/bulk").await.body;
    assert_eq!((&left["counts"]["pending"], &left["counts"]["cancelled"]), (&json!(400), &json!(0)));
}

#[tokio::test]
async fn a_filter_that_selects_nothing_on_purpose_is_rejected() {
    let world = World::new().await;
    for (body, status, field) in [
        (json!({"action": "cancel", "filter": {}}), 422, "filter"),
        (json!({"action": "cancel", "filter": {"status": ["failed"]}}), 422, "filter.status"),
        (json!({"action": "retry", "filter": {"status": ["completed"]}}), 422, "filter.status"),
        (json!({"action": "delete", "filter": {"status": ["running"]}}), 422, "filter.status"),
        (json!({"action": "delete", "filter": {"after": "yesterday"}}), 400, "filter.after"),
        (json!({"action": "delete", "filter": {"typePrefix": ""}}), 400, "filter.typePrefix"),
        (json!({"action": "delete", "filter": {"all": true}, "cursor": "x"}), 400, "cursor"),
    ] {
        let response = world.post("/v1/jobs/bulk", body.clone()).await;
        assert_eq!((response.status.as_u16(), response.field()), (status, field), "{body}: {}", response.body);
    }
}
