//! Histories: what a node records, what is found in them, and what is not taken for a proof.

use std::path::{Path, PathBuf};

use convoke_testkit::process::{Cli, Node, Output, Signal};
use serde_json::{Value, json};

use super::server;

/// The files of a node that ran some jobs and stopped, and the export of its store.
struct Files {
    history: PathBuf,
    store: PathBuf,
    cli: Cli,
    /// Keeps the directory.
    _node: Node,
}

async fn files() -> Files {
    let builder = server();
    let history = builder.directory().join("n1.jsonl");
    let store = builder.directory().join("store.jsonl");
    let mut node = builder.args(["--node-id", "n1", "--history"]).args([history.display().to_string()]).start().await;
    let _worker = node.exec_worker("q", "test \"$CONVOKE_ATTEMPT\" -gt 1");
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(node.enqueued(json!({ "type": "t", "queue": "q" })).await);
    }
    for id in &ids {
        node.job_when(id, &["completed"]).await;
    }
    let cli = node.cli();
    let exported = cli.run(["history", "export"]).await;
    std::fs::write(&store, exported.expect(0)).expect("written");
    assert_eq!(exported.stderr, "3 jobs exported\n");
    node.signal(Signal::TERM);
    assert_eq!(node.program().wait().await.code(), Some(0));
    Files { history, store, cli, _node: node }
}

impl Files {
    async fn verify(&self, files: &[&Path]) -> Output {
        let files = files.iter().map(|file| file.display().to_string());
        self.cli.run(["verify".to_owned(), "--drained".to_owned()].into_iter().chain(files)).await
    }

    fn lines(&self) -> Vec<String> {
        let text = std::fs::read_to_string(&self.history).expect("a history");
        text.lines().map(str::to_owned).collect()
    }

    fn beside(&self, name: &str, lines: &[String]) -> PathBuf {
        let path = self.history.with_file_name(name);
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        std::fs::write(&path, text).expect("written");
        path
    }
}

fn kind_of(line: &str) -> String {
    let line: Value = serde_json::from_str(line).expect("JSON");
    line["what"].as_str().expect("a kind").to_owned()
}

#[tokio::test]
async fn a_node_records_its_decisions_and_nothing_is_found_in_them() {
    let files = files().await;
    let lines = files.lines();
    let kinds: Vec<String> = lines.iter().map(|line| kind_of(line)).collect();
    assert_eq!(kinds.first().map(String::as_str), Some("process.begin"));
    assert_eq!(kinds.last().map(String::as_str), Some("process.end"));
    for (kind, count) in [("jobs.enqueue", 3), ("jobs.dispatch", 6), ("run.report", 6), ("epoch.seal", 1)] {
        assert!(kinds.iter().filter(|it| *it == kind).count() >= count, "{kind}: {kinds:?}");
    }
    assert!(lines.iter().all(|line| line.len() < 600), "a line is small: {lines:?}");
    let output = files.verify(&[&files.history, &files.store]).await;
    let shown = output.expect(0);
    assert!(shown.contains("clean: nothing was violated") && shown.contains("3 jobs exported"), "{shown}");
    let shown = files.cli.run(["verify", "--json", &files.history.display().to_string()]).await.json();
    assert_eq!((&shown["clean"], &shown["violations"]), (&json!(true), &json!([])));
    assert_eq!(shown["summary"]["jobs"], 3);
}

#[tokio::test]
async fn a_doctored_history_is_found_with_the_lines_that_prove_it() {
    let files = files().await;
    let lines = files.lines();
    let (place, line) = lines
        .iter()
        .enumerate()
        .find(|(_, line)| kind_of(line) == "run.report" && line.contains("\"end\":\"completed\""))
        .expect("a run that completed");
    let mut forged: Value = serde_json::from_str(line).expect("JSON");
    let run = forged["run"].as_str().expect("a run").to_owned();
    (forged["node"], forged["seq"], forged["since"]) = (json!("n9"), json!(1), json!(0));
    let doctored = files.beside("n9.jsonl", &[forged.to_string()]);
    let output = files.verify(&[&files.history, &files.store, &doctored]).await;
    let shown = output.expect(1);
    for part in [
        format!("violated J2: run {run} was ended 2 times"),
        format!("{}:{}: {{", files.history.display(), place + 1),
        format!("{}:1: {{", doctored.display()),
    ] {
        assert!(shown.contains(&part), "{part}\n{shown}");
    }
}

#[tokio::test]
async fn a_job_that_the_store_lost_is_found() {
    let files = files().await;
    let text = std::fs::read_to_string(&files.store).expect("an export");
    let mut lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let lost = lines.iter().position(|line| line["what"] == "store.job").expect("a job");
    let id = lines.remove(lost)["job"].as_str().expect("an id").to_owned();
    lines.retain(|line| line["job"] != id.as_str());
    for (line, seq) in lines.iter_mut().zip(1..) {
        line["seq"] = json!(seq);
        if line["what"] == "store.end" {
            line["count"] = json!(2);
        }
        // As if it had been exported later: the clocks of two processes may differ by a minute.
        let at: jiff::Timestamp = line["at"].as_str().and_then(|at| at.parse().ok()).expect("a time");
        line["at"] = json!((at + jiff::SignedDuration::from_mins(5)).to_string());
    }
    let doctored = files.beside("doctored.jsonl", &lines.iter().map(Value::to_string).collect::<Vec<_>>());
    let output = files.verify(&[&files.history, &doctored]).await;
    assert!(output.expect(1).contains(&format!("violated J1: job {id} was acknowledged and is gone")), "{output:?}");
}

#[tokio::test]
async fn what_is_incomplete_or_unreadable_proves_nothing() {
    let files = files().await;
    let lines = files.lines();
    let gap = files.beside("gap.jsonl", &[&lines[..3], &lines[4..]].concat());
    let output = files.verify(&[&gap]).await;
    let shown = output.expect(2);
    assert!(shown.contains("has a gap: at least 1 lines are missing") && shown.contains("incomplete:"), "{shown}");
    let empty = files.beside("empty.jsonl", &[]);
    assert!(files.verify(&[&empty]).await.expect(2).contains("nothing was checked"));
    let garbage = files.beside("garbage.jsonl", &[lines[0].clone(), "garbage".into()]);
    let output = files.verify(&[&garbage]).await;
    output.expect(2);
    assert!(output.stderr.contains("garbage.jsonl:2: expected a decision of a history"), "{}", output.stderr);
    let missing = files.history.with_file_name("missing.jsonl");
    let output = files.verify(&[&missing]).await;
    output.expect(2);
    assert!(output.stderr.contains("missing.jsonl"), "{}", output.stderr);
    // A killed process leaves an incomplete line, which is none.
    let mut torn = std::fs::read_to_string(&files.history).expect("a history");
    torn.truncate(torn.len() - 10);
    let path = files.history.with_file_name("torn.jsonl");
    std::fs::write(&path, torn).expect("written");
    assert!(files.verify(&[&path]).await.expect(0).contains("1 of them killed or still running"));
}

#[tokio::test]
async fn a_running_coordinator_is_checked_by_its_address() {
    let node = server().start().await;
    let id = node.enqueued(json!({ "type": "t", "queue": "q" })).await;
    let _worker = node.exec_worker("q", "true");
    node.job_when(&id, &["completed"]).await;
    let output = node.cli().run(["verify", &node.http().url()]).await;
    let shown = output.expect(0);
    assert!(shown.contains("1 jobs exported from the store") && shown.contains("clean"), "{shown}");
}

#[tokio::test]
async fn a_history_that_is_a_directory_is_refused_by_its_key() {
    let builder = server();
    let directory = builder.directory().display().to_string();
    let builder = builder.args(["--history", &directory]);
    let mut refused = builder.spawn();
    assert_eq!(refused.wait().await.code(), Some(2));
    let printed = refused.printed().join("\n");
    assert!(printed.contains(&format!("node.history: expected a file that can be written, {directory}")), "{printed}");
}

#[tokio::test]
async fn a_full_disk_under_the_history_is_logged_once_and_stops_nothing() {
    let mut node = server().args(["--history", "/dev/full"]).start().await;
    let _worker = node.exec_worker("q", "true");
    for _ in 0..5 {
        let id = node.enqueued(json!({ "type": "t", "queue": "q" })).await;
        node.job_when(&id, &["completed"]).await;
    }
    node.signal(Signal::TERM);
    assert_eq!(node.program().wait().await.code(), Some(0));
    let printed = node.printed();
    let warned: Vec<_> = printed.iter().filter(|line| line.contains("history cannot be written")).collect();
    assert_eq!(warned.len(), 1, "{printed:?}");
}
