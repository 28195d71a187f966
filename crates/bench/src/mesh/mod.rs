//! `convoke bench mesh`: measures how fast one instance calls another, beside the lower bound of the transport.
//!
//! This process calls and another one replies (`convoke mesh serve`), with Redis between them: a real mesh has these
//! three, and on a machine of few cores they share them. The peers have the same layout: bare publishes through the
//! same Redis by the same library ([`floor`]), and request and reply over NATS ([`nats`]) if `nats-server` is on the
//! PATH, each with a replying process of its own, all of them with one thread. They take turns, round after round,
//! because machines are noisy; a ratio is the median of the rounds' ratios.

pub(super) mod engines;
mod floor;
mod load;
mod nats;
mod slots;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};
use convoke::mesh::MeshAddress;
use convoke::{InstanceId, Mesh, Request};
use convoke_core::duration;
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};

use self::floor::Floor;
use self::nats::Nats;
use super::process::Process;
use super::report::Report;
use super::run::{Run, median};
use crate::report::line;

const KEY: &str = "bench";
const IN_FLIGHT: [usize; 2] = [1, 64];
const WARM_UP: Duration = Duration::from_millis(200);

#[derive(Debug, Clone, Args)]
pub struct MeshArgs {
    /// Measure over this Redis instead of a private one; redis://…, without TLS or Sentinels
    #[arg(long, value_name = "URL", value_parser = plain_url)]
    redis: Option<String>,
    /// Rounds [default: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1_000))]
    rounds: Option<u16>,
    /// How long each is measured in a round [default: 2s]
    #[arg(long = "for", value_parser = duration::parse, value_name = "DURATION")]
    during: Option<Duration>,
    /// Use small numbers, to check that the benchmark works
    #[arg(long)]
    quick: bool,
    /// Print figures as JSON
    #[arg(long)]
    json: bool,
}

/// The peers of the mesh are bare: they connect to the one named server.
fn plain_url(text: &str) -> Result<String, &'static str> {
    if text.starts_with("redis://") { Ok(text.to_owned()) } else { Err("expected redis://…") }
}

#[derive(Debug, Args)]
pub struct ReplyArgs {
    kind: Kind,
    address: String,
    /// Prefix of the names of channels
    prefix: String,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Kind {
    Floor,
    Nats,
}

/// Runs the replying side in a process of its own, until the measuring process ends it.
pub async fn reply(args: ReplyArgs) -> Result<()> {
    let mut stop = signal(SignalKind::terminate())?;
    let _kept = match args.kind {
        Kind::Floor => Some(floor::reply(&args.address, &args.prefix).await?),
        Kind::Nats => nats::reply(&args.address).await.map(|()| None)?,
    };
    line("ready")?;
    stop.recv().await;
    Ok(())
}

#[derive(Serialize, Deserialize)]
struct Echo {
    n: usize,
    fill: String,
}

impl Request for Echo {
    const TYPE: &'static str = "echo";
    type Response = Echo;
}

/// One of the transports that are compared.
enum Way {
    Floor(Floor),
    Mesh(Mesh, InstanceId),
    Nats(Nats),
}

impl Way {
    fn name(&self) -> &'static str {
        match self {
            Way::Floor(_) => "floor",
            Way::Mesh(..) => "mesh",
            Way::Nats(_) => "nats",
        }
    }

    fn label(&self) -> &'static str {
        match self {
            Way::Floor(_) => "floor: two bare publishes",
            Way::Mesh(..) => "mesh",
            Way::Nats(_) => "NATS request and reply",
        }
    }

    async fn round_trip(&self, place: usize) -> Result<()> {
        match self {
            Way::Floor(floor) => floor.round_trip(place).await,
            Way::Nats(nats) => nats.round_trip(place).await,
            Way::Mesh(mesh, other) => call(mesh, *other, place).await,
        }
    }
}

/// The results of the rounds for one transport with this many requests in flight.
#[derive(Default)]
struct Rounds {
    per_second: Vec<f64>,
    p50_ms: Vec<f64>,
    p99_ms: Vec<f64>,
}

async fn call(mesh: &Mesh, other: InstanceId, place: usize) -> Result<()> {
    let reply = mesh.invoke(other, Echo { n: place, fill: "x".repeat(64) }).await?;
    ensure!(reply.n == place, "the reply to {} came to {place}", reply.n);
    Ok(())
}

pub async fn run(args: MeshArgs) -> Result<()> {
    let mut report = Report::new("mesh", args.json);
    let directory = tempfile::tempdir()?;
    let mut processes = Vec::new();
    let url = match &args.redis {
        Some(url) => url.clone(),
        None => {
            let (process, url) = engines::redis(directory.path()).await?;
            processes.push(process);
            url
        }
    };
    let prefix = format!("convoke-bench-{:08x}", rand::random::<u32>());
    let measured = measure_on(&url, &prefix, &args, &mut processes, &mut report).await;
    // A process may need those that were started before it, so the last one ends first.
    let mut ended = Ok(());
    while let Some(process) = processes.pop() {
        ended = ended.and(process.end().await.map(drop));
    }
    let forgotten = match &args.redis {
        Some(url) => engines::forget(url, &prefix).await,
        None => Ok(()),
    };
    measured.and(ended).and(forgotten)?;
    report.print()
}

async fn measure_on(
    url: &str,
    prefix: &str,
    args: &MeshArgs,
    processes: &mut Vec<Process>,
    report: &mut Report,
) -> Result<()> {
    report.phase("starting the peers that reply");
    let (ways, mesh) = ways(url, prefix, processes).await?;
    let measured = measure(args, &ways, report).await;
    mesh.stop().await;
    measured
}

async fn ways(url: &str, prefix: &str, processes: &mut Vec<Process>) -> Result<(Vec<Arc<Way>>, Mesh)> {
    processes.push(engines::replier("floor", url, prefix).await?);
    let (process, other) = engines::instance(url, prefix).await?;
    processes.push(process);
    let mesh = Mesh::at(&MeshAddress::new(url).prefix(prefix), KEY).await?.start().await?;
    let mut ways = vec![Way::Floor(Floor::connect(url, prefix).await?), Way::Mesh(mesh.clone(), InstanceId(other))];
    if engines::is_here("nats-server") {
        let (process, address) = engines::nats().await?;
        processes.push(process);
        processes.push(engines::replier("nats", &address, prefix).await?);
        ways.push(Way::Nats(Nats::connect(&address).await?));
    } else {
        eprintln!("not measured: NATS, because nats-server is not on the PATH");
    }
    Ok((ways.into_iter().map(Arc::new).collect(), mesh))
}

async fn measure(args: &MeshArgs, ways: &[Arc<Way>], report: &mut Report) -> Result<()> {
    let rounds = args.rounds.unwrap_or(if args.quick { 1 } else { 5 });
    let during = args.during.unwrap_or(Duration::from_millis(if args.quick { 200 } else { 2_000 }));
    for in_flight in IN_FLIGHT {
        let mut all: Vec<Rounds> = ways.iter().map(|_| Rounds::default()).collect();
        for way in ways {
            load(way, in_flight, WARM_UP).await?;
        }
        for round in 1..=rounds {
            report.phase(&format!("{in_flight} in flight, round {round} of {rounds}"));
            for (way, found) in ways.iter().zip(&mut all) {
                let run = load(way, in_flight, during).await?;
                found.per_second.push(run.per_second());
                found.p50_ms.push(run.percentile(50.0));
                found.p99_ms.push(run.percentile(99.0));
            }
        }
        add_rows(report, in_flight, ways, &all);
    }
    Ok(())
}

async fn load(way: &Arc<Way>, in_flight: usize, during: Duration) -> Result<Run> {
    let way = way.clone();
    load::run(in_flight, during, move |place| {
        let way = way.clone();
        async move { way.round_trip(place).await }
    })
    .await
}

fn add_rows(report: &mut Report, in_flight: usize, ways: &[Arc<Way>], all: &[Rounds]) {
    for (way, found) in ways.iter().zip(all) {
        let (name, label) = (way.name(), way.label());
        report.add(
            format!("{name}PerSecond{in_flight}"),
            &format!("{label}, {in_flight} in flight"),
            median(&mut found.per_second.clone()),
            "/s",
        );
        report.add(format!("{name}P50Ms{in_flight}"), "  its p50", median(&mut found.p50_ms.clone()), "ms");
        report.add(format!("{name}P99Ms{in_flight}"), "  its p99", median(&mut found.p99_ms.clone()), "ms");
    }
    let [floor, mesh, peers @ ..] = all else { return };
    let throughput = median(&mut ratios(&mesh.per_second, &floor.per_second));
    report.add(format!("perSecondOfFloor{in_flight}"), "mesh / floor, round trips a second", throughput, "×");
    let p50 = median(&mut ratios(&mesh.p50_ms, &floor.p50_ms));
    report.add(format!("p50OfFloor{in_flight}"), "mesh / floor, p50", p50, "×");
    if let [nats, ..] = peers {
        let throughput = median(&mut ratios(&mesh.per_second, &nats.per_second));
        report.add(format!("perSecondOfNats{in_flight}"), "mesh / NATS, round trips a second", throughput, "×");
    }
}

/// Compares within each round, since neighbours in a round ran under the same conditions.
fn ratios(ours: &[f64], theirs: &[f64]) -> Vec<f64> {
    ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_one_round() {
        assert_eq!(ratios(&[1.0, 6.0], &[2.0, 3.0]), [0.5, 2.0]);
    }
}
