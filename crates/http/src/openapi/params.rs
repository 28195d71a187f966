//! Parameters of paths and queries.

#![allow(dead_code, reason = "only described, never constructed")]

use utoipa::IntoParams;
use uuid::Uuid;

#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub struct JobPath {
    /// The job's id
    pub id: Uuid,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub struct SchedulePath {
    /// The schedule's name
    pub name: String,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub struct QueuePath {
    /// The queue's name
    pub name: String,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub struct WorkerPath {
    /// The worker's id
    pub id: String,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub struct NodePath {
    /// The node's id
    pub id: String,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub struct ServicePath {
    /// The service's name
    pub service: String,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct WaitParams {
    /// How long to wait for the end of the job, at most `5m`
    #[param(example = "20s")]
    pub wait: Option<String>,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query, rename_all = "camelCase")]
pub struct JobsParams {
    pub queue: Option<String>,
    pub r#type: Option<String>,
    /// One or several states, separated by commas
    #[param(example = "pending,running")]
    pub status: Option<String>,
    pub correlation_id: Option<String>,
    /// Jobs that have this tag
    pub tag: Option<String>,
    #[param(minimum = 1, maximum = 1000, default = 50)]
    pub limit: Option<u32>,
    /// `nextCursor` of the page before
    pub cursor: Option<String>,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query, rename_all = "camelCase")]
pub struct DeadLettersParams {
    pub queue: Option<String>,
    pub r#type: Option<String>,
    pub correlation_id: Option<String>,
    /// Jobs that have this tag
    pub tag: Option<String>,
    #[param(minimum = 1, maximum = 1000, default = 50)]
    pub limit: Option<u32>,
    /// `nextCursor` of the page before
    pub cursor: Option<String>,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct HistoryParams {
    /// Skips so many runs: `nextAfter` of the page before
    #[param(default = 0)]
    pub after: Option<u64>,
    #[param(minimum = 1, maximum = 1000, default = 1000)]
    pub limit: Option<u32>,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct LogsParams {
    /// Lines after this `seq`
    #[param(default = 0)]
    pub after: Option<u64>,
    #[param(minimum = 1, maximum = 1000, default = 50)]
    pub limit: Option<u32>,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct LogStreamParams {
    /// Lines after this `seq`; the header `Last-Event-ID` takes precedence
    #[param(default = 0)]
    pub after: Option<u64>,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct EventsParams {
    /// Only these kinds (`job,leader`) or names (`job:completed`); unknown ones are rejected
    #[param(example = "job,leader")]
    pub types: Option<String>,
}
