//! Reads of a namespace without contending in it, and the page that an elector serves of itself.

use convoke_testkit::process::{Http, RedisServer, S3Server, SharedPostgres, Signal, eventually};
use serde_json::{Value, json};

use super::stage::{NAMESPACE, Stage};

const TTL: &str = "3s";

fn read(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("not JSON ({error}): {text}"))
}

/// Asks while and after one leads.
async fn is_inspected(stage: &Stage) {
    let mut leader = stage.watch("a", &[]);
    let status = eventually("a leader", || async {
        let inspect = stage.inspect("status").await;
        (inspect.code == Some(0)).then(|| read(&inspect.stdout))
    })
    .await;
    assert_eq!((&status["namespace"], &status["leader"]), (&NAMESPACE.into(), &"a".into()), "{status}");
    assert!(status["epoch"].as_u64().is_some_and(|epoch| epoch > 0), "{status}");
    assert!(status["remainingMs"].as_u64().is_some_and(|left| left <= 3_000), "{status}");
    assert!(status["remaining"].is_string(), "{status}");
    for _ in 0..3 {
        let members = stage.inspect("members").await.json();
        assert_eq!(members["members"], json!([{ "id": "a", "isLeader": true }]), "a reader is no member");
    }
    let metrics = eventually("figures of the leader", || async {
        let inspect = stage.inspect("metrics").await;
        (inspect.code == Some(0)).then(|| read(&inspect.stdout))
    })
    .await;
    assert!(metrics["metrics"]["heartbeatLatencyMs"]["p99"].is_number(), "{metrics}");
    assert_eq!((&metrics["breaker"]["state"], &metrics["leader"]), (&"closed".into(), &"a".into()), "{metrics}");
    assert!(metrics["breaker"]["resetTimeoutMs"].is_u64(), "{metrics}");
    let status = stage.inspect("status").await.json();
    assert_eq!(status["report"]["epoch"], status["epoch"], "{status}");
    leader.signal(Signal::TERM);
    assert_eq!(leader.wait().await.code(), Some(0));
    for view in ["status", "members", "metrics"] {
        let inspect = stage.inspect(view).await;
        assert_eq!(inspect.code, Some(1), "it resigned and withdrew, and inspecting elects nobody: {inspect:?}");
        assert_eq!(read(&inspect.stdout)["leader"], Value::Null, "{inspect:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_inspected() {
    let stage = Stage::on_sqlite(TTL);
    let inspect = stage.inspect("status").await;
    assert_eq!(inspect.code, Some(1), "{inspect:?}");
    assert!(inspect.stderr.contains("does not exist"), "{inspect:?}");
    assert!(!stage.path("leases.db").exists(), "inspecting creates no file");
    is_inspected(&stage).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_is_inspected() {
    let redis = RedisServer::start().await;
    let stage = Stage::at(redis.url(), TTL);
    assert_eq!(stage.inspect("status").await.code, Some(1), "nobody leads at first");
    is_inspected(&stage).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_is_inspected() {
    let stage = Stage::at(SharedPostgres::get().create_database(), TTL);
    assert_eq!(stage.inspect("status").await.code, Some(1), "nobody leads at first");
    is_inspected(&stage).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s3_is_inspected() {
    let s3 = S3Server::start().await;
    let stage = Stage::at(s3.url("looked-at"), TTL).with(s3.variables());
    assert_eq!(stage.inspect("status").await.code, Some(1), "nobody leads at first");
    is_inspected(&stage).await;
}

#[tokio::test]
async fn a_namespace_called_status_is_electable_by_its_flag_alone() {
    let stage = Stage::on_sqlite(TTL);
    let leases = format!("sqlite:{}", stage.path("leases.db").display());
    let refused = stage.cli().run(["elect", "status", "--leases", &leases]).await;
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("--namespace status"), "{refused:?}");
    assert!(!stage.path("leases.db").exists(), "nobody contended");
    let script = ["elect", "--namespace", "status", "--leases", &leases, "--", "sh", "-c", "echo $CONVOKE_NAMESPACE"];
    assert_eq!(stage.cli().run(script).await.expect(0).trim(), "status");
}

#[tokio::test]
async fn an_elector_serves_its_health_its_metrics_and_its_election() {
    let stage = Stage::on_sqlite(TTL);
    let mut elector = stage.watch("a", &["--http", "127.0.0.1:0"]);
    let address = elector.line("where it listens", |line| {
        let url = line.strip_prefix("election at http://")?;
        url.strip_suffix("/v1/election")?.parse().ok()
    });
    let http = Http::new(address.await.expect("it listens"));
    let election = eventually("its lead", || async {
        let election = http.get("/v1/election").await.ok()?.json();
        (election["isLeader"] == true).then_some(election)
    })
    .await;
    assert_eq!((&election["leader"], &election["namespace"]), (&"a".into(), &NAMESPACE.into()), "{election}");
    assert!(election["breaker"]["resetTimeoutMs"].is_u64(), "{election}");
    assert_eq!(election["isYielding"], false, "{election}");
    let health = http.get("/health").await.expect("a response").expect(200);
    assert_eq!(health["status"], "healthy");
    let metrics = http.get("/metrics").await.expect("a response");
    assert!(metrics.text().contains(&format!("convoke_leader{{namespace=\"{NAMESPACE}\"}} 1")), "{}", metrics.text());
    assert_eq!(http.get("/v1/jobs").await.expect("a response").status, 404);
}
