//! A coordinator on a lasting store that is killed and started again: who waits, and who need not.

use std::time::Duration;

use convoke_testkit::process::{Program, Signal, eventually, wait_for_value};
use serde_json::Value;

use super::node_worker::{assigned, start};
use super::stage::{Stage, javascript};

const SERVICE: &str = "prices";
/// Longer than any test is patient: what comes did not wait for it.
const NEVER: Duration = Duration::from_secs(600);

fn join(stage: &Stage, service: &str, worker: &str, more: &[&str]) -> Program {
    let args = ["shards", "join", service, "--worker-id", worker, "--shards", "12", "--json", "--coordinator"];
    stage.node().start_process(worker, args.iter().chain(&[stage.address()]).chain(more))
}

fn changes(worker: &Program) -> Vec<Value> {
    worker.printed().iter().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// How many shards a worker has, by its last assignment.
fn has(worker: &Program) -> usize {
    changes(worker).last().and_then(|change| change["shards"].as_array().map(Vec::len)).unwrap_or_default()
}

async fn until_has(worker: &Program, count: usize) {
    wait_for_value("the shards of a worker", count, || async { has(worker) }).await;
}

#[tokio::test]
async fn a_service_whose_workers_have_left_is_granted_at_once_after_a_restart() {
    let mut stage = Stage::lasting(NEVER).await;
    let mut former = join(&stage, SERVICE, "former", &[]);
    until_has(&former, 12).await;
    let version = changes(&former).last().and_then(|change| change["version"].as_u64()).expect("a version");
    former.signal(Signal::TERM);
    assert!(former.wait().await.success());
    stage.crash().await;
    let next = join(&stage, SERVICE, "next", &[]);
    until_has(&next, 12).await;
    assert!(changes(&next).last().and_then(|change| change["version"].as_u64()) > Some(version));
    let other = join(&stage, "never-seen", "other", &["--handoff"]);
    until_has(&other, 12).await;
}

#[tokio::test]
async fn live_workers_keep_their_shards_over_a_restart_and_a_newcomer_does_not_wait_for_the_timeout() {
    let mut stage = Stage::lasting(NEVER).await;
    let workers = [join(&stage, SERVICE, "a", &["--handoff"]), join(&stage, SERVICE, "b", &[])];
    for worker in &workers {
        until_has(worker, 6).await;
    }
    stage.crash().await;
    let newcomer = join(&stage, SERVICE, "c", &[]);
    until_has(&newcomer, 4).await;
    for worker in &workers {
        until_has(worker, 4).await;
    }
    let mut owned: Vec<u32> = stage.owned(SERVICE).await.into_iter().flat_map(|(_, shards)| shards).collect();
    owned.sort_unstable();
    assert_eq!(owned, (0..12).collect::<Vec<_>>());
}

#[tokio::test]
async fn only_the_service_of_a_worker_that_died_meanwhile_waits_for_the_timeout() {
    let mut stage = Stage::lasting(Duration::from_secs(25)).await;
    let mut dead = join(&stage, SERVICE, "dead", &[]);
    until_has(&dead, 12).await;
    dead.kill().await;
    stage.crash().await;
    let waits = join(&stage, SERVICE, "waits", &[]);
    let other = join(&stage, "other", "other", &[]);
    until_has(&other, 12).await;
    assert_eq!(has(&waits), 0, "the dead one may still hold them");
    until_has(&waits, 12).await;
    let is_dead = |line: &String| line.contains("shard worker declared dead") && line.contains("dead");
    eventually("that it is declared dead", || async { stage.node().printed().iter().any(is_dead).then_some(()) }).await;
}

#[tokio::test]
async fn a_worker_of_the_documented_protocol_lives_through_a_restart() {
    let scripts = javascript().await;
    let mut stage = Stage::lasting(NEVER).await;
    let mut ann = start(&scripts, &stage, "ann", "all");
    assigned(&mut ann, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]).await;
    stage.crash().await;
    let mut bob = start(&scripts, &stage, "bob", "all");
    assigned(&mut bob, &[5, 6, 7, 8, 9]).await;
    assigned(&mut ann, &[0, 1, 2, 3, 4]).await;
    // A worker that is restarted together with the coordinator is known by its id.
    bob.kill().await;
    stage.crash().await;
    let mut bob = start(&scripts, &stage, "bob", "all");
    assigned(&mut bob, &[5, 6, 7, 8, 9]).await;
}
