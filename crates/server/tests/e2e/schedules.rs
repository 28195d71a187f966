//! Schedules of a real server: one job a tick, also across restarts.

use convoke_core::jobs::Schedule;
use convoke_testkit::invariants::{Observations, Seen, c1_ticks, holds};
use convoke_testkit::process::{GatewayWorker, Handling, Node, Plan, eventually};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::server;

async fn put(node: &Node, name: &str, schedule: Value) -> Value {
    let response = node.http().send("PUT", &format!("/v1/schedules/{name}"), Some(schedule)).await.expect("a response");
    assert!(matches!(response.status, 200 | 201), "{}", response.text());
    response.json()
}

async fn jobs_of(node: &Node, schedule: &str) -> usize {
    let jobs = node.all("/v1/jobs", "jobs").await;
    jobs.iter().filter(|job| job["schedule"] == schedule).count()
}

/// With `missed: all` no tick may be left out, whatever happens to the server in between.
#[tokio::test]
async fn every_tick_has_exactly_one_job_across_restarts() {
    let mut node = server().start().await;
    let schedule = json!({ "type": "tick", "queue": "q", "every": "100ms", "missed": "all", "overlap": "allow" });
    let fast = put(&node, "fast", schedule).await;
    let cron = json!({ "type": "tick", "queue": "q", "cron": "* * * * * *", "missed": "all", "overlap": "allow" });
    let cron = put(&node, "cron", cron).await;
    let plan = Plan::new("w", "q", |_| Handling::Complete(Value::Null));
    let _worker = GatewayWorker::start(node.http(), &Observations::default(), plan).await;
    for restart in 1..=5 {
        eventually("more ticks", || async { (jobs_of(&node, "fast").await >= 6 * restart).then_some(()) }).await;
        node.restart().await;
    }
    eventually("ticks after the last restart", || async { (jobs_of(&node, "cron").await >= 4).then_some(()) }).await;
    let until = Timestamp::now();
    for name in ["fast", "cron"] {
        eventually("all ticks so far", || async {
            let shown = node.http().get(&format!("/v1/schedules/{name}")).await.ok()?.json();
            let next: Timestamp = shown["nextRunAt"].as_str()?.parse().ok()?;
            (next > until).then_some(())
        })
        .await;
    }
    let seen = Seen::of(&node).await;
    for shown in [fast, cron] {
        let schedule: Schedule = serde_json::from_value(shown).expect("a schedule");
        holds(&c1_ticks::check(&seen, &schedule, schedule.created_at, until));
    }
}

#[tokio::test]
async fn a_tick_is_skipped_while_the_job_of_the_last_one_is_live() {
    let node = server().start().await;
    put(&node, "s", json!({ "type": "t", "queue": "q", "every": "100ms" })).await;
    eventually("the first tick", || async { (jobs_of(&node, "s").await == 1).then_some(()) }).await;
    let first = node.http().get("/v1/schedules/s").await.expect("a response").expect(200)["nextRunAt"].clone();
    eventually("the schedule to move on", || async {
        let next = node.http().get("/v1/schedules/s").await.ok()?.json()["nextRunAt"].clone();
        (next != first).then_some(())
    })
    .await;
    assert_eq!(jobs_of(&node, "s").await, 1, "no worker: the first is live still");
}

#[tokio::test]
async fn a_schedule_is_paused_resumed_triggered_replaced_and_removed() {
    let node = server().start().await;
    let http = node.http();
    let shown = put(&node, "s", json!({ "type": "t", "queue": "q", "cron": "0 3 * * *", "tz": "Europe/Berlin" })).await;
    assert_eq!(
        (&shown["missed"], &shown["overlap"], &shown["paused"]),
        (&json!("latest"), &json!("skip"), &json!(false))
    );
    let next: Timestamp = shown["nextRunAt"].as_str().expect("a next run").parse().expect("an instant");
    assert_eq!(next.to_zoned(jiff::tz::TimeZone::get("Europe/Berlin").expect("a zone")).hour(), 3);
    let post = |verb: &'static str| async move {
        http.post(&format!("/v1/schedules/s/{verb}"), json!({})).await.expect("a response")
    };
    let paused = post("pause").await.expect(200);
    assert_eq!((&paused["paused"], &paused["nextRunAt"]), (&json!(true), &Value::Null));
    let resumed = post("resume").await.expect(200);
    assert_eq!((&resumed["paused"], &resumed["nextRunAt"]), (&json!(false), &shown["nextRunAt"]));
    let triggered = post("trigger").await;
    assert!(matches!(triggered.status, 200 | 201), "{}", triggered.text());
    assert_eq!(jobs_of(&node, "s").await, 1);
    let replaced = put(&node, "s", json!({ "type": "u", "queue": "q", "every": "1h" })).await;
    assert_eq!((&replaced["type"], &replaced["every"], &replaced["cron"]), (&json!("u"), &json!("1h"), &Value::Null));
    let all = http.get("/v1/schedules").await.expect("a response").expect(200);
    assert_eq!(all["schedules"].as_array().map(Vec::len), Some(1));
    assert_eq!(http.send("DELETE", "/v1/schedules/s", None).await.expect("a response").status, 204);
    assert_eq!(http.get("/v1/schedules/s").await.expect("a response").status, 404);
}
