//! A worker on Node.js that knows the documented protocol and nothing of ours.

use std::time::Duration;

use convoke_testkit::process::{Javascript, Program, Signal, wait_for_value};
use serde_json::Value;

use super::stage::{Stage, javascript};

const SERVICE: &str = "prices";

pub fn start(scripts: &Javascript, stage: &Stage, worker: &str, read: &str) -> Program {
    let env = [
        ("COORDINATOR", stage.address().to_owned()),
        ("SERVICE", SERVICE.to_owned()),
        ("WORKER", worker.to_owned()),
        ("SHARDS", "10".to_owned()),
        ("HEARTBEAT_MS", "150".to_owned()),
        ("READ", read.to_owned()),
    ];
    scripts.start("worker.mjs", &env)
}

/// The lines about an event so far.
fn received(program: &Program, event: &str) -> Vec<Value> {
    let lines = program.printed();
    let events = lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    events.filter(|it| it["event"] == event).collect()
}

/// The shards of each assignment that it received.
pub async fn assigned(program: &mut Program, wanted: &[u32]) {
    let wanted = Value::from(wanted);
    let is_it = |line: &str| {
        let line: Value = serde_json::from_str(line).ok()?;
        (line["event"] == "assignment" && line["assignedShards"] == wanted).then_some(())
    };
    let found = program.line(&format!("the assignment {wanted}"), is_it).await;
    found.expect("it runs until it is stopped");
}

fn owns(worker: &str, shards: std::ops::Range<u32>) -> (String, Vec<u32>) {
    (worker.to_owned(), shards.collect())
}

#[tokio::test]
async fn a_worker_of_the_documented_protocol_registers_beats_dies_and_is_replaced() {
    let scripts = javascript().await;
    let stage = Stage::start("contiguous", Duration::from_secs(2), Duration::from_millis(200)).await;
    let mut ann = start(&scripts, &stage, "ann", "first");
    assigned(&mut ann, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]).await;

    // Three share ten shards as documented: four, three and three.
    let mut bob = start(&scripts, &stage, "bob", "all");
    let mut cid = start(&scripts, &stage, "cid", "all");
    assigned(&mut bob, &[4, 5, 6]).await;
    assigned(&mut cid, &[7, 8, 9]).await;
    wait_for_value("all own their part", vec![owns("ann", 0..4), owns("bob", 4..7), owns("cid", 7..10)], async || {
        stage.owned(SERVICE).await
    })
    .await;

    // The reply to every heartbeat is the assignment, also for a worker that still reports what it had at first.
    let before = received(&bob, "assignment").len();
    wait_for_value("its heartbeats get replies", true, async || received(&bob, "assignment").len() > before + 5).await;
    assert!(received(&bob, "error").is_empty(), "{:?}", received(&bob, "error"));

    // One is killed, and after its timeout the others have all.
    cid.kill().await;
    assigned(&mut bob, &[5, 6, 7, 8, 9]).await;
    wait_for_value("the dead one's shards are owned", vec![owns("ann", 0..5), owns("bob", 5..10)], async || {
        stage.owned(SERVICE).await
    })
    .await;

    // One is paused for longer than the timeout, then goes on as if nothing had been.
    bob.signal(Signal::STOP);
    wait_for_value("the paused one is dead", vec![owns("ann", 0..10)], async || stage.owned(SERVICE).await).await;
    bob.signal(Signal::CONT);
    wait_for_value("it has its part again", vec![owns("ann", 0..5), owns("bob", 5..10)], async || {
        stage.owned(SERVICE).await
    })
    .await;

    // A new process under the dead one's name gets a part at once.
    let mut cid = start(&scripts, &stage, "cid", "all");
    assigned(&mut cid, &[7, 8, 9]).await;
    cid.signal(Signal::TERM);
    assert!(cid.wait().await.success());
}
