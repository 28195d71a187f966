//! Commands that keep running: they survive a restart of the server, and print why nothing happens.

use std::net::TcpListener;

use convoke_testkit::process::{Node, Program, eventually, skip_loudly};
use serde_json::{Value, json};

use super::server;

/// A server that has the same address after a restart.
async fn at_one_address() -> Node {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address").to_string();
    drop(listener);
    server().set("worker.stale_after", "30s").args(["--http", &address]).start().await
}

async fn wait_for_line(program: &mut Program, part: &str) {
    let printed = program.line(part, |line| line.contains(part).then_some(())).await;
    assert_eq!(printed, Some(()), "{part}: {:?}", program.printed());
}

#[tokio::test]
async fn logs_are_followed_across_a_restart_of_the_server() {
    let mut node = at_one_address().await;
    let _worker = node.exec_worker("q", "echo the first; until [ -e go ]; do sleep 0.02; done; echo the second");
    let id = node.enqueued(json!({ "type": "t", "queue": "q" })).await;
    let mut follow = node.start_process("convoke job logs -f", ["job", "logs", "-f", &id]);
    wait_for_line(&mut follow, "the first").await;
    node.kill().await;
    wait_for_line(&mut follow, "cannot be reached").await;
    node.restart().await;
    std::fs::write(node.settings().directory().join("go"), "").expect("a file");
    assert_eq!(follow.wait().await.code(), Some(0), "{:?}", follow.printed());
    for line in ["the first", "the second"] {
        let count = follow.printed().iter().filter(|printed| printed.contains(line)).count();
        assert_eq!(count, 1, "{line}: {:?}", follow.printed());
    }
}

#[tokio::test]
async fn events_are_followed_across_a_restart_of_the_server() {
    let mut node = at_one_address().await;
    let mut events = node.start_process("convoke events", ["events", "--types", "job:pending,node", "--json"]);
    // Only events from when the stream is there on are sent, so jobs are enqueued until one is.
    let first = eventually("an event of a job", || async {
        let id = node.enqueued(json!({ "type": "t", "queue": "q" })).await;
        events.printed().iter().find_map(|line| serde_json::from_str::<Value>(line).ok()).map(|event| (id, event))
    });
    let (_, event) = first.await;
    assert_eq!((&event["event"], &event["queue"]), (&json!("job:pending"), &json!("q")), "{event}");
    node.kill().await;
    wait_for_line(&mut events, "broke off").await;
    node.restart().await;
    wait_for_line(&mut events, "events may have been missed").await;
    let id = node.enqueued(json!({ "type": "t", "queue": "after" })).await;
    wait_for_line(&mut events, &id).await;
    assert!(!events.printed().iter().any(|line| line.contains("job:created")), "{:?}", events.printed());
}

#[tokio::test]
async fn events_that_do_not_exist_are_rejected() {
    let node = server().start().await;
    let rejected = node.cli().run(["events", "--types", "jobs"]).await;
    assert_eq!(rejected.code, Some(2), "{rejected:?}");
    assert!(rejected.stderr.contains("types") && rejected.stderr.contains("job:completed"), "{}", rejected.stderr);
}

#[tokio::test]
async fn a_wait_names_what_keeps_the_job_from_starting() {
    let node = server().start().await;
    let mut waits = node.start_process("convoke enqueue", ["enqueue", "t", "--wait"]);
    wait_for_line(&mut waits, "no worker serves queue default").await;
    let _worker = node.exec_worker("default", "true");
    assert_eq!(waits.wait().await.code(), Some(0), "{:?}", waits.printed());

    node.cli().run(["queue", "pause", "default"]).await.expect(0);
    let mut waits = node.start_process("convoke enqueue", ["enqueue", "t", "--wait"]);
    wait_for_line(&mut waits, "queue default is paused").await;
    node.cli().run(["queue", "resume", "default"]).await.expect(0);
    assert_eq!(waits.wait().await.code(), Some(0), "{:?}", waits.printed());
}

#[tokio::test]
async fn on_a_terminal_a_wait_ends_with_the_result() {
    if std::process::Command::new("script").arg("--version").output().is_err() {
        return skip_loudly("on_a_terminal_a_wait_ends_with_the_result", "there is no script(1) to make a terminal");
    }
    let node = server().start().await;
    let _worker = node.exec_worker("q", "true");
    let command = format!("{} enqueue t --queue q --wait", env!("CARGO_BIN_EXE_convoke"));
    let mut terminal = node.start_program("script", &["-qec", &command, "/dev/null"]);
    assert_eq!(terminal.wait().await.code(), Some(0), "{:?}", terminal.printed());
    let last = terminal.printed().pop().unwrap_or_default();
    assert!(last.trim_end().ends_with("completed"), "{:?}", terminal.printed());
}

#[tokio::test]
async fn arguments_over_the_limit_are_rejected_before_anything_is_sent() {
    let node = server().start().await;
    let directory = node.settings().directory();
    let large = format!("\"{}\"", "x".repeat(2_000_000));
    let largest = format!("\"{}\"\n", "x".repeat((1 << 20) - 2));
    std::fs::write(directory.join("large.json"), &large).expect("a file");
    std::fs::write(directory.join("largest.json"), &largest).expect("a file");
    let mut nobody = node.cli();
    nobody.server = Some("http://127.0.0.1:1".into());
    for (args, input) in [
        (&["enqueue", "t", "--args", "@large.json"][..], ""),
        (&["enqueue", "t", "--args", "-"], large.as_str()),
        (&["schedule", "add", "s", "--every", "1h", "--type", "t", "--args", "@large.json"], ""),
    ] {
        let rejected = nobody.run_with_input(args, input).await;
        assert_eq!(rejected.code, Some(2), "{args:?}: {rejected:?}");
        assert_eq!(rejected.stderr, "error: --args: 2.0 MB is over the limit of 1 MiB\n", "{args:?}");
    }
    node.cli().run(["enqueue", "t", "--args", "@largest.json"]).await.expect(0);
}
