//! `convoke bench jobs`: measures this machine from outside, over real HTTP.
//!
//! Unless a server is named, it starts a private one: this binary, on a temporary SQLite file and a free port, as a
//! user would start it. The client side is minimal ([`wire`]), because it shares the machine with the server. Compare
//! the figures of a noisy machine with its limits, measured in the same run ([`limits`]): how many small writes the
//! disk makes durable in a second, and how many bare HTTP exchanges this client can make. While latency is measured, one
//! block is written and flushed every few milliseconds on the same disk, so that a disk that stalls is visible beside
//! the latency that it causes. Processor time a job is printed for the private servers, and for PostgreSQL and Redis if
//! they run on this machine.

mod cost;
mod drain;
mod enqueue;
mod flat;
mod latency;
mod limits;
mod lists;
pub(crate) mod wire;
mod workers;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use convoke_core::duration;

use super::child::{Children, Engines};
use super::report::Report;
use super::run::percentile;
use crate::Usage;
use cost::Meters;
use limits::FlushProbe;
use wire::Target;

#[derive(Debug, Clone, Args)]
pub struct JobsArgs {
    /// Measure this server instead of a private one
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// Token for that server, if it requires one
    #[arg(long, requires = "server")]
    token: Option<String>,
    #[command(flatten)]
    engines: Engines,
    /// Directory for the private server's file during the run [default: the system's temporary directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Jobs of each phase [default: 200000]
    #[arg(long, value_name = "N")]
    jobs: Option<u64>,
    /// Connections that enqueue one job at a time
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=4096))]
    connections: u16,
    /// Jobs in a batch
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    batch: u16,
    /// Jobs that the worker runs at once
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    concurrency: u32,
    /// Jobs a second while latency is measured
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,
    /// How long latency is measured [default: 10s]
    #[arg(long, value_parser = duration::parse, value_name = "DURATION")]
    latency_for: Option<Duration>,
    /// Compare the cost of a job with few and with many jobs pending
    #[arg(long)]
    flat: bool,
    /// Measure lists with many jobs in the store
    #[arg(long)]
    lists: bool,
    /// Number of jobs for --flat and --lists [default: 1000000]
    #[arg(long, value_name = "N")]
    many: Option<u64>,
    /// Drain with a bare poller of the gateway as well, for comparison
    #[arg(long)]
    raw_worker: bool,
    /// Use small numbers, to check that the benchmark works
    #[arg(long)]
    quick: bool,
    /// Print figures as JSON
    #[arg(long)]
    json: bool,
}

impl JobsArgs {
    fn jobs(&self) -> u64 {
        self.jobs.unwrap_or(if self.quick { 2_000 } else { 200_000 })
    }

    fn many(&self) -> u64 {
        self.many.unwrap_or(if self.quick { 20_000 } else { 1_000_000 })
    }

    fn latency_for(&self) -> Duration {
        self.latency_for.unwrap_or(Duration::from_secs(if self.quick { 1 } else { 10 }))
    }
}

pub async fn run(args: JobsArgs) -> Result<()> {
    let mut report = Report::new("jobs", args.json);
    let dir = match &args.dir {
        Some(dir) => tempfile::tempdir_in(dir),
        None => tempfile::tempdir(),
    };
    let dir = dir.map_err(|error| Usage(format!("--dir: {error}")))?;
    report.phase("limits of this machine");
    report.add("fsyncPerSecond", "bare write + fsync", limits::fsyncs(dir.path(), args.quick)?, "/s");
    let echoed = limits::echoes(&args).await?;
    report.add("echoPerSecond", "bare HTTP exchange", echoed.per_second(), "/s");

    let children = match &args.server {
        None => Children::start(dir.path(), &args.engines).await?,
        Some(_) => Children::default(),
    };
    let urls = args.server.clone().unwrap_or_else(|| children.urls().join(","));
    let mut target =
        Target::parse(&urls, args.token.clone()).map_err(|message| Usage(format!("--server: {message}")))?;
    if let Some(bus) = args.engines.bus.as_ref().filter(|_| args.engines.bus_workers) {
        target.bus = Some((bus.clone(), args.engines.bus_prefix.clone()));
    }
    if !children.is_empty() {
        report.add("idleRssMb", "idle RSS", children.memory()?.now_mb, "MB");
    }
    let measured = measure(&args, &target, &children, dir.path(), &mut report).await;
    if !children.is_empty() && measured.is_ok() {
        report.add("peakRssMb", "peak RSS", children.memory()?.peak_mb, "MB");
    }
    children.stop().await?;
    measured?;
    report.print()
}

async fn measure(args: &JobsArgs, target: &Target, children: &Children, dir: &Path, report: &mut Report) -> Result<()> {
    let jobs = args.jobs();
    let meters = Meters::new(children, &args.engines);
    report.phase("single enqueue");
    let single = enqueue::single(target, "bench-single", jobs / 2, args.connections).await?;
    report.add("singlePerSecond", "enqueue, one a request", single.per_second(), "/s");
    report.add("singleP99Ms", "  its p99", single.percentile(99.0), "ms");
    report.phase("batch enqueue");
    let batch = enqueue::batches(target, "bench-drain", jobs, args.batch).await?;
    report.add("batchPerSecond", "enqueue, in batches", batch.per_second(), "/s");
    report.phase("drain of what was enqueued");
    let before = meters.read()?;
    let drained = drain::backlog(target, "bench-drain", jobs, args.concurrency).await?;
    report.add("drainPerSecond", "drain of a backlog", drained, "/s");
    meters.report(report, "drain", &before, jobs)?;
    report.phase("end to end");
    let before = meters.read()?;
    let live = drain::live(target, "bench-live", jobs, args).await?;
    report.add("endToEndPerSecond", "end to end, while enqueueing", live, "/s");
    meters.report(report, "endToEnd", &before, jobs)?;
    if args.raw_worker {
        report.phase("drain by a bare poller");
        enqueue::batches(target, "bench-raw", jobs, args.batch).await?;
        report.add("rawDrainPerSecond", "drain by a bare poller", drain::raw(target, "bench-raw", jobs).await?, "/s");
    }
    report.phase("latency");
    let probe = FlushProbe::start(dir)?;
    let latency = latency::measure(target, "bench-latency", args.rate, args.latency_for()).await;
    let (flushes_us, latency) = (probe.stop()?, latency?);
    report.add("startP50Ms", &format!("enqueue to start at {}/s, p50", args.rate), latency.start(50.0), "ms");
    report.add("startP99Ms", "  its p99", latency.start(99.0), "ms");
    report.add("ackP50Ms", "  enqueue to acknowledgement, p50", latency.acknowledged(50.0), "ms");
    report.add("ackP99Ms", "  its p99", latency.acknowledged(99.0), "ms");
    report.add("flushP50Ms", "  bare write + fsync meanwhile, p50", percentile(&flushes_us, 50.0), "ms");
    report.add("flushP99Ms", "  its p99", percentile(&flushes_us, 99.0), "ms");
    if args.flat {
        flat::measure(args, target, children, report).await?;
    }
    if args.lists {
        lists::measure(args, target, report).await?;
    }
    Ok(())
}
