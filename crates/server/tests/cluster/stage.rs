//! The start of every scenario: a cluster with work, whose store keeps a chronicle.

use convoke_testkit::process::{Chronicler, Fleet, FleetBuilder};
use serde_json::json;

use super::traffic::{self, Traffic};

pub const SCHEDULE: &str = "beat";
/// A queue of its own, with a worker of its own: ticks are not held up by the rest.
pub const TICKS: &str = "ticks";
const EVERY_MS: i64 = 250;
const WORKERS: usize = 4;

pub struct Stage {
    pub fleet: Fleet,
    pub traffic: Traffic,
    pub chronicler: Chronicler,
}

impl Stage {
    /// Three nodes, four workers that begin at different ones, jobs of every kind, a schedule that ticks. Returns once all
    /// of that flows.
    pub async fn open() -> Stage {
        Stage::open_with(&[]).await
    }

    /// The same, on a PostgreSQL whose commits are on the disk.
    pub async fn open_durable() -> Stage {
        Stage::start(Fleet::builder(env!("CARGO_BIN_EXE_convoke")).durable()).await
    }

    /// The same, with settings of every node.
    pub async fn open_with(settings: &[(&str, &str)]) -> Stage {
        let builder = Fleet::builder(env!("CARGO_BIN_EXE_convoke"));
        Stage::start(settings.iter().fold(builder, |builder, (key, value)| builder.set(key, value))).await
    }

    /// The same, with PostgreSQL as the bus.
    pub async fn open_on_postgres_alone(settings: &[(&str, &str)]) -> Stage {
        let builder = Fleet::builder(env!("CARGO_BIN_EXE_convoke")).on_postgres_alone();
        Stage::start(settings.iter().fold(builder, |builder, (key, value)| builder.set(key, value))).await
    }

    /// The same, and its commits are on the disk.
    pub async fn open_durable_on_postgres_alone() -> Stage {
        Stage::start(Fleet::builder(env!("CARGO_BIN_EXE_convoke")).on_postgres_alone().durable()).await
    }

    async fn start(builder: FleetBuilder) -> Stage {
        let mut fleet = builder.start().await;
        let chronicler = fleet.chronicler().await;
        for number in 0..WORKERS {
            fleet.start_worker(number, traffic::plan(&format!("worker-{number}"))).await;
        }
        let mut ticker = traffic::plan("ticker");
        ticker.queues = vec![TICKS.into()];
        fleet.start_worker(0, ticker).await;
        let schedule = json!({ "type": "tick", "queue": TICKS, "every": format!("{EVERY_MS}ms"), "missed": "all",
                               "overlap": "allow", "maxRetries": 20 });
        let put = fleet.any().send("PUT", &format!("/v1/schedules/{SCHEDULE}"), Some(schedule)).await;
        assert!(put.expect("a response").status < 300);
        let traffic = Traffic::start(&fleet.homes(0), &fleet.observations);
        traffic.flows(60).await;
        Stage { fleet, traffic, chronicler }
    }

    /// A node other than these that runs.
    pub fn another_than(&self, these: &[usize]) -> usize {
        self.fleet.up().find(|index| !these.contains(index)).expect("another node runs")
    }

    /// All that run but this one.
    pub fn others(&self, index: usize) -> Vec<usize> {
        self.fleet.up().filter(|other| *other != index).collect()
    }

    /// Returns the current epoch, as a node shows it.
    pub async fn epoch(&self, index: usize) -> u64 {
        let cluster = self.fleet.member(index).http().read("/v1/cluster").await;
        cluster["epoch"].as_u64().expect("an epoch")
    }
}
