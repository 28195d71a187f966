//! `convoke chaos`: faults on a throw-away cluster of real processes, and a check of all their histories.
//!
//! The cluster is this binary: nodes, workers, and private engines in a temporary directory. Producers enqueue and count
//! what was acknowledged, workers record what they ran and which reports were accepted, and faults happen at random times that
//! follow from the seed. Then everything heals, work drains, the store is exported, and the histories of all processes are
//! checked by [`convoke::history`]. Everything that was started ends with this process, also if it is interrupted.

mod cluster;
mod engines;
mod faults;
mod producers;
mod worker;

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use convoke::history::{self, DecisionFile, Expectations, History};
use convoke_core::duration;
use indicatif::{ProgressBar, ProgressStyle};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

use crate::Usage;
use cluster::Cluster;
use engines::Engines;
use faults::Fault;
use producers::Producers;

/// How long the cluster may take to end all jobs after the last fault.
const DRAIN_MAX: Duration = Duration::from_secs(180);
/// How long traffic flows before the first fault and after the last.
const CALM: Duration = Duration::from_secs(1);
/// The longest pause between two faults.
const PAUSE_MAX: Duration = Duration::from_secs(3);
/// How many nodes a cluster has if it is not set.
const NODES: u8 = 3;

/// The engines of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum On {
    /// One node on a SQLite file
    Sqlite,
    /// Nodes on one PostgreSQL
    Postgres,
    /// Nodes on one PostgreSQL, with Redis as the bus
    PostgresRedis,
}

impl On {
    fn as_str(self) -> &'static str {
        match self {
            On::Sqlite => "SQLite",
            On::Postgres => "PostgreSQL",
            On::PostgresRedis => "PostgreSQL and Redis",
        }
    }

    /// Returns the engines with the most faults that are installed.
    fn best() -> On {
        match (engines::has_postgres(), engines::has_redis()) {
            (true, true) => On::PostgresRedis,
            (true, false) => On::Postgres,
            (false, _) => On::Sqlite,
        }
    }

    fn check(self) -> Result<(), Usage> {
        if self != On::Sqlite && !engines::has_postgres() {
            return Err(Usage(
                "--on: PostgreSQL's programs are not under /usr/lib/postgresql: install it, or use --on sqlite".into(),
            ));
        }
        if self == On::PostgresRedis && !engines::has_redis() {
            return Err(Usage("--on: redis-server is not on the PATH: install it, or use --on postgres".into()));
        }
        Ok(())
    }
}

/// The arguments of `convoke chaos`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub struct ChaosArgs {
    #[command(subcommand)]
    role: Option<Role>,
    /// How long faults happen
    #[arg(long = "for", value_name = "DURATION", default_value = "1m", value_parser = duration::parse)]
    length: Duration,
    /// Number of nodes [default: 3, and 1 on SQLite]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=16))]
    nodes: Option<u8>,
    /// Faults to use [default: all that the engines allow]
    #[arg(long, value_name = "FAULT,…", value_delimiter = ',')]
    faults: Vec<Fault>,
    /// Engines of the cluster [default: those with the most faults that are installed]
    #[arg(long, value_name = "ENGINES")]
    on: Option<On>,
    /// Number that the times and the choice of the faults follow from [default: random]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Keep the histories and logs in this directory, which must be empty or missing
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// A worker of the cluster
    #[command(hide = true)]
    Worker(worker::WorkerArgs),
}

/// The examples in the help.
pub const HELP: &str = "Faults: kill (a node), leader (kill the leading node), pause (stop a node for longer than its lease), drain (a node),
worker (kill a worker), redis (kill it, restart it empty), postgres (restart it in the middle of commits).

Examples:
  convoke chaos
  convoke chaos --for 20m --nodes 5
  convoke chaos --on sqlite --faults kill,worker --seed 7 --keep /tmp/chaos

Exit codes: 0 nothing was violated, 1 something was, or jobs did not end.";

/// Runs the cluster and its faults, and prints the result.
pub async fn run(args: ChaosArgs) -> Result<ExitCode> {
    if let Some(Role::Worker(args)) = args.role {
        worker::run(args).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let stopped = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    let on = args.on.unwrap_or_else(On::best);
    on.check()?;
    let directory = Directory::new(args.keep.as_deref())?;
    let mut stage = None;
    let result = tokio::select! {
        result = play(&args, on, directory.path(), &mut stage) => result,
        () = stopped => Err(anyhow::anyhow!("interrupted: all processes of the cluster were stopped")),
    };
    // Also after a failure: a PostgreSQL that is killed leaves shared memory behind.
    if let Some(stage) = stage {
        stage.end().await;
    }
    result
}

/// Where the files of the cluster are.
enum Directory {
    Temporary(tempfile::TempDir),
    Kept(PathBuf),
}

impl Directory {
    fn new(keep: Option<&Path>) -> Result<Self> {
        let Some(path) = keep else {
            return Ok(Directory::Temporary(tempfile::Builder::new().prefix("convoke-chaos-").tempdir()?));
        };
        std::fs::create_dir_all(path).with_context(|| format!("--keep {}", path.display()))?;
        if std::fs::read_dir(path)?.next().is_some() {
            return Err(Usage(format!("--keep: expected an empty directory, {} is not", path.display())).into());
        }
        Ok(Directory::Kept(path.canonicalize()?))
    }

    fn path(&self) -> &Path {
        match self {
            Directory::Temporary(directory) => directory.path(),
            Directory::Kept(path) => path,
        }
    }
}

/// What runs, so that it can be ended from outside.
struct Stage {
    cluster: Cluster,
    engines: Engines,
}

impl Stage {
    async fn end(self) {
        self.cluster.kill().await;
        self.engines.end().await;
    }
}

/// The progress for people: a bar on a terminal, lines elsewhere.
struct Progress(Option<ProgressBar>);

impl Progress {
    fn new(length: Duration) -> Self {
        Progress(std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(length.as_secs());
            let style = ProgressStyle::with_template("[{elapsed}/{len}s] {wide_bar} {msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar
        }))
    }

    fn line(&self, text: &str) {
        match &self.0 {
            Some(bar) => bar.println(text),
            None => eprintln!("{text}"),
        }
    }

    fn at(&self, elapsed: Duration, text: String) {
        if let Some(bar) = &self.0 {
            bar.set_position(elapsed.as_secs().min(bar.length().unwrap_or(u64::MAX)));
            bar.set_message(text);
        }
    }
}

async fn play(args: &ChaosArgs, on: On, directory: &Path, stage: &mut Option<Stage>) -> Result<ExitCode> {
    let nodes = args.nodes.unwrap_or(if on == On::Sqlite { 1 } else { NODES });
    if on == On::Sqlite && nodes > 1 {
        return Err(Usage("--nodes: SQLite has one node: use --on postgres for more".into()).into());
    }
    let mix = Fault::mix(&args.faults, on)?;
    let seed = args.seed.unwrap_or_else(rand::random);
    let progress = Progress::new(args.length);
    let names: Vec<&str> = mix.iter().map(|fault| fault.as_str()).collect();
    progress.line(&format!("{nodes} nodes on {}, faults {}, seed {seed}", on.as_str(), names.join(", ")));
    let engines = Engines::start(on, directory).await?;
    let Stage { cluster, engines } = stage.insert(Stage { cluster: Cluster::new(directory, nodes)?, engines });
    cluster.start(engines).await?;
    let file = DecisionFile::open(&directory.join("producer.jsonl"))?;
    let recorder = history::recorder("producer", Arc::new(file))?;
    let producers = Producers::start(&cluster.urls(), recorder.clone(), seed)?;
    let counts = run_faults(args.length, &mix, seed, cluster, engines, &producers, &progress).await?;
    progress.line("healing: all nodes and workers run, no more faults");
    cluster.heal(engines).await?;
    tokio::time::sleep(CALM).await;
    let acknowledged = producers.end().await?;
    let open = producers::wait_until_drained(&cluster.http()?, DRAIN_MAX).await?;
    history::export(&cluster.http()?, &recorder).await.context("the store cannot be exported")?;
    recorder.end().await;
    cluster.stop().await?;
    conclude(args, on, seed, nodes, directory, Played { counts, acknowledged, open })
}

/// Lets faults happen, one after the other, until the time is over.
async fn run_faults(
    length: Duration,
    mix: &[Fault],
    seed: u64,
    cluster: &mut Cluster,
    engines: &mut Engines,
    producers: &Producers,
    progress: &Progress,
) -> Result<BTreeMap<&'static str, u64>> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut counts = BTreeMap::new();
    let began = Instant::now();
    tokio::time::sleep(CALM).await;
    loop {
        // Each fault once, in a random order, before any of them again.
        let mut round = mix.to_vec();
        while !round.is_empty() {
            let fault = round.swap_remove(random.random_range(0..round.len()));
            let pause = PAUSE_MAX.mul_f64(random.random::<f64>());
            if began.elapsed() + pause >= length {
                tokio::time::sleep(length.saturating_sub(began.elapsed())).await;
                return Ok(counts);
            }
            progress.at(began.elapsed(), format!("{} acknowledged", producers.acknowledged()));
            tokio::time::sleep(pause).await;
            let what = fault.happen(cluster, engines, &mut random).await?;
            progress.line(&format!("{:6.1}s  {what}", began.elapsed().as_secs_f64()));
            *counts.entry(fault.as_str()).or_default() += 1;
        }
    }
}

/// The result of a run, before its histories are checked.
struct Played {
    counts: BTreeMap<&'static str, u64>,
    acknowledged: u64,
    open: u64,
}

fn conclude(args: &ChaosArgs, on: On, seed: u64, nodes: u8, directory: &Path, played: Played) -> Result<ExitCode> {
    let mut history = History::default();
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "jsonl") {
            files.push(path);
        }
    }
    files.sort();
    for file in &files {
        history::read(file, &mut history).map_err(|error| anyhow::anyhow!(error))?;
    }
    let report = history.check(Expectations { drained: true });
    let is_clean = report.is_clean() && played.open == 0;
    let Played { counts, acknowledged, open } = played;
    if args.json {
        let mut value = history::to_json(&report, &history);
        value["seed"] = seed.into();
        value["on"] = on.as_str().into();
        value["nodes"] = nodes.into();
        value["seconds"] = args.length.as_secs().into();
        value["faults"] = serde_json::to_value(&counts)?;
        value["acknowledged"] = acknowledged.into();
        value["open"] = open.into();
        value["clean"] = is_clean.into();
        println!("{value}");
    } else {
        let faults: Vec<String> = counts.iter().map(|(fault, count)| format!("{fault} {count}")).collect();
        println!("{nodes} nodes on {}, seed {seed}, faults: {}", on.as_str(), faults.join(", "));
        println!("{acknowledged} enqueues acknowledged, {open} jobs have not ended");
        println!("{}", history::to_text(&report, &history));
        if let Some(kept) = &args.keep {
            println!("histories and logs are in {}", kept.display());
        }
    }
    if acknowledged == 0 {
        bail!("no enqueue was acknowledged: nothing was tested");
    }
    Ok(if is_clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
