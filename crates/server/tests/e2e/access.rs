//! Access: loopback is open; on other addresses there are tokens with roles, or the server does not start.

use std::net::SocketAddr;

use convoke_testkit::process::{Http, Node};
use serde_json::{Value, json};

use super::server;

const TOKENS: &str = "read:r-secret,enqueue:e-secret,worker:w-secret,admin:a-secret";

#[tokio::test]
async fn an_address_that_others_can_reach_needs_tokens() {
    let mut program = server().args(["--http", "0.0.0.0:0"]).spawn();
    let status = program.wait().await;
    let printed = program.printed().join("\n");
    assert!(matches!(status.code(), Some(1 | 2)), "{status}: {printed}");
    assert!(printed.contains("http.tokens") && printed.contains("--insecure"), "it should name what to set: {printed}");
}

#[tokio::test]
async fn it_can_be_opened_on_purpose() {
    let node = server().args(["--http", "0.0.0.0:0", "--insecure"]).start().await;
    node.enqueued(json!({ "type": "t" })).await;
}

async fn guarded() -> Node {
    server().args(["--http", "0.0.0.0:0"]).set("http.tokens", TOKENS).token("a-secret").start().await
}

#[tokio::test]
async fn a_role_may_do_its_own_part_and_no_more() {
    let node = guarded().await;
    let id = node.enqueued(json!({ "type": "t", "queue": "q" })).await;
    let job = json!({ "type": "t", "queue": "other" });
    let worker = json!({ "workerId": "w", "name": "w", "queues": ["none"], "concurrency": 1 });
    let schedule = json!({ "type": "t", "every": "1h" });
    let job_path = format!("/v1/jobs/{id}");
    // Whether read, enqueue, worker and admin may: yes, no, or `-` where it does no harm and is the server's to decide.
    let table: [(&str, &str, Option<Value>, &str); 8] = [
        ("GET", "/v1/jobs", None, "y--y"),
        ("GET", &job_path, None, "y--y"),
        ("GET", "/metrics", None, "y--y"),
        ("POST", "/v1/jobs", Some(job), "nyny"),
        ("POST", "/v1/worker/register", Some(worker), "nnyy"),
        ("PUT", "/v1/schedules/s", Some(schedule), "nnny"),
        ("PATCH", "/v1/queues/q", Some(json!({ "paused": true })), "nnny"),
        ("POST", "/v1/dead-letters/purge", Some(json!({ "all": true })), "nnny"),
    ];
    for (method, path, body, allowed) in table {
        for (token, may) in ["r-secret", "e-secret", "w-secret", "a-secret"].iter().zip(allowed.chars()) {
            let response = node.http().with_token(token).send(method, path, body.clone()).await.expect("a response");
            match may {
                'y' => assert!((200..300).contains(&response.status), "{token} {method} {path}: {}", response.text()),
                'n' => assert_eq!(response.expect(403)["error"]["code"], "forbidden", "{token} {method} {path}"),
                _ => assert!(matches!(response.status, 200 | 403), "{token} {method} {path}: {}", response.text()),
            }
        }
    }
}

#[tokio::test]
async fn without_a_known_token_nothing_is_told() {
    let node = guarded().await;
    for token in ["", "wrong", "a-secre", "a-secrets", "A-SECRET"] {
        for path in ["/v1/jobs", "/v1/cluster", "/v1/events", "/metrics"] {
            let response = node.http().with_token(token).get(path).await.expect("a response");
            assert_eq!(response.expect(401)["error"]["code"], "unauthorized", "{token:?} {path}");
        }
    }
    for path in ["/livez", "/readyz", "/health"] {
        let response = node.http().with_token("").get(path).await.expect("a response");
        assert_eq!(response.status, 200, "a probe has no token: {path}");
    }
}

#[tokio::test]
async fn the_command_line_takes_a_token() {
    let node = guarded().await;
    let mut cli = node.cli();
    cli.server = Some(format!("http://127.0.0.1:{}", node.http().address().port()));
    let refused = cli.run(["job", "list"]).await;
    assert_eq!(refused.code, Some(1), "{}", refused.stdout);
    cli.run(["job", "list", "--token", "r-secret"]).await.expect(0);
    cli.env.push(("CONVOKE_TOKEN".into(), "r-secret".into()));
    cli.run(["job", "list"]).await.expect(0);
}

#[tokio::test]
async fn probes_and_metrics_can_be_opened_to_all_and_nothing_else() {
    let node = server().args(["--http", "0.0.0.0:0"]).set("http.public", "health,metrics").start().await;
    let port = node.http().address().port();
    let local = |host: [u8; 4]| Http::new(SocketAddr::from((host, port)));
    // This machine as it is seen from outside: by an address that is not loopback, where it has one.
    let outside = tokio::net::UdpSocket::bind("0.0.0.0:0").await.expect("a socket");
    let outside = match outside.connect("192.0.2.1:9").await.and_then(|()| outside.local_addr()) {
        Ok(address) if !address.ip().is_loopback() => Http::new(SocketAddr::new(address.ip(), port)),
        _ => return eprintln!("skipped: this machine has no address but loopback"),
    };
    for path in ["/health", "/livez", "/readyz", "/metrics"] {
        assert_eq!(outside.get(path).await.expect("a response").status, 200, "{path}");
    }
    assert_eq!(outside.get("/").await.expect("a response").status, 403, "a page");
    for path in ["/v1/jobs", "/v1/cluster", "/openapi.json"] {
        assert_eq!(outside.get(path).await.expect("a response").expect(403)["error"]["code"], "forbidden", "{path}");
        assert_eq!(local([127, 0, 0, 1]).get(path).await.expect("a response").status, 200, "{path}");
    }
    let enqueued = outside.post("/v1/jobs", json!({ "type": "t" })).await.expect("a response");
    assert_eq!(enqueued.status, 403);
}
