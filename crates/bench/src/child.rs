//! A private server, started as a user would start it.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;

use super::process::{self, Output, Process};
use super::processor_time;

pub struct Child {
    process: Process,
    url: String,
    /// Where it listens for shard workers; `None` if it does not.
    pub shards: Option<String>,
}

/// The engines of the private servers.
#[derive(Debug, Clone, Default, Args)]
pub struct Engines {
    /// Store of the private servers [default: a SQLite file that is deleted after the run]
    #[arg(long, value_name = "URL", conflicts_with = "server")]
    pub store: Option<String>,
    /// Bus of the private servers [default: in process]
    #[arg(long, value_name = "URL", conflicts_with = "server")]
    pub bus: Option<String>,
    /// Prefix of the names on that bus
    #[arg(long, value_name = "PREFIX", default_value = "convoke-bench")]
    pub bus_prefix: String,
    /// Number of private servers; more than one need a store and a bus that they can share
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "server",
        value_parser = clap::value_parser!(u8).range(1..=16))]
    pub nodes: u8,
    /// The private servers write the history of their fenced decisions, to files that are deleted after the run
    #[arg(long, conflicts_with = "server")]
    pub history: bool,
    /// Workers use the bus instead of a gateway
    #[arg(long, requires = "bus")]
    pub bus_workers: bool,
}

/// The private servers: one, or the nodes of a cluster.
#[derive(Default)]
pub struct Children(Vec<Child>);

impl Children {
    pub async fn start(dir: &Path, engines: &Engines) -> Result<Children> {
        let mut children = Children::default();
        for _ in 0..engines.nodes {
            let nth = children.0.len();
            children.0.push(Child::start_nth(dir, engines, "off", nth).await?);
        }
        Ok(children)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn urls(&self) -> Vec<String> {
        self.0.iter().map(|child| child.url.clone()).collect()
    }

    /// The sum over all of them.
    pub fn memory(&self) -> Result<Memory> {
        self.0.iter().try_fold(Memory { now_mb: 0.0, peak_mb: 0.0 }, |sum, child| {
            let memory = child.memory()?;
            Ok(Memory { now_mb: sum.now_mb + memory.now_mb, peak_mb: sum.peak_mb + memory.peak_mb })
        })
    }

    /// The sum over all of them.
    pub fn processor_time(&self) -> Result<Duration> {
        self.0.iter().try_fold(Duration::ZERO, |sum, child| Ok(sum + child.processor_time()?))
    }

    pub async fn stop(self) -> Result<()> {
        for child in self.0 {
            child.stop().await?;
        }
        Ok(())
    }
}

/// The resident memory of a process.
pub struct Memory {
    pub now_mb: f64,
    pub peak_mb: f64,
}

impl Child {
    /// Starts on the given engines, or else on a file in `dir`.
    pub async fn start(dir: &Path, engines: &Engines, shards: &str) -> Result<Child> {
        Self::start_nth(dir, engines, shards, 0).await
    }

    /// The same; each of several has a history of its own.
    async fn start_nth(dir: &Path, engines: &Engines, shards: &str, nth: usize) -> Result<Child> {
        let mut command = process::ourselves()?;
        command.args(["serve", "--http", "127.0.0.1:0", "--shards", shards, "--store"]);
        match &engines.store {
            Some(url) => command.arg(url),
            None => command.arg(format!("sqlite:{}", dir.join("bench.db").display())),
        };
        if let Some(url) = &engines.bus {
            command.args(["--bus", url, "--bus-prefix", &engines.bus_prefix]);
        }
        if engines.history {
            command.arg("--history").arg(dir.join(format!("history-{nth}.jsonl")));
        }
        // Jobs that fail on purpose are warnings.
        command.current_dir(dir).env("LOG_LEVEL", "error");
        let (mut url, mut shards) = (None, None);
        let ready = |line: &str| {
            match line.trim().split_once(char::is_whitespace)? {
                ("api", text) => url = Some(text.trim().to_owned()),
                ("shards", text) => shards = Some(text.trim().to_owned()),
                ("node", _) => return Some((url.take(), shards.take())),
                _ => {}
            }
            None
        };
        let (process, (url, shards)) = Process::start("the server", command, Output::Standard, ready).await?;
        Ok(Child { process, url: url.context("the server does not print its address")?, shards })
    }

    pub fn memory(&self) -> Result<Memory> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.pid().as_raw_nonzero()))
            .context("the server's memory cannot be read")?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
            kilobytes.map(|kilobytes| kilobytes / 1_024.0).with_context(|| format!("{name} is not there"))
        };
        Ok(Memory { now_mb: field("VmRSS")?, peak_mb: field("VmHWM")? })
    }

    /// Returns the processor time that it has used, in user and system mode.
    pub fn processor_time(&self) -> Result<Duration> {
        processor_time::of_process(self.process.pid())
    }

    pub async fn stop(self) -> Result<()> {
        self.process.stop().await
    }
}
