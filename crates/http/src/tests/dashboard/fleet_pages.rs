//! The pages of the cluster, of shards and of elections.

use std::sync::Arc;
use std::time::Duration;

use convoke_adapters::memory::MemoryRouting;
use convoke_core::jobs::wire::{self, CoordinatorHeartbeat, NodeRole, NodeState};
use convoke_core::ports::store::NodeRecord;
use convoke_core::shards::coordinator::Settings as ShardSettings;
use convoke_core::{Epoch, NodeId};
use convoke_runtime::jobs::{Coordinator, Ports, Settings};
use convoke_runtime::shards::{ShardWorker, ShardsDuty, ShardsRelay, WorkerOptions};
use http::StatusCode;

use super::super::history::{records_of, records_of_another_node};
use super::super::{Access, World, in_time, ports};
use super::hostile::HOSTILE;
use super::{csrf, page, send_form};
use crate::Shards;
use crate::dashboard::text::encode;

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

/// Adds a node to the registry, and publishes its heartbeats and its history until a page shows them.
async fn another_node(world: &World, ports: &Ports, name: &str, shows: (&str, &str)) -> String {
    let (id, now) = (NodeId::new(name).expect("a name"), ports.clock.now());
    let record = NodeRecord {
        node_id: id.clone(),
        role: NodeRole::Follower,
        state: NodeState::Active,
        since: now,
        job_count: 0,
        started_at: now,
        last_heartbeat_at: now,
        version: name.into(),
    };
    ports.store.record_node_heartbeat(record).await.expect("recorded");
    let heartbeat = CoordinatorHeartbeat {
        v: wire::V1,
        node_id: id.clone(),
        job_count: 0,
        state: NodeState::Active,
        role: Some(NodeRole::Follower),
        epoch: Epoch(1 << 41),
        leader: Some(id),
        lease_read_at: Some(now),
        at: now,
        worker_heartbeat_interval: None,
        worker_stale_after: None,
    };
    let records = wire::encode(&records_of(name, now));
    in_time("the page of another node", async {
        loop {
            // The node may not have subscribed yet.
            for (channel, body) in
                [("convoke.history", records.clone()), ("convoke.coordinator.heartbeat", wire::encode(&heartbeat))]
            {
                ports.bus.publish(channel, body).await.expect("published");
            }
            let (path, text) = shows;
            let shown = page(world, path).await;
            if shown.contains(text) {
                return shown;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
}

#[tokio::test]
async fn a_node_that_believes_in_another_leader_is_a_problem_with_a_link() {
    let ports = ports();
    let world = World::node("node-1", ports.clone(), Access::Insecure).await;
    assert!(page(&world, "/").await.contains("1 of 1 nodes agree"));
    let text = another_node(&world, &ports, "node-2", ("/", "Node node-2 disagrees")).await;
    assert!(text.contains("it believes that node-2 leads, epoch 2199023255552"), "{text}");
    assert!(text.contains("href=\"/cluster#nodes-title\"") && !text.contains("Healthy"), "{text}");
    let cluster = page(&world, "/cluster").await;
    assert!(cluster.contains("1 of 2 nodes agree") && cluster.contains("differs"), "{cluster}");
    assert!(cluster.contains("id=\"nodes-title\""), "the link leads somewhere");
}

#[tokio::test]
async fn names_of_nodes_services_workers_and_namespaces_are_text_on_the_pages_of_the_fleet() {
    let (ports, network) = (ports(), MemoryRouting::default());
    let id = NodeId::new("node-1").expect("a name");
    let binding = Arc::new(network.binding(SOCKET));
    let duty = Arc::new(ShardsDuty::new(binding, ShardSettings::default(), false, ports.clock.clone()));
    let relay = Arc::new(ShardsRelay::new(id.clone(), ports.bus.clone(), "convoke", duty.view()));
    let shards = Shards { view: duty.view(), relay, is_wanted: true };
    let coordinator = Coordinator::start_with(id, ports.clone(), Settings::default(), vec![duty.into()]).await;
    let world = World::of(coordinator.expect("it starts"), Some(shards), Access::Insecure).await;
    let escaped = "&#60;script&#62;alert(1)";
    another_node(&world, &ports, HOSTILE, ("/", &format!("Node {escaped}"))).await;
    another_node(&world, &ports, HOSTILE, ("/cluster", "refused-mark")).await;
    let options = WorkerOptions::new(HOSTILE, HOSTILE, 10);
    let _worker = ShardWorker::connect(Arc::new(network.clone()), vec![SOCKET.into()], options).await.expect("joins");
    let service = format!("/shards/{}", encode(HOSTILE));
    in_time("the service", async {
        while world.get(&service).await.status != StatusCode::OK {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    ports.leases.enroll(HOSTILE, HOSTILE, Duration::from_secs(60)).await.expect("enrolled");
    let _instance = super::super::mesh::instance(HOSTILE, HOSTILE).await;
    let mesh = format!("/mesh?name={}", encode(HOSTILE));
    let namespace = format!("/elections?namespace={}", encode(HOSTILE));
    for path in ["/", "/cluster", "/shards", &service, "/elections", &namespace, &mesh] {
        let shown = page(&world, path).await;
        for part in ["<script>alert", "<img src=x", "onerror=alert(2)>"] {
            assert!(!shown.contains(part), "{path} contains {part}:\n{shown}");
        }
        assert!(shown.contains(escaped), "{path} does not show the name:\n{shown}");
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
