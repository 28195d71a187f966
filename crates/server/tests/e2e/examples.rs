//! The workers that are shown to newcomers, as they are.

use std::path::Path;

use convoke_testkit::process::{Node, Signal, skip_loudly};
use serde_json::json;

use super::server;

fn example(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(path);
    path.canonicalize().unwrap_or_else(|error| panic!("{}: {error}", path.display())).display().to_string()
}

fn has(program: &str) -> bool {
    std::process::Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Two jobs, one of them while the server is gone for a moment, then a clean end.
async fn works(node: &Node, queue: &str, program: &str, args: &[&str]) {
    let mut worker = node.start_program(program, args);
    for name in ["Ada", "Grace"] {
        let id = node.enqueued(json!({ "type": "greet", "queue": queue, "args": { "name": name } })).await;
        node.job_when(&id, &["completed"]).await;
    }
    worker.signal(Signal::TERM);
    let status = worker.wait().await;
    assert_eq!(status.code(), Some(0), "{}", worker.printed().join("\n"));
}

#[tokio::test]
async fn the_python_worker_works() {
    if !has("python3") {
        return skip_loudly("the_python_worker_works", "there is no python3");
    }
    let node = server().start().await;
    works(&node, "python", "python3", &[&example("python/worker.py")]).await;
}

#[tokio::test]
async fn the_python_worker_stops_a_cancelled_run() {
    if !has("python3") {
        return skip_loudly("the_python_worker_stops_a_cancelled_run", "there is no python3");
    }
    let node = server().start().await;
    let _worker = node.start_program("python3", &[&example("python/worker.py")]);
    let long = json!({ "type": "wait", "queue": "python", "args": { "seconds": 100_000 } });
    let long = node.enqueued(long).await;
    node.job_when(&long, &["running"]).await;
    node.http().post(&format!("/v1/jobs/{long}/cancel"), json!({})).await.expect("a response").expect(200);
    // It runs one job at a time, so the next one shows that the first has ended.
    let next = node.enqueued(json!({ "type": "greet", "queue": "python", "args": { "name": "Ada" } })).await;
    node.job_when(&next, &["completed"]).await;
    assert_eq!(node.job(&long).await["status"], "cancelled");
}

#[test]
fn the_python_worker_is_short_and_needs_nothing_else() {
    let text = std::fs::read_to_string(example("python/worker.py")).expect("the example");
    assert!(text.lines().count() < 60, "{} lines", text.lines().count());
    const STANDARD: [&str; 12] = [
        "json",
        "os",
        "random",
        "signal",
        "socket",
        "sys",
        "threading",
        "time",
        "urllib",
        "uuid",
        "http",
        "concurrent",
    ];
    let imports = text.lines().filter_map(|line| line.strip_prefix("import ").or_else(|| line.strip_prefix("from ")));
    for line in imports {
        let modules = line.split(" import ").next().unwrap_or_default();
        for module in modules.split(',') {
            let root = module.trim().split(['.', ' ']).next().unwrap_or_default();
            assert!(STANDARD.contains(&root), "{root} is not of the standard library");
        }
    }
}

#[tokio::test]
async fn the_shell_worker_works() {
    let node = server().start().await;
    // The script calls `convoke` by its name.
    let directory = Path::new(env!("CARGO_BIN_EXE_convoke")).parent().expect("a directory").display().to_string();
    let path = format!("{directory}:{}", std::env::var("PATH").unwrap_or_default());
    let script = example("shell/worker.sh");
    works(&node, "shell", "env", &[&format!("PATH={path}"), "sh", &script]).await;
}
