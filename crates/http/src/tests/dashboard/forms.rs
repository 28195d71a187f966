//! Every form of every page, sent with each role and without a token: exactly the allowed ones succeed.
//!
//! The forms are those of the routes: one that is added and has no case here fails the test.

use http::StatusCode;
use serde_json::{Value, json};

use super::super::access::{guarded, send};
use super::super::sessions::Browser;
use super::super::{TestResponse, World};
use super::form;
use crate::dashboard;

/// Roles that may enqueue, cancel and retry; all others only look on.
const ENQUEUE: &str = "enqueue admin";
const ADMIN: &str = "admin";
/// Whoever has a session.
const ALL: &str = "read enqueue admin";

/// What a form does to which target.
struct Case {
    /// The roles that may send it.
    allowed: &'static str,
    /// The path, with its target.
    path: String,
    fields: Vec<(&'static str, String)>,
    /// The status of a form that succeeds: most lead to a page, the form of a call shows its result.
    success: StatusCode,
}

/// Sends a request of the API that makes what a form needs.
async fn make(world: &World, name: &str, method: &str, path: &str, body: Value) -> Value {
    let response = send(world, name, method, path, body).await;
    assert!(response.status.is_success(), "{method} {path}: {}", response.body);
    response.body
}

async fn enqueue(world: &World) -> String {
    let job = make(world, "admin", "POST", "/v1/jobs", json!({"type": "t", "queue": "q", "maxRetries": 0})).await;
    job["id"].as_str().expect("an id").to_owned()
}

async fn cancelled(world: &World) -> String {
    let id = enqueue(world).await;
    make(world, "admin", "POST", &format!("/v1/jobs/{id}/cancel"), json!({})).await;
    id
}

async fn dead_letter(world: &World) -> String {
    let queue = json!({"workerId": "w", "queues": ["dead"], "concurrency": 9});
    make(world, "worker", "POST", "/v1/worker/register", queue).await;
    let job = json!({"type": "t", "queue": "dead", "maxRetries": 0});
    let id = make(world, "admin", "POST", "/v1/jobs", job).await["id"].as_str().expect("an id").to_owned();
    loop {
        let poll = json!({"workerId": "w", "max": 1, "wait": "20s"});
        let polled = make(world, "worker", "POST", "/v1/worker/poll", poll).await;
        let Some(run) = polled["jobs"].get(0) else { continue };
        let event = json!({"jobId": run["jobId"], "executionId": run["executionId"], "kind": "failed", "error": "e"});
        make(world, "worker", "POST", "/v1/worker/report", json!({"workerId": "w", "events": [event]})).await;
        return id;
    }
}

/// Makes what the form acts on, anew for each request. `number` tells the requests apart.
async fn case(world: &World, pattern: &str, number: usize) -> Case {
    let name = format!("n{number}");
    let at = |target: &str| pattern.replace("{id}", target).replace("{name}", target);
    let of = |allowed, path, fields: &[(&'static str, &str)]| Case {
        allowed,
        path,
        fields: fields.iter().map(|(name, value)| (*name, (*value).to_owned())).collect(),
        success: StatusCode::SEE_OTHER,
    };
    match pattern {
        "/logout" => of(ALL, at(""), &[]),
        "/jobs/{id}/cancel" => of(ENQUEUE, at(&enqueue(world).await), &[]),
        "/jobs/{id}/retry" => of(ENQUEUE, at(&cancelled(world).await), &[]),
        "/jobs/bulk/cancel" => of(ENQUEUE, at(""), &[("id", &enqueue(world).await)]),
        "/jobs/bulk/retry" => of(ENQUEUE, at(""), &[("id", &cancelled(world).await)]),
        "/jobs/enqueue" => of(ENQUEUE, at(""), &[("type", "t"), ("queue", "q")]),
        "/bulk" => of(ADMIN, at(""), &[("action", "cancel"), ("q", "type:t")]),
        "/dead-letters/retry" | "/dead-letters/purge" => {
            dead_letter(world).await;
            of(ADMIN, at(""), &[("type", "t"), ("error", "e")])
        }
        "/dead-letters/purge-selected" => of(ADMIN, at(""), &[("id", &dead_letter(world).await)]),
        "/schedules/save" => of(ADMIN, at(""), &[("new", "1"), ("name", &name), ("every", "1h"), ("type", "t")]),
        _ if pattern.starts_with("/schedules/{name}/") => {
            make(world, "admin", "PUT", &format!("/v1/schedules/{name}"), json!({"type": "t", "every": "1h"})).await;
            of(ADMIN, at(&name), &[])
        }
        _ if pattern.starts_with("/queues/{name}/") => {
            make(world, "admin", "PATCH", &format!("/v1/queues/{name}"), json!({"paused": false})).await;
            of(ADMIN, at(&name), &[("concurrency", "3")])
        }
        "/mesh/call" => Case {
            success: StatusCode::OK,
            ..of(ADMIN, at(""), &[("name", "m"), ("instance", "1"), ("type", "t"), ("data", "{}")])
        },
        "/cluster/nodes/{id}/drain" => of(ADMIN, at("node-1"), &[]),
        unknown => panic!("the form {unknown} has no case: who may send it?"),
    }
}

async fn by_session(browser: &Browser<'_>, case: &Case) -> TestResponse {
    let mut body = form_urlencoded::Serializer::new(String::new());
    body.append_pair("csrf", &browser.csrf().await);
    case.fields.iter().for_each(|(name, value)| {
        body.append_pair(name, value);
    });
    browser.post(&case.path, &body.finish(), &[]).await
}

async fn by_token(world: &World, name: &str, case: &Case) -> TestResponse {
    let fields: Vec<(&str, &str)> = case.fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let mut request = form(&case.path, &fields);
    if !name.is_empty() {
        let header = format!("Bearer {name}-token").parse().expect("a header");
        request.headers_mut().insert("authorization", header);
    }
    world.answer(request).await
}

#[tokio::test]
async fn each_role_may_send_exactly_its_forms() {
    let forms = dashboard::forms();
    assert!(forms.len() > 20, "the forms are found: {forms:?}");
    for pattern in forms {
        // Who is not known yet has the login page.
        if pattern == "/login" {
            continue;
        }
        // A node that was drained by one form takes no further ones.
        let world = guarded().await;
        let roles = ["read", "enqueue", "admin"];
        for (number, name) in ["", "worker"].into_iter().chain(roles).enumerate() {
            let case = case(&world, pattern, number).await;
            let is_allowed = case.allowed.split(' ').any(|role| role == name);
            let response = by_token(&world, name, &case).await;
            let expected = match (is_allowed, name) {
                (true, _) => case.success,
                (false, "") => StatusCode::UNAUTHORIZED,
                (false, _) => StatusCode::FORBIDDEN,
            };
            assert_eq!(response.status, expected, "{name:?} {pattern}: {}", response.body);
        }
        let world = guarded().await;
        for (number, name) in roles.into_iter().enumerate() {
            let browser = Browser::login(&world, &format!("{name}-token")).await;
            let case = case(&world, pattern, number).await;
            let response = by_session(&browser, &case).await;
            let is_allowed = case.allowed.split(' ').any(|role| role == name);
            let expected = if is_allowed { case.success } else { StatusCode::FORBIDDEN };
            assert_eq!(response.status, expected, "session of {name:?} {pattern}: {}", response.body);
            // Without the token of forms nobody may.
            let forged = Case { fields: vec![("csrf", "forged".into())], ..case };
            let response = browser.post(&forged.path, "csrf=forged", &[]).await;
            assert_eq!(response.status, StatusCode::FORBIDDEN, "forged {name:?} {pattern}: {}", response.body);
        }
    }
}
