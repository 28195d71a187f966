//! `convoke audit`: what operators did.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use convoke_core::duration;
use jiff::Timestamp;
use serde_json::Value;

use super::output::{table, text};
use super::pages::Listing;
use super::remote::{Remote, RemoteArgs};

#[derive(Debug, Args)]
#[command(
    after_help = "Recorded are changes by the API, the command line and the dashboard: of jobs, queues, schedules and nodes, and logins.
Enqueues of clients are not. Entries are deleted after retention.audit.

Examples:
  convoke audit --since 2h
  convoke audit --who ada --action queue.pause
  convoke audit --target mail --json"
)]
pub struct AuditArgs {
    /// Only acts of this caller: the name of a token, or local
    #[arg(long)]
    who: Option<String>,
    /// Only this action, such as job.cancel
    #[arg(long)]
    action: Option<String>,
    /// Only acts on this job, queue, schedule or node
    #[arg(long)]
    target: Option<String>,
    /// Only acts since: a duration before now (2h) or an instant (2026-01-31T09:00:00Z)
    #[arg(long, value_name = "D|T", value_parser = instant)]
    since: Option<Timestamp>,
    /// Only acts before: a duration before now or an instant
    #[arg(long, value_name = "D|T", value_parser = instant)]
    until: Option<Timestamp>,
    /// Maximum number of entries
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
    limit: u16,
    /// List all, without a maximum
    #[arg(long, conflicts_with = "limit")]
    all: bool,
    /// Cursor printed by the previous page
    #[arg(long)]
    cursor: Option<String>,
    #[command(flatten)]
    remote: RemoteArgs,
}

/// Reads an instant, or a duration before now.
fn instant(text: &str) -> Result<Timestamp, String> {
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(at);
    }
    let ago: Duration = duration::parse(text).map_err(|_| {
        format!("expected a duration such as 2h or an instant such as 2026-01-31T09:00:00Z, got {text:?}")
    })?;
    Timestamp::now().checked_sub(ago).map_err(|_| format!("expected a time that exists, got {text:?}"))
}

pub async fn run(args: AuditArgs, verbose: u8) -> Result<()> {
    let remote = Remote::new(&args.remote, verbose)?;
    let time = |at: Option<Timestamp>| at.map(|at| at.to_string());
    let listing = Listing {
        path: "/v1/audit",
        name: "entries",
        filter: vec![
            ("who", args.who),
            ("action", args.action),
            ("target", args.target),
            ("after", time(args.since)),
            ("before", time(args.until)),
        ],
        cursor: args.cursor,
        limit: if args.all { usize::MAX } else { args.limit.into() },
    };
    let found = listing.read(&remote).await?;
    if remote.json {
        return found.print_json();
    }
    let rows = found.rows(row)?;
    table(&["at", "who", "via", "action", "target", "before", "after"], rows)?;
    found.print_next_cursor();
    Ok(())
}

fn row(entry: &Value) -> Vec<String> {
    ["at", "who", "via", "action", "target", "before", "after"].map(|field| text(entry, field)).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_an_instant_or_a_duration_before_now() {
        assert_eq!(instant("2026-01-31T09:00:00Z").expect("an instant").to_string(), "2026-01-31T09:00:00Z");
        let before = Timestamp::now();
        let hour_ago = instant("1h").expect("a duration");
        assert!(before - Duration::from_secs(3600) <= hour_ago && hour_ago < before);
        assert!(instant("yesterday").expect_err("neither").contains("expected a duration such as 2h"));
    }
}
