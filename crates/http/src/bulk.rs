//! Cancel, retry or delete all jobs that match a filter.

use std::time::Duration;

use axum::extract::{Request, State};
use convoke_core::jobs::Status;
use convoke_core::limits::ERROR_BYTES_MAX;
use convoke_core::ports::store::JobQuery;
use convoke_core::{JobType, QueueName};
use convoke_runtime::jobs::BulkAction;
pub(crate) use convoke_runtime::jobs::COUNT_MAX;
use http::StatusCode;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::AppState;
use super::audit::Noted;
use super::body::{self, NoParams, SMALL_BYTES_MAX};
use super::error::{ApiError, ApiResult};
use super::jobs::{instant, type_prefix};
use super::memory::Share;
use super::openapi as doc;

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(bulk))
}

/// The act on the jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = BulkAction)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Action {
    Cancel,
    Retry,
    Delete,
}

impl From<Action> for BulkAction {
    fn from(action: Action) -> Self {
        match action {
            Action::Cancel => BulkAction::Cancel,
            Action::Retry => BulkAction::Retry,
            Action::Delete => BulkAction::Delete,
        }
    }
}

/// The jobs to act on. A job must match all fields that are given; give at least one, or `all`.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = JobFilter)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Filter {
    /// One or several states
    #[serde(default)]
    pub status: Vec<Status>,
    #[serde(rename = "type")]
    pub job_type: Option<JobType>,
    /// Jobs whose type begins with this text
    #[schema(example = "email.")]
    pub type_prefix: Option<String>,
    pub queue: Option<QueueName>,
    pub correlation_id: Option<String>,
    pub tag: Option<String>,
    /// Jobs that were created then or later: an instant, or a duration before now
    #[schema(example = "2h")]
    pub after: Option<String>,
    /// Jobs that were created before: an instant, or a duration before now
    #[schema(example = "2030-01-31T09:00:00Z")]
    pub before: Option<String>,
    /// All jobs that the action applies to
    #[serde(default)]
    pub all: bool,
}

impl Filter {
    /// Returns the query. An empty filter is rejected unless `all` is set.
    pub fn query(self, now: Timestamp) -> ApiResult<JobQuery> {
        let all = self.all;
        let time = |field: &'static str, text: Option<String>| {
            let parsed = text.map(|text| instant(&text, now)).transpose();
            parsed.map_err(|message| ApiError::invalid(field, message))
        };
        let prefix = self.type_prefix.map(|text| type_prefix(&text)).transpose();
        let query = JobQuery {
            queue: self.queue,
            job_type: self.job_type,
            type_prefix: prefix.map_err(|message| ApiError::invalid("filter.typePrefix", message))?,
            created_from: time("filter.after", self.after)?,
            created_until: time("filter.before", self.before)?,
            statuses: self.status,
            correlation_id: self.correlation_id,
            tag: self.tag,
            ..JobQuery::default()
        };
        if query == JobQuery::default() && !all {
            let message = "expected at least one field, or all: true for all jobs, got none";
            return Err(ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "unprocessable", message).on("filter"));
        }
        Ok(query)
    }
}

/// An action on all jobs that match a filter.
#[derive(Deserialize, ToSchema)]
#[schema(as = BulkRequest)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Bulk {
    action: Action,
    pub filter: Filter,
    /// Only count the jobs
    #[serde(default)]
    dry_run: bool,
    /// Reason of a cancellation, shown with the jobs
    reason: Option<String>,
    /// `nextCursor` of the slice before
    cursor: Option<String>,
}

/// The result of a slice, or of a preview.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BulkResult {
    pub action: Action,
    pub dry_run: bool,
    /// Jobs that the action would change; null unless `dryRun` was requested.
    pub count: Option<u64>,
    /// Whether there may be more jobs than `count`: at most about 10,000 are counted, for two seconds.
    pub is_at_least: bool,
    /// Jobs of this slice that were changed.
    pub done: u64,
    /// Jobs of this slice that matched and were not changed: they changed meanwhile, or their unique key is taken.
    pub skipped: u64,
    /// Send the same request with it as `cursor` to continue; null if this was the last slice.
    pub next_cursor: Option<String>,
}

/// Cancel, retry or delete all jobs that match a filter
///
/// One request acts on at most 500 jobs and returns a cursor: repeat it until `nextCursor` is null. Jobs that are stored
/// after the first request are not contained. With `dryRun` the jobs are only counted. A slice may be empty and still have
/// a cursor.
#[utoipa::path(post, path = "/v1/jobs/bulk", tag = "jobs", request_body = Bulk, responses(
    (status = 200, body = BulkResult),
    doc::Refused,
))]
async fn bulk(State(state): State<AppState>, _: NoParams, share: Share, request: Request) -> ApiResult {
    let Bulk { action, filter, dry_run, reason, cursor } = body::parse(request, SMALL_BYTES_MAX).await?;
    let query = JobQuery { cursor, ..filter.query(state.coordinator.clock().now())? };
    if let Some(bytes) = reason.as_ref().map(String::len).filter(|bytes| *bytes > ERROR_BYTES_MAX) {
        return Err(ApiError::too_large("reason", format!("expected at most {ERROR_BYTES_MAX} bytes, got {bytes}")));
    }
    share.reserve_page().await?;
    let target = named(&query);
    let result = match dry_run {
        true => count(&state, action, query, COUNT_PATIENCE).await?,
        false => run(&state, action, query, reason.as_deref()).await?,
    };
    let noted = Noted { is_nothing: dry_run, ..noted(action, target, result.done, result.skipped) };
    Ok(noted.on(body::ok(&result)))
}

/// How long a preview may count.
pub(crate) const COUNT_PATIENCE: Duration = Duration::from_secs(2);

/// Returns what the audit shows of an act on all jobs of a filter.
pub(crate) fn noted(action: Action, filter: String, done: u64, skipped: u64) -> Noted {
    let word = match action {
        Action::Cancel => "jobs.cancel",
        Action::Retry => "jobs.retry",
        Action::Delete => "jobs.delete",
    };
    let target = if filter.is_empty() { "all".to_owned() } else { filter };
    let after = Some(json!({ "done": done, "skipped": skipped }));
    Noted { action: Some(word.into()), target: Some(target), after, ..Noted::default() }
}

/// Returns the filter as the audit shows it.
fn named(query: &JobQuery) -> String {
    let statuses = query.statuses.iter().map(|status| status.as_str()).collect::<Vec<_>>().join(",");
    let fields = [
        ("status", Some(statuses).filter(|statuses| !statuses.is_empty())),
        ("type", query.job_type.as_ref().map(ToString::to_string)),
        ("type", query.type_prefix.as_ref().map(|prefix| format!("{prefix}*"))),
        ("queue", query.queue.as_ref().map(ToString::to_string)),
        ("correlation", query.correlation_id.clone()),
        ("tag", query.tag.clone()),
        ("after", query.created_from.map(|at| at.to_string())),
        ("before", query.created_until.map(|at| at.to_string())),
    ];
    let words = fields.into_iter().filter_map(|(name, value)| Some(format!("{name}:{}", value?)));
    words.collect::<Vec<_>>().join(" ")
}

/// Counts the jobs that the action would change, for about `patience`.
pub(crate) async fn count(
    state: &AppState,
    action: Action,
    query: JobQuery,
    patience: Duration,
) -> ApiResult<BulkResult> {
    let counted = state.coordinator.bulk_count(action.into(), query, patience).await?;
    let (count, is_at_least) = (Some(counted.count), counted.is_at_least);
    Ok(BulkResult { action, dry_run: true, count, is_at_least, done: 0, skipped: 0, next_cursor: None })
}

/// Acts on the next slice of the jobs of the query.
pub(crate) async fn run(
    state: &AppState,
    action: Action,
    query: JobQuery,
    reason: Option<&str>,
) -> ApiResult<BulkResult> {
    let slice = state.coordinator.bulk(action.into(), query, reason).await?;
    Ok(BulkResult {
        action,
        dry_run: false,
        count: None,
        is_at_least: false,
        done: slice.done,
        skipped: slice.skipped,
        next_cursor: slice.next_cursor,
    })
}
