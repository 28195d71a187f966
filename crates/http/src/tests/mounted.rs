//! The routes inside another axum server.

use std::net::SocketAddr;

use axum::extract::{ConnectInfo, Request};
use axum::routing::get;
use axum::{Router, body::Body};
use http::StatusCode;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::{Access, World, request};
use crate::Role;

struct Reply {
    status: StatusCode,
    location: Option<String>,
    text: String,
}

impl Reply {
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }
}

async fn send(app: &Router, request: Request) -> Reply {
    let Ok(response) = app.clone().oneshot(request).await;
    let (parts, body) = response.into_parts();
    let bytes = body.collect().await.expect("a whole body").to_bytes();
    let location = parts.headers.get("location").map(|value| value.to_str().expect("text").to_owned());
    Reply { status: parts.status, location, text: String::from_utf8_lossy(&bytes).into_owned() }
}

async fn fetch(app: &Router, path: &str) -> Reply {
    send(app, request("GET", path, "")).await
}

/// An application with a page of its own.
fn application() -> Router {
    Router::new().route("/", get(|| async { "mine" })).route("/v1/mine", get(|| async { "mine too" }))
}

/// Enqueues and reads a job under `prefix`, and checks that an unknown route is reported in the API's own form.
async fn serves_jobs(app: &Router, prefix: &str) {
    let enqueued = send(app, request("POST", &format!("{prefix}/v1/jobs"), json!({"type": "t"}).to_string())).await;
    assert_eq!(enqueued.status, StatusCode::CREATED, "{}", enqueued.text);
    let id = enqueued.json()["id"].as_str().expect("an id").to_owned();
    let job = fetch(app, &format!("{prefix}/v1/jobs/{id}")).await;
    assert_eq!((job.status, job.json()["id"].as_str()), (StatusCode::OK, Some(&*id)), "{}", job.text);
    let missing = fetch(app, &format!("{prefix}/v1/nothing")).await;
    assert_eq!(missing.status, StatusCode::NOT_FOUND);
    assert_eq!(missing.json()["error"]["code"], "not_found");
    let wrong = send(app, request("DELETE", &format!("{prefix}/v1/jobs"), "")).await;
    assert_eq!(wrong.status, StatusCode::METHOD_NOT_ALLOWED);
    for path in ["/", "/v1/mine"] {
        let own = fetch(app, path).await;
        assert!(own.status == StatusCode::OK && own.text.starts_with("mine"), "{path}: {}", own.text);
    }
}

#[tokio::test]
async fn the_routes_work_under_a_path_beside_others_and_as_a_fallback() {
    let world = World::new().await;
    let router = || crate::router(world.state.clone());
    serves_jobs(&application().nest("/convoke", router()), "/convoke").await;
    serves_jobs(&application().nest_service("/convoke", router()), "/convoke").await;
    serves_jobs(&application().merge(router()), "").await;
    serves_jobs(&application().fallback_service(router()), "").await;
    // The application's path parameters are not those of the routes.
    serves_jobs(&application().nest("/of/{tenant}/convoke", router()), "/of/ada/convoke").await;
}

#[tokio::test]
async fn pages_under_a_path_lead_to_each_other() {
    let world = World::new().await;
    let app = application().nest("/convoke", crate::router(world.state.clone()));
    let page = fetch(&app, "/convoke").await;
    assert!(page.text.contains("href=\"/convoke/docs/\"") && !page.text.contains("href=\"/v1"), "{}", page.text);
    let moved = fetch(&app, "/convoke/docs").await;
    assert!(moved.status.is_redirection(), "{}", moved.status);
    assert_eq!(moved.location.as_deref(), Some("/convoke/docs/"));
    let script = fetch(&app, "/convoke/docs/swagger-initializer.js").await;
    assert!(script.text.contains("\"../openapi.json\""), "{}", script.text);
    let document = fetch(&app, "/convoke/openapi.json").await.json();
    assert_eq!(document["servers"], json!([{"url": "/convoke"}]));
    let whole = world.get("/openapi.json").await.body;
    assert_eq!((&document["paths"], whole.get("servers")), (&whole["paths"], None));
}

/// A request as a server with `ConnectInfo` passes it on.
fn from(peer: &str, path: &str) -> Request {
    let mut request = request("GET", path, "");
    let address: SocketAddr = peer.parse().expect("an address");
    request.extensions_mut().insert(ConnectInfo(address));
    request
}

#[tokio::test]
async fn without_tokens_only_requests_of_this_machine_are_served() {
    let world = World::with(Access::Loopback).await;
    let app = Router::new().nest("/convoke", crate::router(world.state.clone()));
    assert_eq!(send(&app, from("127.0.0.1:9", "/convoke/v1/jobs")).await.status, StatusCode::OK);
    assert_eq!(send(&app, from("[::1]:9", "/convoke/v1/jobs")).await.status, StatusCode::OK);
    for path in ["/convoke/v1/jobs", "/convoke", "/convoke/metrics"] {
        let refused = send(&app, from("10.0.0.9:9", path)).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{path}: {}", refused.text);
        let refused = fetch(&app, path).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{path}: {}", refused.text);
        assert!(refused.text.contains("into_make_service_with_connect_info"), "{}", refused.text);
    }
    // A foreign page whose own name resolves to this machine.
    let mut lured = from("127.0.0.1:9", "/convoke/v1/jobs");
    lured.headers_mut().insert("host", http::HeaderValue::from_static("evil.example"));
    assert_eq!(send(&app, lured).await.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn a_role_is_judged_by_the_path_without_the_prefix() {
    let world = World::with(Access::tokens([("w", Role::Worker), ("r", Role::Read)])).await;
    let app = Router::new().nest("/v1/worker", crate::router(world.state.clone()));
    let by = |token: &str, method: &str, path: &str| {
        let request = Request::builder().method(method).uri(path).header("authorization", format!("Bearer {token}"));
        request.body(Body::empty()).expect("a request")
    };
    assert_eq!(send(&app, by("r", "GET", "/v1/worker/v1/jobs")).await.status, StatusCode::OK);
    assert_eq!(send(&app, by("w", "GET", "/v1/worker/v1/jobs")).await.status, StatusCode::FORBIDDEN);
    assert_eq!(fetch(&app, "/v1/worker/v1/jobs").await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(fetch(&app, "/v1/worker/livez").await.status, StatusCode::OK);
}
