//! The options of a job that `enqueue` and `schedule add` have in common.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use convoke_core::jobs::{JobTemplate, Priority, RetryPolicy};
use convoke_core::limits::ARGS_BYTES_MAX;
use convoke_core::{JobType, QueueName, duration};

use super::enqueue::read_json;

/// The options of a job or schedule as they are shown: a name, and the field of its JSON.
pub const SHOWN: [(&str, &str); 10] = [
    ("type", "type"),
    ("queue", "queue"),
    ("priority", "priority"),
    ("args", "args"),
    ("max retries", "maxRetries"),
    ("retry policy", "retryPolicy"),
    ("timeout", "timeout"),
    ("correlation id", "correlationId"),
    ("unique key", "uniqueKey"),
    ("tags", "tags"),
];

#[derive(Debug, Args)]
pub struct TemplateArgs {
    /// Queue of the job [default: default]
    #[arg(long, short)]
    queue: Option<QueueName>,
    /// Arguments as JSON, from a file (@FILE) or from standard input (-)
    #[arg(long, value_name = "JSON|@FILE|-", allow_hyphen_values = true)]
    args: Option<String>,
    /// Priority: low, normal, high or critical
    #[arg(long, value_parser = priority)]
    priority: Option<Priority>,
    /// Maximum number of attempts after the first
    #[arg(long, value_name = "N")]
    max_retries: Option<u32>,
    /// Backoff between attempts, as JSON such as {"initialDelay":"1s","multiplier":2,"maxDelay":"1m","jitter":"none"}
    #[arg(long, value_name = "JSON", value_parser = retry_policy)]
    retry_policy: Option<RetryPolicy>,
    /// How long one attempt may take
    #[arg(long, value_parser = duration::parse, value_name = "DURATION")]
    timeout: Option<Duration>,
    /// Unique key: while a job with this key is live, enqueueing again returns that job
    #[arg(long, value_name = "KEY")]
    unique_key: Option<String>,
    /// Keep the unique key reserved for this long, even if the job ends sooner
    #[arg(long, value_parser = duration::parse, requires = "unique_key", value_name = "DURATION")]
    unique_for: Option<Duration>,
    /// Correlation id: shown with the job, and a filter of lists
    #[arg(long, value_name = "ID")]
    correlation_id: Option<String>,
    /// Tag by which the job can be found; may be repeated
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
}

impl TemplateArgs {
    pub fn into_template(self, job_type: JobType) -> Result<JobTemplate> {
        let args = self.args.as_deref().map(|given| read_json("--args", given, ARGS_BYTES_MAX)).transpose()?;
        Ok(JobTemplate {
            queue: self.queue,
            args,
            priority: self.priority,
            max_retries: self.max_retries,
            retry_policy: self.retry_policy,
            timeout: self.timeout,
            correlation_id: self.correlation_id,
            unique_key: self.unique_key,
            unique_for: self.unique_for,
            tags: (!self.tags.is_empty()).then_some(self.tags),
            ..JobTemplate::new(job_type)
        })
    }
}

fn priority(text: &str) -> Result<Priority, String> {
    Priority::parse(text).ok_or_else(|| "expected low, normal, high or critical".into())
}

fn retry_policy(text: &str) -> Result<RetryPolicy, String> {
    let policy: RetryPolicy = serde_json::from_str(text).map_err(|error| error.to_string())?;
    policy.check().map_err(|invalid| invalid.to_string())?;
    Ok(policy)
}
