//! `convoke cluster`: shows the nodes, the leader and the handoffs, and drains a node.

use std::io::IsTerminal as _;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::{Args, Subcommand};
use convoke::encode;
use convoke_core::duration;
use http::Method;
use serde_json::Value;

use super::output::{age, line, list, printable, render, text, titled};
use super::remote::{CallError, Remote, RemoteArgs};

#[derive(Debug, Args)]
pub struct ClusterArgs {
    #[command(flatten)]
    remote: RemoteArgs,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show nodes, roles, leader, epoch, owned jobs and handoffs in progress; fails if no node leads
    Status(StatusArgs),
    /// Drain a node: it hands its runs over and exits, as on SIGTERM; waits until it has left
    ///
    /// The request may go to any node. If a supervisor restarts processes that exit, it restarts the node too: stop the
    /// node there instead.
    Drain(DrainArgs),
}

#[derive(Debug, Args)]
struct DrainArgs {
    /// Id of the node
    node: String,
    /// Return as soon as the node has begun to drain
    #[arg(long)]
    no_wait: bool,
}

#[derive(Debug, Args)]
struct StatusArgs {
    /// Repeat until interrupted
    #[arg(long)]
    watch: bool,
    /// Time between updates, with --watch
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = duration::parse, requires = "watch")]
    every: Duration,
}

const DRAIN_READ_INTERVAL: Duration = Duration::from_millis(300);
/// The shortest time between updates that people can read.
const EVERY_MIN: Duration = Duration::from_millis(100);
/// Clears the terminal and moves the cursor to its upper left corner.
const CLEAR: &str = "\x1b[2J\x1b[H";

pub async fn run(args: ClusterArgs, verbose: u8) -> Result<()> {
    let remote = Remote::new(&args.remote, verbose)?;
    match args.verb {
        Verb::Status(status) => show(&remote, &status).await,
        Verb::Drain(args) => drain(&remote, &args).await,
    }
}

async fn drain(remote: &Remote, DrainArgs { node, no_wait }: &DrainArgs) -> Result<()> {
    let path = format!("/v1/nodes/{}", encode(node));
    let mut response = remote.post(&format!("{path}/drain"), &serde_json::json!({})).await?;
    let mut last = String::new();
    loop {
        let record = response.value()?;
        let (state, runs) = (text(&record, "state"), text(&record, "jobCount"));
        let progress = if state == "left" {
            format!("{node} has left")
        } else {
            format!("{node} {state}, {runs} runs to hand over")
        };
        if progress != last && !remote.json {
            line(&progress)?;
            last = progress;
        }
        if *no_wait || state == "left" {
            if remote.json {
                line(response.text())?;
            }
            break;
        }
        ensure!(state != "dead", "{node} died while it drained; the leader assigns its runs to other nodes");
        tokio::time::sleep(DRAIN_READ_INTERVAL).await;
        response = match remote.call(Method::GET, &path, None).await {
            Ok(response) => response,
            Err(CallError::Unreachable { server, .. }) => {
                return Ok(line(format!(
                    "the server at {server} is no longer reachable: if it was {node}, it has exited. Name several \
                     nodes in --server to follow its runs"
                ))?);
            }
            Err(error) => return Err(error.into()),
        };
    }
    if *no_wait {
        return Ok(());
    }
    let left = remote.get(&format!("{path}/jobs")).await?.value()?;
    let left = list(&left, "jobs").len();
    ensure!(left == 0, "{left} runs of {node} found no other owner yet; the leader offers them again");
    Ok(())
}

async fn show(remote: &Remote, status: &StatusArgs) -> Result<()> {
    let clear = if status.watch && !remote.json && std::io::stdout().is_terminal() { CLEAR } else { "" };
    loop {
        let (text, leaderless) = match remote.get("/v1/cluster").await {
            Ok(response) => {
                let cluster = response.value()?;
                let text = if remote.json { response.text().into_owned() } else { shown(&cluster) };
                (text, cluster["leader"].is_null())
            }
            // With --watch, an outage is shown and the loop goes on.
            Err(error) if status.watch => (format!("error: {error}"), false),
            Err(error) => return Err(error),
        };
        line(format!("{clear}{text}"))?;
        if !status.watch {
            ensure!(!leaderless, "no node leads: nothing is dispatched and no schedule ticks until a node is elected");
            return Ok(());
        }
        tokio::time::sleep(status.every.max(EVERY_MIN)).await;
    }
}

fn shown(cluster: &Value) -> String {
    let leader = text(cluster, "leader");
    let handoffs = list(cluster, "handoffs");
    let draining = list(cluster, "nodes").iter().filter(|node| node["draining"] == true).count();
    let total = text(cluster, "handoffsTotal");
    let by = text(cluster, "answeredBy");
    let away = list(cluster, "backends").iter().filter(|backend| backend["isReachable"] == false);
    let away = away.map(|backend| {
        let (component, detail) = (text(backend, "component").to_lowercase(), text(backend, "detail"));
        printable(&format!("{by} cannot reach its {component}, for {}: {detail}", age(backend, "since")))
    });
    let mut parts: Vec<String> = away.collect();
    if parts.iter().any(|line| line.contains(" its store,")) {
        parts.push(format!("nodes are shown as they were {} ago", age(cluster, "nodesAsOf")));
    }
    let as_of = if text(cluster, "asOf").is_empty() { "never".into() } else { format!("{} ago", age(cluster, "asOf")) };
    parts.push(titled(&[
        ("leader", if leader.is_empty() { "none".into() } else { leader }),
        ("epoch", text(cluster, "epoch")),
        ("as of", format!("{as_of}, by {by}")),
        ("draining", draining.to_string()),
        ("handoffs", if total.is_empty() { "unknown".into() } else { total.clone() }),
    ]));
    let rows = list(cluster, "nodes").iter().map(|node| {
        let mut row = ["nodeId", "role", "state"].map(|name| text(node, name)).to_vec();
        row.push(age(node, "since"));
        row.extend(["jobCount", "epoch", "version"].map(|name| text(node, name)));
        row.extend([age(node, "startedAt"), text(node, "heartbeatAge")]);
        row
    });
    let headers = ["node", "role", "state", "since", "jobs", "epoch", "version", "started", "silent for"];
    parts.push(render(&headers, rows.collect()));
    if !handoffs.is_empty() {
        let names = ["jobId", "type", "queue", "fromNode", "ownership"];
        let rows = handoffs.iter().map(|handoff| names.map(|name| text(handoff, name)).to_vec());
        parts.push(render(&["handoff of", "type", "queue", "from", "state"], rows.collect()));
    }
    if total.parse().is_ok_and(|total: usize| total > handoffs.len()) {
        parts.push(format!("{total} in all; the first {} are shown", handoffs.len()));
    }
    parts.join("\n\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cluster() -> Value {
        let node = |id: &str, role: &str, state: &str| {
            json!({"nodeId": id, "role": role, "state": state, "since": "s", "jobCount": 7, "epoch": 3, "version": "1",
                "startedAt": "x", "heartbeatAge": "2s", "draining": state == "draining"})
        };
        json!({"leader": "a", "epoch": 3, "answeredBy": "b", "asOf": "t", "handoffs": [], "handoffsTotal": 0,
            "backends": [{"component": "Store", "isReachable": true, "since": "x"}],
            "nodes": [node("a", "leader", "active"), node("b", "follower", "draining"), node("c", "follower", "left")]})
    }

    #[test]
    fn a_cluster_is_shown_with_its_nodes_and_what_is_on_its_way() {
        let mut cluster = cluster();
        let text = shown(&cluster);
        for part in [
            "leader    a",
            "epoch     3",
            "as of     t ago, by b",
            "draining  1",
            "handoffs  0",
            "NODE",
            "b     follower  draining  s",
            "c     follower  left      s",
        ] {
            assert!(text.contains(part), "{part} is in\n{text}");
        }
        cluster["handoffs"] =
            json!([{"jobId": "j", "type": "t", "queue": "q", "fromNode": "b", "ownership": "handingOff"}]);
        cluster["handoffsTotal"] = json!(250);
        let text = shown(&cluster);
        for part in ["handoffs  250", "HANDOFF OF", "handingOff", "250 in all; the first 1 are shown"] {
            assert!(text.contains(part), "{part} is in\n{text}");
        }
    }

    #[test]
    fn a_backend_that_is_away_is_named_first() {
        let mut cluster = cluster();
        cluster["leader"] = Value::Null;
        cluster["handoffsTotal"] = Value::Null;
        cluster["nodesAsOf"] = json!("t");
        cluster["backends"] = json!([{"component": "Store", "isReachable": false, "since": "x", "detail": "refused"}]);
        let text = shown(&cluster);
        assert!(text.starts_with("b cannot reach its store, for x: refused"), "{text}");
        for part in ["nodes are shown as they were t ago", "leader    none", "handoffs  unknown"] {
            assert!(text.contains(part), "{part} is in\n{text}");
        }
    }
}
