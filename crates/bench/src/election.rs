//! `convoke bench election`: measures how long a namespace is without a leader, per backend and beside etcd's own lock
//! at the same TTL in the same run; and how many leases a backend renews in a second.
//!
//! The contenders are processes, started as a user would start them, and ended by a signal. A failover is counted from
//! the signal to the moment when another reports that it leads. A backend that is not installed and was not named is
//! left out.

mod contender;
pub mod engine;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use convoke::connect;
use convoke_core::duration;
use convoke_core::ports::leases::Floor;
use rustix::process::Signal;

use super::report::Report;
use super::run::median;
use contender::{Contender, System};
use engine::Engine;

const PREFIX: &str = "convoke-bench";
/// etcd counts in seconds, and keeps no shorter lease.
const TTL_MIN: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Args)]
pub struct ElectionArgs {
    /// TTL of a lease, in whole seconds [default: 5s, with --quick 2s]
    #[arg(long, value_name = "DURATION", value_parser = whole_seconds)]
    ttl: Option<Duration>,
    /// Failovers of each kind; the median counts
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..=99))]
    rounds: u8,
    /// Leases that are renewed at once
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u8).range(1..))]
    in_flight: u8,
    /// Redis to measure [default: a private one, if redis-server is installed]
    #[arg(long, value_name = "URL")]
    redis: Option<String>,
    /// PostgreSQL to measure [default: a private one, if it is installed]
    #[arg(long, value_name = "URL")]
    postgres: Option<String>,
    /// Object store to measure, as s3://bucket/prefix; the provider bills every request
    #[arg(long, value_name = "URL")]
    s3: Option<String>,
    /// etcd to compare with [default: a private one, if etcd is installed]; needs etcdctl
    #[arg(long, value_name = "URL")]
    etcd: Option<String>,
    /// Use small numbers, to check that the benchmark works
    #[arg(long)]
    quick: bool,
    /// Print figures as JSON
    #[arg(long)]
    json: bool,
}

fn whole_seconds(text: &str) -> Result<Duration, String> {
    let ttl = duration::parse(text).map_err(|error| error.to_string())?;
    if ttl < TTL_MIN || ttl.subsec_nanos() > 0 {
        return Err(format!("expected whole seconds, at least {}", duration::format(TTL_MIN)));
    }
    Ok(ttl)
}

impl ElectionArgs {
    fn ttl(&self) -> Duration {
        self.ttl.unwrap_or(if self.quick { TTL_MIN } else { Duration::from_secs(5) })
    }

    fn rounds(&self) -> usize {
        if self.quick { 1 } else { usize::from(self.rounds) }
    }

    fn span(&self) -> Duration {
        Duration::from_millis(if self.quick { 300 } else { 3_000 })
    }
}

pub async fn run(args: ElectionArgs) -> Result<()> {
    Engine::check_etcd(args.etcd.as_deref())?;
    let mut report = Report::new("election", args.json);
    report.add("ttlMs", "time to live of a lease", args.ttl().as_millis() as f64, "ms");
    let files = tempfile::tempdir()?;
    let sqlite = format!("sqlite:{}", files.path().join("leases.db").display());
    measure(&mut report, &args, "sqlite", &sqlite).await?;
    report.phase("start Redis and PostgreSQL");
    if let Some(redis) = Engine::redis(args.redis.as_deref()).await? {
        measure(&mut report, &args, "redis", redis.url()).await?;
        redis.stop().await?;
    }
    if let Some(postgres) = Engine::postgres(args.postgres.as_deref()).await? {
        measure(&mut report, &args, "postgres", postgres.url()).await?;
        postgres.stop().await?;
    }
    if let Some(s3) = &args.s3 {
        measure(&mut report, &args, "s3", s3).await?;
    }
    if let Some(etcd) = Engine::etcd(args.etcd.as_deref()).await? {
        failovers(&mut report, &args, "etcd", &System::Etcdctl { endpoint: etcd.url().to_owned() }).await?;
        etcd.stop().await?;
    }
    report.print()
}

async fn measure(report: &mut Report, args: &ElectionArgs, name: &str, url: &str) -> Result<()> {
    failovers(report, args, name, &System::Convoke { leases: url.to_owned() }).await?;
    report.phase(&format!("{name}, renewals"));
    let label = format!("{name}, renewals of {} leases", args.in_flight);
    report.add(format!("{name}RenewalsPerSecond"), &label, renewals_per_second(args, url).await?, "/s");
    Ok(())
}

async fn failovers(report: &mut Report, args: &ElectionArgs, name: &str, system: &System) -> Result<()> {
    for (key, signal, how) in [("Kill", Signal::KILL, "SIGKILL"), ("Term", Signal::TERM, "SIGTERM")] {
        report.phase(&format!("{name}, failover after {how}"));
        let mut times = failover_ms(system, args, signal).await.with_context(|| format!("{name} after {how}"))?;
        let (median, worst) = (median(&mut times), times.iter().copied().fold(0.0, f64::max));
        report.add(format!("{name}{key}Ms"), &format!("{name}, failover after {how}, median"), median, "ms");
        report.add(format!("{name}{key}MaxMs"), &format!("{name}, failover after {how}, longest"), worst, "ms");
    }
    Ok(())
}

/// Returns at least one time. Each failover begins at a random moment between two renewals.
async fn failover_ms(system: &System, args: &ElectionArgs, signal: Signal) -> Result<Vec<f64>> {
    let (ttl, namespace) = (args.ttl(), format!("bench-{:08x}", rand::random::<u32>()));
    let start = |round: usize| Contender::start(system, ttl, &namespace, &format!("contender-{round}"));
    let mut leader = start(0)?;
    leader.leads().await?;
    let mut times = Vec::new();
    for round in 1..=args.rounds() {
        let mut next = start(round)?;
        next.waits().await?;
        tokio::time::sleep((ttl / 2).mul_f64(rand::random())).await;
        let signalled = Instant::now();
        leader.signal(signal)?;
        next.leads().await?;
        times.push(signalled.elapsed().as_secs_f64() * 1_000.0);
        leader.end().await?;
        leader = next;
    }
    leader.signal(Signal::TERM)?;
    leader.end().await?;
    Ok(times)
}

/// Renews each of several leases again as soon as its last renewal has returned.
async fn renewals_per_second(args: &ElectionArgs, url: &str) -> Result<f64> {
    let leases = connect::leases(url, PREFIX).await?;
    let (ttl, run) = (Duration::from_secs(60), rand::random::<u32>());
    let started = Instant::now();
    let renewing = (0..args.in_flight).map(|number| {
        let (leases, namespace) = (leases.clone(), format!("renewals-{run:08x}-{number}"));
        let span = args.span();
        async move {
            let lease = leases.elect(&namespace, "bench", ttl, Floor::UNKNOWN).await?;
            let mut count = 0_u64;
            while started.elapsed() < span {
                leases.renew(&namespace, "bench", lease.epoch, ttl).await?;
                count += 1;
            }
            leases.resign(&namespace, "bench", lease.epoch).await?;
            anyhow::Ok(count)
        }
    });
    let counts = futures_util::future::try_join_all(renewing).await?;
    let count: u64 = counts.iter().sum();
    if count == 0 {
        bail!("no lease was renewed in {:?}", args.span());
    }
    Ok(count as f64 / started.elapsed().as_secs_f64())
}
