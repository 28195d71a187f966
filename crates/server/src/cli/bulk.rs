//! `convoke job cancel|retry|delete` of all jobs that match a filter: the server acts on a slice at a time.

use anyhow::Result;
use clap::Args;
use convoke_core::JobId;
use convoke_core::jobs::JobFilter;
use serde_json::{Value, json};

use super::filter::FilterArgs;
use super::output::line;
use super::remote::{Remote, Usage};

/// One job by its id, or all that match.
#[derive(Debug, Args)]
pub struct Which {
    /// The job; without it, all jobs that match the options
    #[arg(conflicts_with_all = ["filter", "all", "dry_run"])]
    id: Option<JobId>,
    #[command(flatten)]
    filter: FilterArgs,
    /// All jobs to which this applies
    #[arg(long)]
    all: bool,
    /// Only count them
    #[arg(long)]
    dry_run: bool,
}

impl Which {
    /// Returns the job; `None` for all that match. Rejects a command line that selects nothing.
    pub fn one(&self) -> Result<Option<JobId>> {
        self.check()?;
        Ok(self.id)
    }

    fn check(&self) -> Result<()> {
        let has_filter = self.filter.filter() != JobFilter::default();
        if self.id.is_none() && !has_filter && !self.all {
            let message =
                "expected the id of a job, an option that selects jobs such as --queue, or --all for all of them";
            return Err(Usage(message.into()).into());
        }
        Ok(())
    }

    fn selection(&self) -> Result<Value> {
        let mut selection = serde_json::to_value(self.filter.filter())?;
        selection["all"] = self.all.into();
        Ok(selection)
    }

    /// Counts the jobs, or acts on them slice by slice. The progress goes to standard error.
    pub async fn act(&self, remote: &Remote, action: &str, reason: Option<String>) -> Result<()> {
        self.check()?;
        if let Some(id) = self.id {
            let message =
                format!("expected options that select jobs, got the id {id}: one job expires by its retention");
            return Err(Usage(message).into());
        }
        let mut body = json!({"action": action, "filter": self.selection()?, "reason": reason, "dryRun": self.dry_run});
        let (mut done, mut skipped) = (0, 0);
        loop {
            let result = remote.post("/v1/jobs/bulk", &body).await?.value()?;
            if self.dry_run {
                let more = if result["isAtLeast"] == true { "at least " } else { "" };
                let text = format!("{more}{} jobs would be changed by {action}", result["count"]);
                return Ok(line(if remote.json { result.to_string() } else { text })?);
            }
            done += result["done"].as_u64().unwrap_or(0);
            skipped += result["skipped"].as_u64().unwrap_or(0);
            if result["nextCursor"].is_null() {
                let text = match skipped {
                    0 => format!("{action}: {done} jobs"),
                    skipped => format!("{action}: {done} jobs; {skipped} changed meanwhile"),
                };
                let result = json!({"action": action, "done": done, "skipped": skipped});
                return Ok(line(if remote.json { result.to_string() } else { text })?);
            }
            eprintln!("{action}: {done} jobs so far");
            body["cursor"] = result["nextCursor"].clone();
        }
    }
}
