//! Two servers on one file: never two dispatchers.

use convoke_testkit::process::Signal;
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
    let said = second.said().join("\n");
    assert!(
        said.contains("convoke.db") && said.contains(&holder),
        "it should name the file and process {holder}: {said}"
    );
    assert!(!said.contains("panicked"), "{said}");
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
    let table = [
        (format!("sqlite:{}", missing.display()), "missing"),
        (format!("sqlite:{}", file.display()), "not-a-database"),
        ("redis://127.0.0.1:1".to_owned(), "redis"),
        ("nonsense".to_owned(), "nonsense"),
    ];
    for (url, named) in table {
        let mut program = directory.clone().store(&url).spawn();
        let status = program.wait().await;
        let said = program.said().join("\n");
        assert!(matches!(status.code(), Some(1 | 2)), "{url}: {status}");
        assert!(said.contains(named) && !said.contains("panicked"), "{url}: {said}");
    }
}
