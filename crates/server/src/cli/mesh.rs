//! `convoke mesh`: lists and calls the instances of an application, and runs an instance.
//!
//! There is no server in between: a command connects to the mesh's own Redis, whose address comes from a flag or from
//! the environment variables of applications. `nodes` only reads. `call` and `broadcast` join as an instance and leave
//! afterwards, also if they are interrupted: a reply needs a channel of the caller, and a broadcast names its sender.
//! `serve` stays and runs commands for requests, or handles two types of request for trying a mesh. All use the section
//! `mesh` of the configuration.

mod serve;

use std::time::Duration;

use anyhow::{Result, anyhow};
use clap::{Args, Subcommand};
use convoke::Unreachable;
use convoke::mesh::{CallOptions, MeshAddress, MeshSettings};
use convoke::{InstanceId, MeshError, MeshNode, connect};
use convoke_core::mesh::envelope::DATA_BYTES_MAX;
use convoke_core::{Epoch, Error, Json, duration};
use convoke_runtime::mesh::{Instance, check_type};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::configured;
use super::enqueue::read_json;
use super::output::{age, line, list, printable, table, text};
use super::remote::Usage;
use crate::config::{self, Surroundings};
use crate::logs;
use crate::stop::Stop;

#[derive(Debug, Args)]
#[command(
    after_help = "Without --redis the address comes from MESH_REDIS_HOST, _PORT, _SENTINEL_HOST, _SENTINEL_PORT and
_SENTINEL_NAME, and without --prefix that from MESH_REDIS_PREFIX; each falls back to the same name with REDIS_ in place
of MESH_REDIS_. The leader's lock has its own, MUTEX_REDIS_PREFIX. Without these variables the prefix is the name in the
package.json of the working directory, if there is one.

Examples:
  convoke mesh serve my-app --redis redis://127.0.0.1
  convoke mesh serve my-app --on getStatus --exec ./status.sh
  convoke mesh nodes my-app --redis redis://127.0.0.1
  convoke mesh call my-app 1 echo '{\"hello\":\"world\"}' --redis redis://127.0.0.1
  convoke mesh call my-app 1 sleep '{\"ms\":3000}' --timeout 1s
  convoke mesh broadcast my-app clearCache '{\"keys\":[\"a\"]}'"
)]
pub struct MeshArgs {
    /// Address of the mesh's Redis: redis://…, rediss://… or redis+sentinel://…
    #[arg(long, global = true, value_name = "URL", value_parser = redis_url)]
    redis: Option<String>,
    /// Prefix of all names in Redis, the leader's lock included [default: the name in package.json, else app]
    #[arg(long, global = true, value_name = "PREFIX")]
    prefix: Option<String>,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List the live instances
    Nodes {
        /// Name of the mesh
        key: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Call an instance, and print its reply as JSON
    #[command(
        after_help = "Exit code 0 with the reply; 1 with the name of the error: NoNode, NoHandler, Handler, Busy,
RequestTimeout, StaleEpoch, Stopped or Unavailable; 2 if the command line is wrong."
    )]
    Call(CallArgs),
    /// Send a broadcast to every instance, and print how many received it
    #[command(
        after_help = "There are no replies. Exit code 0 if it was published, even if no instance received it; 1 with the
name of the error: Unavailable, RequestTimeout or Stopped; 2 if the command line is wrong.

Examples:
  convoke mesh broadcast my-app clearCache '{\"keys\":[\"a\"]}'
  convoke mesh broadcast my-app clearCache @keys.json --json"
    )]
    Broadcast(BroadcastArgs),
    /// Join the mesh, and run a command for each request until asked to stop
    Serve(serve::ServeArgs),
}

#[derive(Debug, Args)]
struct BroadcastArgs {
    /// Name of the mesh
    key: String,
    /// Type of the broadcast
    #[arg(value_name = "TYPE", value_parser = type_name)]
    broadcast_type: String,
    /// Its data: JSON, from a file (@FILE) or from standard input (-)
    #[arg(value_name = "JSON|@FILE|-", allow_negative_numbers = true)]
    data: String,
    /// How long joining and publishing may take [default: mesh.request_timeout, 10s]
    #[arg(long, value_parser = timeout, value_name = "DURATION")]
    timeout: Option<Duration>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct CallArgs {
    /// Name of the mesh
    key: String,
    /// Number of the instance to call
    instance: InstanceId,
    /// Type of the request
    #[arg(value_name = "TYPE", value_parser = type_name)]
    request_type: String,
    /// Its data: JSON, from a file (@FILE) or from standard input (-)
    #[arg(value_name = "JSON|@FILE|-", allow_negative_numbers = true)]
    data: String,
    /// How long to wait for a reply or a heartbeat [default: mesh.request_timeout, 10s]
    #[arg(long, value_parser = timeout, value_name = "DURATION")]
    timeout: Option<Duration>,
    /// Epoch of the caller's term of leadership, which some handlers require
    #[arg(long, value_name = "N")]
    epoch: Option<u64>,
}

fn redis_url(text: &str) -> Result<String, &'static str> {
    // The message does not repeat the address: it may contain a password.
    if connect::is_bus(text) {
        Ok(text.to_owned())
    } else {
        Err("expected redis://…, rediss://… or redis+sentinel://…")
    }
}

fn type_name(text: &str) -> Result<String, String> {
    check_type(text).map(|()| text.to_owned()).map_err(|invalid| invalid.message)
}

fn timeout(text: &str) -> Result<Duration, String> {
    match duration::parse(text) {
        Ok(Duration::ZERO) => Err("expected more than nothing".into()),
        other => other.map_err(|error| error.to_string()),
    }
}

pub async fn run(args: MeshArgs, verbose: u8) -> Result<()> {
    let is_asked = verbose > 0;
    let config = configured()?;
    let is_logged = is_asked || matches!(args.verb, Verb::Serve(_));
    let place = Place { address: args.address()?, is_named: args.redis.is_some(), settings: config.mesh.clone() };
    if let Some(problem) = place.address.package_problem().filter(|_| !is_logged) {
        eprintln!("warning: {problem}");
    }
    match args.verb {
        Verb::Nodes { key, json } => {
            start_logs(&key, is_asked)?;
            nodes(&place.instance(&key).await?, json).await
        }
        Verb::Call(call) => {
            start_logs(&call.key, is_asked)?;
            call.run(&place).await
        }
        Verb::Broadcast(broadcast) => {
            start_logs(&broadcast.key, is_asked)?;
            broadcast.run(&place).await
        }
        Verb::Serve(serve) => {
            start_logs(serve.key(), true)?;
            serve.run(place, config).await
        }
    }
}

impl MeshArgs {
    fn address(&self) -> Result<MeshAddress> {
        let address = match &self.redis {
            Some(url) => MeshAddress::with_env(url),
            None => MeshAddress::from_env().map_err(|invalid| Usage(invalid.to_string()))?,
        };
        Ok(match &self.prefix {
            Some(prefix) => address.prefix(prefix),
            None => address,
        })
    }
}

/// Starts the log if it is wanted: a command that only asks should print its result alone.
fn start_logs(key: &str, wanted: bool) -> Result<()> {
    if wanted {
        logs::start(&Surroundings::read(&config::variables(), "mesh").map_err(Usage)?, &[("mesh", key)]);
    }
    Ok(())
}

/// The address of the mesh, and the settings of an instance.
struct Place {
    address: MeshAddress,
    /// Whether the address came from the flag, rather than from the environment.
    is_named: bool,
    settings: MeshSettings,
}

impl Place {
    /// Connects without joining.
    async fn instance(&self, key: &str) -> Result<Instance> {
        let source = if self.is_named { "--redis" } else { "MESH_REDIS_… or REDIS_…" };
        let link = connect::mesh_link(&self.address, key).await.map_err(|error| match error {
            Error::Invalid(invalid) if invalid.field == "mesh.key" => Usage(format!("KEY: {}", invalid.message)).into(),
            Error::Invalid(invalid) => Usage(format!("{source}: {}", invalid.message)).into(),
            error => match Unreachable::of(&error) {
                Some(unreachable) => anyhow!("Unavailable: {}", unreachable.by(source)),
                None => anyhow!("Unavailable: {error}"),
            },
        })?;
        let hostname = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Ok(Instance::new(link, hostname, self.settings.clone()))
    }
}

/// Puts the name of the error's variant before its message, for scripts.
fn named(error: MeshError) -> anyhow::Error {
    match error {
        MeshError::Invalid(invalid) => Usage(invalid.to_string()).into(),
        error => anyhow!("{}: {}", error.name(), printable(&error.to_string())),
    }
}

async fn nodes(instance: &Instance, json: bool) -> Result<()> {
    let now = Timestamp::now();
    let nodes = instance.nodes().await.map_err(named)?;
    let nodes: Vec<Value> = nodes.iter().map(|node| shown(node, now)).collect();
    let page = json!({ "nodes": nodes });
    if json {
        return Ok(line(page.to_string())?);
    }
    let row = |node| vec![text(node, "instanceId"), text(node, "hostname"), age(node, "lastHeartbeatAt")];
    Ok(table(&["instance", "hostname", "last heartbeat"], list(&page, "nodes").iter().map(row).collect())?)
}

/// Redis returns the age of a heartbeat by its own clock; the instant shown is by the clock of this machine.
fn shown(node: &MeshNode, now: Timestamp) -> Value {
    let ago = SignedDuration::try_from(node.idle).unwrap_or(SignedDuration::MAX);
    let at = now.checked_sub(ago).unwrap_or(Timestamp::MIN);
    json!({ "instanceId": node.instance_id, "hostname": node.hostname, "lastHeartbeatAt": at.to_string() })
}

impl CallArgs {
    async fn run(self, place: &Place) -> Result<()> {
        let data = read_json("JSON", &self.data, DATA_BYTES_MAX)?;
        let mut stop = Stop::listen()?;
        let instance = place.instance(&self.key).await?;
        let result = tokio::select! {
            result = self.call(&instance, &data) => result.map_err(named),
            () = stop.asked() => Err(anyhow!("Stopped: interrupted before a reply arrived")),
        };
        instance.stop().await;
        Ok(line(result?)?)
    }

    async fn call(&self, instance: &Instance, data: &Json) -> Result<String, MeshError> {
        instance.start().await?;
        let options = CallOptions { timeout: self.timeout, epoch: self.epoch.map(Epoch) };
        instance.call(self.instance, &self.request_type, data, options, Ok).await
    }
}

impl BroadcastArgs {
    async fn run(self, place: &Place) -> Result<()> {
        let data = read_json("JSON", &self.data, DATA_BYTES_MAX)?;
        let mut stop = Stop::listen()?;
        let instance = place.instance(&self.key).await?;
        let patience = self.timeout.unwrap_or(place.settings.request_timeout);
        let sent = tokio::select! {
            sent = self.send(&instance, &data) => sent.map_err(named),
            () = tokio::time::sleep(patience) => {
                Err(anyhow!("RequestTimeout: the broadcast took longer than {}", duration::format(patience)))
            }
            () = stop.asked() => Err(anyhow!("Stopped: interrupted before the broadcast was published")),
        };
        instance.stop().await;
        let received = sent?;
        if self.json {
            return Ok(line(json!({ "instances": received }).to_string())?);
        }
        let instances = if received == 1 { "instance" } else { "instances" };
        Ok(line(format!("received by {received} {instances}"))?)
    }

    /// Returns how many other instances received it.
    async fn send(&self, instance: &Instance, data: &Json) -> Result<u64, MeshError> {
        instance.start().await?;
        instance.broadcast(&self.broadcast_type, data, true).await
    }
}
