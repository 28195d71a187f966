//! `convoke serve` that listens for workers, and what it shows of them.

use std::time::Duration;

use convoke_testkit::process::{Javascript, Node};
use serde_json::Value;

pub struct Stage {
    node: Node,
    address: String,
}

/// A worker as the coordinator shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    pub worker: String,
    pub shards: Vec<u32>,
    pub active: bool,
}

impl Stage {
    pub async fn start(strategy: &str, heartbeat_timeout: Duration, check_interval: Duration) -> Stage {
        let builder = Node::builder(env!("CARGO_BIN_EXE_convoke"))
            .store("memory:")
            .args(["--shards", "tcp://127.0.0.1:0"])
            .set("shards.strategy", strategy)
            .set("shards.heartbeat_timeout", &format!("{}ms", heartbeat_timeout.as_millis()))
            .set("shards.check_interval", &format!("{}ms", check_interval.as_millis()));
        let mut node = builder.start().await;
        let received =
            |line: &str| line.trim().strip_prefix("shards")?.trim().starts_with("tcp://").then(|| line.to_owned());
        let line = node.program().line("where it listens for shard workers", received).await.expect("it runs");
        let address = line.split_whitespace().last().expect("it has words").to_owned();
        Stage { node, address }
    }

    /// On a store that lasts, at an address that stays the same when it is restarted.
    pub async fn lasting(heartbeat_timeout: Duration) -> Stage {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = format!("tcp://{}", listener.local_addr().expect("it is bound"));
        drop(listener);
        let builder = Node::builder(env!("CARGO_BIN_EXE_convoke"))
            .args(["--shards", &address])
            .set("shards.strategy", "sticky")
            .set("shards.heartbeat_timeout", &format!("{}ms", heartbeat_timeout.as_millis()))
            .set("shards.check_interval", "100ms");
        Stage { node: builder.start().await, address }
    }

    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Kills the coordinator and starts it again, on the same store.
    pub async fn crash(&mut self) {
        self.node.kill().await;
        self.node.restart().await;
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    pub async fn metric(&self, name: &str, label: &str) -> f64 {
        self.node.http().metric(name, &[label]).await
    }

    /// The workers of a service, in order of their ids.
    pub async fn workers(&self, service: &str) -> Vec<Shown> {
        let response = self.node.http().get(&format!("/v1/shards/{service}")).await.expect("it responds");
        // Nobody has registered yet, or nobody is left.
        if response.status == 404 {
            return Vec::new();
        }
        let status = response.expect(200);
        let shown = |worker: &Value| Shown {
            worker: worker["workerId"].as_str().expect("a name").to_owned(),
            shards: serde_json::from_value(worker["shards"].clone()).expect("shards"),
            active: worker["active"].as_bool().expect("yes or no"),
        };
        status["workers"].as_array().expect("a list").iter().map(shown).collect()
    }

    /// Returns the shards of each active worker of the service.
    pub async fn owned(&self, service: &str) -> Vec<(String, Vec<u32>)> {
        let workers = self.workers(service).await;
        workers.into_iter().filter(|it| it.active).map(|it| (it.worker, it.shards)).collect()
    }
}

/// The scripts beside this file.
pub async fn javascript() -> Javascript {
    let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/shards/node");
    Javascript::install(sources, env!("CARGO_TARGET_TMPDIR")).await
}
