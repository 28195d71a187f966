//! `convoke bench shards`: measures heartbeats a second beside a bare ROUTER that echoes its messages, by the same
//! library in the same run; the time to compute an assignment; and the memory that a worker takes.

mod load;
mod memory;
mod rebalance;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use convoke::connect::{self, ZmqSecurity};
use convoke_core::Epoch;
use convoke_core::ports::Router;
use convoke_core::shards::{Settings, Strategy};
use convoke_runtime::election::Term;
use convoke_runtime::shards::{ShardsDuty, ShardsState};

use super::report::Report;
use super::run::median;

/// Messages that a router receives at once.
const BATCH: usize = 1_024;
/// Longer than any run.
const TERM: Duration = Duration::from_secs(24 * 3_600);

#[derive(Debug, Clone, Args)]
pub struct ShardsArgs {
    /// Workers that send heartbeats
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    workers: u32,
    /// Heartbeats that a worker sends before it waits for a reply
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    in_flight: u32,
    /// Rounds, each of both; the median counts
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..=99))]
    rounds: u8,
    /// Use small numbers, to check that the benchmark works
    #[arg(long)]
    quick: bool,
    /// Print figures as JSON
    #[arg(long)]
    json: bool,
}

impl ShardsArgs {
    fn span(&self) -> Duration {
        Duration::from_millis(if self.quick { 200 } else { 2_000 })
    }

    fn rounds(&self) -> usize {
        if self.quick { 1 } else { usize::from(self.rounds) }
    }
}

pub async fn run(args: ShardsArgs) -> Result<()> {
    let mut report = Report::new("shards", args.json);
    let (mut echoes, mut heartbeats) = (Vec::new(), Vec::new());
    for round in 1..=args.rounds() {
        report.phase(&format!("heartbeats, round {round}"));
        echoes.push(echoed(&args).await?);
        heartbeats.push(heartbeat_rate(&args).await?);
    }
    let (echo, heartbeat) = (median(&mut echoes), median(&mut heartbeats));
    report.add("echoPerSecond", "bare ROUTER, echoes", echo, "/s");
    report.add("heartbeatsPerSecond", "heartbeats with a reply", heartbeat, "/s");
    report.add("heartbeatsToEchoes", "  of the bare ROUTER's", heartbeat / echo, "x");
    let (shards, workers) = if args.quick { (1_000, 10) } else { (100_000, 1_000) };
    for strategy in Strategy::ALL {
        report.phase(&format!("rebalance, {}", strategy.as_str()));
        let label = format!("rebalance of {shards} shards when a worker joins {workers}: {}", strategy.as_str());
        let key = format!("{}RebalanceMs", strategy.as_str());
        report.add(key, &label, rebalance::joining(strategy, shards, workers, args.rounds())?, "ms");
    }
    report.phase("memory");
    let workers = if args.quick { 50 } else { 5_000 };
    let label = format!("memory a worker, with {workers} connected");
    report.add("memoryPerWorkerKb", &label, memory::per_worker(workers).await?, "KB");
    report.print()
}

/// Measures a ROUTER of the same library that only echoes its messages.
async fn echoed(args: &ShardsArgs) -> Result<f64> {
    let binding = connect::shard_router("tcp://127.0.0.1:0", ZmqSecurity::Open)?;
    let router = binding.bind().await?;
    let address = router.address().to_owned();
    let echoing = tokio::spawn(echo(router));
    let rate = load::heartbeats_per_second(&address, args.workers, args.in_flight, args.span()).await;
    echoing.abort();
    rate
}

async fn echo(mut router: Box<dyn Router>) {
    while let Ok(received) = router.receive(BATCH).await {
        let replies = received.into_iter().filter_map(|it| Some((it.from, it.frames.into_iter().next()?)));
        router.send(replies.collect()).await;
    }
}

/// Measures the coordinator, in this process like the other.
async fn heartbeat_rate(args: &ShardsArgs) -> Result<f64> {
    let coordinator = BenchCoordinator::take().await?;
    let rate = load::heartbeats_per_second(&coordinator.address, args.workers, args.in_flight, args.span()).await;
    coordinator.leave().await;
    rate
}

/// A coordinator of shards that leads until it is stopped.
struct BenchCoordinator {
    address: String,
    term: Term,
    leading: tokio::task::JoinHandle<()>,
}

impl BenchCoordinator {
    async fn take() -> Result<BenchCoordinator> {
        let ports = connect::backends(connect::Addresses::default()).await?;
        let term = Term::new(ports.store.seal(Epoch(1)).await?, tokio::time::Instant::now() + TERM);
        let binding = connect::shard_router("tcp://127.0.0.1:0", ZmqSecurity::Open)?;
        let duty = Arc::new(ShardsDuty::new(binding, Settings::default(), false, ports.clock));
        let mut state = duty.view().watch();
        let (leads, reported, recorded) = (term.clone(), Arc::new(|_| {}), Arc::new(|_| {}));
        let leading = tokio::spawn(async move { duty.lead(leads, reported, recorded).await });
        let listening = state.wait_for(|state| *state != ShardsState::Standby).await?.clone();
        match listening {
            ShardsState::Listening(address) => Ok(BenchCoordinator { address, term, leading }),
            refused => bail!("the coordinator does not listen: {refused:?}"),
        }
    }

    async fn leave(self) {
        self.term.end();
        let _ = self.leading.await;
    }
}
