//! Text of users is shown as text, on every page; no page has an inline script or style.

use convoke_core::jobs::Status;
use http::StatusCode;
use serde_json::json;

use super::super::World;
use super::{page, text};
use crate::dashboard::text::encode;

/// Texts that would run, break out of an attribute, or close an element if they were not escaped.
pub const HOSTILE: &str = r#"<script>alert(1)</script>"'><img src=x onerror=alert(2)>&amp;{{7*7}}</textarea>"#;

/// Makes a job, a schedule, a queue and a worker whose every text is hostile. Returns the pages that show them.
async fn pages(world: &World) -> Vec<String> {
    let args = json!({"html": HOSTILE, "big": 9_007_199_254_740_993_u64});
    let spec = json!({"type": HOSTILE, "queue": HOSTILE, "args": args, "correlationId": HOSTILE, "uniqueKey": HOSTILE,
        "tags": ["<b>&\"'"], "maxRetries": 0});
    let id = world.enqueue(spec.clone()).await;
    world.register(HOSTILE, &[HOSTILE]).await;
    let run = world.take(HOSTILE).await;
    let lines = json!({"kind": "logs", "lines": [{"level": "warn", "message": HOSTILE}]});
    world.report(HOSTILE, &run, json!({"kind": "started"})).await;
    world.report(HOSTILE, &run, lines).await;
    world.report(HOSTILE, &run, json!({"kind": "progress", "percent": 10, "message": HOSTILE})).await;
    let failed = world.report(HOSTILE, &run, json!({"kind": "failed", "error": HOSTILE})).await;
    assert_eq!(failed.status, StatusCode::OK, "{}", failed.body);
    let held = world.enqueue(json!({"type": HOSTILE, "queue": HOSTILE, "uniqueKey": "2"})).await;
    let run = world.take(HOSTILE).await;
    world.report(HOSTILE, &run, json!({"kind": "started"})).await;
    let name = encode(HOSTILE);
    let put = world
        .send(
            "PUT",
            &format!("/v1/schedules/{name}"),
            json!({"type": HOSTILE, "queue": HOSTILE,
        "args": args, "every": "1h", "tags": ["<i>"]}),
        )
        .await;
    assert_eq!(put.status, StatusCode::CREATED, "{}", put.body);
    let job = world.get(&format!("/v1/jobs/{id}")).await.body;
    assert_eq!(job["status"], Status::Failed.as_str(), "{job}");
    let filter = encode(&format!("type:\"{}\"", HOSTILE.replace('"', "\\\"")));
    vec![
        "/".into(),
        "/jobs".into(),
        format!("/jobs?q={filter}"),
        format!("/jobs?q={}", encode(HOSTILE)),
        format!("/bulk?action=retry&q={filter}"),
        format!("/jobs/{id}"),
        format!("/jobs/{held}"),
        format!("/jobs/new?copy={id}"),
        "/dead-letters".into(),
        format!("/dead-letters?queue={name}"),
        "/schedules".into(),
        format!("/schedules/{name}"),
        format!("/schedules/{name}/edit"),
        "/queues".into(),
        format!("/queues/{name}"),
        "/workers".into(),
        format!("/workers/{name}"),
    ]
}

#[tokio::test]
async fn text_of_users_is_shown_as_text_on_every_page() {
    let world = World::new().await;
    for path in pages(&world).await {
        let page = page(&world, &path).await;
        for part in ["<script>alert", "<img src=x", "onerror=alert(2)>", "</textarea>&amp;", "<b>&", "<i>"] {
            assert!(!page.contains(part), "{path} contains {part}:\n{page}");
        }
        // It is there, escaped.
        assert!(page.contains("&#60;script&#62;alert(1)") || page.contains("&lt;script&gt;"), "{path}:\n{page}");
    }
    let wrong = world.get(&format!("/queues/{}", encode("<script>no</script>"))).await;
    assert!(!text(&wrong).contains("<script>no"), "{}", wrong.body);
}

#[tokio::test]
async fn a_large_number_is_shown_with_all_its_digits() {
    let world = World::new().await;
    let id = world.enqueue(json!({"type": "t", "args": {"n": 9_007_199_254_740_993_u64}})).await;
    assert!(page(&world, &format!("/jobs/{id}")).await.contains("9007199254740993"));
}

#[tokio::test]
async fn no_page_has_an_inline_script_or_style_and_all_forbid_them() {
    let world = World::new().await;
    for path in pages(&world).await {
        let response = world.get(&path).await;
        let policy = response.header("content-security-policy");
        for part in ["default-src 'none'", "script-src 'self'", "style-src 'self'", "frame-ancestors 'none'"] {
            assert!(policy.contains(part), "{path}: {policy}");
        }
        assert!(!policy.contains("unsafe"), "{policy}");
        let page = text(&response);
        assert!(!page.contains("<style") && !page.contains(" style="), "{path}");
        for (at, _) in page.match_indices("<script") {
            let element = &page[at..page[at..].find("</script>").map_or(page.len(), |end| at + end)];
            assert!(element.contains(" src=\"") && element.ends_with('>'), "{path}: {element}");
        }
        for handler in [" onclick=", " onload=", " onsubmit=", "javascript:"] {
            assert!(!page.contains(handler), "{path}: {handler}");
        }
    }
}
