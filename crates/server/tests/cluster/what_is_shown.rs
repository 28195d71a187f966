//! The contents of `/v1/cluster` and `convoke cluster status` while nodes die and engines are unavailable.

use std::collections::BTreeMap;
use std::sync::Mutex;

use convoke_testkit::process::{Fleet, eventually, wait_for_value};
use serde_json::Value;

async fn fleet() -> Fleet {
    Fleet::builder(env!("CARGO_BIN_EXE_convoke")).start().await
}

fn node<'a>(cluster: &'a Value, id: &str) -> &'a Value {
    let nodes = cluster["nodes"].as_array().expect("nodes");
    nodes.iter().find(|node| node["nodeId"] == id).unwrap_or_else(|| panic!("{id} is listed: {cluster}"))
}

/// At most one node leads, and it is the one that is named. Returns it.
fn only_leader(cluster: &Value) -> Option<String> {
    let nodes = cluster["nodes"].as_array().expect("nodes").iter();
    let leaders: Vec<&Value> = nodes.filter(|node| node["role"] == "leader").map(|node| &node["nodeId"]).collect();
    match (&cluster["leader"], leaders.as_slice()) {
        (Value::Null, []) => None,
        (Value::String(leader), [only]) if *only == leader => Some(leader.clone()),
        _ => panic!("{cluster}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_was_killed_is_suspect_then_dead_and_never_one_of_two() {
    let mut fleet = fleet().await;
    let killed = fleet.leader().await;
    let id = fleet.member(killed).id.clone();
    fleet.kill(killed).await;
    let others: Vec<usize> = fleet.up().collect();
    // The states of it that each of the others has shown so far, in order.
    let shown: Mutex<BTreeMap<usize, Vec<String>>> = Mutex::default();
    eventually("another leader, and the killed one dead, on every node", || async {
        let mut done = true;
        for index in &others {
            let cluster = fleet.member(*index).cluster().await.expect("it responds");
            assert_eq!(cluster["answeredBy"], fleet.member(*index).id.as_str());
            let leader = only_leader(&cluster);
            let state = node(&cluster, &id)["state"].as_str().expect("a state").to_owned();
            assert!(leader.as_ref() != Some(&id) || state != "dead", "a dead node does not lead: {cluster}");
            done &= leader.is_some_and(|leader| leader != id) && state == "dead";
            let mut shown = shown.lock().expect("not poisoned");
            let states = shown.entry(*index).or_default();
            if states.last() != Some(&state) {
                states.push(state);
            }
        }
        done.then_some(())
    })
    .await;
    let shown = shown.into_inner().expect("not poisoned");
    for states in shown.values() {
        let expected: &[&[&str]] = &[&["active", "suspect", "dead"], &["suspect", "dead"], &["active", "dead"]];
        assert!(expected.iter().any(|expected| states == expected), "{states:?}");
    }
    assert!(shown.values().any(|states| states.iter().any(|state| state == "suspect")), "{shown:?}");
    fleet.restart(killed).await;
    wait_for_value("the state of the node that came back", "active".to_owned(), || async {
        let cluster = fleet.any().read("/v1/cluster").await;
        node(&cluster, &id)["state"].as_str().expect("a state").to_owned()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_left_stays_listed() {
    let mut fleet = fleet().await;
    let leaving = fleet.leader().await;
    let id = fleet.member(leaving).id.clone();
    assert_eq!(fleet.terminate(leaving).await.code(), Some(0));
    let next = fleet.leader().await;
    let cluster = fleet.member(next).http().read("/v1/cluster").await;
    assert_eq!(only_leader(&cluster).as_ref(), Some(&fleet.member(next).id));
    let left = node(&cluster, &id);
    assert_eq!((&left["state"], &left["role"]), (&"left".into(), &"follower".into()), "{cluster}");
    assert!(left["since"].as_str() > left["startedAt"].as_str(), "{cluster}");
    let shown = fleet.member(next).node().cli().run(["cluster", "status"]).await;
    assert_eq!(shown.code, Some(0), "{shown:?}");
    assert!(shown.stdout.lines().any(|line| line.starts_with(&id) && line.contains("left")), "{}", shown.stdout);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_is_away_is_named_first_and_without_a_leader_the_command_fails() {
    let fleet = fleet().await;
    for (component, code) in [("store", 1), ("bus", 1)] {
        for index in fleet.up() {
            let member = fleet.member(index);
            if component == "store" { member.postgres.cut() } else { member.redis.cut() }
        }
        let member = fleet.member(0);
        let shown = eventually("a status without a leader", || async {
            let shown = member.node().cli().run(["cluster", "status"]).await;
            let away = format!("{} cannot reach its {component}, for ", member.id);
            (shown.stdout.starts_with(&away) && shown.code == Some(code)).then_some(shown)
        })
        .await;
        assert!(shown.stderr.contains("no node leads"), "{shown:?}");
        for id in ["node-1", "node-2", "node-3"] {
            assert!(shown.stdout.lines().any(|line| line.starts_with(&format!("{id} "))), "{}", shown.stdout);
        }
        wait_for_value("GET /readyz", 503, || async { member.http().get("/readyz").await.map_or(0, |it| it.status) })
            .await;
        for index in fleet.up() {
            let member = fleet.member(index);
            if component == "store" { member.postgres.heal() } else { member.redis.heal() }
        }
        fleet.leader().await;
        for index in fleet.up() {
            let http = fleet.member(index).http();
            wait_for_value("GET /readyz", 200, || async { http.get("/readyz").await.map_or(0, |it| it.status) }).await;
        }
        let shown = member.node().cli().run(["cluster", "status"]).await;
        assert!(shown.code == Some(0) && shown.stdout.starts_with("leader "), "{shown:?}");
    }
}
