//! `convoke cluster`: the nodes, who leads, and what is on its way between them.

use std::io::IsTerminal as _;
use std::time::Duration;

use anyhow::Result;
use clap::{Args, Subcommand};
use convoke_core::duration;
use serde_json::Value;

use super::output::{age, line, list, render, text, titled};
use super::remote::{Remote, RemoteArgs};

#[derive(Debug, Args)]
pub struct ClusterArgs {
    #[command(flatten)]
    remote: RemoteArgs,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show nodes, roles, leader, epoch, owned jobs and handoffs under way
    Status(StatusArgs),
}

#[derive(Debug, Args)]
struct StatusArgs {
    /// Show it again and again until interrupted
    #[arg(long)]
    watch: bool,
    /// How often, with --watch
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = duration::parse, requires = "watch")]
    every: Duration,
}

/// More often than this nobody can read.
const EVERY_MIN: Duration = Duration::from_millis(100);
/// Clears the terminal and goes to its upper left corner.
const CLEAR: &str = "\x1b[2J\x1b[H";

pub async fn run(args: ClusterArgs, verbose: u8) -> Result<()> {
    let remote = Remote::new(&args.remote, verbose)?;
    let Verb::Status(status) = args.verb;
    let clear = if status.watch && !remote.json && std::io::stdout().is_terminal() { CLEAR } else { "" };
    loop {
        let shown = match remote.get("/v1/cluster").await {
            Ok(answer) if remote.json => answer.text().into_owned(),
            Ok(answer) => shown(&answer.value()?),
            // Whoever watches sees it go and come back.
            Err(error) if status.watch => format!("error: {error}"),
            Err(error) => return Err(error),
        };
        line(format!("{clear}{shown}"))?;
        if !status.watch {
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
    let total = if total.is_empty() { handoffs.len().to_string() } else { total };
    let mut parts = vec![titled(&[
        ("leader", if leader.is_empty() { "none".into() } else { leader }),
        ("epoch", text(cluster, "epoch")),
        ("draining", draining.to_string()),
        ("handoffs", total.clone()),
    ])];
    let rows = list(cluster, "nodes").iter().map(|node| {
        let mut row = ["nodeId", "role", "state", "jobCount", "epoch", "version"].map(|name| text(node, name)).to_vec();
        row.extend([age(node, "startedAt"), age(node, "lastHeartbeatAt")]);
        row
    });
    parts.push(render(&["node", "role", "state", "jobs", "epoch", "version", "up", "last beat"], rows.collect()));
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

    #[test]
    fn a_cluster_is_shown_with_its_nodes_and_what_is_on_its_way() {
        let node = |id: &str, role: &str, draining: bool| {
            json!({"nodeId": id, "role": role, "state": if draining { "draining" } else { "active" }, "jobCount": 7,
                "epoch": 3, "version": "1", "startedAt": "x", "lastHeartbeatAt": "y", "draining": draining})
        };
        let mut cluster = json!({"leader": "a", "epoch": 3, "nodes": [node("a", "leader", false), node("b", "follower", true)],
            "handoffs": [], "handoffsTotal": 0});
        let text = shown(&cluster);
        for part in ["leader    a", "epoch     3", "draining  1", "handoffs  0", "NODE", "b     follower  draining  7"]
        {
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
}
