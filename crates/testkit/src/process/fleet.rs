//! A cluster under test: several coordinators on one Redis and one PostgreSQL, or on one PostgreSQL alone, and workers that
//! connect to any of them.
//!
//! Every node reaches each engine by a [`Proxy`] of its own, so that it can be parted from one of them alone, and writes under
//! its own name, so that a [`Chronicler`] knows which node wrote what. Timings are short: what takes half a minute in production
//! takes two seconds here. The engines are the fleet's own, since faults are theirs as well. Whatever the fleet started goes with
//! it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitStatus;

use convoke_core::verify::{Expectations, History, Place};
use serde_json::Value;

use super::bus_reader::BusReader;
use super::bus_worker::BusWorker;
use super::chronicler::Chronicler;
use super::gateway::{GatewayWorker, Plan};
use super::http::Http;
use super::node::{Node, NodeBuilder};
use super::postgres::{Durability, Postgres};
use super::program::Signal;
use super::proxy::Proxy;
use super::puppet::Puppet;
use super::redis::RedisServer;
use super::waiting::{eventually, wait_for_value};
use crate::invariants::Observations;

/// A fleet to start.
#[derive(Debug, Clone)]
pub struct FleetBuilder {
    binary: PathBuf,
    size: usize,
    settings: Vec<(String, String)>,
    args: Vec<String>,
    /// Of one node each: its id, a key and a value.
    own_settings: Vec<(String, String, String)>,
    durability: Durability,
    has_redis: bool,
}

pub struct Fleet {
    workers: Vec<GatewayWorker>,
    members: Vec<Member>,
    grounds: Grounds,
    /// None if the bus is in PostgreSQL.
    redis: Option<RedisServer>,
    pub postgres: Postgres,
    pub observations: Observations,
}

/// The addresses and settings that a node needs to join.
#[derive(Debug, Clone)]
struct Grounds {
    binary: PathBuf,
    settings: Vec<(String, String)>,
    args: Vec<String>,
    own_settings: Vec<(String, String, String)>,
    redis: Option<SocketAddr>,
    postgres: SocketAddr,
    database: String,
    prefix: String,
}

/// A node with its wires.
pub struct Member {
    pub id: String,
    /// Without a Redis nothing goes this way.
    pub redis: Proxy,
    pub postgres: Proxy,
    node: Node,
    state: State,
}

/// The current resources of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footprint {
    pub threads: usize,
    /// Connections that it has to each engine.
    pub redis: usize,
    pub postgres: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Up,
    Paused,
    Down,
}

/// Twice as patient as a single node's, since three of them share two cores.
const TIMINGS: [(&str, &str); 12] = [
    ("cluster.heartbeat_interval", "250ms"),
    ("cluster.dead_node_timeout", "2s"),
    ("cluster.lease_duration", "2s"),
    ("cluster.renew_interval", "500ms"),
    ("cluster.orphan_check_interval", "500ms"),
    ("cluster.handoff_ack_timeout", "500ms"),
    ("cluster.handoff_orphan_wait", "1s"),
    ("cluster.handoff_hard_timeout", "6s"),
    ("worker.heartbeat_interval", "250ms"),
    ("worker.stale_after", "3s"),
    ("retry.initial_delay", "20ms"),
    ("retry.max_delay", "200ms"),
];

impl Grounds {
    async fn member(&self, id: &str) -> Member {
        let redis = Proxy::start(self.redis.unwrap_or(self.postgres)).await;
        let postgres = Proxy::start(self.postgres).await;
        let store = format!("{}&application_name={id}", database_url(postgres.address(), &self.database));
        let builder = NodeBuilder::new(&self.binary).store(&store);
        let history = builder.directory().join("history.jsonl").display().to_string();
        let builder = builder.args(["--node-id", id, "--bus-prefix", &self.prefix, "--history", &history]);
        let builder = match self.redis {
            Some(_) => builder.args(["--bus", &format!("redis://{}", redis.address())]),
            None => builder,
        };
        let builder = builder.args(self.args.iter().cloned());
        let own = self.own_settings.iter().filter(|(node, ..)| node == id);
        let own = own.map(|(_, key, value)| (key.as_str(), value.as_str()));
        let settings = self.settings.iter().map(|(key, value)| (key.as_str(), value.as_str())).chain(own);
        let builder =
            TIMINGS.into_iter().chain(settings).fold(builder, |builder, (key, value)| builder.set(key, value));
        Member { id: id.into(), redis, postgres, node: builder.start().await, state: State::Up }
    }
}

/// The queues of the bus in PostgreSQL that begin with a prefix.
async fn bus_queues(url: &str, prefix: &str) -> Vec<String> {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.expect("PostgreSQL responds");
    tokio::spawn(connection);
    let queues = "select queue from convoke_bus_entries where starts_with(queue, $1) \
                  union select queue from convoke_bus_groups where starts_with(queue, $1)";
    let rows = client.query(queues, &[&prefix]).await.expect("queues");
    rows.iter().map(|row| row.get("queue")).collect()
}

fn database_url(address: SocketAddr, database: &str) -> String {
    format!("postgres://postgres@{address}/{database}?sslmode=disable")
}

impl FleetBuilder {
    /// Sets a configuration key of every node; the last setting of a key counts.
    pub fn set(mut self, key: &str, value: &str) -> Self {
        self.settings.push((key.into(), value.into()));
        self
    }

    /// More arguments of every node's command line.
    pub fn args<A: Into<String>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets a configuration key of one node, which starts with the fleet or joins later.
    pub fn set_on(mut self, node: &str, key: &str, value: &str) -> Self {
        self.own_settings.push((node.into(), key.into(), value.into()));
        self
    }

    pub fn size(self, size: usize) -> Self {
        FleetBuilder { size, ..self }
    }

    /// PostgreSQL writes each commit to the disk before it acknowledges it.
    pub fn durable(self) -> Self {
        FleetBuilder { durability: Durability::Durable, ..self }
    }

    /// PostgreSQL is the bus too, as it is by default.
    pub fn on_postgres_alone(self) -> Self {
        FleetBuilder { has_redis: false, ..self }
    }

    /// Starts the engines, then `node-1`, `node-2`… all at once, as machines do after a power cut, and waits until they agree
    /// on who leads.
    pub async fn start(self) -> Fleet {
        let FleetBuilder { binary, size, settings, own_settings, args, durability, has_redis } = self;
        let redis = async { if has_redis { Some(RedisServer::start().await) } else { None } };
        let (redis, postgres) = tokio::join!(redis, Postgres::start(durability));
        let url = postgres.create_database();
        let database = url.rsplit('/').next().and_then(|rest| rest.split('?').next()).expect("a URL names a database");
        let local = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let grounds = Grounds {
            binary,
            settings,
            args,
            own_settings,
            redis: redis.as_ref().map(|redis| local(redis.port())),
            postgres: local(postgres.port()),
            database: database.into(),
            prefix: format!("fleet-{database}"),
        };
        let mut starting = tokio::task::JoinSet::new();
        for number in 1..=size {
            let grounds = grounds.clone();
            starting.spawn(async move { grounds.member(&format!("node-{number}")).await });
        }
        let mut members = starting.join_all().await;
        members.sort_by(|a, b| a.id.cmp(&b.id));
        let fleet =
            Fleet { workers: Vec::new(), members, grounds, redis, postgres, observations: Observations::default() };
        fleet.leader().await;
        fleet
    }
}

impl Fleet {
    /// `binary` is the caller's `env!("CARGO_BIN_EXE_convoke")`.
    pub fn builder(binary: impl Into<PathBuf>) -> FleetBuilder {
        FleetBuilder {
            binary: binary.into(),
            size: 3,
            settings: Vec::new(),
            own_settings: Vec::new(),
            args: Vec::new(),
            durability: Durability::Fast,
            has_redis: true,
        }
    }

    /// The Redis of a fleet that has one.
    pub fn redis(&mut self) -> &mut RedisServer {
        self.redis.as_mut().expect("the fleet has a Redis")
    }

    /// Before the name of every channel.
    pub fn prefix(&self) -> &str {
        &self.grounds.prefix
    }

    pub fn member(&self, index: usize) -> &Member {
        &self.members[index]
    }

    /// Starts one more node; its index.
    pub async fn join(&mut self, id: &str) -> usize {
        self.members.push(self.grounds.member(id).await);
        self.members.len() - 1
    }

    /// The nodes that run: neither killed, nor ended, nor paused.
    pub fn up(&self) -> impl Iterator<Item = usize> {
        self.members.iter().enumerate().filter(|(_, member)| member.state == State::Up).map(|(index, _)| index)
    }

    /// Every node's API, this one's first. Stopped nodes are among them: the caller must try the next.
    pub fn homes(&self, first: usize) -> Vec<Http> {
        let count = self.members.len();
        (0..count).map(|step| self.members[(first + step) % count].http().clone()).collect()
    }

    /// The API of a node that runs.
    pub fn any(&self) -> &Http {
        self.members[self.up().next().expect("a node runs")].http()
    }

    /// Returns the leader, once all nodes that run name the same one and it is one of them.
    pub async fn leader(&self) -> usize {
        let up: Vec<usize> = self.up().collect();
        self.leader_according_to(&up).await
    }

    /// Returns the leader, once these nodes name the same one and it is one of them.
    pub async fn leader_according_to(&self, asked: &[usize]) -> usize {
        eventually("nodes that agree on a leader among them", || async {
            let mut leaders = Vec::new();
            for index in asked {
                let cluster = self.members[*index].cluster().await?;
                leaders.push(cluster["leader"].as_str()?.to_owned());
            }
            leaders.dedup();
            let [leader] = leaders.as_slice() else { return None };
            asked.iter().copied().find(|index| self.members[*index].id == *leader)
        })
        .await
    }

    /// A node that runs and does not lead.
    pub async fn follower(&self) -> usize {
        let leader = self.leader().await;
        self.up().find(|index| *index != leader).expect("there is more than one node")
    }

    /// SIGKILL.
    pub async fn kill(&mut self, index: usize) {
        self.members[index].node.kill().await;
        self.members[index].state = State::Down;
    }

    /// SIGSTOP: it stays where it is, connections and all, and does nothing.
    pub fn pause(&mut self, index: usize) {
        self.members[index].node.signal(Signal::STOP);
        self.members[index].state = State::Paused;
    }

    /// SIGCONT.
    pub fn resume(&mut self, index: usize) {
        self.members[index].node.signal(Signal::CONT);
        self.members[index].state = State::Up;
    }

    /// SIGTERM, and waits for its end.
    pub async fn terminate(&mut self, index: usize) -> ExitStatus {
        let member = &mut self.members[index];
        member.state = State::Down;
        member.node.signal(Signal::TERM);
        member.node.program().wait().await
    }

    /// Waits for the end of a node that was asked to go.
    pub async fn gone(&mut self, index: usize) -> ExitStatus {
        let member = &mut self.members[index];
        member.state = State::Down;
        member.node.program().wait().await
    }

    /// Starts it again under its id, with the same wires, on another port.
    pub async fn restart(&mut self, index: usize) {
        self.members[index].node.restart().await;
        self.members[index].state = State::Up;
    }

    /// Starts a worker by the gateways, at this node first; its index.
    pub async fn start_worker(&mut self, home: usize, plan: Plan) -> usize {
        self.workers.push(GatewayWorker::start_among(&self.homes(home), &self.observations, plan).await);
        self.workers.len() - 1
    }

    pub fn worker(&self, index: usize) -> &GatewayWorker {
        &self.workers[index]
    }

    /// A worker's sudden death. The others keep their indices no longer.
    pub fn drop_worker(&mut self, worker: usize) {
        drop(self.workers.remove(worker));
    }

    /// Starts a worker that uses the bus directly, past every proxy.
    pub async fn bus_worker(&self, id: &str, queue: &str, concurrency: usize) -> BusWorker {
        BusWorker::start(&self.bus_url(), self.prefix(), id, queue, concurrency).await
    }

    /// Starts a worker that only reads its queue, past every proxy.
    pub async fn bus_reader(&self, name: &str, queue: &str) -> BusReader {
        BusReader::start(&self.bus_url(), self.prefix(), name, queue).await
    }

    /// Registers a node without a process that handles offers as `takes` decides.
    pub async fn puppet(&self, id: &str, takes: impl Fn(&Value) -> bool + Send + Sync + 'static) -> Puppet {
        Puppet::start(&self.bus_url(), &self.store_url(), self.prefix(), id, takes).await
    }

    /// Redis itself, past every proxy.
    fn bus_url(&self) -> String {
        format!("redis://{}", self.grounds.redis.expect("the fleet has a Redis"))
    }

    /// The store itself, past every proxy.
    fn store_url(&self) -> String {
        database_url(self.grounds.postgres, &self.grounds.database)
    }

    /// Begins to keep the store's chronicle. To be asked for before there are jobs.
    pub async fn chronicler(&self) -> Chronicler {
        let leader = self.leader().await;
        Chronicler::install(&self.store_url(), &self.members[leader].id).await
    }

    /// Has Redis itself do something, as anybody could.
    pub async fn ask_bus<T: redis::FromRedisValue>(&self, arguments: &[&str]) -> T {
        let mut connection = self.bus_connection().await;
        let mut command = redis::cmd(arguments[0]);
        command.arg(&arguments[1..]);
        command.query_async(&mut connection).await.unwrap_or_else(|error| panic!("{arguments:?}: {error}"))
    }

    async fn bus_connection(&self) -> redis::aio::MultiplexedConnection {
        let client = redis::Client::open(self.bus_url()).expect("an address");
        eventually("Redis", || async { client.get_multiplexed_async_connection().await.ok() }).await
    }

    /// All keys or queues on the bus that begin with the fleet's prefix.
    pub async fn bus_keys(&self) -> Vec<String> {
        if self.redis.is_none() {
            return bus_queues(&self.store_url(), self.prefix()).await;
        }
        let mut connection = self.bus_connection().await;
        let mut keys = Vec::new();
        let mut cursor = 0_u64;
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg(format!("{}*", self.grounds.prefix)).arg("COUNT").arg(1000);
            let (next, found): (u64, Vec<String>) = scan.query_async(&mut connection).await.expect("keys");
            keys.extend(found);
            cursor = next;
            if cursor == 0 {
                return keys;
            }
        }
    }

    /// Waits until every node that runs is in the registry as active, and nobody else is.
    pub async fn wait_until_active(&self) {
        let mut expected: Vec<String> = self.up().map(|index| self.members[index].id.clone()).collect();
        expected.sort();
        wait_for_value("the registry's active nodes", expected, || async {
            let nodes = self.any().get("/v1/nodes").await.map(|response| response.json()).unwrap_or_default();
            let nodes = nodes["nodes"].as_array().cloned().unwrap_or_default();
            let active = nodes.iter().filter(|node| node["state"] == "active");
            active.filter_map(|node| node["nodeId"].as_str().map(str::to_owned)).collect()
        })
        .await;
    }

    /// Checks the histories of all nodes, those that are gone included. Panics with the breaches, and if lines are missing.
    #[track_caller]
    pub fn histories_hold(&self) {
        let mut history = History::default();
        for member in &self.members {
            let path = member.node.settings().directory().join("history.jsonl");
            let text = std::fs::read_to_string(path).expect("every node has a history");
            let file: std::sync::Arc<str> = member.id.as_str().into();
            for (line, text) in (1..).zip(text.lines()) {
                let place = Place { file: file.clone(), line };
                history.read_line(place, text).expect("a line of a history");
            }
        }
        let report = history.check(Expectations::default());
        assert_eq!(report.violations, [], "the histories of the nodes show it");
        assert!(report.is_complete() && report.summary.epochs > 0, "{:?} {:?}", report.summary, report.notes);
    }

    /// The sum of a metric over the nodes that run.
    pub async fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        let mut sum = 0.0;
        for index in self.up() {
            sum += self.members[index].http().metric(name, labels).await;
        }
        sum
    }
}

impl Member {
    /// All that it has printed so far, both streams.
    pub fn printed(&self) -> Vec<String> {
        self.node.printed()
    }

    /// All its connections go by its own wires, where they are counted.
    pub fn footprint(&self) -> Footprint {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.node.pid())).expect("it runs");
        let (redis, postgres) = (self.redis.connections(), self.postgres.connections());
        Footprint { threads: tasks.count(), redis, postgres }
    }

    pub fn http(&self) -> &Http {
        self.node.http()
    }

    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Returns its view of the cluster, or nothing if it cannot respond.
    pub async fn cluster(&self) -> Option<Value> {
        let response = self.http().get("/v1/cluster").await.ok()?;
        (response.status == 200).then(|| response.json())
    }
}
