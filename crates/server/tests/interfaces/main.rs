//! Every name that users type, send and read, as done or missing.
//!
//! The tables list all commands, endpoints, configuration keys, variables, metrics and events that are promised, each
//! with the capability it belongs to. The names of a capability that exists are searched for in the real binary and
//! must be found; the rest is shown, so that the list shows what is missing.

mod tables;

use std::collections::{BTreeMap, BTreeSet};

use convoke_testkit::invariants::Observations;
use convoke_testkit::process::{Cli, GatewayWorker, Handling, Node, NodeBuilder, Plan, Signal};
use serde_json::{Value, json};
use tables::{COMMANDS, Capability, ENDPOINTS, EVENTS, KEYS, METRICS};

/// The capabilities that exist. A capability that is finished is added here, and from then on nothing of it may be missing.
const THERE: [Capability; 5] =
    [Capability::Jobs, Capability::Cluster, Capability::Shards, Capability::Election, Capability::Mesh];

fn server() -> NodeBuilder {
    Node::builder(env!("CARGO_BIN_EXE_convoke"))
}

/// The names that were searched for, and the reason if one was not found.
#[derive(Default)]
struct Findings {
    lines: Vec<String>,
    missing: Vec<String>,
}

impl Findings {
    fn add(&mut self, capability: Capability, name: &str, found: Result<(), String>) {
        let there = THERE.contains(&capability);
        match found {
            Ok(()) => self.lines.push(format!("done     {capability:<9?} {name}")),
            Err(why) if there => {
                self.lines.push(format!("MISSING  {capability:<9?} {name}: {why}"));
                self.missing.push(format!("{name}: {why}"));
            }
            Err(_) => self.lines.push(format!("later    {capability:<9?} {name}")),
        }
    }

    #[track_caller]
    fn conclude(self) {
        println!("{}", self.lines.join("\n"));
        assert!(self.missing.is_empty(), "{} missing:\n{}", self.missing.len(), self.missing.join("\n"));
    }
}

fn found(is: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if is { Ok(()) } else { Err(why()) }
}

#[tokio::test]
async fn every_command_and_flag() {
    let builder = server();
    let mut findings = Findings::default();
    for (capability, command, words) in COMMANDS {
        let args = command.split(' ').filter(|word| !word.is_empty()).chain(["--help"]);
        let output = builder.cli().run(args).await;
        findings.add(
            capability,
            &format!("convoke {command} --help"),
            found(output.code == Some(0), || output.stderr.clone()),
        );
        for word in words.split(' ').filter(|word| !word.is_empty()) {
            let named = output.code == Some(0) && output.stdout.split(|c: char| !is_of_flag(c)).any(|it| it == word);
            findings.add(capability, &format!("convoke {command} {word}"), found(named, || "not in its help".into()));
        }
    }
    findings.conclude();
}

fn is_of_flag(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '-' || c == '_'
}

#[tokio::test]
async fn every_command_that_reads_has_json_and_every_one_that_asks_a_server_says_which() {
    let builder = server();
    let mut findings = Findings::default();
    for (capability, command, _) in COMMANDS.into_iter().filter(|(capability, ..)| THERE.contains(capability)) {
        let help = builder.cli().run(command.split(' ').chain(["--help"])).await.stdout;
        let reads = ["list", "show", "history", "logs", "status"].iter().any(|verb| command.ends_with(verb));
        if reads || command.starts_with("bench") {
            findings.add(
                capability,
                &format!("convoke {command} --json"),
                found(help.contains("--json"), || "no".into()),
            );
        }
        let asks_a_server = !command.starts_with("bench") && !command.starts_with("mesh");
        if asks_a_server && !command.ends_with("help") && command.contains(' ') {
            for flag in ["--server", "--token"] {
                findings.add(
                    capability,
                    &format!("convoke {command} {flag}"),
                    found(help.contains(flag), || "no".into()),
                );
            }
        }
    }
    findings.conclude();
}

#[tokio::test]
async fn every_endpoint() {
    let node = server().start().await;
    let api = node.http().get("/openapi.json").await.expect("a response").expect(200);
    let mut findings = Findings::default();
    let version = api["openapi"].as_str().is_some_and(|version| version.starts_with("3.1"));
    findings.add(Capability::Jobs, "OpenAPI 3.1", found(version, || api["openapi"].to_string()));
    for (capability, method, path, parameters) in ENDPOINTS {
        let name = format!("{method} {path}");
        // A page and the description itself are not described; they must be there.
        if matches!(path, "/" | "/openapi.json") {
            let response = node.http().get(path).await.expect("a response");
            findings.add(capability, &name, found(response.status == 200, || response.text()));
            continue;
        }
        let operation = operation(&api, method, path);
        findings.add(capability, &name, found(operation.is_some(), || "not in /openapi.json".into()));
        let known = operation.map(|it| parameter_names(&api, path, it)).unwrap_or_default();
        for parameter in parameters.split(' ').filter(|word| !word.is_empty()) {
            let is = known.contains(parameter);
            findings.add(capability, &format!("{name} ?{parameter}="), found(is, || "not described".into()));
        }
    }
    findings.conclude();
}

/// A described operation, whatever its path's variables are called.
fn operation<'a>(api: &'a Value, method: &str, path: &str) -> Option<&'a Value> {
    let paths = api["paths"].as_object()?;
    let (_, item) =
        paths.iter().find(|(known, item)| same_path(known, path) && item.get(method.to_lowercase()).is_some())?;
    item.get(method.to_lowercase())
}

fn same_path(one: &str, other: &str) -> bool {
    let parts = |path: &str| -> Vec<String> {
        path.split('/').map(|part| if part.starts_with('{') { "{}".into() } else { part.into() }).collect()
    };
    parts(one) == parts(other)
}

fn parameter_names(api: &Value, path: &str, operation: &Value) -> BTreeSet<String> {
    let shared = api["paths"].get(path).map(|item| &item["parameters"]);
    let all = [Some(&operation["parameters"]), shared].into_iter().flatten().filter_map(Value::as_array).flatten();
    all.filter_map(|parameter| parameter["name"].as_str()).map(str::to_owned).collect()
}

/// The output of `--print-config`: key to value.
async fn printed(cli: &Cli) -> BTreeMap<String, String> {
    let output = cli.run(["serve", "--print-config"]).await;
    let mut section = String::new();
    let mut keys = BTreeMap::new();
    for line in output.expect(0).lines() {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = format!("{name}.");
        } else if let Some((key, value)) = line.split_once(" = ") {
            keys.insert(format!("{section}{key}"), value.trim_matches('"').to_owned());
        }
    }
    keys
}

#[tokio::test]
async fn every_configuration_key_and_its_default() {
    let builder = server();
    let defaults = printed(&builder.cli()).await;
    let mut findings = Findings::default();
    for (capability, key, default) in KEYS {
        let value = defaults.get(key).map(String::as_str);
        let is = match default {
            // Without a fixed default it must be possible to set it.
            "" => {
                let name = format!("CONVOKE_{}", key.to_uppercase().replace('.', "__"));
                let value = match key {
                    "leases.url" | "dashboard.mesh" => "memory:",
                    "http.public" => "health",
                    "http.base_path" => "/given",
                    _ => "given",
                };
                let mut cli = builder.cli();
                cli.env = vec![(name, value.into())];
                printed(&cli).await.get(key).map(String::as_str) == Some(value)
            }
            _ => value == Some(default),
        };
        findings.add(capability, &format!("{key} = {default}"), found(is, || format!("it is {value:?}")));
    }
    findings.conclude();
}

#[tokio::test]
async fn the_variables_of_older_deployments() {
    let builder = server();
    let mut cli = builder.cli();
    cli.env = vec![("PORT".into(), "4711".into())];
    assert_eq!(printed(&cli).await.get("http.bind").map(String::as_str), Some("127.0.0.1:4711"));
    let builder = builder.env("NODE_ENV", "production").env("PROCESS_NAME", "herder");
    let logs = logs_of_a_life(builder.clone()).await;
    assert!(!logs.is_empty(), "NODE_ENV=production: JSON logs");
    assert!(logs.iter().all(|line| line["service"] == "herder"), "PROCESS_NAME: the name in the logs: {logs:?}");
    assert!(logs.iter().any(|line| line["level"] == "INFO"), "LOG_LEVEL is info by default: {logs:?}");
    let quiet = logs_of_a_life(builder.clone().env("LOG_LEVEL", "error")).await;
    assert_eq!(quiet, Vec::<Value>::new(), "LOG_LEVEL=error: nothing went wrong");
    let mut node = builder.env("NODE_ENV", "development").start().await;
    node.program()
        .line("a line to read that names the process", |line| line.contains(" herder  INFO ").then_some(()))
        .await;
}

/// The lines of JSON that a server logs from its start to its orderly end.
async fn logs_of_a_life(builder: NodeBuilder) -> Vec<Value> {
    let mut node = builder.start().await;
    node.enqueued(json!({ "type": "t" })).await;
    node.signal(Signal::TERM);
    assert_eq!(node.program().wait().await.code(), Some(0));
    let printed = node.program().printed();
    printed.iter().filter_map(|line| serde_json::from_str(line).ok()).filter(Value::is_object).collect()
}

/// A little of everything happens: jobs that end in every way, a schedule, a refused report.
async fn live_a_little(node: &Node, names: &mut BTreeSet<String>) {
    let mut events = node.http().sse("/v1/events").await.expect("a stream");
    let http = node.http();
    let shards = http.read("/v1/shards").await;
    let address = shards["listening"].as_str().expect("it listens");
    let join = ["shards", "join", "s", "--worker-id", "a", "--shards", "4", "--coordinator", address];
    let _shard_worker = node.start_process("a shard worker", join);
    let observations = Observations::default();
    let plan = |id: &str| {
        Plan::new(id, "q", |job| match job["type"].as_str() {
            Some("bad") => Handling::FailForGood("no".into()),
            Some("slow") => Handling::Hold,
            _ => Handling::Complete(Value::Null),
        })
    };
    let worker = GatewayWorker::start(http, &observations, plan("w")).await;
    let mut ends = BTreeMap::new();
    for (spec, end) in [
        (json!({ "type": "good", "queue": "q" }), "completed"),
        (json!({ "type": "bad", "queue": "q" }), "failed"),
        (json!({ "type": "slow", "queue": "q", "timeout": "100ms", "maxRetries": 0 }), "timedOut"),
        (json!({ "type": "later", "queue": "q", "delay": "1h" }), "cancelled"),
    ] {
        let id = node.enqueued(spec).await;
        if end == "cancelled" {
            http.post(&format!("/v1/jobs/{id}/cancel"), json!({})).await.expect("a response").expect(200);
        }
        ends.insert(id, end);
    }
    let schedule = json!({ "type": "good", "queue": "q", "every": "100ms" });
    http.send("PUT", "/v1/schedules/s", Some(schedule)).await.expect("a response").expect(201);
    let daily = Some(json!({ "type": "good", "queue": "q", "every": "1d" }));
    http.send("PUT", "/v1/schedules/d", daily.clone()).await.expect("a response").expect(201);
    http.send("PUT", "/v1/schedules/d", daily).await.expect("a response").expect(200);
    for verb in ["pause", "resume"] {
        http.post(&format!("/v1/schedules/d/{verb}"), json!({})).await.expect("a response").expect(200);
    }
    http.send("DELETE", "/v1/schedules/d", None).await.expect("a response").expect(204);
    for (id, end) in &ends {
        node.job_when(id, &[*end]).await;
    }
    let completed = ends.iter().find(|(_, end)| **end == "completed").map(|(id, _)| id.clone()).expect("one completed");
    let execution = node.job(&completed).await["executionId"].clone();
    let late = json!({ "workerId": "w", "events": [
        { "jobId": completed, "executionId": execution, "kind": "failed", "error": "late" } ] });
    http.post("/v1/worker/report", late).await.expect("a response").expect(200);
    worker.leave().await;
    events
        .wait_for("worker:left", |event| {
            names.extend(event.event.clone());
            names.contains("worker:left")
                && names.contains("schedule:fired")
                && names.contains("job:timedOut")
                && names.contains("shards:rebalanced")
        })
        .await;
}

#[tokio::test]
async fn every_metric_and_event() {
    let node = server().args(["--shards", "tcp://127.0.0.1:0"]).start().await;
    let mut names = BTreeSet::new();
    live_a_little(&node, &mut names).await;
    names.extend(cluster_events());
    let mut findings = Findings::default();
    for (capability, event) in EVENTS {
        findings.add(capability, &format!("event {event}"), found(names.contains(event), || format!("only {names:?}")));
    }
    let text = node.http().get("/metrics").await.expect("a response").text() + &metrics_of_a_mesh().await;
    for (capability, metric, labels) in METRICS {
        let series = text.lines().find(|line| {
            let rest = line.strip_prefix(metric).unwrap_or_default();
            let rest = ["_bucket", "_count", "_sum"].iter().find_map(|end| rest.strip_prefix(end)).unwrap_or(rest);
            let starts = rest.starts_with(['{', ' ']);
            starts && labels.split(' ').filter(|it| !it.is_empty()).all(|it| rest.contains(&format!("{it}=\"")))
        });
        findings.add(
            capability,
            &format!("{metric}{{{labels}}}"),
            found(series.is_some(), || "not in /metrics".into()),
        );
    }
    findings.conclude();
}

/// A server has no mesh: what an application shows that has one, and calls.
async fn metrics_of_a_mesh() -> String {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    // Of this thread alone, on which the whole test runs.
    let _guard = metrics::set_default_local_recorder(&recorder);
    let mesh = convoke::Mesh::connect("memory:", "interfaces").await.expect("memory is always there");
    let mesh = mesh.on_raw("echo", |_, data| async move { Ok(data) }).start().await.expect("starts");
    let options = convoke::mesh::CallOptions::default();
    mesh.invoke_raw(mesh.instance_id(), "echo", &Value::Null, options).await.expect("a response");
    mesh.stop().await;
    handle.render()
}

/// Events that one embedded node has before or after anybody can listen: by the names the server gives them.
fn cluster_events() -> Vec<String> {
    use convoke_core::election::{self, Contention};
    use convoke_core::jobs::event::{ClusterEvent, Event, HandoffChange, NodeChange};
    use convoke_core::{Epoch, ExecutionId, JobId, NodeId};
    const INTERVAL: std::time::Duration = std::time::Duration::from_secs(5);
    let node = NodeId::new("n").expect("a name");
    let leader = ClusterEvent::LeaderChanged {
        namespace: "coordinator".into(),
        previous_leader: None,
        new_leader: Some(node.clone()),
        epoch: Epoch(1),
    };
    let changes = [NodeChange::Joined, NodeChange::Draining, NodeChange::Left, NodeChange::Dead];
    let nodes = changes.map(|change| ClusterEvent::Node { change, node_id: node.clone() });
    let handoffs = [HandoffChange::Started, HandoffChange::Acked, HandoffChange::Retried, HandoffChange::Orphaned];
    let handoffs = handoffs.map(|change| ClusterEvent::Handoff {
        change,
        job_id: JobId(uuid::Uuid::nil()),
        execution_id: ExecutionId(uuid::Uuid::nil()),
        from_node: node.clone(),
        new_owner: None,
        tries: None,
    });
    let contention = Contention { duration: INTERVAL * 3, expected: INTERVAL, ratio: 3.0, threshold: 2.0 };
    let election = [
        election::ElectionEvent::WorkersUpdated { workers: vec!["n".into()] },
        election::ElectionEvent::ContentionDetected(contention),
        election::ElectionEvent::BreakerOpen { failure_count: 5 },
        election::ElectionEvent::BreakerHalfOpen { failure_count: 5 },
        election::ElectionEvent::BreakerClosed { failure_count: 0 },
    ]
    .map(|what| ClusterEvent::Election { namespace: "coordinator".into(), what });
    let all = std::iter::once(leader).chain(nodes).chain(handoffs).chain(election);
    all.map(|what| Event::new(jiff::Timestamp::UNIX_EPOCH, what).name().to_owned()).collect()
}
