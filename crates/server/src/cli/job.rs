//! `convoke job`: jobs, their attempts and their logs.

use std::time::Duration;

use anyhow::Result;
use clap::{Args, Subcommand};
use convoke_core::JobId;
use serde_json::{Value, json};

use super::bulk::Which;
use super::filter::FilterArgs;
use super::output::{age, fields, line, list, printable, table, text};
use super::pages::Listing;
use super::remote::{Outage, Remote, RemoteArgs, RemoteResponse, query};
use super::template::SHOWN;

/// The time between two attempts to reach a server that is unreachable.
const RECONNECT_DELAY: Duration = Duration::from_millis(500);
/// The maximum number of log lines in a page.
const LOGS_PAGE: usize = 1_000;

#[derive(Debug, Args)]
pub struct JobArgs {
    #[command(flatten)]
    remote: RemoteArgs,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List jobs, newest first
    #[command(after_help = "Example: convoke job list --queue email --status failed --limit 20")]
    List(Box<ListArgs>),
    /// Show a job
    Show { id: JobId },
    /// Show a job's attempts
    History { id: JobId },
    /// Cancel a job, or all that match; running ones are asked to stop
    #[command(after_help = "Example: convoke job cancel --queue mail --type-prefix email. --dry-run")]
    Cancel {
        #[command(flatten)]
        which: Which,
        /// Reason, shown with the job
        #[arg(long)]
        reason: Option<String>,
    },
    /// Run a failed, timed-out or cancelled job again, or all that match
    #[command(after_help = "Example: convoke job retry --status failed --after 2h")]
    Retry(Which),
    /// Delete all ended jobs that match, with their history and logs
    #[command(after_help = "Example: convoke job delete --status completed --before 7d")]
    Delete(Which),
    /// Print a job's log lines
    #[command(after_help = "Example: convoke job logs -f 0198c0de-0000-7000-8000-000000000001")]
    Logs(LogArgs),
}

#[derive(Debug, Args)]
struct ListArgs {
    #[command(flatten)]
    filter: FilterArgs,
    /// Maximum number of jobs
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
    /// Cursor printed by the previous page
    #[arg(long)]
    cursor: Option<String>,
}

#[derive(Debug, Args)]
struct LogArgs {
    id: JobId,
    /// Print new lines until the job has ended
    #[arg(long, short)]
    follow: bool,
    /// Only lines after the line of this number
    #[arg(long, value_name = "SEQ", conflicts_with = "follow")]
    after: Option<u64>,
    /// Maximum number of lines [default: all]
    #[arg(long, conflicts_with = "follow")]
    limit: Option<usize>,
}

pub async fn run(args: JobArgs, verbose: u8) -> Result<()> {
    let remote = Remote::new(&args.remote, verbose)?;
    match args.verb {
        Verb::List(args) => list_jobs(&remote, *args).await,
        Verb::Show { id } => show(&remote, id).await,
        Verb::History { id } => history(&remote, id).await,
        Verb::Cancel { which, reason } => match which.one()? {
            Some(id) => {
                let body = reason.map_or_else(|| json!({}), |reason| json!({ "reason": reason }));
                changed(&remote, &remote.post(&format!("/v1/jobs/{id}/cancel"), &body).await?)
            }
            None => which.act(&remote, "cancel", reason).await,
        },
        Verb::Retry(which) => match which.one()? {
            Some(id) => changed(&remote, &remote.post(&format!("/v1/jobs/{id}/retry"), &json!({})).await?),
            None => which.act(&remote, "retry", None).await,
        },
        Verb::Delete(which) => which.act(&remote, "delete", None).await,
        Verb::Logs(args) if args.follow => follow(&remote, args.id).await,
        Verb::Logs(args) => logs(&remote, &args).await,
    }
}

fn changed(remote: &Remote, response: &RemoteResponse) -> Result<()> {
    if remote.json {
        return Ok(line(response.text())?);
    }
    let job = response.value()?;
    Ok(line(format!("{} is {}", text(&job, "id"), text(&job, "status")))?)
}

async fn list_jobs(remote: &Remote, args: ListArgs) -> Result<()> {
    let listing = Listing {
        path: "/v1/jobs",
        name: "jobs",
        filter: args.filter.filter().texts().into_iter().map(|(name, text)| (name, Some(text))).collect(),
        cursor: args.cursor,
        limit: usize::from(args.limit),
    };
    let found = listing.read(remote).await?;
    if remote.json {
        return found.print_json();
    }
    let rows = found.rows(|job| {
        let (status, percent) = (text(job, "status"), text(job, "progress.percent"));
        let status = if status == "running" && !percent.is_empty() { format!("{status} {percent}%") } else { status };
        let attempts = format!("{}/{}", text(job, "attempt"), job["maxRetries"].as_u64().unwrap_or(0) + 1);
        let (id, job_type, queue) = (text(job, "id"), text(job, "type"), text(job, "queue"));
        vec![id, job_type, queue, status, text(job, "priority"), attempts, age(job, "createdAt")]
    })?;
    table(&["id", "type", "queue", "status", "priority", "attempt", "age"], rows)?;
    found.print_next_cursor();
    Ok(())
}

async fn show(remote: &Remote, id: JobId) -> Result<()> {
    let response = remote.get(&format!("/v1/jobs/{id}")).await?;
    if remote.json {
        return Ok(line(response.text())?);
    }
    let job = response.value()?;
    let state = [
        ("status", "status"),
        ("progress", "progress.percent"),
        ("message", "progress.message"),
        ("attempt", "attempt"),
        ("retries", "retryCount"),
        ("error", "error"),
        ("result", "result"),
        ("schedule", "schedule"),
        ("execution", "executionId"),
        ("worker", "workerId"),
        ("owner", "ownerNode"),
        ("created", "createdAt"),
        ("scheduled", "scheduledAt"),
        ("dispatched", "dispatchedAt"),
        ("started", "startedAt"),
        ("completed", "completedAt"),
    ];
    let names = [("id", "id")].into_iter().chain(SHOWN).chain(state);
    Ok(fields(&names.map(|(name, path)| (name, text(&job, path))).collect::<Vec<_>>())?)
}

async fn history(remote: &Remote, id: JobId) -> Result<()> {
    let names = ["attempt", "status", "workerId", "startedAt", "endedAt", "error", "executionId"];
    let (mut after, mut rows) = (None, Vec::new());
    loop {
        let path = query(&format!("/v1/jobs/{id}/history"), [("after", after.map(|after: u64| after.to_string()))]);
        let response = remote.get(&path).await?;
        if remote.json {
            // One page, unchanged: the reader of the JSON follows `nextAfter`.
            return Ok(line(response.text())?);
        }
        let page = response.value()?;
        rows.extend(list(&page, "executions").iter().map(|run| names.map(|name| text(run, name)).to_vec()));
        after = page["nextAfter"].as_u64();
        if after.is_none() {
            break;
        }
    }
    Ok(table(&["attempt", "status", "worker", "started", "ended", "error", "execution"], rows)?)
}

async fn logs(remote: &Remote, args: &LogArgs) -> Result<()> {
    let (mut after, mut left) = (args.after, args.limit.unwrap_or(usize::MAX));
    while left > 0 {
        let page = left.min(LOGS_PAGE);
        let parameters = [("after", after.map(|after| after.to_string())), ("limit", Some(page.to_string()))];
        let response = remote.get(&query(&format!("/v1/jobs/{}/logs", args.id), parameters)).await?;
        if remote.json {
            // One page, unchanged: the reader of the JSON follows `nextAfter`.
            return Ok(line(response.text())?);
        }
        let response = response.value()?;
        let lines = list(&response, "logs");
        for entry in lines {
            line(log_line(entry))?;
        }
        left -= lines.len().min(left);
        after = lines.last().and_then(|entry| entry["seq"].as_u64()).or(after);
        // A page may be short: only an empty one is the last.
        if lines.is_empty() {
            break;
        }
    }
    Ok(())
}

fn log_line(entry: &Value) -> String {
    let (at, level) = (text(entry, "at"), text(entry, "level"));
    format!("{at} {level:5} {}", printable(&text(entry, "message")))
}

/// Prints lines as they arrive, until the server reports the end of the job. If the connection breaks or the server
/// restarts, the stream continues after the last printed line.
async fn follow(remote: &Remote, id: JobId) -> Result<()> {
    let mut printed: Option<u64> = None;
    let mut outage = Outage::default();
    let mut last_message = String::new();
    loop {
        let after = [("after", printed.map(|seq| seq.to_string()))];
        let message = match remote.events(&query(&format!("/v1/jobs/{id}/logs/stream"), after)).await {
            Ok(mut events) => {
                outage.end();
                while let Ok(Some(event)) = events.next().await {
                    if event.event == "end" {
                        return Ok(());
                    }
                    let Ok(entry) = serde_json::from_str::<Value>(&event.data) else { continue };
                    printed = entry["seq"].as_u64().or(printed);
                    line(if remote.json { event.data } else { log_line(&entry) })?;
                }
                "the stream of log lines broke off; reconnecting".to_owned()
            }
            Err(error) if outage.is_bearable(&error) => format!("{error}; reconnecting"),
            Err(error) => return Err(error.into()),
        };
        if message != last_message {
            eprintln!("{message}");
            last_message = message;
        }
        tokio::time::sleep(RECONNECT_DELAY).await;
    }
}
