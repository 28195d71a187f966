//! Nothing of a command outlives the run that started it, whatever ends the run.

use std::path::PathBuf;

use convoke_testkit::process::{Launch, Node, Program, Signal, is_alive, number_in, wait_for_value};
use serde_json::json;

use super::server;

/// A command that leaves processes wherever it can: in its own group, in a session of its own, and in one whose parent has ended.
/// None of them ends on SIGTERM. Each writes its id to a file in the directory of its job.
const SPREAD: &str = r#"trap "" TERM; mkdir "$CONVOKE_JOB_ID"; cd "$CONVOKE_JOB_ID"
    sleep 1000 & echo $! > child
    setsid sh -c 'sleep 1000 & echo $! > session; wait' &
    sh -c 'setsid sh -c "sleep 1000 & echo \$! > orphan; wait" &'
    echo $PPID > guard; echo $$ > command
    until [ -e end ]; do sleep 0.02; done"#;
const FILES: [&str; 4] = ["child", "session", "orphan", "command"];

fn path(node: &Node, id: &str, name: &str) -> PathBuf {
    node.settings().directory().join(id).join(name)
}

/// Waits until all processes of the job's run are there.
async fn processes(node: &Node, id: &str) -> Vec<u32> {
    let mut pids = Vec::new();
    for file in FILES {
        pids.push(number_in(&path(node, id, file)).await);
    }
    assert!(pids.iter().all(|pid| is_alive(*pid)), "{pids:?}");
    pids
}

async fn are_gone(pids: &[u32]) {
    let left = || async { pids.iter().copied().filter(|pid| is_alive(*pid)).collect::<Vec<_>>() };
    wait_for_value("processes that are left", Vec::new(), left).await;
}

async fn spread(node: &Node, spec: serde_json::Value) -> (String, Vec<u32>) {
    let id = node.enqueued(spec).await;
    let pids = processes(node, &id).await;
    (id, pids)
}

#[tokio::test]
async fn nothing_of_a_command_outlives_a_killed_worker() {
    let node = server().start().await;
    let mut worker = node.exec_worker("q", SPREAD);
    let (_, one) = spread(&node, json!({ "type": "t", "queue": "q" })).await;
    let (_, two) = spread(&node, json!({ "type": "t", "queue": "q" })).await;
    worker.kill().await;
    are_gone(&[one, two].concat()).await;
}

#[tokio::test]
async fn nothing_of_a_cancelled_run_is_left_and_the_run_beside_it_goes_on() {
    let node = server().start().await;
    let _worker = node.exec_worker("q", SPREAD);
    let (cancelled, gone) = spread(&node, json!({ "type": "t", "queue": "q" })).await;
    let (other, left) = spread(&node, json!({ "type": "t", "queue": "q" })).await;
    node.http().post(&format!("/v1/jobs/{cancelled}/cancel"), json!({})).await.expect("a response").expect(200);
    are_gone(&gone).await;
    assert!(left.iter().all(|pid| is_alive(*pid)), "{left:?}");
    std::fs::write(path(&node, &other, "end"), "").expect("a file");
    node.job_when(&other, &["completed"]).await;
    are_gone(&left).await;
}

#[tokio::test]
async fn nothing_of_a_run_that_took_too_long_is_left() {
    let node = server().start().await;
    let _worker = node.exec_worker("q", SPREAD);
    let (id, pids) = spread(&node, json!({ "type": "t", "queue": "q", "timeout": "3s", "maxRetries": 0 })).await;
    node.job_when(&id, &["timedOut"]).await;
    are_gone(&pids).await;
}

#[tokio::test]
async fn a_killed_guard_fails_the_attempt_and_leaves_nothing_behind() {
    let node = server().start().await;
    let mut worker = node.exec_worker("q", SPREAD);
    let (id, pids) = spread(&node, json!({ "type": "t", "queue": "q", "maxRetries": 0 })).await;
    let (other, others) = spread(&node, json!({ "type": "t", "queue": "q" })).await;
    let guard = number_in(&path(&node, &id, "guard")).await;
    let guard = i32::try_from(guard).ok().and_then(rustix::process::Pid::from_raw).expect("a process id");
    rustix::process::kill_process(guard, Signal::KILL).expect("it runs");
    let job = node.job_when(&id, &["failed"]).await;
    assert!(job["error"].as_str().is_some_and(|error| error.contains("guard was killed")), "{job}");
    assert!(pids.iter().all(|pid| !is_alive(*pid)), "nothing is left when the failure is reported: {pids:?}");
    assert!(others.iter().all(|pid| is_alive(*pid)), "the run beside it goes on: {others:?}");
    // The worker is as good as before.
    let (next, _) = spread(&node, json!({ "type": "t", "queue": "q" })).await;
    for id in [&other, &next] {
        std::fs::write(path(&node, id, "end"), "").expect("a file");
        node.job_when(id, &["completed"]).await;
    }
    worker.signal(Signal::TERM);
    assert_eq!(worker.wait().await.code(), Some(0), "{:?}", worker.printed());
}

/// The worker is frozen when its guard is killed, and is killed then: it never sees the guard's end.
#[tokio::test]
async fn under_strict_supervision_a_command_does_not_outlive_a_worker_and_guard_killed_at_one_moment() {
    let node = server().start().await;
    let command =
        r#"mkdir "$CONVOKE_JOB_ID"; cd "$CONVOKE_JOB_ID"; echo $PPID > guard; echo $$ > command; exec sleep 1000"#;
    let words = ["worker", "run", "--queue", "q", "--strict-supervision", "--exec", command];
    let mut worker = node.start_process("convoke worker run", words);
    let id = node.enqueued(json!({ "type": "t", "queue": "q" })).await;
    let command = number_in(&path(&node, &id, "command")).await;
    let guard = number_in(&path(&node, &id, "guard")).await;
    let guard = i32::try_from(guard).ok().and_then(rustix::process::Pid::from_raw).expect("a process id");
    worker.signal(Signal::STOP);
    rustix::process::kill_process(guard, Signal::KILL).expect("it runs");
    worker.kill().await;
    are_gone(&[command]).await;
}

#[tokio::test]
async fn a_guard_is_used_for_one_run_after_the_other() {
    let node = server().start().await;
    let _worker = node.start_process(
        "convoke worker run",
        ["worker", "run", "--queue", "q", "--concurrency", "1", "--exec", "echo $PPID > guard-of-$CONVOKE_JOB_TYPE"],
    );
    for job_type in ["one", "two", "three"] {
        let id = node.enqueued(json!({ "type": job_type, "queue": "q" })).await;
        node.job_when(&id, &["completed"]).await;
    }
    let directory = node.settings().directory();
    let [one, two, three] = ["one", "two", "three"].map(|name| {
        let guard = std::fs::read_to_string(directory.join(format!("guard-of-{name}"))).expect("the command wrote it");
        guard.trim().parse::<u32>().expect("a process id")
    });
    assert_eq!((one, one), (two, three));
}

/// A worker that has a token, and writes the environment of its command to a file.
fn worker_with_token(node: &Node, flags: &[&str]) -> Program {
    let args = ["worker", "run", "--queue", "q", "--exec", "env > environment"];
    Program::start(&Launch {
        name: "convoke worker run".into(),
        binary: env!("CARGO_BIN_EXE_convoke").into(),
        args: args.iter().chain(flags).map(Into::into).collect(),
        env: vec![("CONVOKE_SERVER".into(), node.http().url()), ("CONVOKE_TOKEN".into(), "w-secret".into())],
        directory: node.settings().directory().to_owned(),
    })
}

#[tokio::test]
async fn the_workers_token_is_passed_on_only_if_asked_for() {
    let node = server().start().await;
    for (flags, is_passed) in [(&[][..], false), (&["--pass-token"], true)] {
        let mut worker = worker_with_token(&node, flags);
        let id = node.enqueued(json!({ "type": "t", "queue": "q" })).await;
        node.job_when(&id, &["completed"]).await;
        let environment = std::fs::read_to_string(node.settings().directory().join("environment")).expect("written");
        assert!(environment.contains(&id), "{environment}");
        assert_eq!(environment.contains("w-secret"), is_passed, "{environment}");
        assert!(environment.contains("CONVOKE_SERVER=http://"), "{environment}");
        worker.signal(Signal::TERM);
        worker.wait().await;
    }
}
