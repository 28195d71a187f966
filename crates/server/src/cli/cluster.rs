//! `convoke cluster`: the nodes, and who leads.

use anyhow::Result;
use clap::{Args, Subcommand};

use super::output::{age, fields, line, list, table, text};
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
    Status,
}

pub async fn run(args: ClusterArgs, verbose: u8) -> Result<()> {
    let remote = Remote::new(&args.remote, verbose)?;
    let Verb::Status = args.verb;
    let answer = remote.get("/v1/cluster").await?;
    if remote.json {
        return Ok(line(answer.text())?);
    }
    let cluster = answer.value()?;
    let leader = text(&cluster, "leader");
    let leader = if leader.is_empty() { "none".into() } else { leader };
    let handoffs = list(&cluster, "handoffs");
    fields(&[("leader", leader), ("epoch", text(&cluster, "epoch")), ("handoffs", handoffs.len().to_string())])?;
    line("")?;
    let rows = list(&cluster, "nodes").iter().map(|node| {
        let mut row = ["nodeId", "role", "state", "jobCount", "version"].map(|name| text(node, name)).to_vec();
        row.extend([age(node, "startedAt"), age(node, "lastHeartbeatAt")]);
        row
    });
    table(&["node", "role", "state", "jobs", "version", "up", "last beat"], rows.collect())?;
    if !handoffs.is_empty() {
        line("")?;
        let names = ["jobId", "fromNode", "toNode", "state", "tries"];
        let rows = handoffs.iter().map(|handoff| names.map(|name| text(handoff, name)).to_vec());
        table(&["handoff of", "from", "to", "state", "tries"], rows.collect())?;
    }
    Ok(())
}
