//! `convoke chaos`: a short one on each kind of engines ends clean, and leaves nothing behind.

use std::path::Path;
use std::process::Stdio;

use convoke_testkit::process::{eventually, is_alive};
use serde_json::Value;
use tokio::process::Command;

fn chaos(directory: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_convoke"));
    command.arg("chaos").args(args).current_dir(directory).env("TMPDIR", directory);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

/// Runs it to its end, which must be clean.
async fn clean(args: &[&str]) -> Value {
    let directory = tempfile::tempdir().expect("a directory");
    let output = chaos(directory.path(), args).output().await.expect("it runs");
    let (shown, progress) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{shown}\n{progress}");
    let left = std::fs::read_dir(directory.path()).expect("the directory").count();
    assert_eq!(left, 0, "its files are removed");
    serde_json::from_str(&shown).unwrap_or_else(|error| panic!("not JSON ({error}): {shown}"))
}

#[tokio::test]
async fn on_sqlite_nothing_is_violated_while_a_node_and_workers_are_killed() {
    let shown = clean(&["--for", "10s", "--on", "sqlite", "--faults", "kill,worker", "--seed", "1", "--json"]).await;
    assert_eq!((&shown["clean"], &shown["open"]), (&true.into(), &0.into()), "{shown}");
    let faults = shown["faults"].as_object().expect("faults");
    assert!(!faults.is_empty(), "{shown}");
    let summary = &shown["summary"];
    assert_eq!(summary["acknowledged"], shown["acknowledged"]);
    assert!(summary["exported"].as_u64() >= shown["acknowledged"].as_u64(), "{shown}");
    assert!(summary["killed"].as_u64() > Some(0), "{shown}");
}

#[tokio::test]
async fn on_postgresql_and_redis_nothing_is_violated_under_every_fault() {
    let shown = clean(&["--for", "10s", "--on", "postgres-redis", "--nodes", "3", "--seed", "2", "--json"]).await;
    assert_eq!((&shown["clean"], &shown["nodes"]), (&true.into(), &3.into()), "{shown}");
    assert_eq!(shown["notes"], serde_json::json!([]), "all of it was checked");
}

#[tokio::test]
async fn an_interrupt_ends_and_removes_everything() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut child = chaos(directory.path(), &["--for", "10m", "--on", "sqlite"]).spawn().expect("it starts");
    let pid = child.id().expect("a process id");
    let started = eventually("a worker of the cluster", || async {
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
        let children: Vec<u32> = children.split_whitespace().filter_map(|it| it.parse().ok()).collect();
        (children.len() == 4).then_some(children)
    })
    .await;
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).expect("in range")).expect("not 0");
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    assert_eq!(child.wait().await.expect("it ends").code(), Some(1));
    assert!(started.iter().all(|pid| !is_alive(*pid)), "nothing that it started is left");
    assert_eq!(std::fs::read_dir(directory.path()).expect("the directory").count(), 0);
}

#[tokio::test]
async fn what_its_engines_cannot_do_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    for (args, why) in [
        (["--on", "sqlite", "--nodes", "3"], "--nodes: SQLite has one node"),
        (["--on", "sqlite", "--faults", "redis"], "--faults: redis needs an engine"),
    ] {
        let output = chaos(directory.path(), &args).output().await.expect("it runs");
        assert_eq!(output.status.code(), Some(2));
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(printed.contains(why), "{printed}");
    }
}
