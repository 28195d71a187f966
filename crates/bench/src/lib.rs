//! `convoke bench`: measures each capability on this machine, beside a limit or a peer in the same run, because
//! machines are noisy and only ratios are comparable.
//!
//! `convoke chaos` is here too ([`chaos`]), since it starts servers in the same way.
//!
//! Servers, electors and mesh instances that are measured are processes of the program that called [`run`]: `serve`, `elect`
//! and `mesh serve` are commands of it. The program includes this crate by its feature `bench`, which is on by default; the
//! product itself links nothing from here.

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

pub mod chaos;
mod child;
mod election;
mod jobs;
mod mesh;
mod pages;
mod process;
mod processor_time;
mod report;
mod run;
mod shards;

use anyhow::Result;
use clap::{Args, Subcommand};

/// A command line that is wrong in itself: exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// The arguments of `convoke bench`.
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
    /// Server time of each page of the dashboard, with many jobs in the store
    #[command(after_help = "Examples:
  convoke bench pages
  convoke bench pages --jobs 100000 --requests 50 --dir /var/tmp
  convoke bench pages --store postgres://localhost/bench --json
  convoke bench pages --server http://127.0.0.1:3000 --no-fill")]
    Pages(pages::PagesArgs),
    /// Round trips of a mesh, beside bare publishes through the same Redis and beside NATS
    #[command(after_help = "Examples:
  convoke bench mesh
  convoke bench mesh --quick --json
  convoke bench mesh --redis redis://127.0.0.1:6379 --rounds 9")]
    Mesh(mesh::MeshArgs),
    /// The replying side of the peers that a mesh is compared with
    #[command(hide = true)]
    Reply(mesh::ReplyArgs),
    /// Heartbeats, rebalancing and memory of the shard coordinator
    #[command(after_help = "Examples:
  convoke bench shards
  convoke bench shards --workers 1000 --in-flight 4 --json")]
    Shards(shards::ShardsArgs),
    /// Failover and renewals of election, per backend and beside etcd
    #[command(after_help = "Examples:
  convoke bench election
  convoke bench election --quick --json
  convoke bench election --ttl 10s --redis redis://localhost --postgres postgres://localhost/bench")]
    Election(election::ElectionArgs),
}

/// Measures, and prints a table or figures to standard output.
pub async fn run(args: BenchArgs) -> Result<()> {
    match args.what {
        What::Jobs(args) => jobs::run(args).await,
        What::Pages(args) => pages::run(args).await,
        What::Mesh(args) => mesh::run(args).await,
        What::Reply(args) => mesh::reply(args).await,
        What::Shards(args) => shards::run(args).await,
        What::Election(args) => election::run(args).await,
    }
}
