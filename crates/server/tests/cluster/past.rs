//! Terms, refused writes and drains, as a node that survived shows them. `crates/server/tests/dashboard/cluster.test.mjs` has the
//! handoffs, of runs that last for long enough.

use convoke_testkit::process::{Http, eventually};
use serde_json::Value;

use super::leader_paused::OVERSTAYS;
use super::stage::Stage;

/// Requests `path` until an entry of its list `name` is as expected, and returns it.
async fn entry(http: &Http, path: &str, name: &str, is: impl Fn(&Value) -> bool) -> Value {
    eventually(&format!("an entry of {path}"), || async {
        let page = http.read(path).await;
        page[name].as_array().and_then(|entries| entries.iter().find(|entry| is(entry)).cloned())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_shows_the_terms_refused_writes_and_drains_of_all() {
    let mut stage = Stage::open_with(&[OVERSTAYS]).await;
    let first = stage.fleet.leader().await;
    let epoch = stage.epoch(first).await;
    let name = |stage: &Stage, index: usize| stage.fleet.member(index).id.clone();

    // A leader that was paused: its late write is refused, and the others show which and why.
    let others = stage.others(first);
    stage.fleet.pause(first);
    stage.fleet.leader_according_to(&others).await;
    stage.traffic.flows(60).await;
    stage.fleet.resume(first);
    let http = stage.fleet.member(others[0]).http().clone();
    let (paused, number) = (name(&stage, first), epoch.to_string());
    let refused = entry(&http, "/v1/cluster/refusals", "refusals", |write| {
        write["fence"] == "leader" && write["node"] == paused.as_str() && write["against"].is_string()
    })
    .await;
    assert_eq!(refused["number"], number.as_str(), "{refused}");
    assert_ne!(refused["against"], number.as_str(), "{refused}");
    let term = entry(&http, "/v1/cluster/terms", "terms", |term| term["epoch"] == epoch && term["endedBy"].is_string());
    let term = term.await;
    // It notices by the refused write or by its own clock, whichever comes first.
    assert_eq!(term["node"], paused.as_str(), "{term}");
    assert!(["fenced", "expired"].iter().any(|why| term["endedBy"] == *why), "{term}");

    // A node that drains.
    let drained = stage.fleet.follower().await;
    let leaving = name(&stage, drained);
    let status = stage.fleet.terminate(drained).await;
    assert!(status.success(), "{status}");
    let left = stage.others(drained);
    let http = stage.fleet.member(left[0]).http().clone();
    entry(&http, "/v1/cluster/handoffs", "drains", |drain| {
        drain["node"] == leaving.as_str() && drain["endedAt"].is_string()
    })
    .await;

    // A leader that is killed: its term is over, although it reported nothing.
    let killed = stage.fleet.leader().await;
    let (epoch, victim) = (stage.epoch(killed).await, name(&stage, killed));
    stage.fleet.kill(killed).await;
    let survivors: Vec<usize> = stage.fleet.up().collect();
    stage.fleet.leader_according_to(&survivors).await;
    let http = stage.fleet.member(survivors[0]).http().clone();
    let ended = |term: &Value| term["epoch"] == epoch && term["endedAt"].is_string();
    let term = entry(&http, "/v1/cluster/terms", "terms", ended).await;
    assert_eq!((&term["node"], &term["endedBy"]), (&Value::from(victim.as_str()), &Value::from("expired")), "{term}");
    for index in [drained, killed] {
        stage.fleet.restart(index).await;
    }
    stage.close().await;
}
