//! The nodes and workers of the cluster: processes of this binary, each with a history and a log of its own.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use convoke::Http;
use http::Method;
use rustix::process::Signal;
use serde::Deserialize;
use tokio::process::Command;

use super::engines::Engines;
use super::producers::QUEUES;
use crate::election::engine::free_port;
use crate::process::{self, Output, Process};

/// Workers of the cluster.
const WORKERS: usize = 3;
/// How often a node is started before that counts as a failure.
const STARTS_MAX: usize = 5;
/// How long a paused node stands still: longer than its lease.
pub const PAUSED_FOR: Duration = Duration::from_millis(3_500);

/// Short timings, so that a minute has many failovers.
const SETTINGS: [(&str, &str); 13] = [
    ("CLUSTER__HEARTBEAT_INTERVAL", "250ms"),
    ("CLUSTER__DEAD_NODE_TIMEOUT", "2s"),
    ("CLUSTER__LEASE_DURATION", "2500ms"),
    ("CLUSTER__RENEW_INTERVAL", "500ms"),
    ("CLUSTER__ORPHAN_CHECK_INTERVAL", "500ms"),
    ("CLUSTER__HANDOFF_ACK_TIMEOUT", "500ms"),
    ("CLUSTER__HANDOFF_ORPHAN_WAIT", "1s"),
    ("CLUSTER__HANDOFF_HARD_TIMEOUT", "6s"),
    ("WORKER__HEARTBEAT_INTERVAL", "250ms"),
    ("WORKER__STALE_AFTER", "3s"),
    ("RETRY__INITIAL_DELAY", "20ms"),
    ("RETRY__MAX_DELAY", "200ms"),
    ("RETRY__MAX_RETRIES", "50"),
];

pub struct Cluster {
    directory: PathBuf,
    nodes: Vec<Node>,
    workers: Vec<Option<Process>>,
}

struct Node {
    name: String,
    port: u16,
    process: Option<Process>,
}

impl Cluster {
    pub fn new(directory: &Path, nodes: u8) -> Result<Cluster> {
        let node =
            |number| -> Result<Node> { Ok(Node { name: format!("node-{number}"), port: free_port()?, process: None }) };
        let nodes = (1..=nodes).map(node).collect::<Result<_>>()?;
        Ok(Cluster { directory: directory.to_owned(), nodes, workers: (0..WORKERS).map(|_| None).collect() })
    }

    pub async fn start(&mut self, engines: &Engines) -> Result<()> {
        for nth in 0..self.nodes.len() {
            self.start_node(nth, engines).await?;
        }
        for nth in 0..WORKERS {
            self.start_worker(nth).await?;
        }
        Ok(())
    }

    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(|node| format!("http://127.0.0.1:{}", node.port)).collect()
    }

    /// Returns a client of any node.
    pub fn http(&self) -> Result<Http> {
        Ok(Http::connect(&self.urls().join(","), None)?)
    }

    pub fn size(&self) -> usize {
        self.nodes.len()
    }

    pub fn workers(&self) -> usize {
        WORKERS
    }

    pub fn name(&self, nth: usize) -> &str {
        &self.nodes[nth].name
    }

    fn log(&self, name: &str) -> Result<File> {
        Ok(OpenOptions::new().create(true).append(true).open(self.directory.join(format!("{name}.log")))?)
    }

    fn command(&self, name: &str) -> Result<Command> {
        let mut command = process::ourselves()?;
        command.current_dir(&self.directory).stderr(self.log(name)?).env("LOG_LEVEL", "info");
        // Signals of a terminal are for this process alone.
        command.process_group(0);
        Ok(command)
    }

    pub async fn start_node(&mut self, nth: usize, engines: &Engines) -> Result<()> {
        let (name, port) = (self.nodes[nth].name.clone(), self.nodes[nth].port);
        let mut failure = None;
        for _ in 0..STARTS_MAX {
            let mut command = self.command(&name)?;
            command.args(["serve", "--node-id", &name, "--http", &format!("127.0.0.1:{port}"), "--shards", "off"]);
            command.args(["--store", &engines.store()]).arg("--history").arg(self.history(&name));
            if let Some(bus) = engines.bus() {
                command.args(["--bus", &bus]);
            }
            for (key, value) in SETTINGS {
                command.env(format!("CONVOKE_{key}"), value);
            }
            let ready = |line: &str| line.trim_start().starts_with("node ").then_some(());
            match Process::start("a node", command, Output::Standard, ready).await {
                Ok((process, ())) => {
                    self.nodes[nth].process = Some(process);
                    return Ok(());
                }
                Err(error) => failure = Some(error),
            }
        }
        let why = failure.map(|error| error.to_string()).unwrap_or_default();
        bail!("{name} cannot be started: {why}; its log ends with: {}", self.last_line(&name))
    }

    fn history(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{name}.jsonl"))
    }

    fn last_line(&self, name: &str) -> String {
        let text = std::fs::read_to_string(self.directory.join(format!("{name}.log"))).unwrap_or_default();
        text.lines().last().unwrap_or("nothing").to_owned()
    }

    pub async fn start_worker(&mut self, nth: usize) -> Result<()> {
        let name = format!("worker-{}", nth + 1);
        let mut command = self.command(&name)?;
        // Each prefers another node.
        let mut urls = self.urls();
        let places = urls.len();
        urls.rotate_left(nth % places);
        command.args(["chaos", "worker", "--id", &name, "--servers", &urls.join(","), "--queues", &QUEUES.join(",")]);
        command.arg("--history").arg(self.history(&name));
        let ready = |line: &str| (line == "ready").then_some(());
        let (process, ()) = Process::start("a worker", command, Output::Standard, ready).await?;
        self.workers[nth] = Some(process);
        Ok(())
    }

    /// Returns the place of the node that leads, as far as any node knows.
    pub async fn leader(&self) -> Option<usize> {
        #[derive(Deserialize)]
        struct View {
            leader: Option<String>,
        }
        let http = self.http().ok()?;
        let view: View = http.json(Method::GET, "/v1/cluster", None::<&()>).await.ok()?;
        let leader = view.leader?;
        self.nodes.iter().position(|node| node.name == leader)
    }

    pub async fn kill_node(&mut self, nth: usize) -> Result<()> {
        match self.nodes[nth].process.take() {
            Some(process) => process.kill().await,
            None => Ok(()),
        }
    }

    pub async fn kill_worker(&mut self, nth: usize) -> Result<()> {
        match self.workers[nth].take() {
            Some(process) => process.kill().await,
            None => Ok(()),
        }
    }

    /// Stops a node for longer than its lease, and lets it go on.
    pub async fn pause_node(&mut self, nth: usize) -> Result<()> {
        if let Some(process) = &self.nodes[nth].process {
            process.signal(Signal::STOP)?;
            tokio::time::sleep(PAUSED_FOR).await;
            process.signal(Signal::CONT)?;
        }
        Ok(())
    }

    /// Asks a node to hand its runs over and to leave.
    pub async fn drain_node(&mut self, nth: usize) -> Result<()> {
        if let Some(process) = self.nodes[nth].process.take() {
            // Runs that found no other owner in time make it exit with 1; the next leader finds them.
            process.end().await?;
        }
        Ok(())
    }

    /// Starts what does not run. A node that has ended by itself is a failure.
    pub async fn heal(&mut self, engines: &Engines) -> Result<()> {
        for nth in 0..self.nodes.len() {
            if self.nodes[nth].process.as_mut().is_some_and(Process::has_ended) {
                let name = &self.nodes[nth].name;
                bail!("{name} has ended by itself; its log ends with: {}", self.last_line(name));
            }
            if self.nodes[nth].process.is_none() {
                self.start_node(nth, engines).await?;
            }
        }
        for nth in 0..WORKERS {
            if self.workers[nth].as_mut().is_none_or(Process::has_ended) {
                self.start_worker(nth).await?;
            }
        }
        Ok(())
    }

    /// Stops workers, then nodes, so that their histories have an end.
    pub async fn stop(&mut self) -> Result<()> {
        for worker in self.workers.iter_mut().filter_map(Option::take) {
            worker.end().await.context("a worker")?;
        }
        for node in self.nodes.iter_mut().filter_map(|node| node.process.take()) {
            node.end().await.context("a node")?;
        }
        Ok(())
    }

    /// Kills what runs.
    pub async fn kill(mut self) {
        let nodes = self.nodes.iter_mut().filter_map(|node| node.process.take());
        for process in nodes.chain(self.workers.iter_mut().filter_map(Option::take)) {
            // It is gone already.
            let _ = process.kill().await;
        }
    }
}
