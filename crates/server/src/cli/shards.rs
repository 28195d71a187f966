//! `convoke shards`: shows the owners of shards, and runs a worker for trying a service.

use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use convoke::connect::{ZmqCredentials, ZmqKeys};
use convoke::{ShardChange, ShardWorker};
use convoke_core::shards::Shard;
use convoke_core::{ServiceName, WorkerId, duration};
use serde_json::{Value, json};

use super::output::{age, fields, line, list, render, text, titled};
use super::remote::{Remote, RemoteArgs, Usage, usage};
use crate::config::{self, Surroundings};
use crate::logs;
use crate::stop::Stop;

#[derive(Debug, Args)]
pub struct ShardsArgs {
    #[command(flatten)]
    remote: RemoteArgs,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show services, their workers and the shards of each
    Status {
        /// Only this service, with every shard
        service: Option<ServiceName>,
    },
    /// Run a worker of a service, and print its changes
    #[command(after_help = "Prints a line when the worker's shards change, with --json an object:
  {\"version\":4194305,\"shards\":[0,1,2],\"added\":[0,1,2],\"removed\":[]}
On SIGTERM or SIGINT it leaves, and its shards move to other workers at once.

Examples:
  convoke shards join my-service --worker-id a --shards 10
  convoke shards join my-service --worker-id b --shards 10 --coordinator tcp://a:5555,tcp://b:5555 --handoff")]
    Join(JoinArgs),
    /// Generate a pair of CURVE keys
    Keys,
}

#[derive(Debug, Args)]
struct JoinArgs {
    service: ServiceName,
    /// Id of this worker, unique in the service
    #[arg(long, value_name = "ID")]
    worker_id: WorkerId,
    /// Number of shards of the whole service
    #[arg(long, value_name = "N")]
    shards: u32,
    /// Address of the shard coordinator; several, separated by commas
    #[arg(long, value_name = "URL", default_value = "tcp://127.0.0.1:5555")]
    coordinator: String,
    /// Release a shard on request before another worker gets it
    #[arg(long)]
    handoff: bool,
    /// Time between heartbeats [default: a third of the coordinator's timeout]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    heartbeat_interval: Option<Duration>,
    /// User and password, if the coordinator requires them
    #[arg(long, value_name = "USER:PASSWORD", env = "CONVOKE_SHARDS_PLAIN", hide_env_values = true)]
    plain: Option<String>,
    /// Public key of the coordinator, if it has one
    #[arg(long, value_name = "KEY", conflicts_with = "plain")]
    curve_server_key: Option<String>,
    /// Secret key of this worker [default: a new one]
    #[arg(
        long,
        value_name = "KEY",
        env = "CONVOKE_SHARDS_CURVE_SECRET_KEY",
        hide_env_values = true,
        requires = "curve_server_key"
    )]
    curve_secret_key: Option<String>,
}

pub async fn run(args: ShardsArgs, verbose: u8) -> Result<()> {
    match args.verb {
        Verb::Status { service } => status(&Remote::new(&args.remote, verbose)?, service).await,
        Verb::Join(join) => work(join, args.remote.json).await,
        Verb::Keys => keys(args.remote.json),
    }
}

async fn status(remote: &Remote, service: Option<ServiceName>) -> Result<()> {
    let path = match &service {
        Some(service) => format!("/v1/shards/{}", convoke::encode(service.as_str())),
        None => "/v1/shards".into(),
    };
    let response = remote.get(&path).await?;
    if remote.json {
        return Ok(line(response.text())?);
    }
    let response = response.value()?;
    Ok(line(if service.is_some() { one(&response) } else { all(&response) })?)
}

fn all(response: &Value) -> String {
    let (coordinator, listening) = (text(response, "coordinator"), text(response, "listening"));
    let listening = match (coordinator.is_empty(), listening.is_empty()) {
        (_, false) => listening,
        (false, true) => format!("on node {coordinator}"),
        (true, true) => "no node listens for shard workers".into(),
    };
    let head = titled(&[("coordinator", coordinator), ("listening", listening)]);
    let rows = list(response, "services").iter().map(|service| {
        let workers = list(service, "workers");
        let active = workers.iter().filter(|worker| worker["active"] == true).count();
        let mut row = ["service", "maxShardCount", "version", "strategy"].map(|name| text(service, name)).to_vec();
        row.push(format!("{active}/{}", workers.len()));
        row
    });
    let rows: Vec<_> = rows.collect();
    if rows.is_empty() {
        return head;
    }
    format!("{head}\n\n{}", render(&["service", "shards", "version", "strategy", "active workers"], rows))
}

fn one(service: &Value) -> String {
    let head = titled(&[
        ("service", text(service, "service")),
        ("shards", text(service, "maxShardCount")),
        ("version", text(service, "version")),
        ("strategy", text(service, "strategy")),
    ]);
    let rows = list(service, "workers").iter().map(|worker| {
        let shards: Vec<Shard> = list(worker, "shards").iter().filter_map(shard).collect();
        let revoking: Vec<Shard> = list(worker, "revoking").iter().filter_map(shard).collect();
        let state = if worker["active"] == true { "active" } else { "silent" };
        vec![
            text(worker, "workerId"),
            state.into(),
            shards.len().to_string(),
            ranges(&shards),
            ranges(&revoking),
            age(worker, "lastHeartbeatAt"),
        ]
    });
    let table = render(&["worker", "state", "count", "shards", "releasing", "last heartbeat"], rows.collect());
    format!("{head}\n\n{table}")
}

fn shard(value: &Value) -> Option<Shard> {
    value.as_u64().and_then(|number| Shard::try_from(number).ok())
}

/// Returns shards in order as ranges: `0-3,7`.
fn ranges(shards: &[Shard]) -> String {
    let mut parts: Vec<(Shard, Shard)> = Vec::new();
    for shard in shards {
        match parts.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*shard) => *last = *shard,
            _ => parts.push((*shard, *shard)),
        }
    }
    let parts: Vec<String> = parts
        .into_iter()
        .map(|(first, last)| if first == last { first.to_string() } else { format!("{first}-{last}") })
        .collect();
    parts.join(",")
}

fn keys(json: bool) -> Result<()> {
    let keys = ZmqKeys::generate();
    if json {
        let keys = json!({ "publicKey": keys.public_z85(), "secretKey": keys.secret_z85() });
        return Ok(line(keys.to_string())?);
    }
    Ok(fields(&[("public key", keys.public_z85()), ("secret key", keys.secret_z85())])?)
}

async fn work(args: JoinArgs, json: bool) -> Result<()> {
    let surroundings = Surroundings::read(&config::variables(), "shard-worker").map_err(Usage)?;
    logs::start(&surroundings, &[("worker", args.worker_id.as_str()), ("shard_service", args.service.as_str())]);
    let mut stop = Stop::listen()?;
    let (service, worker_id) = (args.service.as_str(), args.worker_id.as_str());
    let mut worker = ShardWorker::builder(&args.coordinator, service, worker_id, args.shards)
        .handoff(args.handoff)
        .credentials(credentials(&args)?);
    if let Some(interval) = args.heartbeat_interval {
        worker = worker.heartbeat_interval(interval);
    }
    let worker = worker.connect().await.map_err(|error| match error {
        convoke::Error::Coordinator(error) => usage(error),
        error => error.into(),
    })?;
    let mut changes = worker.changes();
    let (leaving, left) = (worker.clone(), tokio::sync::oneshot::channel());
    tokio::spawn(async move {
        stop.asked().await;
        let _ = left.0.send(leaving.leave().await);
    });
    if !json {
        eprintln!("registering as {} of {} at {}", args.worker_id, args.service, args.coordinator);
    }
    while let Some(change) = changes.next().await {
        line(if json { as_json(&change) } else { in_words(&change) })?;
    }
    if worker.is_replaced() {
        bail!(
            "another worker has registered as {} of {}: this one released its shards; give each worker its own id",
            args.worker_id,
            args.service
        );
    }
    if !left.1.await.unwrap_or(false) {
        bail!("the coordinator did not confirm that the worker left; its shards move after the heartbeat timeout");
    }
    Ok(())
}

fn as_json(change: &ShardChange) -> String {
    let ShardChange { added, removed, shards, version, .. } = change;
    json!({ "version": version, "shards": shards, "added": added, "removed": removed }).to_string()
}

fn in_words(change: &ShardChange) -> String {
    let mut parts = vec![format!("version {}: {} shards", change.version, change.shards.len())];
    for (sign, moved) in [("+", &change.added), ("-", &change.removed)] {
        if !moved.is_empty() {
            parts.push(format!("{sign}{}", ranges(moved)));
        }
    }
    parts.join("  ")
}

fn credentials(args: &JoinArgs) -> Result<ZmqCredentials> {
    if let Some(plain) = &args.plain {
        let wrong = || Usage("--plain: expected USER:PASSWORD, got no colon".into());
        let (user, password) = plain.split_once(':').ok_or_else(wrong)?;
        return Ok(ZmqCredentials::Plain { user: user.into(), password: password.into() });
    }
    let Some(server) = &args.curve_server_key else { return Ok(ZmqCredentials::Open) };
    let secret = args.curve_secret_key.clone().unwrap_or_else(|| ZmqKeys::generate().secret_z85());
    ZmqCredentials::curve(&secret, server).map_err(usage)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_written_as_ranges() {
        for (shards, text) in [(&[][..], ""), (&[4], "4"), (&[0, 1, 2], "0-2"), (&[0, 1, 3, 5, 6, 9], "0-1,3,5-6,9")] {
            assert_eq!(ranges(shards), text);
        }
    }

    #[test]
    fn services_are_shown_with_their_workers() {
        let worker = |id: &str, shards: Value, active: bool| json!({"workerId": id, "shards": shards, "active": active, "handoff": false, "lastHeartbeatAt": "x"});
        let service = json!({"service": "s", "maxShardCount": 4, "version": 9, "strategy": "sticky",
            "workers": [worker("a", json!([0, 1, 2, 3]), true), worker("b", json!([]), false)]});
        let shown = one(&service);
        for part in ["service   s", "version   9", "a       active  4      0-3", "b       silent  0"] {
            assert!(shown.contains(part), "{part} is in\n{shown}");
        }
        let shown = all(&json!({"coordinator": "n", "listening": "tcp://h:1", "services": [service]}));
        for part in ["listening    tcp://h:1", "ACTIVE WORKERS", "sticky    1/2"] {
            assert!(shown.contains(part), "{part} is in\n{shown}");
        }
        let standby = all(&json!({"coordinator": "n", "listening": null, "services": []}));
        assert!(standby.contains("on node n"), "{standby}");
    }
}
