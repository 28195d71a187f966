//! Cancel, retry or delete all jobs that match a filter.

use std::time::Duration;

use axum::extract::{Request, State};
use convoke_core::jobs::JobFilter;
use convoke_core::jobs::filter::JobSelection;
use convoke_core::limits::ERROR_BYTES_MAX;
use convoke_core::ports::store::JobQuery;
use convoke_runtime::jobs::BulkAction;
pub(crate) use convoke_runtime::jobs::COUNT_MAX;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::AppState;
use super::audit::Noted;
use super::body::{self, NoParams, SMALL_BYTES_MAX};
use super::error::{ApiError, ApiResult};
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

/// Rejects a selection that is empty unless it says so.
fn check(selection: &JobSelection) -> ApiResult<()> {
    if selection.filter == JobFilter::default() && !selection.all {
        let message = "expected at least one field, or all: true for all jobs, got none";
        return Err(ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "unprocessable", message).on("filter"));
    }
    Ok(())
}

/// An action on all jobs that match a filter.
#[derive(Deserialize, ToSchema)]
#[schema(as = BulkRequest)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Bulk {
    action: Action,
    /// A job must match all fields that are given; give at least one, or `all`.
    pub filter: JobSelection,
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
    check(&filter)?;
    let now = state.coordinator.clock().now();
    let filter = filter.filter.at(now);
    let target = filter.words();
    let query = JobQuery { cursor, ..filter.query(now) };
    if let Some(bytes) = reason.as_ref().map(String::len).filter(|bytes| *bytes > ERROR_BYTES_MAX) {
        return Err(ApiError::too_large("reason", format!("expected at most {ERROR_BYTES_MAX} bytes, got {bytes}")));
    }
    share.reserve_page().await?;
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
