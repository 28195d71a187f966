//! `convoke worker`: lists workers, and runs a worker that runs a command for each job.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, Subcommand};
use convoke_core::limits::WORKER_CONCURRENCY_MAX;
use convoke_core::{QueueName, WorkerId, duration};
use convoke_runtime::jobs::worker::{Handlers, Settings, Shutdown, Worker};
use tokio::signal::unix::{SignalKind, signal};

use super::exec::Exec;
use super::output::{age, line, list, table, text};
use super::remote::{Remote, RemoteArgs, Usage, usage};
use crate::config::{self, Surroundings};
use crate::logs;

#[derive(Debug, Args)]
pub struct WorkerArgs {
    #[command(flatten)]
    remote: RemoteArgs,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List workers
    List,
    /// Run a command for each job
    #[command(after_help = "The job's arguments come on standard input as JSON; CONVOKE_JOB_ID, CONVOKE_JOB_TYPE,
CONVOKE_EXECUTION_ID, CONVOKE_ATTEMPT, CONVOKE_MAX_RETRIES, CONVOKE_QUEUE, CONVOKE_CORRELATION_ID and CONVOKE_TIMEOUT
are in the environment. Exit code 0 completes the job, any other fails the attempt with the last line of standard error.
Lines of standard output and standard error become the job's logs. If a job is cancelled or takes too long, its command gets
SIGTERM, then SIGKILL with all that it started, also in sessions of its own. All that a command started ends when the command
ends. If the worker dies, even by SIGKILL, its commands die too.

CONVOKE_TOKEN, and CONVOKE_SERVER if it is the address of a bus, are not passed on to the command without --pass-token.

Examples:
  convoke worker run --queue shell --exec 'jq .name'
  convoke worker run --queue a --queue b --concurrency 4 --exec ./run-job")]
    Run(RunArgs),
}

#[derive(Debug, Args)]
struct RunArgs {
    /// Queue to take jobs from; may be repeated
    #[arg(long, short, required = true, value_delimiter = ',')]
    queue: Vec<QueueName>,
    /// Maximum number of jobs at once
    #[arg(long, short, default_value_t = Settings::default().concurrency,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(WORKER_CONCURRENCY_MAX)))]
    concurrency: u32,
    /// Command to run with sh -c
    #[arg(long, value_name = "CMD")]
    exec: String,
    /// Pass CONVOKE_TOKEN on to the command, and CONVOKE_SERVER also if it is the address of a bus
    #[arg(long)]
    pass_token: bool,
    /// Have the kernel kill the command also if this process and its guard are killed at the same moment; costs a start of this
    /// program for each run
    #[arg(long)]
    strict_supervision: bool,
    /// Prefix of channel names, if --server is a bus
    #[arg(long, default_value = convoke::connect::BUS_PREFIX, value_name = "PREFIX")]
    bus_prefix: String,
    /// Name of this worker in lists
    #[arg(long)]
    name: Option<String>,
    /// Id of this worker [default: host name + random]
    #[arg(long)]
    id: Option<WorkerId>,
    /// How long runs may continue after the worker was asked to stop
    #[arg(long, value_parser = duration::parse, default_value = "25s", value_name = "DURATION")]
    shutdown_grace: Duration,
}

pub async fn run(args: WorkerArgs, verbose: u8) -> Result<()> {
    match args.verb {
        Verb::List => list_all(&Remote::new(&args.remote, verbose)?).await,
        Verb::Run(run) => work(run, args.remote).await,
    }
}

async fn list_all(remote: &Remote) -> Result<()> {
    let response = remote.get("/v1/workers").await?;
    if remote.json {
        return Ok(line(response.text())?);
    }
    let page = response.value()?;
    let rows = list(&page, "workers").iter().map(|worker| {
        let queues: Vec<_> = list(worker, "queues").iter().filter_map(|queue| queue.as_str()).collect();
        let running = worker["running"].as_array().map_or_else(|| text(worker, "running"), |all| all.len().to_string());
        vec![
            text(worker, "workerId"),
            text(worker, "name"),
            queues.join(","),
            format!("{running}/{}", text(worker, "concurrency")),
            text(worker, "state"),
            age(worker, "lastHeartbeatAt"),
            worker["via"].as_str().unwrap_or("bus").to_owned(),
        ]
    });
    Ok(table(&["worker", "name", "queues", "running", "state", "last heartbeat", "via"], rows.collect())?)
}

async fn work(args: RunArgs, remote: RemoteArgs) -> Result<()> {
    // Chosen here, so that every log line carries it.
    let id = match args.id {
        Some(id) => id,
        None => WorkerId::new(convoke::fresh_id())?,
    };
    let surroundings = Surroundings::read(&config::variables(), "worker").map_err(Usage)?;
    logs::start(&surroundings, &[("worker", id.as_str())]);
    let shutdown = Shutdown::default();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let asked = shutdown.clone();
    tokio::spawn(async move {
        for token in [asked.drain, asked.hurry] {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            tracing::info!("stopping: runs may finish, a second signal releases them");
            token.cancel();
        }
    });
    let settings = Settings {
        id: Some(id),
        // Not the command itself: it may contain a password, and every user can read the name.
        name: Some(args.name.unwrap_or_else(|| "exec".into())),
        queues: args.queue,
        concurrency: args.concurrency,
        shutdown_grace: args.shutdown_grace,
        ..Settings::default()
    };
    let is_bus = convoke::connect::is_bus(&remote.server);
    let hidden = hidden_variables(args.pass_token, is_bus);
    let commands = Arc::new(Exec::new(args.exec, hidden, args.strict_supervision)?);
    let exec = commands.clone();
    let mut handlers = Handlers::default();
    handlers.otherwise(move |cx, job_args| {
        let exec = exec.clone();
        Box::pin(async move { exec.run(&cx, &job_args).await.map(|()| None) })
    });
    let token = remote.token.filter(|token| !token.is_empty());
    let link = convoke::connect::worker_way(&remote.server, token, &args.bus_prefix).await;
    // The message does not repeat the address: it may contain a password.
    let link = link.map_err(|error| match error {
        error if error.is_transient() => usage(error),
        error => Usage(format!("--server: {error}")).into(),
    })?;
    let shown = if is_bus { convoke::connect::shown(&remote.server) } else { remote.server };
    tracing::info!(server = shown, "worker started");
    let ended = Worker::new(link, convoke::connect::clock(), settings, handlers).run(shutdown).await;
    commands.finish().await;
    ended?;
    Ok(())
}

/// Returns the variables that hold the worker's own credentials. A command may run code of the job's author.
fn hidden_variables(pass_token: bool, is_bus: bool) -> Vec<&'static str> {
    match (pass_token, is_bus) {
        (true, _) => vec![],
        (false, false) => vec!["CONVOKE_TOKEN"],
        // The address of a bus may contain a password.
        (false, true) => vec!["CONVOKE_TOKEN", "CONVOKE_SERVER"],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_hidden_from_the_command_unless_asked_for() {
        assert_eq!(hidden_variables(false, false), ["CONVOKE_TOKEN"]);
        assert_eq!(hidden_variables(false, true), ["CONVOKE_TOKEN", "CONVOKE_SERVER"]);
        assert_eq!(hidden_variables(true, true), [""; 0]);
    }
}
