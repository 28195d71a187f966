//! A disk that runs full: 503 while it lasts, recovery without a restart, nothing acknowledged lost.
//!
//! The server runs in a mount namespace of its own with a small file system that dies with it; the test reaches into it
//! through `/proc`. So nothing is left mounted, however the test ends.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use convoke_testkit::process::{NodeBuilder, eventually, skip_loudly};
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

    let filler = fill(&inside);
    // There may be room left inside the store's own files; it ends.
    let refused = loop {
        let answer = node.enqueue(large()).await;
        match answer.status {
            201 => acknowledged.push(answer.json()["id"].as_str().expect("an id").to_owned()),
            _ => break answer,
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

    std::fs::remove_file(filler).expect("the filler goes");
    let late = eventually("an enqueue to be taken again", || async {
        let answer = node.enqueue(json!({ "type": "t", "queue": "q" })).await;
        assert!(matches!(answer.status, 201 | 503), "{} {}", answer.status, answer.text());
        (answer.status == 201).then(|| answer.json()["id"].as_str().expect("an id").to_owned())
    })
    .await;
    acknowledged.push(late);
    assert!(!node.program().has_ended(), "it was never restarted");
    let _worker = node.exec_worker("q", "cat >/dev/null");
    for id in &acknowledged {
        node.job_when(id, &["completed"]).await;
    }
    let health = node.http().get("/health").await.expect("an answer").expect(200);
    assert_eq!(health["status"], "healthy");
}
