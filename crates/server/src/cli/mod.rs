//! The command line: a noun, then a verb.
//!
//! Every command except `serve`, `test-server`, `verify`, `chaos`, `bench`, `mesh`, `elect`, `worker run` and `shards join` is a thin client of the HTTP
//! API: it validates its arguments, sends a request, and prints the response as a table or, with `--json`, as the
//! server sent it. Results go to standard output; everything else (progress, errors, hints) to standard error. The exit
//! code is 0 on success, 1 on failure, 2 if the command line is wrong.

mod audit;
mod bulk;
mod cluster;
mod dead;
mod elect;
mod enqueue;
mod events;
mod exec;
mod filter;
mod history;
mod job;
mod mesh;
mod output;
mod pages;
mod queue;
mod remote;
mod schedule;
mod shards;
mod supervise;
mod template;
mod test_server;
mod verify;
mod worker;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::config::{self, Config, Flags, Load};
use crate::logs::{self, LogArgs};
use crate::serve::ServeArgs;

pub use output::line;
pub use remote::{Usage, usage};
pub use supervise::exec_under_guard;

/// Schedules, dispatches and never loses jobs: one binary, one file.
#[derive(Debug, Parser)]
#[command(name = "convoke", version, args_conflicts_with_subcommands = true)]
#[command(after_help = "Without a command, `convoke` is `convoke serve`. See also `convoke COMMAND --help`.")]
pub struct Cli {
    /// Log more: requests to the server, or debug logs
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    #[command(flatten)]
    pub log: LogArgs,
    #[command(flatten)]
    pub serve: ServeArgs,
    #[command(subcommand)]
    pub command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a coordinator: its store, API, dashboard and worker gateway
    Serve(Box<ServeArgs>),
    /// Enqueue a job
    Enqueue(Box<enqueue::EnqueueArgs>),
    /// List, show, cancel and retry jobs, and read their logs
    Job(job::JobArgs),
    /// Manage recurring jobs: cron expressions and intervals
    Schedule(schedule::ScheduleArgs),
    /// Show queues, pause them, limit them
    Queue(queue::QueueArgs),
    /// List, retry or purge dead letters: jobs that failed or timed out
    Dead(dead::DeadArgs),
    /// Run a worker for any command, or list the workers
    Worker(worker::WorkerArgs),
    /// Show the nodes of the cluster, or drain one
    Cluster(cluster::ClusterArgs),
    /// Show what operators did: who, when, what, before and after
    Audit(audit::AuditArgs),
    /// Follow the events of all nodes
    Events(events::EventsArgs),
    /// List and call the instances of an application, or run one
    Mesh(mesh::MeshArgs),
    /// Show the workers of sharded services, or run one
    Shards(shards::ShardsArgs),
    /// Run a command on one machine of many: only while it leads
    #[command(after_help = elect::HELP)]
    Elect(elect::ElectArgs),
    /// Export what a store holds as a history of decisions
    History(history::HistoryArgs),
    /// Check histories of decisions against the invariants
    #[command(after_help = verify::HELP)]
    Verify(verify::VerifyArgs),
    /// Run a coordinator for tests, in memory: time stands still until the test moves it
    #[command(after_help = test_server::HELP)]
    TestServer(test_server::TestServerArgs),
    /// Supervises a command on behalf of the process that started it
    #[command(hide = true)]
    Guard(supervise::GuardArgs),
    /// Let faults happen on a throw-away cluster of its own, and check all histories
    #[cfg(feature = "bench")]
    #[command(after_help = convoke_bench::chaos::HELP)]
    Chaos(convoke_bench::chaos::ChaosArgs),
    /// Measure throughput and latency on this machine
    #[cfg(feature = "bench")]
    Bench(convoke_bench::BenchArgs),
}

impl Cli {
    /// Parses a command line. Global flags may also precede the command; the flags of `serve` may not.
    pub fn typed(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        Cli::try_parse_from(after_the_command(arguments.into_iter().collect()))
    }

    pub async fn run(self) -> anyhow::Result<ExitCode> {
        let verbose = self.verbose;
        logs::choose(self.log, verbose);
        match self.command {
            None => crate::serve::run(self.serve).await?,
            Some(Command::Serve(args)) => crate::serve::run(*args).await?,
            Some(Command::Enqueue(args)) => return enqueue::run(*args, verbose).await,
            Some(Command::Job(args)) => job::run(args, verbose).await?,
            Some(Command::Schedule(args)) => schedule::run(args, verbose).await?,
            Some(Command::Queue(args)) => queue::run(args, verbose).await?,
            Some(Command::Dead(args)) => dead::run(args, verbose).await?,
            Some(Command::Worker(args)) => worker::run(args, verbose).await?,
            Some(Command::Cluster(args)) => cluster::run(args, verbose).await?,
            Some(Command::Audit(args)) => audit::run(args, verbose).await?,
            Some(Command::Events(args)) => events::run(args, verbose).await?,
            Some(Command::Mesh(args)) => mesh::run(args, verbose).await?,
            Some(Command::Shards(args)) => shards::run(args, verbose).await?,
            Some(Command::Elect(args)) => return elect::run(args).await,
            Some(Command::History(args)) => history::run(args).await?,
            Some(Command::Verify(args)) => return verify::run(args).await,
            Some(Command::TestServer(args)) => test_server::run(args).await?,
            Some(Command::Guard(args)) => return supervise::run_guard(args).await,
            #[cfg(feature = "bench")]
            Some(Command::Chaos(args)) => return convoke_bench::chaos::run(args).await.map_err(wrong_usage_of_bench),
            #[cfg(feature = "bench")]
            Some(Command::Bench(args)) => convoke_bench::run(args).await.map_err(wrong_usage_of_bench)?,
        }
        Ok(ExitCode::SUCCESS)
    }

    /// A server uses every core; a client uses one thread.
    pub fn wants_all_cores(&self) -> bool {
        matches!(self.command, None | Some(Command::Serve(_) | Command::Worker(_)))
    }
}

/// The benches are a crate of their own, with an error of their own for a wrong command line.
#[cfg(feature = "bench")]
fn wrong_usage_of_bench(error: anyhow::Error) -> anyhow::Error {
    error.downcast::<convoke_bench::Usage>().map_or_else(|other| other, |wrong| Usage(wrong.0).into())
}

/// Returns the configuration from the environment and the file here, for commands that are no clients of a server.
fn configured() -> Result<Config, Usage> {
    let load =
        Load { file: None, directory: PathBuf::from("."), variables: config::variables(), flags: Flags::default() };
    load.config().map_err(|error| Usage(error.to_string()))
}

/// Global flags that take a value.
const WITH_VALUE: [&str; 2] = ["--log-format", "--log-level"];

/// Moves global flags that precede the command behind it.
fn after_the_command(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let text = |place: usize| arguments.get(place).and_then(|argument| argument.to_str()).unwrap_or_default();
    let is_verbose = |text: &str| {
        text == "--verbose" || (text.len() > 1 && text.starts_with('-') && text[1..].bytes().all(|byte| byte == b'v'))
    };
    let mut command = 1;
    loop {
        let argument = text(command);
        match argument.split_once('=') {
            _ if is_verbose(argument) => command += 1,
            Some((flag, _)) if WITH_VALUE.contains(&flag) => command += 1,
            None if WITH_VALUE.contains(&argument) && command + 1 < arguments.len() => command += 2,
            _ => break,
        }
    }
    if arguments.get(command).is_some_and(|argument| !argument.as_encoded_bytes().starts_with(b"-")) {
        arguments[1..=command].rotate_right(1);
    }
    arguments
}

#[cfg(test)]
mod tests;
