//! The options that select jobs, of lists and of actions on all that match.

use clap::Args;
use convoke_core::jobs::filter::Moment;
use convoke_core::jobs::{JobFilter, Status};
use convoke_core::{JobType, QueueName, ScheduleName};

#[derive(Debug, Clone, Args)]
#[group(id = "filter", multiple = true)]
pub struct FilterArgs {
    /// Only jobs of this queue
    #[arg(long, short)]
    queue: Option<QueueName>,
    /// Only jobs of this type
    #[arg(long = "type", value_name = "TYPE")]
    job_type: Option<JobType>,
    /// Only jobs whose type begins with this text
    #[arg(long, value_name = "TEXT")]
    type_prefix: Option<JobType>,
    /// Only jobs with this status: created, pending, scheduled, dispatched, running, completed, failed, timedOut or
    /// cancelled; can be given several times
    #[arg(long, value_parser = status)]
    status: Vec<Status>,
    /// Only jobs with this correlation id
    #[arg(long, value_name = "ID")]
    correlation_id: Option<String>,
    /// Only jobs with this tag
    #[arg(long)]
    tag: Option<String>,
    /// Only jobs that this schedule made
    #[arg(long, value_name = "NAME")]
    schedule: Option<ScheduleName>,
    /// Only jobs that were created then or later: an instant, or a duration before now
    #[arg(long, value_name = "TIME")]
    after: Option<Moment>,
    /// Only jobs that were created before: an instant, or a duration before now
    #[arg(long, value_name = "TIME")]
    before: Option<Moment>,
}

impl FilterArgs {
    pub fn filter(&self) -> JobFilter {
        let FilterArgs { queue, job_type, type_prefix, status, correlation_id, tag, schedule, after, before } =
            self.clone();
        JobFilter { status, job_type, type_prefix, queue, correlation_id, tag, schedule, after, before }
    }
}

fn status(text: &str) -> Result<Status, String> {
    Status::parse(text).ok_or_else(|| format!("expected one of {}", Status::ALL.map(Status::as_str).join(", ")))
}
