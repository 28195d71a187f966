//! `convoke dead`: dead letters, which are jobs that failed or timed out.

use anyhow::Result;
use clap::{Args, Subcommand};
use convoke_core::{JobId, JobType, QueueName};
use serde_json::{Value, json};

use super::output::{age, line, table, text};
use super::pages::Listing;
use super::remote::{Remote, RemoteArgs, Usage};

#[derive(Debug, Args)]
pub struct DeadArgs {
    #[command(flatten)]
    remote: RemoteArgs,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List dead letters, newest first
    #[command(after_help = "Example: convoke dead list --queue email --all")]
    List(ListArgs),
    /// Run dead letters again
    #[command(after_help = "Examples:
  convoke dead retry 0198c0de-0000-7000-8000-000000000001
  convoke dead retry --queue email --type email.send")]
    Retry(Selection),
    /// Delete dead letters permanently
    #[command(after_help = "Example: convoke dead purge --queue email")]
    Purge(Selection),
}

#[derive(Debug, Args)]
struct ListArgs {
    /// Only dead letters of this queue
    #[arg(long, short)]
    queue: Option<QueueName>,
    /// Only dead letters of this job type
    #[arg(long = "type", value_name = "TYPE")]
    job_type: Option<JobType>,
    /// Maximum number of dead letters
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
    /// List all, without a maximum
    #[arg(long, conflicts_with = "limit")]
    all: bool,
    /// Cursor printed by the previous page
    #[arg(long)]
    cursor: Option<String>,
}

/// Which dead letters. There is no default: --all must be given explicitly.
#[derive(Debug, Args)]
struct Selection {
    /// Ids of the jobs
    #[arg(value_name = "ID", conflicts_with_all = ["queue", "job_type", "all"])]
    ids: Vec<JobId>,
    /// All dead letters of this queue
    #[arg(long, short)]
    queue: Option<QueueName>,
    /// All dead letters of this job type
    #[arg(long = "type", value_name = "TYPE")]
    job_type: Option<JobType>,
    /// All dead letters
    #[arg(long, conflicts_with_all = ["queue", "job_type"])]
    all: bool,
}

impl Selection {
    fn body(&self) -> Result<Value, Usage> {
        if !self.ids.is_empty() {
            return Ok(json!({ "ids": self.ids }));
        }
        if self.all {
            return Ok(json!({ "all": true }));
        }
        let mut body = serde_json::Map::new();
        if let Some(queue) = &self.queue {
            body.insert("queue".into(), json!(queue));
        }
        if let Some(job_type) = &self.job_type {
            body.insert("type".into(), json!(job_type));
        }
        if body.is_empty() {
            return Err(Usage("expected ids, --queue, --type or --all".into()));
        }
        Ok(body.into())
    }
}

pub async fn run(args: DeadArgs, verbose: u8) -> Result<()> {
    let remote = Remote::new(&args.remote, verbose)?;
    match args.verb {
        Verb::List(args) => list_all(&remote, args).await,
        Verb::Retry(which) => act(&remote, &which, "retry", "retried").await,
        Verb::Purge(which) => act(&remote, &which, "purge", "purged").await,
    }
}

async fn act(remote: &Remote, which: &Selection, verb: &str, done: &str) -> Result<()> {
    let response = remote.post(&format!("/v1/dead-letters/{verb}"), &which.body()?).await?;
    if remote.json {
        return Ok(line(response.text())?);
    }
    Ok(line(format!("{} {done}", text(&response.value()?, done)))?)
}

async fn list_all(remote: &Remote, args: ListArgs) -> Result<()> {
    let listing = Listing {
        path: "/v1/dead-letters",
        name: "deadLetters",
        filter: vec![
            ("queue", args.queue.map(|queue| queue.to_string())),
            ("type", args.job_type.map(|job_type| job_type.to_string())),
        ],
        cursor: args.cursor,
        limit: if args.all { usize::MAX } else { usize::from(args.limit) },
    };
    let found = listing.read(remote).await?;
    if remote.json {
        return found.print_json();
    }
    let rows = found.rows(|dead| {
        let mut row = ["jobId", "type", "queue", "attempts"].map(|name| text(dead, name)).to_vec();
        row.extend([age(dead, "failedAt"), text(dead, "error")]);
        row
    })?;
    table(&["job", "type", "queue", "attempts", "age", "error"], rows)?;
    found.print_next_cursor();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selection() -> Selection {
        Selection { ids: Vec::new(), queue: None, job_type: None, all: false }
    }

    #[test]
    fn without_a_selection_nothing_is_sent() {
        let message = selection().body().expect_err("refused").to_string();
        assert_eq!(message, "expected ids, --queue, --type or --all");
    }

    #[test]
    fn a_selection_is_ids_or_a_filter_or_all() {
        let queue = || Some(QueueName::new("email").expect("a name"));
        let job_type = Some(JobType::new("email.send").expect("a name"));
        let by = |selection: Selection| selection.body().expect("a selection");
        assert_eq!(by(Selection { all: true, ..selection() }), json!({"all":true}));
        assert_eq!(by(Selection { queue: queue(), ..selection() }), json!({"queue":"email"}));
        let both = by(Selection { queue: queue(), job_type, ..selection() });
        assert_eq!(both, json!({"queue":"email","type":"email.send"}));
    }
}
