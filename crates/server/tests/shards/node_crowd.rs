//! A thousand workers on Node.js.

use std::time::Duration;

use convoke_testkit::process::wait_for_value;
use serde_json::Value;

use super::stage::{Stage, javascript};

const WORKERS: u64 = 1000;
const SHARDS: u64 = 10_000;

#[tokio::test]
async fn a_thousand_workers_on_node_register_share_evenly_and_are_answered() {
    let scripts = javascript().await;
    let stage = Stage::start("contiguous", Duration::from_secs(10), Duration::from_secs(1)).await;
    let env = [
        ("COORDINATOR", stage.address().to_owned()),
        ("SERVICE", "crowd".to_owned()),
        ("COUNT", WORKERS.to_string()),
        ("SHARDS", SHARDS.to_string()),
        ("HEARTBEAT_MS", "1000".to_owned()),
    ];
    let mut crowd = scripts.start("crowd.mjs", &env);
    // The messages of all of them together: every shard once, ten each, and each got a reply to its heartbeat.
    let is_even = |line: &str| {
        let census: Value = serde_json::from_str(line).ok()?;
        let wanted = [
            ("assigned", WORKERS),
            ("replied", WORKERS),
            ("shards", SHARDS),
            ("distinct", SHARDS),
            ("fewest", SHARDS / WORKERS),
            ("most", SHARDS / WORKERS),
        ];
        wanted.iter().all(|(field, value)| census[field] == *value).then_some(())
    };
    crowd.line("a census in which all is well", is_even).await.expect("it runs until then");
    let even = async || {
        let owned = stage.owned("crowd").await;
        owned.len() as u64 == WORKERS && owned.iter().all(|(_, shards)| shards.len() as u64 == SHARDS / WORKERS)
    };
    wait_for_value("the coordinator shows the same", true, even).await;

    // All at once they are gone.
    crowd.kill().await;
    wait_for_value("nobody is active", true, async || stage.owned("crowd").await.is_empty()).await;
}
