//! The effects of forms; a form of another page has none.

use http::StatusCode;
use serde_json::json;

use super::super::World;
use super::{page, send_form, submit};

/// Makes a dead letter of this type.
async fn dead_letter(world: &World, job_type: &str, error: &str) -> String {
    let id = world.enqueue(json!({"type": job_type, "queue": "q", "maxRetries": 0})).await;
    let run = world.take("w").await;
    let failed = world.report("w", &run, json!({"kind": "failed", "error": error})).await;
    assert_eq!(failed.status, StatusCode::OK, "{}", failed.body);
    id
}

async fn status_of(world: &World, id: &str) -> String {
    world.get(&format!("/v1/jobs/{id}")).await.body["status"].as_str().expect("a status").to_owned()
}

#[tokio::test]
async fn a_form_without_the_token_of_its_page_changes_nothing() {
    let world = World::new().await;
    let id = world.enqueue(json!({"type": "t", "queue": "q"})).await;
    world.send("PUT", "/v1/schedules/s", json!({"type": "t", "every": "1h"})).await;
    let paths = [
        format!("/jobs/{id}/cancel"),
        format!("/jobs/{id}/retry"),
        "/jobs/bulk/cancel".into(),
        "/jobs/bulk/retry".into(),
        "/jobs/enqueue".into(),
        "/bulk".into(),
        "/dead-letters/retry".into(),
        "/dead-letters/purge".into(),
        "/dead-letters/purge-selected".into(),
        "/schedules/save".into(),
        "/schedules/s/pause".into(),
        "/schedules/s/resume".into(),
        "/schedules/s/trigger".into(),
        "/schedules/s/remove".into(),
        "/queues/q/pause".into(),
        "/queues/q/resume".into(),
        "/queues/q/limit".into(),
        "/queues/q/delete".into(),
    ];
    for path in &paths {
        for fields in [&[("id", id.as_str()), ("type", "t")][..], &[("csrf", "x"), ("id", &id), ("type", "t")]] {
            let refused = send_form(&world, path, fields).await;
            assert_eq!(refused.status, StatusCode::FORBIDDEN, "{path}: {}", refused.body);
        }
    }
    assert_eq!(status_of(&world, &id).await, "pending");
    assert_eq!(world.get("/v1/schedules/s").await.body["paused"], false);
    assert_eq!(world.get("/v1/queues/q").await.body["paused"], false);
    assert_eq!(world.get("/v1/jobs").await.body["jobs"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn a_job_is_cancelled_retried_and_copied_by_forms() {
    let world = World::new().await;
    let id = world.enqueue(json!({"type": "t", "queue": "q", "args": {"a": 1}, "tags": ["x"]})).await;
    let show = page(&world, &format!("/jobs/{id}")).await;
    let response = submit(&world, &show, &format!("/jobs/{id}/cancel"), &[("reason", "by hand")]).await;
    assert_eq!(response.header("location"), format!("/jobs/{id}?notice=cancelled"), "{}", response.body);
    let job = world.get(&format!("/v1/jobs/{id}")).await.body;
    assert_eq!((&job["status"], &job["error"]), (&json!("cancelled"), &json!("by hand")));
    let commands = page(&world, &format!("/jobs/{id}")).await;
    for command in [format!("/v1/jobs/{id}/retry"), "&#34;args&#34;:{&#34;a&#34;:1}".into()] {
        assert!(commands.contains(&command), "{command} is no command of {commands}");
    }
    submit(&world, &show, &format!("/jobs/{id}/retry"), &[]).await;
    assert_eq!(status_of(&world, &id).await, "pending");
    let copy = page(&world, &format!("/jobs/new?copy={id}")).await;
    assert!(copy.contains("&#34;a&#34;: 1"), "{copy}");
    let fields = [("copy", id.as_str()), ("type", "t"), ("queue", "q"), ("args", "{\"a\": 2}"), ("tags", "x y")];
    let made = submit(&world, &copy, "/jobs/enqueue", &fields).await;
    assert!(made.header("location").ends_with("?notice=enqueued"), "{} {}", made.status, made.body);
    let path = made.header("location").trim_start_matches("/jobs/").trim_end_matches("?notice=enqueued").to_owned();
    let made = world.get(&format!("/v1/jobs/{path}")).await.body;
    assert_eq!((&made["args"], &made["tags"]), (&json!({"a": 2}), &json!(["x", "y"])));
    let wrong = submit(&world, &copy, "/jobs/enqueue", &[("type", "t"), ("args", "{")]).await;
    assert_eq!(wrong.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn selected_jobs_are_cancelled_and_those_that_ended_are_left() {
    let world = World::new().await;
    let ids = [world.enqueue(json!({"type": "t"})).await, world.enqueue(json!({"type": "t"})).await];
    let list = page(&world, "/jobs?q=type:t").await;
    world.post(&format!("/v1/jobs/{}/cancel", ids[1]), json!({})).await;
    let fields = [("id", ids[0].as_str()), ("id", ids[1].as_str()), ("q", "type:t")];
    let response = submit(&world, &list, "/jobs/bulk/cancel", &fields).await;
    assert_eq!(response.header("location"), "/jobs?q=type%3At&notice=jobs-cancelled&n=2", "{}", response.body);
    let none = submit(&world, &list, "/jobs/bulk/cancel", &[]).await;
    assert_eq!(none.status, StatusCode::BAD_REQUEST);
    let response = submit(&world, &list, "/jobs/bulk/retry", &fields).await;
    assert!(response.header("location").ends_with("notice=jobs-retried&n=2"), "{}", response.header("location"));
    assert_eq!(status_of(&world, &ids[0]).await, "pending");
}

#[tokio::test]
async fn a_group_of_dead_letters_is_retried_or_deleted_and_no_other() {
    let world = World::new().await;
    world.register("w", &["q"]).await;
    let first = dead_letter(&world, "a", "timeout after 31 s").await;
    let second = dead_letter(&world, "a", "timeout after 7 s").await;
    let other = dead_letter(&world, "a", "no such user").await;
    let typed = dead_letter(&world, "b", "timeout after 1 s").await;
    let groups = world.get("/v1/dead-letters/groups").await.body;
    assert_eq!(
        (&groups["groups"][0]["error"], &groups["groups"][0]["count"]),
        (&json!("timeout after # s"), &json!(2))
    );
    assert_eq!(groups["groups"].as_array().map(Vec::len), Some(3), "{groups}");
    let list = page(&world, "/dead-letters").await;
    let group = [("type", "a"), ("error", "timeout after # s")];
    let response = submit(&world, &list, "/dead-letters/purge", &group).await;
    assert_eq!(response.header("location"), "/dead-letters?queue=&notice=jobs-deleted&n=2", "{}", response.body);
    for gone in [first, second] {
        assert_eq!(world.get(&format!("/v1/jobs/{gone}")).await.status, StatusCode::NOT_FOUND);
    }
    submit(&world, &list, "/dead-letters/retry", &[("type", "a"), ("error", "no such user")]).await;
    assert_ne!(status_of(&world, &other).await, "failed");
    assert_eq!(status_of(&world, &typed).await, "failed");
    let purged = world.post("/v1/dead-letters/purge", json!({"error": "timeout after # s"})).await;
    assert_eq!(purged.body, json!({"purged": 1}));
}

#[tokio::test]
async fn a_queue_is_paused_limited_resumed_and_deleted_by_forms() {
    let world = World::new().await;
    world.send("PATCH", "/v1/queues/q", json!({"paused": false})).await;
    let show = page(&world, "/queues/q").await;
    submit(&world, &show, "/queues/q/pause", &[]).await;
    assert_eq!(world.get("/v1/queues/q").await.body["paused"], true);
    submit(&world, &show, "/queues/q/resume", &[]).await;
    submit(&world, &show, "/queues/q/limit", &[("rate", "100/1s"), ("concurrency", "7")]).await;
    let queue = world.get("/v1/queues/q").await.body;
    assert_eq!((&queue["paused"], &queue["concurrency"]), (&json!(false), &json!(7)));
    assert_eq!(queue["rateLimit"], json!({"limit": 100, "per": "1s"}));
    assert!(page(&world, "/queues/q").await.contains("0 of 100 in the last 1s"));
    let wrong = submit(&world, &show, "/queues/q/limit", &[("concurrency", "0")]).await;
    assert_eq!(wrong.status, StatusCode::BAD_REQUEST, "{}", wrong.body);
    submit(&world, &show, "/queues/q/limit", &[]).await;
    assert_eq!(world.get("/v1/queues/q").await.body["rateLimit"], json!(null));
    submit(&world, &show, "/queues/q/delete", &[]).await;
    assert_eq!(world.get("/v1/queues/q").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_schedule_is_added_edited_paused_triggered_and_removed_by_forms() {
    let world = World::new().await;
    let new = page(&world, "/schedules/new").await;
    let fields = [
        ("new", "1"),
        ("name", "nightly"),
        ("cron", "0 3 * * 1-5"),
        ("tz", "Europe/Berlin"),
        ("type", "r"),
        ("args", "{\"n\": 1}"),
        ("missed", "skip"),
    ];
    let made = submit(&world, &new, "/schedules/save", &fields).await;
    assert_eq!(made.header("location"), "/schedules/nightly?notice=schedule-saved", "{}", made.body);
    let again = submit(&world, &new, "/schedules/save", &fields).await;
    assert_eq!(again.status, StatusCode::CONFLICT, "a new schedule replaces none");
    let show = page(&world, "/schedules/nightly").await;
    assert!(show.contains("03:00") && show.contains("Monday") && show.contains("Europe/Berlin"), "{show}");
    submit(&world, &show, "/schedules/nightly/pause", &[]).await;
    let edit = page(&world, "/schedules/nightly/edit").await;
    let fields =
        [("name", "nightly"), ("every", "15m"), ("tz", "Europe/Berlin"), ("type", "r"), ("args", "{\"n\": 2}")];
    submit(&world, &edit, "/schedules/save", &fields).await;
    let schedule = world.get("/v1/schedules/nightly").await.body;
    assert_eq!((&schedule["every"], &schedule["args"]), (&json!("15m"), &json!({"n": 2})));
    assert_eq!(schedule["paused"], true, "an edit resumes nothing");
    submit(&world, &show, "/schedules/nightly/resume", &[]).await;
    submit(&world, &show, "/schedules/nightly/trigger", &[]).await;
    let jobs = world.get("/v1/jobs?schedule=nightly").await.body;
    assert_eq!(jobs["jobs"].as_array().map(Vec::len), Some(1), "{jobs}");
    let ticks = world.get("/v1/schedules/nightly/ticks").await.body;
    assert_eq!((&ticks["past"][0]["outcome"], ticks["next"].as_array().map(Vec::len)), (&json!("triggered"), Some(5)));
    assert!(page(&world, "/schedules/nightly").await.contains("triggered by hand"));
    submit(&world, &show, "/schedules/nightly/remove", &[]).await;
    assert_eq!(world.get("/v1/schedules/nightly").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn what_is_listed_is_exported_as_one_job_a_line() {
    let world = World::new().await;
    for n in 0..3 {
        world.enqueue(json!({"type": "t", "args": {"n": n}})).await;
    }
    world.enqueue(json!({"type": "u"})).await;
    let exported = world.get("/jobs/export?q=type:t").await;
    assert_eq!(exported.header("content-type"), "application/x-ndjson");
    let text = exported.body.as_str().expect("lines").to_owned();
    let jobs: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).expect("a job")).collect();
    let listed = world.get("/v1/jobs?type=t").await.body;
    assert_eq!(json!(jobs), listed["jobs"]);
}

#[tokio::test]
async fn an_id_in_the_filter_leads_to_its_job() {
    let world = World::new().await;
    let id = world.enqueue(json!({"type": "t"})).await;
    let moved = world.get(&format!("/jobs?q={id}")).await;
    assert_eq!((moved.status, moved.header("location")), (StatusCode::SEE_OTHER, &*format!("/jobs/{id}")));
    let wrong = page(&world, "/jobs?q=state:failed").await;
    assert!(wrong.contains("expected one of status, type"), "{wrong}");
}

#[tokio::test]
async fn all_jobs_of_a_filter_are_counted_first_and_then_changed() {
    let world = World::new().await;
    for _ in 0..3 {
        world.enqueue(json!({"type": "mail.send"})).await;
    }
    let other = world.enqueue(json!({"type": "report"})).await;
    let preview = page(&world, "/bulk?q=type%3Amail.*&action=cancel").await;
    assert!(preview.contains("<b>3</b> jobs would be cancelled"), "{preview}");
    assert_eq!(world.get("/v1/jobs?status=pending").await.body["jobs"].as_array().map(Vec::len), Some(4));
    let fields = [("action", "Cancel"), ("q", "type:mail.*"), ("total", "3"), ("reason", "a mistake")];
    let response = submit(&world, &preview, "/bulk", &fields).await;
    assert_eq!(response.header("location"), "/jobs?q=type%3Amail.%2A&notice=jobs-cancelled&n=3", "{}", response.body);
    assert_eq!(status_of(&world, &other).await, "pending");
    let cancelled = world.get("/v1/jobs?status=cancelled").await.body;
    assert_eq!(cancelled["jobs"][0]["error"], "a mistake", "{cancelled}");
    let wrong = submit(&world, &preview, "/bulk", &[("action", "burn"), ("q", "type:t")]).await;
    assert_eq!(wrong.status, StatusCode::BAD_REQUEST);
}
