//! `convoke job cancel|retry|delete` of all jobs that match a filter: the server acts on a slice at a time.

use anyhow::Result;
use clap::Args;
use convoke_core::jobs::Status;
use convoke_core::{JobId, JobType, QueueName};
use serde_json::{Value, json};

use super::job::status;
use super::output::line;
use super::remote::{Remote, Usage};

/// One job by its id, or all that match.
#[derive(Debug, Args)]
pub struct Which {
    /// The job; without it, all jobs that match the options
    id: Option<JobId>,
    /// Only jobs of this queue
    #[arg(long, short, conflicts_with = "id")]
    queue: Option<QueueName>,
    /// Only jobs of this type
    #[arg(long = "type", value_name = "TYPE", conflicts_with = "id")]
    job_type: Option<JobType>,
    /// Only jobs whose type begins with this text
    #[arg(long, value_name = "TEXT", conflicts_with = "id")]
    type_prefix: Option<String>,
    /// Only jobs with this status; can be given several times
    #[arg(long, value_parser = status, conflicts_with = "id")]
    status: Vec<Status>,
    /// Only jobs with this correlation id
    #[arg(long, value_name = "ID", conflicts_with = "id")]
    correlation_id: Option<String>,
    /// Only jobs with this tag
    #[arg(long, conflicts_with = "id")]
    tag: Option<String>,
    /// Only jobs that were created then or later: an instant, or a duration before now
    #[arg(long, value_name = "TIME", conflicts_with = "id")]
    after: Option<String>,
    /// Only jobs that were created before: an instant, or a duration before now
    #[arg(long, value_name = "TIME", conflicts_with = "id")]
    before: Option<String>,
    /// All jobs to which this applies
    #[arg(long, conflicts_with = "id")]
    all: bool,
    /// Only count them
    #[arg(long, conflicts_with = "id")]
    dry_run: bool,
}

impl Which {
    /// Returns the job; `None` for all that match. Rejects a command line that selects nothing.
    pub fn one(&self) -> Result<Option<JobId>> {
        self.check()?;
        Ok(self.id)
    }

    fn check(&self) -> Result<()> {
        let has_filter = self.queue.is_some()
            || self.job_type.is_some()
            || self.type_prefix.is_some()
            || !self.status.is_empty()
            || self.correlation_id.is_some()
            || self.tag.is_some()
            || self.after.is_some()
            || self.before.is_some();
        if self.id.is_none() && !has_filter && !self.all {
            let message =
                "expected the id of a job, an option that selects jobs such as --queue, or --all for all of them";
            return Err(Usage(message.into()).into());
        }
        Ok(())
    }

    fn filter(&self) -> Value {
        let mut filter = match self.id {
            None => json!({
                "queue": self.queue, "type": self.job_type, "typePrefix": self.type_prefix,
                "correlationId": self.correlation_id, "tag": self.tag, "after": self.after, "before": self.before,
                "all": self.all,
            }),
            Some(_) => json!({}),
        };
        if !self.status.is_empty() {
            filter["status"] = self.status.iter().map(|status| status.as_str()).collect();
        }
        filter
    }

    /// Counts the jobs, or acts on them slice by slice. The progress goes to standard error.
    pub async fn act(&self, remote: &Remote, action: &str, reason: Option<String>) -> Result<()> {
        self.check()?;
        if let Some(id) = self.id {
            let message =
                format!("expected options that select jobs, got the id {id}: one job expires by its retention");
            return Err(Usage(message).into());
        }
        let mut body = json!({"action": action, "filter": self.filter(), "reason": reason, "dryRun": self.dry_run});
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
