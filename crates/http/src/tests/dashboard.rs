//! The pages, as a browser without a script receives them.

mod acts;
mod fleet_pages;
mod forms;
mod hostile;

use std::collections::BTreeSet;

use axum::body::Body;
use axum::extract::Request;
use http::StatusCode;
use serde_json::json;

use super::{Access, TestResponse, World, request};
use crate::dashboard::DashboardSettings;
use crate::{Color, Role, Site};

/// Returns the text of a page.
fn text(response: &TestResponse) -> &str {
    response.body.as_str().unwrap_or_else(|| panic!("{} is no page: {}", response.status, response.body))
}

pub async fn page(world: &World, path: &str) -> String {
    let response = world.get(path).await;
    assert_eq!(response.status, StatusCode::OK, "{path}: {}", response.body);
    text(&response).to_owned()
}

/// Returns the value of the token that the forms of a page carry.
fn csrf(page: &str) -> String {
    let (_, rest) = page.split_once("name=\"csrf\" value=\"").expect("a form");
    rest.split('"').next().expect("a value").to_owned()
}

/// Sends a form with the token of `page`.
pub async fn submit(world: &World, page: &str, path: &str, fields: &[(&str, &str)]) -> TestResponse {
    let token = csrf(page);
    send_form(world, path, &[&[("csrf", token.as_str())], fields].concat()).await
}

async fn send_form(world: &World, path: &str, fields: &[(&str, &str)]) -> TestResponse {
    world.answer(form(path, fields)).await
}

fn form(path: &str, fields: &[(&str, &str)]) -> Request {
    let body = fields.iter().fold(form_urlencoded::Serializer::new(String::new()), |mut form, (name, value)| {
        form.append_pair(name, value);
        form
    });
    let mut body = body;
    let mut request = request("POST", path, body.finish());
    let kind = http::HeaderValue::from_static("application/x-www-form-urlencoded");
    request.headers_mut().insert("content-type", kind);
    request
}

/// Every link, action and asset of a page, without its query.
fn links(page: &str) -> BTreeSet<String> {
    let mut links = BTreeSet::new();
    for attribute in [" href=\"", " src=\"", " action=\"", " formaction=\""] {
        for (_, rest) in page.match_indices(attribute).map(|(at, found)| page.split_at(at + found.len())) {
            let link = rest.split(['"', '?', '#']).next().unwrap_or_default();
            links.extend((!link.is_empty()).then(|| link.to_owned()));
        }
    }
    links
}

#[tokio::test]
async fn every_link_of_every_page_leads_somewhere() {
    let world = World::new().await;
    world.enqueue(json!({"type": "t", "queue": "q"})).await;
    world.send("PUT", "/v1/schedules/s", json!({"type": "t", "every": "1h"})).await;
    world.register("w", &["q"]).await;
    let (mut seen, mut waiting) = (BTreeSet::new(), vec!["/".to_owned()]);
    while let Some(path) = waiting.pop() {
        let response = world.get(&path).await;
        // A form is sent by POST: its path need not be a page.
        let found = matches!(response.status, StatusCode::OK | StatusCode::METHOD_NOT_ALLOWED);
        assert!(found, "{path}: {} {}", response.status, response.body);
        let is_ours = response.header("content-security-policy").contains("script-src");
        if is_ours && response.header("content-type").starts_with("text/html") {
            let new: Vec<String> =
                links(text(&response)).into_iter().filter(|link| seen.insert(link.clone())).collect();
            waiting.extend(new);
        }
    }
    for path in ["/jobs", "/jobs/new", "/schedules/s/edit", "/queues/q", "/workers/w", "/dead-letters", "/jobs/export"]
    {
        assert!(seen.contains(path), "{path} is linked from no page: {seen:?}");
    }
}

#[tokio::test]
async fn the_first_page_is_small() {
    let world = World::new().await;
    let page = page(&world, "/").await;
    let mut total = page.len();
    for asset in links(&page).into_iter().filter(|link| link.starts_with("/assets/")) {
        let mut request = request("GET", &asset, "");
        request.headers_mut().insert("accept-encoding", http::HeaderValue::from_static("gzip, br"));
        let response = world.respond(request).await;
        assert_eq!(response.headers()["content-encoding"], "gzip", "{asset}");
        assert_eq!(response.headers()["cache-control"], "public, max-age=31536000, immutable");
        let bytes = http_body_util::BodyExt::collect(response.into_body()).await.expect("a body").to_bytes();
        total += bytes.len();
    }
    // The scripts that the first one imports.
    total += crate::dashboard::scripts_bytes();
    assert!(total <= 60 << 10, "{total} bytes");
}

#[tokio::test]
async fn an_asset_of_another_version_is_served_and_not_kept() {
    let world = World::new().await;
    let response = world.get("/assets/0000000000000000/app.js").await;
    assert_eq!((response.status, response.header("cache-control")), (StatusCode::OK, "no-store"));
    assert!(response.header("content-type").starts_with("text/javascript"));
    assert_eq!(world.get("/assets/0000000000000000/../app.js").await.status, StatusCode::NOT_FOUND);
    assert_eq!(world.get("/assets/x/secrets.js").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn pages_behind_a_proxy_link_to_its_path_whether_it_is_removed_or_not() {
    let coordinator = World::new().await.coordinator;
    let site = Site { base_path: "/ops/convoke".into(), ..Site::default() };
    let world = World::at(site, coordinator, None, Access::Insecure).await;
    let id = world.enqueue(json!({"type": "t"})).await;
    for path in ["/", "/ops/convoke", "/ops/convoke/", "/ops/convoke/jobs", "/queues", "/ops/convoke/queues?x=1"] {
        let page = page(&world, path).await;
        let outside: Vec<_> = links(&page).into_iter().filter(|link| !link.starts_with("/ops/convoke")).collect();
        assert!(outside.is_empty() || outside == ["main"], "{path}: {outside:?}");
    }
    assert_eq!(world.get("/ops/convoke/v1/jobs").await.status, StatusCode::OK);
    assert_eq!(world.get("/ops/convoker/v1/jobs").await.status, StatusCode::NOT_FOUND);
    let show = page(&world, &format!("/ops/convoke/jobs/{id}")).await;
    let response = submit(&world, &show, &format!("/ops/convoke/jobs/{id}/cancel"), &[]).await;
    assert_eq!(response.status, StatusCode::SEE_OTHER, "{}", response.body);
    assert_eq!(response.header("location"), format!("/ops/convoke/jobs/{id}?notice=cancelled"));
}

#[tokio::test]
async fn without_a_dashboard_the_api_remains() {
    let coordinator = World::new().await.coordinator;
    let site = Site { dashboard: DashboardSettings { enabled: false, ..Default::default() }, ..Site::default() };
    let world = World::at(site, coordinator, None, Access::Insecure).await;
    for path in ["/", "/jobs", "/assets/x/app.js"] {
        assert_eq!(world.get(path).await.status, StatusCode::NOT_FOUND, "{path}");
    }
    assert_eq!(world.get("/v1/jobs").await.status, StatusCode::OK);
}

#[tokio::test]
async fn an_instance_has_its_name_and_its_colour() {
    let coordinator = World::new().await.coordinator;
    let dashboard = DashboardSettings { name: Some("prod <1>".into()), color: Color::Red, ..Default::default() };
    let world = World::at(Site { dashboard, ..Site::default() }, coordinator, None, Access::Insecure).await;
    let page = page(&world, "/").await;
    assert!(page.contains("prod &#60;1&#62;") && page.contains("class=\"color-red\""), "{page}");
}

#[tokio::test]
async fn an_error_is_a_page_for_people_and_json_for_programs() {
    let world = World::new().await;
    let missing = world.get(&format!("/jobs/{}", super::NO_ID)).await;
    assert_eq!(missing.status, StatusCode::NOT_FOUND);
    assert!(text(&missing).contains("<h1>Not Found</h1>") && text(&missing).contains(super::NO_ID));
    assert!(missing.header("content-security-policy").contains("script-src 'self'"));
    let wrong = world.get("/jobs/no-id").await;
    assert_eq!((wrong.status, wrong.body.is_string()), (StatusCode::BAD_REQUEST, true), "{}", wrong.body);
    assert_eq!(world.get(&format!("/v1/jobs/{}", super::NO_ID)).await.code(), "not_found");
}

#[tokio::test]
async fn no_link_can_put_words_into_a_page() {
    let world = World::new().await;
    assert!(page(&world, "/jobs?notice=jobs-cancelled&n=12").await.contains("Jobs that were cancelled: 12."));
    let forged = page(&world, "/jobs?notice=Send+your+password&n=1").await;
    assert!(!forged.contains("password"), "{forged}");
}

#[tokio::test]
async fn a_server_with_tokens_shows_pages_to_readers_only() {
    let world = World::with(Access::tokens([("r", Role::Read)])).await;
    assert_eq!(world.get("/").await.header("location"), "/login");
    let closed = page(&world, "/login").await;
    assert!(!closed.contains("node-1") && closed.contains("/docs/"), "{closed}");
    for path in ["/jobs", "/queues", "/workers", "/schedules", "/dead-letters", "/jobs/export"] {
        assert_ne!(world.get(path).await.status, StatusCode::OK, "{path}");
        let request = Request::builder().uri(path).header("authorization", "Bearer r").body(Body::empty());
        assert_eq!(world.answer(request.expect("a request")).await.status, StatusCode::OK, "{path}");
    }
}
