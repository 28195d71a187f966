//! `convoke mesh serve`: an instance whose handlers are commands.
//!
//! SIGTERM or SIGINT ends it: it accepts no new requests, running handlers may finish within the grace period, then
//! they are stopped and their callers receive `Stopped`. A second signal ends the grace period at once.

mod command;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use convoke_core::mesh::Fault;
use convoke_core::{Json, duration};
use convoke_http::{recorder, serve_pages};
use convoke_runtime::mesh::{Context, Demand, Handlers};
use serde::Deserialize;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::super::output::{line, printable};
use super::super::remote::Usage;
use super::{Place, named, type_name};
use crate::config::Config;
use crate::logs;
use crate::serve::GuardedListener;
use crate::stop::Stop;
use command::{CommandOptions, CommandRunner};

/// The maximum number of request types.
const TYPES_MAX: usize = 1_000;

#[derive(Debug, Args)]
#[command(
    after_help = "--on and --exec come in pairs. One --exec for several --on serves them all. Without them it handles two
types to try: echo returns its data, sleep takes {\"ms\":N} and replies after N ms.

The request's data comes on standard input as JSON; CONVOKE_MESH_KEY, CONVOKE_MESH_TYPE, CONVOKE_MESH_INSTANCE,
CONVOKE_MESH_CALLER, CONVOKE_MESH_TIMEOUT and CONVOKE_MESH_EPOCH are in the environment. The command writes the reply to
standard output as JSON, at most 1 MiB; no output is null. A non-zero exit code is a handler error with the last lines of
standard error. All that a command started ends when the command ends. CONVOKE_TOKEN is not passed on to the command without
--pass-token.

SIGTERM or SIGINT: it leaves the mesh, requests in flight may finish for --shutdown-grace, and it exits with 0. A second
signal stops them at once. Exit code 1 with Unavailable if Redis cannot be reached, 2 if the command line is wrong.

Examples:
  convoke mesh serve my-app --on getStatus --exec 'jq -c \"{ok: true, verbose: .verbose}\"'
  convoke mesh serve my-app --on getStatus --exec ./status.sh --on clearCache --exec ./clear.sh
  convoke mesh serve my-app --on a --on b --exec ./handle.sh"
)]
pub struct ServeArgs {
    /// Name of the mesh
    key: String,
    /// Type of request that the command handles; may be repeated
    #[arg(long, value_name = "TYPE", value_parser = type_name, requires = "exec")]
    on: Vec<String>,
    /// Command to run with sh -c for each request
    #[arg(long, value_name = "CMD", requires = "on")]
    exec: Vec<String>,
    /// Maximum number of commands at once; further requests are rejected with Busy
    #[arg(long, short, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    concurrency: u32,
    /// Pass CONVOKE_TOKEN on to the command
    #[arg(long)]
    pass_token: bool,
    /// How long running requests may take to finish after it was asked to stop
    #[arg(long, value_parser = duration::parse, default_value = "25s", value_name = "DURATION")]
    shutdown_grace: Duration,
    /// Address at which to serve /metrics; with port 0 the system chooses one [default: none]
    #[arg(long, value_name = "HOST:PORT")]
    http: Option<String>,
    /// Allow --http beyond loopback without tokens
    #[arg(long, requires = "http")]
    insecure: bool,
}

impl ServeArgs {
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns each type with its command.
    fn commands(&self) -> Result<Vec<(&str, &str)>, Usage> {
        let (types, commands) = (self.on.len(), self.exec.len());
        if types > TYPES_MAX {
            return Err(Usage(format!("--on: expected at most {TYPES_MAX} types, got {types}")));
        }
        if commands > 1 && types != commands {
            let expected = "expected one --exec for each --on, or one for all";
            return Err(Usage(format!("--exec: {expected}, got {types} --on and {commands} --exec")));
        }
        let mut pairs: Vec<(&str, &str)> = Vec::new();
        for (place, request_type) in self.on.iter().enumerate() {
            if pairs.iter().any(|(known, _)| known == request_type) {
                return Err(Usage(format!("--on {request_type}: expected each type once, got it twice")));
            }
            // One command serves all types; several are paired with them.
            let command = if commands == 1 { self.exec.first() } else { self.exec.get(place) };
            pairs.extend(command.map(|command| (request_type.as_str(), command.as_str())));
        }
        Ok(pairs)
    }

    pub async fn run(self, mut place: Place, mut config: Config) -> Result<()> {
        let commands = self.commands()?;
        let mut stop = Stop::listen()?;
        config.http.insecure |= self.insecure;
        // First, because metrics that are recorded before there is a recorder are lost.
        let _metrics = match self.http.clone() {
            Some(bind) => Some(show_metrics(bind, config).await?),
            None => None,
        };
        place.settings.stop_grace = self.shutdown_grace;
        let instance = place.instance(&self.key).await?;
        let hurry = CancellationToken::new();
        let (runner, types) = if commands.is_empty() {
            try_out(instance.handlers(), &hurry);
            (None, vec!["echo", "sleep"])
        } else {
            let options = CommandOptions {
                key: self.key.clone(),
                concurrency: self.concurrency as usize,
                pass_token: self.pass_token,
                hurry: hurry.clone(),
            };
            let runner = Arc::new(CommandRunner::new(instance.clone(), options)?);
            for (request_type, command) in &commands {
                let handler = runner.handler((*request_type).into(), (*command).into());
                instance.handlers().on(request_type, Demand::default(), handler);
            }
            (Some(runner), commands.into_iter().map(|(request_type, _)| request_type).collect())
        };
        let started = tokio::select! {
            started = instance.start() => started.map_err(named),
            () = stop.asked() => return Ok(()),
        };
        let id = started?;
        logs::identify("instance", &id.to_string());
        line(format!("instance {id} of {} is ready: it handles {}", printable(&self.key), printable(&listed(&types))))?;
        stop.asked().await;
        tracing::info!("leaving the mesh");
        let running = instance.handlers_running();
        if running > 0 {
            tracing::info!(running, "requests in flight may finish: a second signal stops them");
        }
        let leaving = instance.stop();
        tokio::pin!(leaving);
        tokio::select! {
            () = &mut leaving => {}
            () = stop.asked_again() => {
                hurry.cancel();
                leaving.await;
            }
        }
        if let Some(runner) = runner {
            runner.finish().await;
        }
        Ok(())
    }
}

/// Joins names: "a, b and c".
fn listed(types: &[&str]) -> String {
    match types {
        [rest @ .., last] if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => types.concat(),
    }
}

async fn show_metrics(bind: String, config: Config) -> Result<AbortOnDropHandle<()>> {
    let GuardedListener { listener, access } = GuardedListener::bind("--http", bind, config).await?;
    line(format!("metrics at http://{}/metrics", listener.local_addr()?))?;
    let serving = serve_pages(listener, access, recorder::shared(), |_| None, std::future::pending());
    Ok(AbortOnDropHandle::new(tokio::spawn(serving)))
}

/// Adds the handlers for trying a mesh.
fn try_out(handlers: &Handlers, hurry: &CancellationToken) {
    handlers.on("echo", Demand::default(), |_, data| Box::pin(async move { read(data) }));
    let hurry = hurry.clone();
    handlers.on("sleep", Demand::default(), move |_: Context, data| {
        let hurry = hurry.clone();
        Box::pin(async move { hurry.run_until_cancelled(sleep(data)).await.unwrap_or(Err(Fault::Stopped)) })
    });
}

fn read(data: String) -> Result<Json, Fault> {
    Json::parse(data).map_err(|error| Fault::Handler(format!("the data is not JSON: {error}")))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sleep {
    ms: u64,
}

async fn sleep(data: String) -> Result<Json, Fault> {
    let expected = |error| Fault::Handler(format!("expected {{\"ms\":N}}: {error}"));
    let Sleep { ms } = serde_json::from_str(&data).map_err(expected)?;
    tokio::time::sleep(Duration::from_millis(ms)).await;
    read(data)
}
