//! Dead letters: jobs whose attempts are used up. They can be listed, run again or deleted.
//!
//! Requests for many at once need a selection: an empty one is rejected, it does not mean all.

use axum::extract::{Request, State};
use convoke_core::jobs::{Job, Status};
use convoke_core::limits::BATCH_JOBS_MAX;
use convoke_core::{JobId, JobType, Json, QueueName};
use convoke_runtime::jobs::DeadSelection;
use http::StatusCode;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::AppState;
use super::body::{self, Bounded, NoParams, Params};
use super::error::{ApiError, ApiResult};
use super::jobs::page_query;
use super::memory::Share;
use super::openapi as doc;

/// Room for as many ids as a selection may have.
const SELECTION_BYTES_MAX: usize = 1 << 20;

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(retry)).routes(routes!(purge))
}

/// A page of dead letters.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct DeadLetters {
    dead_letters: Vec<DeadLetter>,
    /// Start of the next page, also after a short or empty page; null at the end.
    next_cursor: Option<String>,
}

/// A job whose attempts are used up.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct DeadLetter {
    job_id: JobId,
    #[serde(rename = "type")]
    job_type: JobType,
    queue: QueueName,
    status: Status,
    /// The error of the last attempt.
    error: Option<String>,
    attempts: u32,
    failed_at: Option<Timestamp>,
    args: Json,
    tags: Vec<String>,
}

impl From<Job> for DeadLetter {
    fn from(job: Job) -> Self {
        DeadLetter {
            job_id: job.id,
            job_type: job.definition.job_type,
            queue: job.definition.queue,
            status: job.status,
            error: job.error,
            attempts: job.attempt,
            failed_at: job.completed_at,
            args: job.definition.args,
            tags: job.definition.tags,
        }
    }
}

/// List dead letters, newest job first
///
/// A page may be short, even empty, and still have a cursor: `nextCursor` is null at the end.
#[utoipa::path(get, path = "/v1/dead-letters", tag = "dead letters", params(doc::DeadLettersParams), responses(
    (status = 200, body = DeadLetters),
    doc::Refused,
))]
async fn list(State(state): State<AppState>, mut params: Params, share: Share) -> ApiResult {
    let query = page_query(&mut params)?;
    params.end()?;
    share.reserve_page().await?;
    let page = state.coordinator.dead_letters(query).await?;
    let bytes_expected = 64 + page.jobs.iter().map(|job| 512 + job.payload_bytes()).sum::<usize>();
    let dead_letters = page.jobs.into_iter().map(DeadLetter::from).collect();
    let answer = DeadLetters { dead_letters, next_cursor: page.next_cursor };
    Ok(body::json(StatusCode::OK, &answer, bytes_expected))
}

/// Which dead letters: either `ids`, or `queue` and `type`, or `all`.
#[derive(Deserialize, ToSchema)]
#[schema(as = DeadSelection)]
#[serde(deny_unknown_fields)]
struct Selection {
    #[schema(value_type = Option<Vec<JobId>>, max_items = 10_000)]
    #[serde(default)]
    ids: Option<Bounded<JobId, BATCH_JOBS_MAX>>,
    #[serde(default)]
    queue: Option<QueueName>,
    #[serde(default, rename = "type")]
    job_type: Option<JobType>,
    #[serde(default)]
    all: bool,
}

impl Selection {
    fn which(self) -> ApiResult<DeadSelection> {
        let by_filter = self.queue.is_some() || self.job_type.is_some();
        let ways = [self.ids.is_some(), by_filter, self.all].into_iter().filter(|given| *given).count();
        let expected = "expected ids, or queue and type, or all: true";
        match ways {
            0 => Err(ApiError::invalid("ids", format!("{expected}, got none of them"))),
            1 => match self.ids.map(|ids| ids.within("ids")).transpose()? {
                Some(ids) if ids.is_empty() => Err(ApiError::invalid("ids", "expected at least one id, got none")),
                Some(ids) => Ok(DeadSelection::Ids(ids)),
                None => Ok(DeadSelection::Filter { queue: self.queue, job_type: self.job_type }),
            },
            _ => {
                let message = format!("{expected}, got several of them");
                Err(ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "unprocessable", message).on("ids"))
            }
        }
    }
}

/// How many jobs run again.
#[derive(Serialize, ToSchema)]
struct Retried {
    retried: u64,
}

/// Run dead letters again
#[utoipa::path(post, path = "/v1/dead-letters/retry", tag = "dead letters", request_body = Selection, responses(
    (status = 200, body = Retried),
    doc::Refused,
))]
async fn retry(State(state): State<AppState>, _: NoParams, request: Request) -> ApiResult {
    let selection: Selection = body::parse(request, SELECTION_BYTES_MAX).await?;
    let retried = state.coordinator.retry_dead(selection.which()?).await?;
    Ok(body::ok(&Retried { retried }))
}

/// How many jobs were deleted.
#[derive(Serialize, ToSchema)]
struct Purged {
    purged: u64,
}

/// Delete dead letters
#[utoipa::path(post, path = "/v1/dead-letters/purge", tag = "dead letters", request_body = Selection, responses(
    (status = 200, body = Purged),
    doc::Refused,
))]
async fn purge(State(state): State<AppState>, _: NoParams, request: Request) -> ApiResult {
    let selection: Selection = body::parse(request, SELECTION_BYTES_MAX).await?;
    let purged = state.coordinator.purge_dead(selection.which()?).await?;
    Ok(body::ok(&Purged { purged }))
}
