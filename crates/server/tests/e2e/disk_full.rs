//! A disk that runs full: 503 while it lasts, recovery without a restart, nothing acknowledged lost.
//!
//! The server runs in a mount namespace of its own with a small file system that dies with it; the test reaches into it
//! through `/proc`. So nothing is left mounted, however the test ends.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use convoke_testkit::invariants::{Observations, Seen, jobs_hold};
use convoke_testkit::process::{GatewayWorker, Handling, Node, NodeBuilder, Plan, Signal, eventually, skip_loudly};
use serde_json::{Value, json};

use super::server;

const NAME: &str = "a_full_disk_is_a_503_until_there_is_room_again";
const SIZE: &str = "size=6m";

/// `unshare` as root, or as a user where the kernel lets users have namespaces.
fn namespace() -> Vec<String> {
    let root = std::fs::metadata("/proc/self").is_ok_and(|it| std::os::unix::fs::MetadataExt::uid(&it) == 0);
    let flags: &[&str] = if root { &["--mount"] } else { &["--user", "--map-root-user", "--mount"] };
    flags.iter().map(|flag| (*flag).to_owned()).collect()
}

fn mounted(builder: NodeBuilder, on: &Path) -> NodeBuilder {
    let script = format!("mount -t tmpfs -o {SIZE} tmpfs '{}' && exec \"$@\"", on.display());
    let mut args = namespace();
    args.extend(["sh", "-c", &script, "sh"].map(str::to_owned));
    builder.wrapped("unshare", args)
}

/// Why it cannot be done here, if so.
fn impossible(on: &Path) -> Option<String> {
    let script = format!("mount -t tmpfs -o {SIZE} tmpfs '{}'", on.display());
    match Command::new("unshare").args(namespace()).args(["sh", "-c", &script]).output() {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Some(format!("unshare: {error}")),
    }
}

/// Fills the file system to the last byte.
fn fill(directory: &Path) -> PathBuf {
    let path = directory.join("filler");
    let mut file = std::fs::File::create(&path).expect("a file beside the store");
    for size in [64 << 10, 4 << 10, 1] {
        while file.write_all(&vec![b'x'; size]).is_ok() {}
    }
    path
}

fn large() -> Value {
    json!({ "type": "t", "queue": "q", "args": "x".repeat(100_000) })
}

/// The store as a crash would leave it now: its files, copied while the server stands still.
fn crash_image(node: &mut Node, inside: &Path) -> PathBuf {
    let image = node.settings().directory().join("image");
    std::fs::create_dir(&image).expect("a directory");
    node.signal(Signal::STOP);
    for entry in std::fs::read_dir(inside).expect("the small disk").flatten() {
        let name = entry.file_name();
        if name.to_string_lossy().starts_with("convoke.db") {
            std::fs::copy(entry.path(), image.join(&name)).expect("a copy");
        }
    }
    node.signal(Signal::CONT);
    image.join("convoke.db")
}

#[tokio::test]
async fn a_full_disk_is_a_503_until_there_is_room_again() {
    let builder = server();
    let disk = builder.directory().join("disk");
    std::fs::create_dir(&disk).expect("a directory");
    if let Some(why) = impossible(&disk) {
        return skip_loudly(NAME, &format!("no file system can be mounted here: {why}"));
    }
    let store = format!("sqlite:{}", disk.join("convoke.db").display());
    let mut node = mounted(builder.store(&store), &disk).start().await;
    let inside = PathBuf::from(format!("/proc/{}/root{}", node.program().pid(), disk.display()));
    assert!(inside.join("convoke.db").exists(), "the store is on the small disk");
    let mut acknowledged = vec![node.enqueued(json!({ "type": "t", "queue": "q" })).await];
    // A run that ends while there is no room for its end.
    let observations = Observations::default();
    let running = node.enqueued(json!({ "type": "t", "queue": "slow" })).await;
    let full = Arc::new(AtomicBool::new(false));
    let ends = full.clone();
    let until_full = move |_: &Value| Handling::CompleteOnce(ends.clone(), json!("done"));
    let _slow = GatewayWorker::start(node.http(), &observations, Plan::new("slow", "slow", until_full)).await;
    let execution = node.job_when(&running, &["running"]).await["executionId"].clone();

    let filler = fill(&inside);
    // There may be room left inside the store's own files; it ends.
    let refused = loop {
        let response = node.enqueue(large()).await;
        match response.status {
            201 => acknowledged.push(response.json()["id"].as_str().expect("an id").to_owned()),
            _ => break response,
        }
        assert!(acknowledged.len() < 1_000, "six megabytes hold no hundred");
    };
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert!(refused.header("retry-after").is_some());
    let body = refused.json();
    assert!(body["error"]["message"].as_str().is_some_and(|it| !it.is_empty()), "{body}");
    for id in &acknowledged {
        assert_eq!(node.job(id).await["id"], id.as_str(), "reads go on");
    }
    full.store(true, Ordering::Relaxed);
    let image = crash_image(&mut node, &inside);
    let before_room = acknowledged.clone();

    std::fs::remove_file(filler).expect("the filler goes");
    let late = eventually("an enqueue to be taken again", || async {
        let response = node.enqueue(json!({ "type": "t", "queue": "q" })).await;
        assert!(matches!(response.status, 201 | 503), "{} {}", response.status, response.text());
        (response.status == 201).then(|| response.json()["id"].as_str().expect("an id").to_owned())
    })
    .await;
    acknowledged.push(late);
    assert!(!node.program().has_ended(), "it was never restarted");
    let _worker = node.exec_worker("q", "cat >/dev/null");
    for id in &acknowledged {
        node.job_when(id, &["completed"]).await;
    }
    let job = node.job_when(&running, &["completed"]).await;
    assert_eq!(
        (&job["executionId"], &job["result"]),
        (&execution, &json!("done")),
        "the same run, reported until it was accepted"
    );
    jobs_hold(&observations, &Seen::of(&node).await);
    let health = node.http().get("/health").await.expect("a response").expect(200);
    assert_eq!(health["status"], "healthy");

    // And had it been killed on the full disk, nothing that was acknowledged would be gone either.
    let other = server().store(&format!("sqlite:{}", image.display())).start().await;
    for id in &before_room {
        assert_eq!(other.job(id).await["status"], "pending");
    }
}
