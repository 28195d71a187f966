//! Parameters of paths and queries.

#![allow(dead_code, reason = "only described, never constructed")]

use convoke_core::jobs::JobFilter;
use utoipa::IntoParams;
use utoipa::openapi::path::{Parameter, ParameterIn};
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
pub struct NamespacePath {
    /// The name of the namespace
    pub namespace: String,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub struct MeshPath {
    /// The name of the mesh
    pub mesh: String,
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
#[into_params(parameter_in = Query)]
pub struct PageParams {
    #[param(minimum = 1, maximum = 1000, default = 50)]
    pub limit: Option<u32>,
    /// `nextCursor` of the page before
    pub cursor: Option<String>,
}

/// The filters of jobs except for their states, and a page.
pub struct DeadLettersParams;

impl IntoParams for DeadLettersParams {
    fn into_params(parameter_in: impl Fn() -> Option<ParameterIn>) -> Vec<Parameter> {
        let filters = JobFilter::into_params(&parameter_in).into_iter().filter(|param| param.name != "status");
        filters.chain(PageParams::into_params(&parameter_in)).collect()
    }
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
pub struct TicksParams {
    #[param(minimum = 1, maximum = 1000, default = 50)]
    pub limit: Option<u32>,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct TimeseriesParams {
    /// How far back, at most `1h`
    #[param(example = "15m", default = "1h")]
    pub window: Option<String>,
    /// The jobs of this queue; without it, those of all queues
    pub queue: Option<String>,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct RecordsParams {
    #[param(minimum = 1, maximum = 1000, default = 100)]
    pub limit: Option<u32>,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct EventsParams {
    /// Only these kinds (`job,leader`) or names (`job:completed`); unknown ones are rejected
    #[param(example = "job,leader")]
    pub types: Option<String>,
    /// Numbers of events at most once in this time, `100ms` to `1m`, instead of each event
    #[param(example = "1s")]
    pub every: Option<String>,
}

#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct AuditParams {
    /// Acts of this caller
    #[param(example = "ada")]
    pub who: Option<String>,
    /// This action
    #[param(example = "queue.pause")]
    pub action: Option<String>,
    /// Acts on this job, queue, schedule or node
    pub target: Option<String>,
    /// Acts at or after this instant
    #[param(example = "2026-01-01T00:00:00Z")]
    pub after: Option<String>,
    /// Acts before this instant
    pub before: Option<String>,
    #[param(minimum = 1, maximum = 1000, default = 50)]
    pub limit: Option<u32>,
    /// `nextCursor` of the page before
    pub cursor: Option<String>,
}
