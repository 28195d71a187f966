//! Two servers on one file: never two dispatchers.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use convoke_testkit::process::{NodeBuilder, Signal, skip_loudly};
use serde_json::json;

use super::server;

#[tokio::test]
async fn a_second_server_on_the_same_file_refuses_and_says_who_holds_it() {
    let mut node = server().start().await;
    let id = node.enqueued(json!({ "type": "t" })).await;
    let holder = node.program().pid().to_string();
    let mut second = node.settings().spawn();
    let status = second.wait().await;
    assert_eq!(status.code(), Some(1));
    let printed = second.printed().join("\n");
    assert!(
        printed.contains("convoke.db") && printed.contains(&holder),
        "it should name the file and process {holder}: {printed}"
    );
    assert!(!printed.contains("panicked"), "{printed}");
    assert_eq!(node.job(&id).await["status"], "pending", "the first goes on");
}

#[tokio::test]
async fn the_file_is_free_as_soon_as_its_server_is_gone_however_it_went() {
    let mut node = server().set("cluster.lease_duration", "10m").start().await;
    let id = node.enqueued(json!({ "type": "t", "queue": "q" })).await;
    // Had it to wait out the lease of its predecessor, this would take ten minutes.
    node.restart().await;
    let _worker = node.exec_worker("q", "true");
    node.job_when(&id, &["completed"]).await;
    node.signal(Signal::TERM);
    assert_eq!(node.program().wait().await.code(), Some(0));
    node.restart().await;
    assert_eq!(node.job(&id).await["status"], "completed");
}

#[tokio::test]
async fn a_store_that_cannot_be_opened_is_named() {
    let directory = server();
    let file = directory.directory().join("not-a-database");
    std::fs::write(&file, "just some text, long enough to be no database header at all").expect("a file");
    let missing = directory.directory().join("missing/convoke.db");
    let no_file = directory.directory().join("a-directory");
    std::fs::create_dir(&no_file).expect("a directory");
    for path in [&missing, &file, &no_file] {
        let named = path.display().to_string();
        refused(directory.clone().store(&format!("sqlite:{named}")), &named, 1).await;
    }
    assert_eq!(std::fs::read(&file).expect("it is there still").len(), 59, "what is no database is left as it is");
    refused(directory.clone().store("redis://127.0.0.1:1"), "redis", 2).await;
    // An address that cannot be parsed may contain a password: it is described and not repeated.
    refused(directory.store("nonsense"), "store.url: expected postgres://…, sqlite:PATH or memory:", 2).await;
}

/// It must end with `code` (2 where the caller has to mend what was set) and name what it could not do in a few lines.
async fn refused(builder: NodeBuilder, named: &str, code: i32) {
    let mut program = builder.spawn();
    let status = program.wait().await;
    let printed = program.printed().join("\n");
    assert_eq!(status.code(), Some(code), "{named}: {printed}");
    assert!(
        printed.contains(named) && printed.contains("error: ") && !printed.contains("panicked"),
        "{named}: {printed}"
    );
    assert!(!printed.contains("is ready"), "{named}: {printed}");
}

/// Even root is refused a file by its mode once it has given up the right to overlook it.
const UNPRIVILEGED: [&str; 1] = ["--bounding-set=-dac_override,-dac_read_search"];

fn obedient(builder: NodeBuilder, probe: &Path) -> Result<NodeBuilder, String> {
    let root = std::fs::metadata("/proc/self").is_ok_and(|it| it.uid() == 0);
    if !root {
        return Ok(builder);
    }
    match Command::new("setpriv").args(UNPRIVILEGED).arg("cat").arg(probe).output() {
        Ok(output) if output.status.success() => Err("root cannot give up its rights here".into()),
        Ok(output) if String::from_utf8_lossy(&output.stderr).contains("Permission denied") => {
            Ok(builder.wrapped("setpriv", UNPRIVILEGED))
        }
        Ok(output) => Err(format!("setpriv: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => Err(format!("setpriv: {error}")),
    }
}

#[tokio::test]
async fn a_store_without_permission_is_named() {
    let mut node = server().start().await;
    let id = node.enqueued(json!({ "type": "t" })).await;
    node.kill().await;
    let store = node.settings().store_path();
    let sealed = node.settings().directory().join("sealed");
    std::fs::create_dir(&sealed).expect("a directory");
    let mode = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("it is ours");
    };
    mode(&store, 0o000);
    mode(&sealed, 0o500);
    let builder = match obedient(node.settings().clone(), &store) {
        Ok(builder) => builder,
        Err(why) => return skip_loudly("a_store_without_permission_is_named", &why),
    };
    refused(builder.clone(), &store.display().to_string(), 1).await;
    mode(&store, 0o400);
    refused(builder.clone(), &store.display().to_string(), 1).await;
    let new = sealed.join("new.db").display().to_string();
    refused(builder.store(&format!("sqlite:{new}")), &new, 1).await;
    mode(&store, 0o600);
    node.restart().await;
    assert_eq!(node.job(&id).await["status"], "pending", "nothing was harmed by the attempts");
}
