//! Which request may be sent by whom.

use super::*;

fn request(method: &str, path: &str, headers: &[(&str, &str)]) -> Request<()> {
    let builder = headers
        .iter()
        .fold(Request::builder().method(method).uri(path), |builder, (name, value)| builder.header(*name, *value));
    builder.body(()).expect("a request")
}

/// Marks a request as coming from this machine.
fn from_here(mut request: Request<()>) -> Request<()> {
    request.extensions_mut().insert(Peer([127, 0, 0, 1].into()));
    request
}

fn by_tokens() -> Access {
    Access::tokens([("r", Role::Read), ("e", Role::Enqueue), ("w", Role::Worker), ("a", Role::Admin)])
}

#[test]
fn each_role_may_do_its_own_and_admin_all() {
    let table = [
        ("GET", "/v1/jobs", "rea"),
        ("GET", "/metrics", "rea"),
        ("GET", "/v1/events", "rea"),
        ("HEAD", "/v1/jobs", "rea"),
        ("POST", "/v1/jobs", "ea"),
        ("POST", "/v1/jobs/batch", "ea"),
        ("POST", "/v1/jobs/0198/cancel", "ea"),
        ("POST", "/v1/worker/poll", "wa"),
        ("PATCH", "/v1/queues/q", "a"),
        ("DELETE", "/v1/queues/q", "a"),
        ("PUT", "/v1/schedules/s", "a"),
        ("DELETE", "/v1/schedules/s", "a"),
        ("POST", "/v1/dead-letters/purge", "a"),
        ("POST", "/v1/something-new", "a"),
        ("POST", "/v1/jobsomething", "a"),
        ("GET", "/v1/audit", "rea"),
        ("GET", "/", "rea"),
        ("GET", "/activity", "rea"),
        ("POST", "/jobs/0198/cancel", "ea"),
        ("POST", "/jobs/0198/delete", "a"),
        ("POST", "/queues/q/pause", "a"),
        ("POST", "/logout", "rea"),
    ];
    for (method, path, allowed) in table {
        for token in ["r", "e", "w", "a"] {
            let bearer = format!("Bearer {token}");
            let result = by_tokens().check(&request(method, path, &[("authorization", &bearer)]));
            assert_eq!(result.is_ok(), allowed.contains(token), "{token} {method} {path}: {result:?}");
            assert!(result.is_ok() || result.is_err_and(|error| error.code == "forbidden"));
        }
        for headers in
            [&[][..], &[("authorization", "Bearer x")], &[("authorization", "Basic a")], &[("authorization", "")]]
        {
            let refused = by_tokens().check(&request(method, path, headers)).expect_err("no such token");
            assert_eq!(refused.code, "unauthorized", "{method} {path} {headers:?}");
        }
    }
}

#[test]
fn probes_and_documentation_need_no_token() {
    for path in ["/livez", "/readyz", "/health", "/openapi.json", "/docs", "/docs/index.html", "/assets/h/app.css"] {
        assert_eq!(by_tokens().check(&request("GET", path, &[])), Ok(()), "{path}");
        assert!(by_tokens().check(&request("POST", path, &[])).is_err(), "{path}");
    }
}

#[test]
fn a_loopback_server_knows_no_names_but_its_own() {
    for host in ["localhost", "localhost:3000", "127.0.0.1:3000", "[::1]:3000", "[::1]", "192.168.0.7:80", "LOCALHOST"]
    {
        assert_eq!(Access::Loopback.check(&request("GET", "/v1/jobs", &[("host", host)])), Ok(()), "{host}");
    }
    for host in
        ["evil.example", "evil.example:3000", "localhost.evil.example", "127.0.0.1.evil.example:3000", "", "[evil]"]
    {
        let refused = Access::Loopback.check(&request("GET", "/v1/jobs", &[("host", host)])).expect_err(host);
        assert_eq!(refused.code, "forbidden");
    }
}

#[test]
fn public_paths_are_open_to_all_and_the_rest_to_this_machine() {
    let policy = Policy { public: "health, metrics".parse().expect("known"), ..Access::Loopback.into() };
    let from = |peer: Option<&str>, method, path| {
        let mut request = request(method, path, &[("host", "10.0.0.7:3000")]);
        let peer = peer.map(|peer| Peer(peer.parse().expect("an address")));
        peer.map(|peer| request.extensions_mut().insert(peer));
        policy.check(&request).is_ok()
    };
    for path in ["/health", "/livez", "/readyz", "/metrics"] {
        assert!(from(Some("10.0.0.9"), "GET", path) && from(None, "GET", path), "{path}");
        assert!(!from(Some("10.0.0.9"), "POST", path), "{path}");
    }
    for path in ["/", "/v1/jobs", "/openapi.json", "/healthy", "/metrics/"] {
        assert!(!from(Some("10.0.0.9"), "GET", path) && !from(None, "GET", path), "{path}");
        assert!(from(Some("127.0.0.1"), "GET", path) && from(Some("::ffff:127.0.0.1"), "GET", path), "{path}");
    }
    let health_only = Policy { public: "health".parse().expect("known"), ..by_tokens().into() };
    assert!(health_only.check(&request("GET", "/metrics", &[])).is_err());
    assert!("health,all".parse::<PublicPaths>().is_err());
}

#[test]
fn names_that_are_allowed_are_accepted_in_host() {
    let policy = Policy { hosts: vec!["jobs.internal".into()], ..Access::Loopback.into() };
    for (host, allowed) in [("jobs.internal", true), ("Jobs.Internal:3000", true), ("evil.jobs.internal", false)] {
        let request = from_here(request("GET", "/v1/jobs", &[("host", host)]));
        assert_eq!(policy.check(&request).is_ok(), allowed, "{host}");
    }
    let post = |origin| from_here(request("POST", "/v1/jobs", &[("host", "jobs.internal"), ("origin", origin)]));
    assert!(policy.check(&post("https://jobs.internal")).is_ok() && policy.check(&post("https://evil")).is_err());
}

#[test]
fn a_page_from_elsewhere_cannot_post_blindly() {
    let post = |origin| request("POST", "/v1/jobs", &[("host", "127.0.0.1:3000"), ("origin", origin)]);
    assert_eq!(Access::Loopback.check(&post("http://127.0.0.1:3000")), Ok(()));
    for origin in ["https://evil.example", "null", "http://127.0.0.1:8080", ""] {
        assert!(Access::Loopback.check(&post(origin)).is_err(), "{origin:?}");
    }
}
