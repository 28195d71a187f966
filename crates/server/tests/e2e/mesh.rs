//! The commands of the mesh, against a real Redis.

use std::ffi::OsString;

use convoke::mesh::MeshAddress;
use convoke::{Epoch, EpochFloor, Mesh, Request};
use convoke_testkit::process::{Cli, Http, Launch, Output, Program, RedisServer, Signal, wait_for_value};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A Redis, and what is run against it.
pub struct Stage {
    pub redis: RedisServer,
    pub directory: TempDir,
}

impl Stage {
    pub async fn new() -> Stage {
        let directory = TempDir::with_prefix("convoke-mesh-").expect("a temporary directory");
        Stage { redis: RedisServer::start().await, directory }
    }

    pub fn cli(&self) -> Cli {
        let binary = env!("CARGO_BIN_EXE_convoke").into();
        Cli { binary, directory: self.directory.path().to_owned(), server: None, env: Vec::new() }
    }

    /// `convoke mesh … --redis` of this stage.
    pub fn words(&self, words: &[&str]) -> Vec<OsString> {
        let url = self.redis.url();
        ["mesh"].iter().chain(words).chain(&["--redis", &url]).map(OsString::from).collect()
    }

    pub async fn run(&self, words: &[&str]) -> Output {
        self.cli().run(self.words(words)).await
    }

    /// A command that runs until it is stopped.
    pub fn start(&self, words: &[&str]) -> Program {
        self.launch(self.words(words), Vec::new())
    }

    pub fn launch(&self, args: Vec<OsString>, env: Vec<(String, String)>) -> Program {
        Program::start(&Launch {
            name: format!("convoke {args:?}"),
            binary: env!("CARGO_BIN_EXE_convoke").into(),
            args,
            env,
            directory: self.directory.path().to_owned(),
        })
    }

    /// An instance of the mesh `k`, and its number.
    pub async fn serve(&self) -> (Program, String) {
        let mut program = self.start(&["serve", "k"]);
        let number = program.line("that it is ready", ready).await.expect("it gets ready");
        (program, number)
    }

    pub async fn instances(&self) -> Vec<u64> {
        let page = self.run(&["nodes", "k", "--json"]).await.json();
        let nodes = page["nodes"].as_array().expect("nodes").clone();
        nodes.iter().map(|node| node["instanceId"].as_u64().expect("a number")).collect()
    }

    #[track_caller]
    pub fn refused(output: &Output, name: &str) {
        assert_eq!(output.code, Some(1), "stdout: {}\nstderr: {}", output.stdout, output.stderr);
        assert!(output.stderr.starts_with(&format!("error: {name}: ")), "{}", output.stderr);
        assert_eq!(output.stdout, "");
    }
}

pub fn set(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

/// The number in the ready line.
fn ready(line: &str) -> Option<String> {
    let (number, rest) = line.strip_prefix("instance ")?.split_once(' ')?;
    rest.ends_with("is ready: it handles echo and sleep").then(|| number.to_owned())
}

#[tokio::test]
async fn an_instance_is_seen_and_called_and_whoever_calls_leaves_again() {
    let stage = Stage::new().await;
    let (_one, first) = stage.serve().await;
    let (_other, second) = stage.serve().await;
    assert_eq!((first.as_str(), second.as_str()), ("1", "2"));

    let response = stage.run(&["call", "k", "2", "echo", r#"{"b":[1, 2.50],"a":12345678901234567890123}"#]).await;
    assert_eq!(response.expect(0), "{\"b\":[1, 2.50],\"a\":12345678901234567890123}\n", "as it was sent");
    stage.run(&["call", "k", "1", "sleep", r#"{"ms":1}"#]).await.expect(0);
    assert_eq!(stage.run(&["call", "k", "1", "echo", "-5"]).await.json(), json!(-5));

    assert_eq!(stage.instances().await, [1, 2]);
    let page = stage.run(&["nodes", "k", "--json"]).await.json();
    let heartbeat = |node: &Value| node["lastHeartbeatAt"].as_str().map(|at| at.ends_with('Z'));
    assert!(page["nodes"].as_array().expect("nodes").iter().all(|node| heartbeat(node) == Some(true)), "{page}");
    let shown = stage.run(&["nodes", "k"]).await;
    let lines: Vec<&str> = shown.expect(0).lines().collect();
    assert_eq!(lines[0].split_whitespace().collect::<Vec<_>>(), ["INSTANCE", "HOSTNAME", "LAST", "HEARTBEAT"]);
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert_eq!(stage.run(&["nodes", "another", "--json"]).await.json(), json!({ "nodes": [] }));
}

#[tokio::test]
async fn data_comes_from_a_file_or_from_standard_input() {
    let stage = Stage::new().await;
    let _instance = stage.serve().await;
    let file = stage.directory.path().join("data.json");
    std::fs::write(&file, r#"{"from":"file"}"#).expect("a file");
    let at = format!("@{}", file.display());
    assert_eq!(stage.run(&["call", "k", "1", "echo", &at]).await.json(), json!({ "from": "file" }));
    let words = stage.words(&["call", "k", "1", "echo", "-"]);
    assert_eq!(stage.cli().run_with_input(words, "[null]").await.json(), json!([null]));
}

#[tokio::test]
async fn what_went_wrong_has_a_name_and_an_exit_code() {
    let stage = Stage::new().await;
    let (instance, number) = stage.serve().await;
    Stage::refused(&stage.run(&["call", "k", "99", "echo", "1"]).await, "NoNode");
    Stage::refused(&stage.run(&["call", "k", &number, "unheard-of", "1"]).await, "NoHandler");
    let failed = stage.run(&["call", "k", &number, "sleep", r#"{"s":1}"#]).await;
    Stage::refused(&failed, "Handler");
    assert!(failed.stderr.contains(r#"expected {"ms":N}"#), "{}", failed.stderr);
    // Still subscribed, but it does not reply.
    instance.signal(Signal::STOP);
    Stage::refused(&stage.run(&["call", "k", &number, "echo", "1", "--timeout", "100ms"]).await, "RequestTimeout");
    instance.signal(Signal::CONT);
    let away = stage.cli().run(["mesh", "nodes", "k", "--redis", "redis://127.0.0.1:1"]).await;
    Stage::refused(&away, "Unavailable");

    for words in [
        &["call", "k", "1", "echo"][..],
        &["call", "k", "1", "echo", "{"],
        &["call", "k", "1", "echo", "@/no/such/file"],
        &["call", "k", "0", "echo", "1"],
        &["call", "k", "1", "", "1"],
        &["call", "", "1", "echo", "1"],
        &["call", "k", "1", "echo", "1", "--timeout", "soon"],
        &["nodes", ""],
        &["serve"],
    ] {
        let output = stage.run(words).await;
        assert_eq!(output.code, Some(2), "{words:?}: {}", output.stderr);
    }
    let foreign = stage.cli().run(["mesh", "nodes", "k", "--redis", "gopher://user:hush@nowhere"]).await;
    assert_eq!(foreign.code, Some(2), "{}", foreign.stderr);
}

#[tokio::test]
async fn a_handler_may_take_longer_than_the_timeout() {
    let stage = Stage::new().await;
    let (_instance, number) = stage.serve().await;
    let response = stage.run(&["call", "k", &number, "sleep", r#"{"ms":3000}"#, "--timeout", "2s"]).await;
    assert_eq!(response.json(), json!({ "ms": 3000 }));
}

#[tokio::test]
async fn an_instance_leaves_on_a_signal_and_tells_who_waits_for_it() {
    let stage = Stage::new().await;
    for signal in [Signal::TERM, Signal::INT] {
        let mut instance = stage.start(&["serve", "k", "--shutdown-grace", "500ms"]);
        let number = instance.line("that it is ready", ready).await.expect("it gets ready");
        let mut caller = stage.start(&["call", "k", &number, "sleep", r#"{"ms":600000}"#]);
        wait_for_value("the caller has joined", 2, || async { stage.instances().await.len() }).await;
        instance.signal(signal);
        assert_eq!(instance.wait().await.code(), Some(0), "{:?}", instance.printed());
        assert_eq!(caller.wait().await.code(), Some(1));
        let printed = caller.printed().join("\n");
        // Its request may be on its way still when the instance goes.
        assert!(["error: Stopped: ", "error: NoNode: "].iter().any(|name| printed.contains(name)), "{printed}");
        assert_eq!(stage.instances().await, [0; 0], "both have left");
    }
}

#[tokio::test]
async fn a_caller_that_is_interrupted_leaves_too() {
    let stage = Stage::new().await;
    let (_instance, number) = stage.serve().await;
    for signal in [Signal::TERM, Signal::INT] {
        let mut caller = stage.start(&["call", "k", &number, "sleep", r#"{"ms":600000}"#]);
        wait_for_value("the caller has joined", 2, || async { stage.instances().await.len() }).await;
        caller.signal(signal);
        assert_eq!(caller.wait().await.code(), Some(1));
        assert_eq!(stage.instances().await, [1]);
    }
}

#[tokio::test]
async fn the_environment_says_where_the_mesh_is_unless_a_flag_does() {
    let stage = Stage::new().await;
    let mut cli = stage.cli();
    let port = stage.redis.port().to_string();
    cli.env = vec![
        set("MESH_REDIS_HOST", "127.0.0.1"),
        set("REDIS_PORT", &port),
        set("REDIS_PREFIX", "everything"),
        set("MESH_REDIS_PREFIX", "theirs"),
    ];
    let mut instance = stage.start(&["serve", "k", "--prefix", "theirs"]);
    let number = instance.line("that it is ready", ready).await.expect("it gets ready");
    assert_eq!(cli.run(["mesh", "call", "k", &number, "echo", "7"]).await.json(), json!(7));
    let by_flag = cli.run(["mesh", "nodes", "k", "--json", "--prefix", "app"]).await.json();
    assert_eq!(by_flag, json!({ "nodes": [] }), "a flag wins over the environment");
    cli.env = vec![set("MESH_REDIS_PORT", "none")];
    let refused = cli.run(["mesh", "nodes", "k"]).await;
    assert_eq!(refused.code, Some(2));
    assert!(
        refused.stderr.contains(r#"MESH_REDIS_PORT: expected a port from 1 to 65535, got "none""#),
        "{}",
        refused.stderr
    );
    cli.env = vec![set("REDIS_HOST", "one,two")];
    let refused = cli.run(["mesh", "nodes", "k"]).await;
    assert_eq!(refused.code, Some(2));
    assert!(
        refused.stderr.contains("MESH_REDIS_… or REDIS_…: ") && !refused.stderr.contains("--redis"),
        "{}",
        refused.stderr
    );
    cli.env = vec![set("CONVOKE_MESH__NODE_TTL", "soon")];
    let refused = cli.run(["mesh", "nodes", "k"]).await;
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("mesh.node_ttl"), "{}", refused.stderr);
}

#[tokio::test]
async fn a_lock_that_the_environment_has_elsewhere_is_warned_of() {
    let stage = Stage::new().await;
    let port = stage.redis.port().to_string();
    let serve = |env| stage.launch(["mesh", "serve", "k"].map(OsString::from).into(), env);
    let is_warning = |line: &str| line.contains("the leader's lock elsewhere than the mesh").then_some(());
    let mut mixed = serve(vec![set("MESH_REDIS_PORT", &port), set("REDIS_PORT", "1")]);
    mixed.line("that the lock is elsewhere", is_warning).await.expect("it warns");
    let mut plain = serve(vec![set("REDIS_PORT", &port)]);
    plain.line("that it is ready", ready).await.expect("it gets ready");
    assert!(plain.printed().iter().all(|line| is_warning(line).is_none()), "{:?}", plain.printed());
}

#[tokio::test]
async fn metrics_are_shown_where_asked_and_nothing_else_is() {
    let stage = Stage::new().await;
    let mut instance = stage.start(&["serve", "k", "--http", "127.0.0.1:0"]);
    let address = |line: &str| line.strip_prefix("metrics at http://")?.strip_suffix("/metrics")?.parse().ok();
    let http = Http::new(instance.line("where its metrics are", address).await.expect("it listens"));
    let number = instance.line("that it is ready", ready).await.expect("it gets ready");
    stage.run(&["call", "k", &number, "echo", "1"]).await.expect(0);
    let text = http.get("/metrics").await.expect("a response").text();
    for line in ["# TYPE convoke_mesh_in_flight gauge", "convoke_mesh_handlers 0", "convoke_mesh_malformed_total 0"] {
        assert!(text.lines().any(|shown| shown == line), "{line}: {text}");
    }
    assert!(text.contains("# HELP convoke_mesh_nodes "), "{text}");
    wait_for_value("it leads", 1.0, || async { http.metric("convoke_mesh_leader", &[]).await }).await;
    http.get("/").await.expect("a response").expect(404);

    let refused = stage.run(&["serve", "k", "--http", "0.0.0.0:0"]).await;
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    assert!(refused.stderr.contains("without tokens"), "{}", refused.stderr);
    let mut open = stage.start(&["serve", "k", "--http", "0.0.0.0:0", "--insecure"]);
    open.line("that it is ready", ready).await.expect("its option makes it start");
    assert_eq!(stage.run(&["serve", "k", "--insecure"]).await.code, Some(2), "there is nothing to show");
}

#[derive(Serialize, Deserialize)]
struct Reindex {}

impl Request for Reindex {
    const TYPE: &'static str = "reindex";
    type Response = u64;
}

#[tokio::test]
async fn a_call_can_be_made_in_the_name_of_a_term() {
    let stage = Stage::new().await;
    let mesh = Mesh::at(&MeshAddress::new(stage.redis.url()), "k").await.expect("connects");
    let mesh = mesh.on_fenced(EpochFloor::new(Epoch(7)), |context, _: Reindex| async move {
        Ok(context.epoch().map_or(0, |epoch| epoch.0))
    });
    let number = mesh.start().await.expect("starts").instance_id().to_string();
    let call = ["call", "k", &number, "reindex", "{}"];
    assert_eq!(stage.run(&[&call[..], &["--epoch", "8"]].concat()).await.json(), json!(8));
    Stage::refused(&stage.run(&[&call[..], &["--epoch", "7"]].concat()).await, "StaleEpoch");
    Stage::refused(&stage.run(&call).await, "StaleEpoch");
    mesh.stop().await;
}
