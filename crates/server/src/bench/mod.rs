//! `convoke bench`: what each capability reaches on this machine, beside a limit or a peer in the same run, because machines
//! are noisy and only ratios last.

mod child;
mod jobs;
mod mesh;
mod process;
mod report;
mod run;
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
    /// Round trips of a mesh, beside bare publishes through the same Redis and beside NATS
    #[command(after_help = "Examples:
  convoke bench mesh
  convoke bench mesh --quick --json
  convoke bench mesh --redis redis://127.0.0.1:6379 --rounds 9")]
    Mesh(mesh::MeshArgs),
    /// The other side of what a mesh is measured beside
    #[command(hide = true)]
    Answer(mesh::AnswerArgs),
    /// Heartbeats, rebalancing and memory of the shard coordinator
    #[command(after_help = "Examples:
  convoke bench shards
  convoke bench shards --workers 1000 --in-flight 4 --json")]
    Shards(shards::ShardsArgs),
}

pub async fn run(args: BenchArgs) -> Result<()> {
    match args.what {
        What::Jobs(args) => jobs::run(args).await,
        What::Mesh(args) => mesh::run(args).await,
        What::Answer(args) => mesh::answer(args).await,
        What::Shards(args) => shards::run(args).await,
    }
}
