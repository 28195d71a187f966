//! The pages of the cluster, of shards and of elections.

use std::sync::Arc;
use std::time::Duration;

use convoke_adapters::memory::MemoryRouting;
use convoke_core::NodeId;
use convoke_core::jobs::wire;
use convoke_core::shards::coordinator::Settings as ShardSettings;
use convoke_runtime::jobs::{Coordinator, Settings};
use convoke_runtime::shards::{ShardWorker, ShardsDuty, ShardsRelay, WorkerOptions};
use http::StatusCode;

use super::super::history::records_of_another_node;
use super::super::{Access, World, in_time, ports};
use super::{csrf, page, send_form};
use crate::Shards;

const SOCKET: &str = "memory://shards";

#[tokio::test]
async fn the_cluster_page_shows_terms_refused_writes_and_handoffs() {
    let ports = ports();
    let world = World::node("node-1", ports.clone(), Access::Insecure).await;
    let message = wire::encode(&records_of_another_node(ports.clock.now()));
    let shown = async {
        loop {
            let text = page(&world, "/cluster").await;
            if text.contains("data-node=\"node-2\"") {
                return text;
            }
            // It may not have subscribed yet.
            ports.bus.publish("convoke.history", message.clone()).await.expect("published");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let text = in_time("the records of another node", shown).await;
    for expected in [
        "1 of 1 nodes agree: node-1 leads",
        "slow-mark",
        "refused-mark",
        "it carried epoch 7, the sealed epoch is 8",
        "B: acknowledged after it was offered again",
        "a write or a renewal was refused: another node leads",
        "aria-label=\"Drain node-1\"",
    ] {
        assert!(text.contains(expected), "{expected} is missing in {text}");
    }
    for window in ["15m", "1h", "6h", "1d", "nonsense"] {
        page(&world, &format!("/cluster?window={window}")).await;
    }
}

#[tokio::test]
async fn a_node_is_drained_by_its_form_and_only_with_the_token_of_the_page() {
    let world = World::new().await;
    let text = page(&world, "/cluster").await;
    let refused = send_form(&world, "/cluster/nodes/node-1/drain", &[("csrf", "x")]).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    assert_eq!(world.get("/v1/nodes/node-1").await.body["state"], "active");
    let token = csrf(&text);
    let drained = send_form(&world, "/cluster/nodes/node-1/drain", &[("csrf", &token)]).await;
    assert_eq!(drained.status, StatusCode::SEE_OTHER, "{}", drained.body);
    assert_eq!(world.get("/v1/nodes/node-1").await.body["state"], "draining");
}

#[tokio::test]
async fn the_shards_of_a_service_are_shown_with_their_rebalances() {
    let (ports, network) = (ports(), MemoryRouting::default());
    let id = NodeId::new("node-1").expect("a name");
    let binding = Arc::new(network.binding(SOCKET));
    let duty = Arc::new(ShardsDuty::new(binding, ShardSettings::default(), false, ports.clock.clone()));
    let relay = Arc::new(ShardsRelay::new(id.clone(), ports.bus.clone(), "convoke", duty.view()));
    let shards = Shards { view: duty.view(), relay, is_wanted: true };
    let coordinator = Coordinator::start_with(id, ports, Settings::default(), vec![duty.into()]).await;
    let world = World::of(coordinator.expect("it starts"), Some(shards), Access::Insecure).await;
    let join = async |name: &str| {
        let options = WorkerOptions::new("my service", name, 10);
        ShardWorker::connect(Arc::new(network.clone()), vec![SOCKET.into()], options).await.expect("it connects")
    };
    let _first = join("<b>a</b>").await;
    let shown = async {
        loop {
            // Not found until the worker has registered.
            let response = world.get("/shards/my%20service").await;
            let text = response.body.as_str().unwrap_or_default().to_owned();
            if text.contains("0–9: nobody → ") {
                return text;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let text = in_time("the first rebalance", shown).await;
    assert!(text.contains("<rect class=\"own\" x=\"0\" y=\"0\" width=\"10\" height=\"1\"/>"), "{text}");
    assert!(text.contains("joined") && !text.contains("<b>a</b>"), "{text}");
    let _second = join("b").await;
    let history = in_time("the second rebalance", async {
        loop {
            let history = world.get("/v1/shards/my%20service/history").await.body;
            if history["rebalances"].as_array().is_some_and(|rebalances| rebalances.len() == 2) {
                return history;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let last = &history["rebalances"][0];
    assert_eq!(
        (&last["moved"], &last["moves"][0]["from"], &last["moves"][0]["to"]),
        (&5.into(), &"<b>a</b>".into(), &"b".into())
    );
    assert!(page(&world, "/shards").await.contains("/shards/my%20service"));
}

#[tokio::test]
async fn elections_are_listed_and_found_by_name() {
    let ports = ports();
    let world = World::node("node-1", ports.clone(), Access::Insecure).await;
    ports.leases.enroll("<i>nightly</i>", "member-7", Duration::from_secs(60)).await.expect("enrolled");
    let text = page(&world, "/elections").await;
    assert!(text.contains("<h2>coordinator</h2>") && text.contains("node-1"), "{text}");
    assert!(text.contains("member-7") && !text.contains("<i>nightly</i>"), "{text}");
    let text = page(&world, "/elections?namespace=unused").await;
    assert!(text.contains("nobody") && text.contains("none enrolled"), "{text}");
}
