//! The log of real processes: its format, who names itself how, and one line for whatever fails.

use convoke_testkit::invariants::Observations;
use convoke_testkit::process::{GatewayWorker, Handling, Launch, Node, Plan, Program, RedisServer, Signal, eventually};
use serde_json::{Value, json};

use super::server;

/// The lines of JSON among what a process printed.
fn objects(printed: &[String]) -> Vec<Value> {
    printed.iter().filter_map(|line| serde_json::from_str(line).ok()).filter(Value::is_object).collect()
}

/// The lines of text that are log lines: they begin with a time.
fn texts(printed: &[String]) -> Vec<String> {
    let is_time = |line: &&String| line.split(' ').next().is_some_and(|word| word.parse::<jiff::Timestamp>().is_ok());
    printed.iter().filter(is_time).cloned().collect()
}

fn with_message(lines: &[Value], message: &str) -> Vec<Value> {
    lines.iter().filter(|line| line["message"] == message).cloned().collect()
}

/// Runs a server from its start to its orderly end.
async fn life(args: &[&str], variables: &[(&str, &str)]) -> Vec<String> {
    let builder = variables.iter().fold(server(), |builder, (name, value)| builder.env(name, value));
    let mut node = builder.args(args.iter().copied()).start().await;
    node.enqueued(json!({ "type": "t" })).await;
    node.signal(Signal::TERM);
    assert_eq!(node.program().wait().await.code(), Some(0));
    node.printed()
}

#[tokio::test]
async fn every_line_names_the_node() {
    let printed = life(&["--node-id", "n7"], &[]).await;
    let lines = texts(&printed);
    assert!(lines.len() >= 3, "it logs its start and its end: {printed:?}");
    assert!(lines.iter().all(|line| line.contains(" node=n7")), "{lines:?}");
    let printed = life(&["--node-id", "n7", "--log-format", "json"], &[]).await;
    let lines = objects(&printed);
    assert!(lines.len() >= 3, "{printed:?}");
    assert!(lines.iter().all(|line| line["node"] == "n7" && line["service"] == "coordinator"), "{lines:#?}");
    assert!(texts(&printed).is_empty(), "every line is JSON: {printed:?}");
    let began = with_message(&lines, "term began: this node leads");
    assert!(began.iter().all(|line| line["epoch"].is_u64()) && began.len() == 1, "numbers are numbers: {lines:#?}");
}

#[tokio::test]
async fn flags_win_over_the_environment() {
    let production = [("NODE_ENV", "production"), ("LOG_LEVEL", "error")];
    let printed = life(&["--log-format", "text", "--log-level", "info"], &production).await;
    assert!(!texts(&printed).is_empty() && objects(&printed).is_empty(), "{printed:?}");
    let printed = life(&["--log-level", "error"], &[("LOG_LEVEL", "trace")]).await;
    assert!(texts(&printed).is_empty(), "{printed:?}");
}

/// A server that logs JSON, and a worker of it that fails every job.
async fn failing_worker() -> (Node, Program) {
    let node = server().env("NODE_ENV", "production").start().await;
    let words = ["worker", "run", "--id", "w1", "--queue", "q", "--exec", "echo 'no luck' >&2; exit 3"];
    let worker = node.start_process("a worker", words.iter().chain(&["--log-format", "json"]));
    (node, worker)
}

#[tokio::test]
async fn a_failed_attempt_and_a_dead_letter_are_a_line_each() {
    let (node, mut worker) = failing_worker().await;
    let job = node.enqueued(json!({ "type": "pay", "queue": "q", "maxRetries": 1 })).await;
    node.job_when(&job, &["failed"]).await;
    let dead = "job failed for good: dead letter";
    let lines = eventually("the line of the dead letter", || async {
        let lines = objects(&node.printed());
        (!with_message(&lines, dead).is_empty()).then_some(lines)
    })
    .await;
    let about: Vec<&Value> = lines.iter().filter(|line| line["job"] == job).collect();
    assert_eq!(about.len(), 2, "one line an attempt, and no more: {about:#?}");
    for (line, attempt, message) in [(about[0], 1, "job attempt failed"), (about[1], 2, dead)] {
        assert_eq!((&line["message"], &line["level"]), (&message.into(), &"WARN".into()), "{line}");
        assert_eq!((&line["type"], &line["queue"], &line["attempt"]), (&"pay".into(), &"q".into(), &attempt.into()));
        assert!(line["error"].as_str().is_some_and(|error| error.contains("no luck")), "{line}");
    }
    worker.signal(Signal::TERM);
    assert_eq!(worker.wait().await.code(), Some(0));
    let lines = objects(&worker.printed());
    assert!(lines.iter().all(|line| line["worker"] == "w1" && line["service"] == "worker"), "{lines:#?}");
    let runs = with_message(&lines, "job run ended");
    assert_eq!(runs.len(), 2, "one line a run: {lines:#?}");
    for run in runs {
        assert_eq!(
            (&run["job"], &run["outcome"], &run["level"]),
            (&job.clone().into(), &"failed".into(), &"INFO".into())
        );
        assert!(run["duration_ms"].is_u64() && run["attempt"].is_u64(), "{run}");
    }
}

/// Every attempt would be a line: the jobs end all the same, and the lines that were left out are counted.
#[tokio::test]
async fn a_flood_of_failing_jobs_is_cut_off_in_the_log_and_goes_on() {
    let node = server().env("NODE_ENV", "production").start().await;
    let (observations, plan) = (Observations::default(), Plan::new("w", "q", |_| Handling::FailForGood("no".into())));
    let jobs: Vec<Value> = (0..2_000).map(|_| json!({ "type": "t", "queue": "q", "maxRetries": 0 })).collect();
    node.http().post("/v1/jobs/batch", json!({ "jobs": jobs })).await.expect("a response");
    let _worker = GatewayWorker::start(node.http(), &observations, plan).await;
    eventually("all jobs to be dead", || async {
        let failed = node.metric("convoke_jobs_total", &["status=\"failed\""]).await;
        (failed >= 2_000.0).then_some(())
    })
    .await;
    let suppressed = "log lines suppressed: too many in one second";
    let lines = eventually("a line that counts what was left out", || async {
        let lines = objects(&node.printed());
        let logged = with_message(&lines, "job failed for good: dead letter").len() as u64;
        let left_out: u64 = with_message(&lines, suppressed).iter().filter_map(|line| line["count"].as_u64()).sum();
        (logged + left_out >= 2_000).then_some((logged, left_out))
    })
    .await;
    assert_eq!(lines.0 + lines.1, 2_000, "each is logged or counted, once: {lines:?}");
    assert!(lines.1 > 0, "some were left out: {lines:?}");
}

/// Nobody listens on the port of the shared cache.
#[tokio::test]
async fn a_server_starts_and_serves_without_its_shared_cache_and_logs_one_line() {
    let node = server().env("NODE_ENV", "production").set("cache.url", "redis://:secret@127.0.0.1:1").start().await;
    let job = node.enqueued(json!({ "type": "t", "queue": "q" })).await;
    let (observations, plan) = (Observations::default(), Plan::new("w", "q", |_| Handling::Complete(Value::Null)));
    let _worker = GatewayWorker::start(node.http(), &observations, plan).await;
    node.job_when(&job, &["completed"]).await;
    let away = || with_message(&objects(&node.printed()), "backend unavailable");
    let lines = eventually("a line about the cache", || async { Some(away()).filter(|lines| !lines.is_empty()) }).await;
    assert_eq!((&lines[0]["backend"], &lines[0]["address"]), (&"cache".into(), &"redis://127.0.0.1:1".into()));
    for _ in 0..100 {
        assert_eq!(node.http().read(&format!("/v1/jobs/{job}")).await["status"], "completed");
    }
    assert_eq!(away().len(), 1, "{:#?}", away());
}

#[tokio::test]
async fn an_elector_and_a_mesh_instance_name_themselves() {
    let node = server().start().await;
    let start = |name: &str, args: Vec<String>| {
        Program::start(&Launch {
            name: name.into(),
            binary: env!("CARGO_BIN_EXE_convoke").into(),
            args: args.into_iter().map(Into::into).collect(),
            env: vec![("NODE_ENV".into(), "production".into())],
            directory: node.settings().directory().to_owned(),
        })
    };
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let mut elector = start("an elector", words("elect reports --leases sqlite:leases.db --id e1 -- true"));
    assert_eq!(elector.wait().await.code(), Some(0));
    let lines = objects(&elector.printed());
    assert!(!lines.is_empty());
    let is_named =
        |line: &Value| line["elector"] == "e1" && line["namespace"] == "reports" && line["service"] == "elector";
    assert!(lines.iter().all(is_named), "{lines:#?}");
    let changed = with_message(&lines, "leader changed");
    assert!(changed.iter().any(|line| line["new_leader"] == "e1" && line["epoch"] == 1), "{lines:#?}");

    let redis = RedisServer::start().await;
    let mut instance = start("an instance", words(&format!("mesh serve app --redis {}", redis.url())));
    let ready = instance.line("that it is ready", |line| line.contains(" is ready").then_some(())).await;
    assert!(ready.is_some());
    instance.signal(Signal::TERM);
    assert_eq!(instance.wait().await.code(), Some(0));
    let lines = objects(&instance.printed());
    let leaving = with_message(&lines, "leaving the mesh");
    assert_eq!(leaving.len(), 1, "{lines:#?}");
    assert!(lines.iter().all(|line| line["mesh"] == "app" && line["service"] == "mesh"), "{lines:#?}");
    assert!(leaving[0]["instance"].is_string(), "{lines:#?}");
}

#[tokio::test]
async fn shard_deaths_and_rebalances_are_logged() {
    let node = server().env("NODE_ENV", "production").args(["--shards", "tcp://127.0.0.1:0"]);
    let node = node.set("shards.heartbeat_timeout", "1s").set("shards.check_interval", "100ms").start().await;
    let listening = eventually("the shard socket", || async {
        let shards = node.http().read("/v1/shards").await;
        shards["listening"].as_str().map(str::to_owned)
    })
    .await;
    let words = ["shards", "join", "orders", "--worker-id", "a", "--shards", "4", "--coordinator", &listening];
    let mut worker = node.start_process("a shard worker", words);
    let logged = |message: &'static str| objects(&node.printed()).into_iter().find(|line| line["message"] == message);
    let rebalanced = eventually("a rebalance", || async { logged("shards rebalanced") }).await;
    assert_eq!((&rebalanced["shard_service"], &rebalanced["service"]), (&"orders".into(), &"coordinator".into()));
    assert!(rebalanced["moved"].is_u64() && rebalanced["version"].is_u64(), "{rebalanced}");
    worker.kill().await;
    let dead = eventually("a death", || async { logged("shard worker declared dead") }).await;
    assert_eq!((&dead["shard_service"], &dead["shard_worker"]), (&"orders".into(), &"a".into()), "{dead}");
}
