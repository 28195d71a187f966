//! `convoke bench`: what each capability reaches on this machine, beside a limit or a peer in the same run, because machines
//! are noisy and only ratios last.

mod child;
mod jobs;
mod report;
mod shards;

use anyhow::Result;
use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Enqueue, drain, latency and memory of the job coordinator
    #[command(after_help = "Examples:
  convoke bench jobs
  convoke bench jobs --quick --json
  convoke bench jobs --flat --lists --dir /var/tmp
  convoke bench jobs --store postgres://localhost/bench --bus redis://localhost --nodes 3")]
    Jobs(jobs::JobsArgs),
    /// Heartbeats, rebalancing and memory of the shard coordinator
    #[command(after_help = "Examples:
  convoke bench shards
  convoke bench shards --workers 1000 --in-flight 4 --json")]
    Shards(shards::ShardsArgs),
}

pub async fn run(args: BenchArgs) -> Result<()> {
    match args.what {
        What::Jobs(args) => jobs::run(args).await,
        What::Shards(args) => shards::run(args).await,
    }
}
