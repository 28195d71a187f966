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
#[into_params(parameter_in = Query, rename_all = "camelCase")]
pub struct JobsParams {
    pub queue: Option<String>,
    pub r#type: Option<String>,
    /// Jobs whose type begins with this text
    #[param(example = "email.")]
    pub type_prefix: Option<String>,
    /// Jobs that were created then or later: an instant, or a duration before now
    #[param(example = "2h")]
    pub after: Option<String>,
    /// Jobs that were created before: an instant, or a duration before now
    #[param(example = "2030-01-31T09:00:00Z")]
    pub before: Option<String>,
    /// One or several states, separated by commas
    #[param(example = "pending,running")]
    pub status: Option<String>,
    pub correlation_id: Option<String>,
    /// Jobs that have this tag
    pub tag: Option<String>,
    /// Jobs that this schedule made
    pub schedule: Option<String>,
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
    /// Jobs whose type begins with this text
    #[param(example = "email.")]
    pub type_prefix: Option<String>,
    /// Jobs that were created then or later: an instant, or a duration before now
    #[param(example = "2h")]
    pub after: Option<String>,
    /// Jobs that were created before: an instant, or a duration before now
    #[param(example = "2030-01-31T09:00:00Z")]
    pub before: Option<String>,
    pub correlation_id: Option<String>,
    /// Jobs that have this tag
    pub tag: Option<String>,
    /// Jobs that this schedule made
    pub schedule: Option<String>,
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
