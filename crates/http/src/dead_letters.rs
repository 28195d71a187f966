//! Dead letters: jobs whose attempts are used up. They can be listed, run again or deleted.
//!
//! Requests for many at once need a selection: an empty one is rejected, it does not mean all.

use std::collections::{BTreeMap, BTreeSet};

use axum::extract::{Request, State};
use convoke_core::jobs::error_group::normalise;
use convoke_core::jobs::filter::FILTERS;
use convoke_core::jobs::{Job, Status};
use convoke_core::limits::BATCH_JOBS_MAX;
use convoke_core::ports::store::{JobPage, JobQuery};
use convoke_core::{JobId, JobType, Json, QueueName};
use convoke_runtime::jobs::DeadSelection;
use http::StatusCode;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::AppState;
use super::access::Caller;
use super::audit::Noted;
use super::body::{self, Bounded, NoParams, Params};
use super::error::{ApiError, ApiResult};
use super::jobs::page_query;
use super::memory::Share;
use super::openapi as doc;

/// Room for as many ids as a selection may have.
const SELECTION_BYTES_MAX: usize = 1 << 20;

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(groups)).routes(routes!(retry)).routes(routes!(purge))
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

/// Parses the parameters of a list of dead letters: those of jobs, except for their states.
fn dead_query(mut params: Params, now: Timestamp) -> ApiResult<JobQuery> {
    let filters: Vec<&str> = FILTERS.into_iter().filter(|name| *name != "status").collect();
    let query = page_query(&mut params, &filters, now)?;
    params.end()?;
    Ok(query)
}

/// List dead letters, newest job first
///
/// A page may be short, even empty, and still have a cursor: `nextCursor` is null at the end.
#[utoipa::path(get, path = "/v1/dead-letters", tag = "dead letters", params(doc::DeadLettersParams), responses(
    (status = 200, body = DeadLetters),
    doc::Refused,
))]
async fn list(State(state): State<AppState>, caller: Caller, params: Params, share: Share) -> ApiResult {
    let query = dead_query(params, state.coordinator.clock().now())?;
    share.reserve_page().await?;
    let page = state.coordinator.dead_letters(query).await?;
    let bytes_expected = 64 + page.jobs.iter().map(|job| 512 + job.payload_bytes()).sum::<usize>();
    let dead_letters = caller.shown(page.jobs).into_iter().map(DeadLetter::from).collect();
    let page_body = DeadLetters { dead_letters, next_cursor: page.next_cursor };
    Ok(body::json(StatusCode::OK, &page_body, bytes_expected))
}

/// Dead letters of one type whose errors differ only in numbers, ids and quoted values.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = DeadLetterGroup)]
#[serde(rename_all = "camelCase")]
pub struct Group {
    #[serde(rename = "type")]
    pub job_type: JobType,
    /// The error that they have in common: numbers and ids are `#`, quoted values `…`.
    #[schema(example = "connect # failed")]
    pub error: String,
    /// How many there are among the dead letters that were read.
    pub count: u64,
    /// The queues that they are in.
    #[schema(value_type = Vec<QueueName>)]
    pub queues: BTreeSet<QueueName>,
    /// The newest of them.
    pub newest_job_id: JobId,
    /// The error of the newest, as it is.
    pub newest_error: Option<String>,
    pub newest_at: Option<Timestamp>,
    pub oldest_at: Option<Timestamp>,
}

/// Groups of the dead letters of a page, the largest first.
#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(as = DeadLetterGroups)]
#[serde(rename_all = "camelCase")]
pub struct Groups {
    pub groups: Vec<Group>,
    /// How many dead letters were read.
    pub read: u64,
    /// Start of the next page; null at the end.
    pub next_cursor: Option<String>,
}

/// Dead letters by type and error
///
/// Reads a page of dead letters, newest job first, and groups them by their type and by their error without its
/// numbers, ids and quoted values. Groups of the next page may be the same ones.
#[utoipa::path(get, path = "/v1/dead-letters/groups", tag = "dead letters", params(doc::DeadLettersParams), responses(
    (status = 200, body = Groups),
    doc::Refused,
))]
async fn groups(State(state): State<AppState>, caller: Caller, params: Params, share: Share) -> ApiResult {
    let query = dead_query(params, state.coordinator.clock().now())?;
    share.reserve_page().await?;
    Ok(body::ok(&read_groups(&state, &caller, query).await?))
}

/// Reads a page of dead letters and groups them. A caller from whom errors are hidden sees groups of types.
pub async fn read_groups(state: &AppState, caller: &Caller, query: JobQuery) -> ApiResult<Groups> {
    let page = state.coordinator.dead_letters(query).await?;
    let page = JobPage { jobs: caller.shown(page.jobs), ..page };
    let mut groups: BTreeMap<(JobType, String), Group> = BTreeMap::new();
    for job in &page.jobs {
        let error = normalise(job.error.as_deref().unwrap_or_default());
        let key = (job.definition.job_type.clone(), error);
        let group = groups.entry(key).or_insert_with_key(|(job_type, error)| Group {
            job_type: job_type.clone(),
            error: error.clone(),
            count: 0,
            queues: BTreeSet::new(),
            newest_job_id: job.id,
            newest_error: job.error.clone(),
            newest_at: job.completed_at,
            oldest_at: job.completed_at,
        });
        group.count += 1;
        group.queues.insert(job.definition.queue.clone());
        group.newest_at = group.newest_at.max(job.completed_at);
        group.oldest_at = group.oldest_at.min(job.completed_at);
    }
    let mut groups: Vec<Group> = groups.into_values().collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.count));
    Ok(Groups { groups, read: page.jobs.len() as u64, next_cursor: page.next_cursor })
}

/// Which dead letters: either `ids`, or `queue`, `type` and `error`, or `all`.
#[derive(Deserialize, ToSchema)]
#[schema(as = DeadSelection)]
#[serde(deny_unknown_fields)]
pub(crate) struct Selection {
    #[schema(value_type = Option<Vec<JobId>>, max_items = 10_000)]
    #[serde(default)]
    ids: Option<Bounded<JobId, BATCH_JOBS_MAX>>,
    #[serde(default)]
    queue: Option<QueueName>,
    #[serde(default, rename = "type")]
    job_type: Option<JobType>,
    /// Jobs whose error is of this group, as `GET /v1/dead-letters/groups` shows it.
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    all: bool,
}

impl Selection {
    pub fn which(self) -> ApiResult<DeadSelection> {
        let by_filter = self.queue.is_some() || self.job_type.is_some() || self.error.is_some();
        let ways = [self.ids.is_some(), by_filter, self.all].into_iter().filter(|given| *given).count();
        let expected = "expected ids, or queue and type, or all: true";
        match ways {
            0 => Err(ApiError::invalid("ids", format!("{expected}, got none of them"))),
            1 => match self.ids.map(|ids| ids.within("ids")).transpose()? {
                Some(ids) if ids.is_empty() => Err(ApiError::invalid("ids", "expected at least one id, got none")),
                Some(ids) => Ok(DeadSelection::Ids(ids)),
                None => Ok(DeadSelection::Filter { queue: self.queue, job_type: self.job_type, error: self.error }),
            },
            _ => {
                let message = format!("{expected}, got several of them");
                Err(ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "unprocessable", message).on("ids"))
            }
        }
    }
}

/// Returns a selection as the audit shows it.
fn named(which: &DeadSelection) -> String {
    match which {
        DeadSelection::Ids(ids) => match &ids[..] {
            [id] => id.to_string(),
            ids => format!("{} ids", ids.len()),
        },
        DeadSelection::Filter { queue: None, job_type: None, .. } => "all".into(),
        // The error of a group may have payloads in it.
        DeadSelection::Filter { queue, job_type, .. } => {
            let queue = queue.iter().map(|queue| format!("queue:{queue}"));
            queue.chain(job_type.iter().map(|job_type| format!("type:{job_type}"))).collect::<Vec<_>>().join(" ")
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
    let which = selection.which()?;
    let noted = Noted { target: Some(named(&which)), ..Noted::default() };
    let retried = state.coordinator.retry_dead(which).await?;
    Ok(Noted { after: Some(json!({ "retried": retried })), ..noted }.on(body::ok(&Retried { retried })))
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
    let which = selection.which()?;
    let noted = Noted { target: Some(named(&which)), ..Noted::default() };
    let purged = state.coordinator.purge_dead(which).await?;
    Ok(Noted { after: Some(json!({ "purged": purged })), ..noted }.on(body::ok(&Purged { purged })))
}
