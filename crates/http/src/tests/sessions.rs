//! Sessions of browsers: login, the cookie, tokens of forms, and the pages that need them.

use std::sync::Arc;
use std::time::Duration;

use convoke_runtime::jobs::Ports;
use convoke_testkit::shared_bus::SharedBus;
use serde_json::{Value, json};

use super::access::guarded;
use super::{TestResponse, World, ports, request};
use crate::access::Peer;
use crate::{Access, Policy, Role};

/// A browser with a cookie.
pub struct Browser<'w> {
    world: &'w World,
    cookie: String,
}

impl<'w> Browser<'w> {
    pub fn new(world: &'w World) -> Self {
        Browser { world, cookie: String::new() }
    }

    pub async fn login(world: &'w World, token: &str) -> Self {
        let mut browser = Browser::new(world);
        let response = browser.post("/login", &format!("token={token}"), &[]).await;
        assert_eq!(response.status, 303, "{}", response.body);
        browser.cookie = response.header("set-cookie").split(';').next().expect("a pair").to_owned();
        browser
    }

    async fn send(&self, method: &str, path: &str, body: &str, headers: &[(&'static str, &str)]) -> TestResponse {
        let mut sent = request(method, path, body.to_owned());
        sent.headers_mut().insert("accept", "text/html,*/*".parse().expect("a header"));
        if !self.cookie.is_empty() {
            sent.headers_mut().insert("cookie", self.cookie.parse().expect("a header"));
        }
        for (name, value) in headers {
            sent.headers_mut().insert(*name, value.parse().expect("a header"));
        }
        sent.extensions_mut().insert(Peer([127, 0, 0, 1].into()));
        self.world.answer(sent).await
    }

    pub async fn get(&self, path: &str) -> TestResponse {
        self.send("GET", path, "", &[]).await
    }

    pub async fn post(&self, path: &str, form: &str, headers: &[(&'static str, &str)]) -> TestResponse {
        let mut all = vec![("content-type", "application/x-www-form-urlencoded")];
        all.extend(headers);
        self.send("POST", path, form, &all).await
    }

    /// The token of forms, as a page has it.
    pub async fn csrf(&self) -> String {
        let page = self.get("/activity").await;
        let text = page.body.as_str().expect("a page").to_owned();
        let (_, rest) = text.split_once("name=\"csrf\" value=\"").expect("a form");
        rest.split('"').next().expect("a value").to_owned()
    }
}

#[tokio::test]
async fn a_login_sets_a_cookie_that_opens_pages_and_reads_of_the_api() {
    let world = guarded().await;
    let browser = Browser::new(&world);
    for path in ["/", "/activity", "/nothing"] {
        let response = browser.get(path).await;
        assert_eq!(response.status, 303, "{path}");
        let next = if path == "/" { "/login".into() } else { format!("/login?next=%2F{}", &path[1..]) };
        assert_eq!(response.header("location"), next);
    }
    assert_eq!(browser.get("/v1/jobs").await.status, 401, "the API does not redirect");
    let page = browser.get("/login?next=/activity").await;
    assert_eq!(page.status, 200);
    assert!(page.body.as_str().is_some_and(|page| page.contains("name=\"next\" value=\"/activity\"")));

    let response = browser.post("/login", "token=read-token&next=/activity%3Fwho%3Dada", &[]).await;
    assert_eq!((response.status.as_u16(), response.header("location")), (303, "/activity?who=ada"));
    let cookie = response.header("set-cookie");
    assert!(cookie.starts_with("convoke_session=") && !cookie.contains("Secure"), "{cookie}");
    for part in ["; Path=/;", "; Max-Age=43200;", "; HttpOnly", "; SameSite=Strict"] {
        assert!(cookie.contains(part), "{part}: {cookie}");
    }
    let browser = Browser::login(&world, "read-token").await;
    for path in ["/", "/activity", "/v1/jobs", "/v1/audit", "/metrics"] {
        assert_eq!(browser.get(path).await.status, 200, "{path}");
    }
    assert_eq!(browser.get("/login?next=/activity").await.header("location"), "/activity", "it has a session");
    let page = browser.get("/activity").await;
    let page = page.body.as_str().expect("a page");
    assert!(page.contains("login") && page.contains("read"), "the login is recorded: {page}");
}

#[tokio::test]
async fn a_cookie_is_secure_behind_tls_and_bound_to_the_path_of_the_server() {
    let world = guarded().await;
    let browser = Browser::new(&world);
    let response = browser.post("/login", "token=read-token", &[("x-forwarded-proto", "https")]).await;
    assert!(response.header("set-cookie").ends_with("; Secure"));
    let headers = [("origin", "https://jobs.example"), ("host", "jobs.example")];
    assert!(browser.post("/login", "token=read-token", &headers).await.header("set-cookie").ends_with("; Secure"));
}

#[tokio::test]
async fn only_a_known_token_that_may_read_logs_in_and_guessing_ends() {
    let world = guarded().await;
    let browser = Browser::new(&world);
    let refused = browser.post("/login", "token=worker-token", &[]).await;
    assert_eq!((refused.status.as_u16(), refused.header("set-cookie")), (403, ""));
    for form in ["", "token=", "token=%3Cscript%3E", "token=read-toke", "garbage"] {
        let refused = browser.post("/login", form, &[]).await;
        assert_eq!((refused.status.as_u16(), refused.header("set-cookie")), (401, ""), "{form}");
        assert!(!refused.body.to_string().contains("<script>"), "a token is not repeated");
    }
    for _ in 5..20 {
        assert_eq!(browser.post("/login", "token=x", &[]).await.status, 401);
    }
    let refused = browser.post("/login", "token=read-token", &[]).await;
    assert_eq!(refused.status, 429, "also for a valid token");
}

#[tokio::test]
async fn a_login_leads_nowhere_else_and_is_not_sent_by_other_sites() {
    let world = guarded().await;
    let browser = Browser::new(&world);
    for next in ["//evil.example", "https://evil.example", "/%5Cevil.example", "/%09/evil.example", "evil"] {
        let response = browser.post("/login", &format!("token=read-token&next={next}"), &[]).await;
        assert_eq!((response.status.as_u16(), response.header("location")), (303, "/"), "{next}");
    }
    let foreign: [&[(&str, &str)]; 3] = [
        &[("sec-fetch-site", "cross-site")],
        &[("sec-fetch-site", "same-site")],
        &[("origin", "https://evil.example")],
    ];
    for headers in foreign {
        let refused = browser.post("/login", "token=read-token", headers).await;
        assert_eq!((refused.status.as_u16(), refused.header("set-cookie")), (403, ""), "{headers:?}");
    }
    let own: [&[(&str, &str)]; 3] = [
        &[("sec-fetch-site", "same-origin")],
        &[("origin", "http://127.0.0.1:3000")],
        &[("origin", "https://jobs.example"), ("x-forwarded-host", "jobs.example")],
    ];
    for headers in own {
        assert_eq!(browser.post("/login", "token=read-token", headers).await.status, 303, "{headers:?}");
    }
    // A link of another site arrives without the cookie: the page asks once more from here.
    let page = browser.send("GET", "/login?next=/activity", "", &[("sec-fetch-site", "cross-site")]).await;
    assert_eq!(page.header("refresh"), "0; url=/activity");
    let page = browser.send("GET", "/login?next=/activity", "", &[("sec-fetch-site", "same-origin")]).await;
    assert_eq!(page.header("refresh"), "");
}

#[tokio::test]
async fn what_a_session_changes_needs_the_token_of_its_own_pages() {
    let world = guarded().await;
    let (admin, other) = (Browser::login(&world, "admin-token").await, Browser::login(&world, "admin-token").await);
    let (csrf, others) = (admin.csrf().await, other.csrf().await);
    assert_ne!(csrf, others, "each session has its own");
    let patch = async |headers: &[(&'static str, &str)]| {
        admin.send("PATCH", "/v1/queues/mail", r#"{"paused":true}"#, headers).await
    };
    for wrong in ["", "x", &others, &csrf[1..]] {
        assert_eq!(patch(&[("x-csrf-token", wrong)]).await.status, 403, "{wrong:?}");
    }
    assert_eq!(patch(&[]).await.status, 403, "missing");
    let refused = patch(&[("x-csrf-token", &csrf), ("sec-fetch-site", "cross-site")]).await;
    assert_eq!(refused.status, 403, "another site");
    assert_eq!(patch(&[("x-csrf-token", &csrf)]).await.status, 200);
    // The API has no forms: a token in its body does not count.
    let form = format!("csrf={csrf}");
    assert_eq!(admin.post("/v1/queues/mail", &form, &[]).await.status, 403);
    // A session is not for workers.
    let register = json!({"workerId": "w", "queues": ["q"], "concurrency": 1}).to_string();
    let refused = admin.send("POST", "/v1/worker/register", &register, &[("x-csrf-token", &csrf)]).await;
    assert_eq!(refused.status, 403);
    // A form: the page that every session has.
    for form in ["", "csrf=", "csrf=x", &format!("csrf={others}")] {
        let refused = admin.post("/logout", form, &[]).await;
        assert_eq!((refused.status.as_u16(), refused.header("set-cookie")), (403, ""), "{form}");
        assert!(refused.body.as_str().is_some_and(|page| page.contains("<html")), "an error of a page is a page");
    }
    let left = admin.post("/logout", &format!("csrf={csrf}"), &[]).await;
    assert_eq!((left.status.as_u16(), left.header("location")), (303, "/login"));
    assert!(left.header("set-cookie").contains("convoke_session=;") && left.header("set-cookie").contains("Max-Age=0"));
    let entry = admin.get("/v1/audit?action=queue.pause").await.body["entries"][0].clone();
    assert_eq!((&entry["who"], &entry["via"]), (&json!("admin"), &json!("dashboard")));
}

#[tokio::test]
async fn a_session_has_the_role_of_its_token() {
    let world = guarded().await;
    for (token, expected) in [("read-token", [403, 403]), ("enqueue-token", [404, 403]), ("admin-token", [404, 200])] {
        let browser = Browser::login(&world, token).await;
        let csrf = browser.csrf().await;
        let headers = [("x-csrf-token", &*csrf)];
        let cancel = format!("/v1/jobs/{}/cancel", super::NO_ID);
        let cancelled = browser.send("POST", &cancel, "", &headers).await.status.as_u16();
        let paused = browser.send("PATCH", "/v1/queues/q", r#"{"paused":true}"#, &headers).await.status.as_u16();
        assert_eq!([cancelled, paused], expected, "{token}");
    }
}

#[tokio::test]
async fn a_session_ends_with_its_time_its_token_and_its_key() {
    let ports = ports();
    let ports = Ports { bus: Arc::new(SharedBus(ports.bus.clone())), ..ports };
    let node = async |name: &str, tokens: &[&str], ttl: Duration| {
        let access = Access::tokens(tokens.iter().map(|token| (*token, Role::Admin)));
        let policy = Policy { session_ttl: ttl, ..access.into() };
        World::node(name, ports.clone(), policy).await
    };
    let hour = Duration::from_secs(3600);
    let one = node("node-1", &["a", "b"], hour).await;
    let session = Browser::login(&one, "a").await;
    assert_eq!(session.get("/v1/jobs").await.status, 200);

    // The key is in the store, so that another node accepts the session.
    let two = node("node-2", &["b", "a"], hour).await;
    assert_eq!(Browser { world: &two, cookie: session.cookie.clone() }.get("/v1/jobs").await.status, 200);
    // Its token is not configured there.
    let three = node("node-3", &["b"], hour).await;
    assert_eq!(Browser { world: &three, cookie: session.cookie.clone() }.get("/v1/jobs").await.status, 401);

    let short = node("node-4", &["a"], Duration::ZERO).await;
    let expired = Browser::login(&short, "a").await;
    assert_eq!(expired.get("/v1/jobs").await.status, 401);
    assert_eq!(expired.get("/activity").await.status, 303, "to the login page");

    let mut changed = session.cookie.clone();
    let last = changed.pop().expect("a character");
    changed.push(if last == 'A' { 'B' } else { 'A' });
    for cookie in [changed, "convoke_session=".into(), "convoke_session=x".into(), session.cookie[..40].to_owned()] {
        assert_eq!(Browser { world: &one, cookie: cookie.clone() }.get("/v1/jobs").await.status, 401, "{cookie}");
    }

    one.state.sessions.replace_key(&**one.coordinator.store()).await.expect("replaced");
    assert_eq!(session.get("/v1/jobs").await.status, 401, "a new key ends all sessions");
}

#[tokio::test]
async fn without_tokens_forms_carry_a_token_too_and_the_login_page_leads_on() {
    let world = World::with(Access::Loopback).await;
    let browser = Browser::new(&world);
    assert_eq!(browser.get("/login?next=/activity").await.header("location"), "/activity");
    assert_eq!(browser.get("/").await.status, 200);
    // There is no session to end, but the route is a form like every other.
    assert_eq!(browser.post("/logout", "", &[]).await.status, 403);
    let refused = browser.post("/logout", "csrf=x", &[("origin", "https://evil.example")]).await;
    assert_eq!(refused.status, 403);
    // Clients of the API send no token of forms.
    assert_eq!(browser.send("PATCH", "/v1/queues/q", r#"{"paused":true}"#, &[]).await.status, 200);
    let entry = browser.get("/v1/audit").await.body["entries"][0].clone();
    assert_eq!((&entry["who"], &entry["via"]), (&json!("local"), &json!("api")));
}

#[tokio::test]
async fn the_page_of_activity_shows_filters_and_pages_and_no_name_becomes_markup() {
    let world = guarded().await;
    let admin = Browser::login(&world, "admin-token").await;
    let csrf = admin.csrf().await;
    for n in 0..60 {
        let path = format!("/v1/queues/%3Cb%3E{n}");
        let headers = [("x-csrf-token", &*csrf)];
        assert_eq!(admin.send("PATCH", &path, r#"{"paused":true}"#, &headers).await.status, 200);
    }
    let text = |response: TestResponse| response.body.as_str().expect("a page").to_owned();
    let first = text(admin.get("/activity").await);
    assert!(first.contains("&#60;b&#62;59") && !first.contains("<b>"), "{first}");
    assert!(first.contains("queue.pause") && first.contains("dashboard"));
    let (_, older) = first.split_once("href=\"/activity?cursor=").expect("a further page");
    let cursor = older.split('"').next().expect("a cursor");
    let second = text(admin.get(&format!("/activity?cursor={cursor}")).await);
    assert!(second.contains("&#60;b&#62;3<") && !second.contains("&#60;b&#62;59"), "{second}");
    let filtered = text(admin.get("/activity?target=%3Cb%3E7&who=admin").await);
    assert!(filtered.contains("&#60;b&#62;7<") && !filtered.contains("&#60;b&#62;8<"));
    assert!(filtered.contains("value=\"&#60;b&#62;7\""), "the filter is kept");
    let wrong = admin.get("/activity?after=yesterday").await;
    assert_eq!(wrong.status, 400);
    assert!(Value::String(text(wrong)).to_string().contains("html"), "an error is a page");
}

/// Every form of every page, with the role that it needs.
const FORMS: [(&str, Role); 19] = [
    ("/jobs/{id}/cancel", Role::Enqueue),
    ("/jobs/{id}/retry", Role::Enqueue),
    ("/jobs/bulk/cancel", Role::Enqueue),
    ("/jobs/bulk/retry", Role::Enqueue),
    ("/jobs/enqueue", Role::Enqueue),
    ("/dead-letters/retry", Role::Admin),
    ("/dead-letters/purge", Role::Admin),
    ("/dead-letters/purge-selected", Role::Admin),
    ("/schedules/save", Role::Admin),
    ("/schedules/s/pause", Role::Admin),
    ("/schedules/s/resume", Role::Admin),
    ("/schedules/s/trigger", Role::Admin),
    ("/schedules/s/remove", Role::Admin),
    ("/queues/q/pause", Role::Admin),
    ("/queues/q/resume", Role::Admin),
    ("/queues/q/limit", Role::Admin),
    ("/queues/q/delete", Role::Admin),
    ("/bulk", Role::Admin),
    ("/cluster/nodes/n/drain", Role::Admin),
];

#[tokio::test]
async fn each_role_may_send_exactly_its_forms() {
    let world = guarded().await;
    let stranger = Browser::new(&world);
    let mut sessions = Vec::new();
    for (name, role) in [("read", Role::Read), ("enqueue", Role::Enqueue), ("admin", Role::Admin)] {
        let browser = Browser::login(&world, &format!("{name}-token")).await;
        let csrf = browser.csrf().await;
        sessions.push((browser, csrf, role));
    }
    for (path, needed) in FORMS {
        let path = path.replace("{id}", super::NO_ID);
        assert_eq!(stranger.post(&path, "csrf=x", &[]).await.status, 401, "{path}");
        for (browser, csrf, role) in &sessions {
            let id = super::NO_ID;
            let form = format!(
                "csrf={csrf}&type=t&queue=q&id={id}&error=e&name=s&every=1h&concurrency=3&action=retry&q=queue:q"
            );
            let status = browser.post(&path, &form, &[]).await.status;
            assert_eq!(status == 403, !role.may(needed), "{role:?} {path}: {status}");
            assert_ne!(status, 500, "{path}");
            assert_eq!(browser.post(&path, "csrf=x", &[]).await.status, 403, "{role:?} {path} with another token");
        }
    }
}

#[tokio::test]
async fn a_read_session_sees_no_form_but_the_logout() {
    let world = guarded().await;
    let admin = Browser::login(&world, "admin-token").await;
    let csrf = admin.csrf().await;
    let headers = [("x-csrf-token", &*csrf)];
    let job = admin.send("POST", "/v1/jobs", r#"{"type":"t","queue":"q"}"#, &headers).await.body;
    let job = format!("/jobs/{}", job["id"].as_str().expect("an id"));
    let schedule = r#"{"type":"t","every":"1h"}"#;
    assert_eq!(admin.send("PUT", "/v1/schedules/s", schedule, &headers).await.status, 201);
    let read = Browser::login(&world, "read-token").await;
    let forms = |page: &str| page.matches("method=\"post\"").count() + page.matches("formmethod=\"post\"").count();
    for path in [
        "/",
        "/jobs",
        &job,
        "/dead-letters",
        "/schedules",
        "/schedules/s",
        "/queues",
        "/queues/q",
        "/workers",
        "/cluster",
        "/shards",
        "/mesh?name=m",
        "/elections",
        "/activity",
    ] {
        let page = read.get(path).await;
        assert_eq!(page.status, 200, "{path}");
        assert_eq!(forms(page.body.as_str().expect("a page")), 1, "{path} has the logout alone");
    }
    let page = admin.get(&job).await;
    assert!(forms(page.body.as_str().expect("a page")) > 1, "an admin sees actions");
}
