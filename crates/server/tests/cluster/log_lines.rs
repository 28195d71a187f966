//! The log lines of a cluster if a backend is unavailable or the leader dies, counted line by line.

use convoke_testkit::process::{Fleet, eventually, wait_for_value};
use serde_json::Value;

/// A cluster whose logs are JSON.
async fn fleet() -> Fleet {
    Fleet::builder(env!("CARGO_BIN_EXE_convoke")).args(["--log-format", "json"]).start().await
}

/// The lines that a node has logged so far.
fn logged(fleet: &Fleet, index: usize) -> Vec<Value> {
    let printed = fleet.member(index).printed();
    printed.iter().filter_map(|line| serde_json::from_str(line).ok()).filter(Value::is_object).collect()
}

fn with_message(lines: &[Value], message: &str) -> Vec<Value> {
    lines.iter().filter(|line| line["message"] == message).cloned().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bus_that_goes_away_and_comes_back_is_two_lines_of_every_node() {
    let mut fleet = fleet().await;
    let nodes: Vec<usize> = fleet.up().collect();
    let before: Vec<usize> = nodes.iter().map(|index| logged(&fleet, *index).len()).collect();
    fleet.redis().kill().await;
    for index in &nodes {
        eventually("a line that reports the bus as unavailable", || async {
            (!with_message(&logged(&fleet, *index), "backend unavailable").is_empty()).then_some(())
        })
        .await;
    }
    // How long it is away is the fault itself: every duty of every node fails many times.
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    fleet.redis().restart().await;
    for index in &nodes {
        eventually("a line that reports the bus as available again", || async {
            (!with_message(&logged(&fleet, *index), "backend available again").is_empty()).then_some(())
        })
        .await;
    }
    for (index, before) in nodes.iter().zip(before) {
        let lines = logged(&fleet, *index).split_off(before);
        let away = with_message(&lines, "backend unavailable");
        let back = with_message(&lines, "backend available again");
        assert_eq!((away.len(), back.len()), (1, 1), "one line each: {lines:#?}");
        let address = format!("redis://{}", fleet.member(*index).redis.address());
        for line in away.iter().chain(&back) {
            assert_eq!((&line["backend"], &line["address"]), (&"bus".into(), &address.clone().into()), "{line}");
            assert_eq!(line["node"], fleet.member(*index).id, "{line}");
        }
        assert_eq!(away[0]["level"], "WARN");
        assert!(back[0]["failures"].as_u64().is_some_and(|count| count > 1), "failures are counted: {}", back[0]);
        // The election may log a few lines of its own; what fails over and over logs none.
        assert!(lines.len() <= 12, "{} lines: {lines:#?}", lines.len());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_node_logs_a_change_of_leader() {
    let mut fleet = fleet().await;
    let first = fleet.leader().await;
    let name = fleet.member(first).id.clone();
    fleet.kill(first).await;
    let next = fleet.leader().await;
    let successor = fleet.member(next).id.clone();
    let cluster = fleet.member(next).http().read("/v1/cluster").await;
    let epoch = cluster["epoch"].as_u64().expect("an epoch");
    for index in fleet.up() {
        wait_for_value("lines that name both leaders and the epoch", 1, || async {
            let changes = with_message(&logged(&fleet, index), "leader changed");
            let is_it = |line: &&Value| {
                line["previous_leader"] == name && line["new_leader"] == successor && line["epoch"] == epoch
            };
            changes.iter().filter(is_it).count()
        })
        .await;
    }
}
