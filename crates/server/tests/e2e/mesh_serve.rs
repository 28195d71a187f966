//! Handlers of a mesh that are commands, and broadcasts, against a real Redis.

use convoke::mesh::MeshAddress;
use convoke::{Broadcast, Mesh};
use convoke_testkit::process::{Http, Program, Signal, eventually, is_alive, number_in, wait_for_value};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::mesh::{Stage, set};

/// Waits in the working directory until there is a file `go`, then replies.
const WAITS: &str = "touch began; while [ ! -e go ]; do sleep 0.02; done; echo 7";

impl Stage {
    /// `convoke mesh serve k` with these arguments, and its number.
    async fn serve_with(&self, words: &[&str]) -> (Program, String) {
        let mut program = self.start(&[&["serve", "k"], words].concat());
        let number = program.line("that it is ready", |line| {
            let (number, rest) = line.strip_prefix("instance ")?.split_once(' ')?;
            rest.contains("is ready: it handles").then(|| number.to_owned())
        });
        let number = number.await.expect("it gets ready");
        (program, number)
    }

    async fn file(&self, name: &str) {
        let path = self.directory.path().join(name);
        eventually(name, || async { path.exists().then_some(()) }).await;
    }

    fn touch(&self, name: &str) {
        std::fs::write(self.directory.path().join(name), "").expect("a file");
    }
}

#[tokio::test]
async fn a_command_handles_the_requests_of_its_type() {
    let stage = Stage::new().await;
    let environment = r#"printf '["%s","%s","%s",%s,"%s","%s","%s%s"]' "$CONVOKE_MESH_KEY" "$CONVOKE_MESH_TYPE" \
        "$CONVOKE_MESH_INSTANCE" "$CONVOKE_MESH_CALLER" "$CONVOKE_MESH_TIMEOUT" "$CONVOKE_MESH_EPOCH" \
        "$CONVOKE_TOKEN" "$CONVOKE_MESH_COMMAND""#;
    let words = ["serve", "k", "--on", "shout", "--exec", "tr a-z A-Z", "--on", "who", "--exec", environment];
    let mut instance = stage.launch(stage.words(&words), vec![set("CONVOKE_TOKEN", "hush")]);
    let ready = |line: &str| line.ends_with("is ready: it handles shout and who").then_some(());
    instance.line("that it is ready", ready).await.expect("it gets ready");
    let call = async |words: &[&str]| stage.run(&[&["call", "k", "1"], words].concat()).await;
    assert_eq!(call(&["shout", r#"{"a": "b"}"#]).await.expect(0), "{\"A\": \"B\"}\n");
    let who = call(&["who", "null", "--timeout", "9s", "--epoch", "4"]).await.json();
    assert_eq!(who, json!(["k", "who", "1", 3, "9s", "4", ""]), "no token, and no trace of how it is run");
    Stage::refused(&call(&["echo", "1"]).await, "NoHandler");
}

#[tokio::test]
async fn one_command_may_serve_several_types_and_no_output_is_null() {
    let stage = Stage::new().await;
    let command = r#"[ "$CONVOKE_MESH_TYPE" = nothing ] || echo "\"$CONVOKE_MESH_TYPE\"""#;
    let (_instance, number) = stage.serve_with(&["--on", "a", "--on", "b", "--on", "nothing", "--exec", command]).await;
    for (request_type, reply) in [("a", json!("a")), ("b", json!("b")), ("nothing", Value::Null)] {
        assert_eq!(stage.run(&["call", "k", &number, request_type, "1"]).await.json(), reply);
    }
}

#[tokio::test]
async fn a_command_that_fails_is_a_handler_error_with_its_last_words() {
    let stage = Stage::new().await;
    let commands = [
        ("exits", "echo reading >&2; echo no such row >&2; echo {}; exit 3", &["exit code 3", "no such row"][..]),
        ("dies", "kill -9 $$", &["killed by signal 9"]),
        ("babbles", "echo hello", &["the command did not write JSON"]),
        ("floods", "head -c 3000000 /dev/zero | tr '\\0' 1", &["more than the 1048576 bytes"]),
        ("is-not-there", "no-such-program-here", &["exit code 127"]),
    ];
    let mut words = Vec::new();
    for (request_type, command, _) in &commands {
        words.extend(["--on", request_type, "--exec", command]);
    }
    let (_instance, number) = stage.serve_with(&words).await;
    for (request_type, _, expected) in commands {
        let failed = stage.run(&["call", "k", &number, request_type, "1"]).await;
        Stage::refused(&failed, "Handler");
        for expected in expected {
            assert!(failed.stderr.contains(expected), "{request_type}: {}", failed.stderr);
        }
    }
}

#[tokio::test]
async fn one_command_more_than_may_run_is_refused_and_one_in_flight_finishes_after_a_signal() {
    let stage = Stage::new().await;
    let (mut instance, number) = stage.serve_with(&["--on", "wait", "--exec", WAITS, "--concurrency", "1"]).await;
    let mut caller = stage.start(&["call", "k", &number, "wait", "1", "--timeout", "1s"]);
    stage.file("began").await;
    Stage::refused(&stage.run(&["call", "k", &number, "wait", "1"]).await, "Busy");
    instance.signal(Signal::TERM);
    wait_for_value("the instance has left", 1, || async { stage.instances().await.len() }).await;
    stage.touch("go");
    assert_eq!(caller.wait().await.code(), Some(0), "{:?}", caller.printed());
    assert_eq!(caller.printed(), ["7"]);
    assert_eq!(instance.wait().await.code(), Some(0), "{:?}", instance.printed());
}

#[tokio::test]
async fn a_request_of_the_demonstration_finishes_after_a_signal() {
    let stage = Stage::new().await;
    let mut instance = stage.start(&["serve", "k", "--http", "127.0.0.1:0"]);
    let address = |line: &str| line.strip_prefix("metrics at http://")?.strip_suffix("/metrics")?.parse().ok();
    let http = Http::new(instance.line("where its metrics are", address).await.expect("it listens"));
    let ready = |line: &str| line.ends_with("it handles echo and sleep").then_some(());
    instance.line("that it is ready", ready).await.expect("it gets ready");
    let mut caller = stage.start(&["call", "k", "1", "sleep", r#"{"ms":3000}"#]);
    wait_for_value("the request runs", 1.0, || async { http.metric("convoke_mesh_handlers", &[]).await }).await;
    instance.signal(Signal::TERM);
    assert_eq!(caller.wait().await.code(), Some(0), "{:?}", caller.printed());
    assert_eq!(instance.wait().await.code(), Some(0), "{:?}", instance.printed());
}

/// When the grace is over, and at a second signal.
#[tokio::test]
async fn what_does_not_finish_in_time_is_stopped_with_all_that_it_started() {
    for (grace, signals) in [("200ms", 1), ("10m", 2)] {
        let stage = Stage::new().await;
        let command = "sleep 600 & echo $! > pid; wait";
        let (mut instance, number) =
            stage.serve_with(&["--on", "wait", "--exec", command, "--shutdown-grace", grace]).await;
        let mut caller = stage.start(&["call", "k", &number, "wait", "1"]);
        let pid = number_in(&stage.directory.path().join("pid")).await;
        instance.signal(Signal::TERM);
        let leaving = |line: &str| line.contains("requests in flight may finish").then_some(());
        instance.line("that it leaves", leaving).await.expect("it prints that");
        if signals > 1 {
            instance.signal(Signal::TERM);
        }
        assert_eq!(caller.wait().await.code(), Some(1));
        assert!(caller.printed().concat().contains("error: Stopped: "), "{:?}", caller.printed());
        assert_eq!(instance.wait().await.code(), Some(0), "{:?}", instance.printed());
        assert!(!is_alive(pid), "what the command started is gone");
    }
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_at_once() {
    let stage = Stage::new().await;
    for words in [
        &["serve", "k", "--on", "a"][..],
        &["serve", "k", "--exec", "cat"],
        &["serve", "k", "--on", "a", "--on", "b", "--on", "c", "--exec", "cat", "--exec", "cat"],
        &["serve", "k", "--on", "a", "--on", "a", "--exec", "cat"],
        &["serve", "k", "--on", "", "--exec", "cat"],
        &["serve", "k", "--on", "a", "--exec", "cat", "--concurrency", "0"],
        &["serve", "k", "--shutdown-grace", "soon"],
        &["broadcast", "k", "clear"],
        &["broadcast", "k", "", "1"],
        &["broadcast", "k", "clear", "{"],
        &["broadcast", "k", "clear", "1", "--timeout", "0s"],
    ] {
        let output = stage.run(words).await;
        assert_eq!(output.code, Some(2), "{words:?}: {}", output.stderr);
    }
    let away = stage.cli().run(["mesh", "broadcast", "k", "clear", "1", "--redis", "redis://127.0.0.1:1"]).await;
    Stage::refused(&away, "Unavailable");
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Clear {
    keys: Vec<String>,
}

impl Broadcast for Clear {
    const TYPE: &'static str = "clear";
}

#[tokio::test]
async fn a_broadcast_reaches_every_instance_and_its_sender_leaves_again() {
    let stage = Stage::new().await;
    let words = ["broadcast", "k", "clear", r#"{"keys":["a"]}"#];
    assert_eq!(stage.run(&words).await.expect(0), "received by 0 instances\n");
    let (received, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    let mesh = Mesh::at(&MeshAddress::new(stage.redis.url()), "k").await.expect("connects");
    let mesh = mesh.on_broadcast(move |from, clear: Clear| {
        let _ = received.send((from.0, clear));
        async {}
    });
    let mesh = mesh.start().await.expect("starts");
    assert_eq!(stage.run(&words).await.expect(0), "received by 1 instance\n");
    let clear = Clear { keys: vec!["a".into()] };
    assert_eq!(receiver.recv().await, Some((mesh.instance_id().0 + 1, clear)));
    assert_eq!(stage.run(&[&words[..], &["--json"]].concat()).await.json(), json!({ "instances": 1 }));
    assert_eq!(stage.instances().await, [mesh.instance_id().0]);
    mesh.stop().await;
}

#[tokio::test]
async fn the_name_of_the_package_in_the_working_directory_is_the_prefix() {
    let stage = Stage::new().await;
    let package = stage.directory.path().join("package.json");
    std::fs::write(&package, r#"{"name":"web"}"#).expect("a file");
    let (_instance, _) = stage.serve_with(&[]).await;
    let seen = async |words: &[&str]| {
        let output = stage.run(&[&["nodes", "k", "--json"], words].concat()).await;
        (output.json()["nodes"].as_array().map_or(0, Vec::len), output.stderr)
    };
    assert_eq!(seen(&["--prefix", "web"]).await, (1, String::new()));
    assert_eq!(seen(&[]).await, (1, String::new()));
    std::fs::write(&package, "{").expect("a file");
    let (count, warning) = seen(&[]).await;
    assert_eq!(count, 0, "names begin with app then");
    assert!(warning.starts_with("warning: package.json: expected JSON"), "{warning}");
    assert_eq!(seen(&["--prefix", "web"]).await, (1, String::new()), "no monitor reads it");
}
