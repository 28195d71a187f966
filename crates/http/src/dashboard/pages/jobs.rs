//! The list of jobs: a filter bar, pages by cursor, actions on selected jobs, and an export.

use askama::Template;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use convoke_core::jobs::{HidePayloads, Job, Status};
use convoke_core::ports::store::{JobPage, JobQuery};
use convoke_core::{Error, JobId};
use futures_util::stream;
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use jiff::Timestamp;

use crate::AppState;
use crate::body::{Params, SMALL_BYTES_MAX};
use crate::dashboard::filter::{self, Filter};
use crate::dashboard::form::Form;
use crate::dashboard::json::brief;
use crate::dashboard::layout::{self, Frame, JOBS, Page};
use crate::dashboard::routes::PageRoutes;
use crate::dashboard::text::{Mark, When, count, encode};
use crate::error::{ApiError, ApiResult};
use crate::memory::Share;

/// Jobs on a page.
const PAGE_JOBS: usize = 50;
/// Jobs that an export reads at once.
const EXPORT_JOBS: usize = 200;
/// Pages that are read to find the first match: each reads a bounded number of rows.
const TRIES_MAX: usize = 3;
/// Upper bound of the jobs that one form may name.
const SELECTED_MAX: usize = 1_000;

pub fn routes() -> PageRoutes {
    PageRoutes::new()
        .page("/jobs", list)
        .page("/jobs/export", export)
        .form("/jobs/bulk/cancel", cancel_selected)
        .form("/jobs/bulk/retry", retry_selected)
}

#[derive(Template)]
#[template(path = "jobs.html")]
struct JobsTemplate {
    page: Page,
    /// The text of the filter bar.
    text: String,
    /// Why the filter was rejected.
    problem: Option<String>,
    tabs: Vec<Tab>,
    queues: Vec<String>,
    words: String,
    jobs: Vec<JobRow>,
    is_first: bool,
    first: String,
    next: Option<String>,
    export: String,
}

/// A link to the jobs of one status.
struct Tab {
    word: &'static str,
    count: String,
    path: String,
    is_current: bool,
}

/// A row of the list.
pub struct JobRow {
    pub id: String,
    pub short_id: String,
    pub job_type: String,
    pub queue: String,
    pub queue_path: String,
    pub mark: Mark,
    pub attempt: String,
    pub args: String,
    pub worker: String,
    pub created: When,
}

impl JobRow {
    pub fn of(job: &Job, now: Timestamp, payloads_hidden: bool) -> Self {
        let id = job.id.to_string();
        let args = if payloads_hidden { "hidden".into() } else { brief(job.definition.args.as_str(), 90) };
        JobRow {
            short_id: id[id.len().saturating_sub(12)..].to_owned(),
            id,
            job_type: job.definition.job_type.to_string(),
            queue: job.definition.queue.to_string(),
            queue_path: format!("/queues/{}", encode(job.definition.queue.as_str())),
            mark: job.status.into(),
            attempt: format!("{}/{}", job.attempt, u64::from(job.definition.max_retries) + 1),
            args,
            worker: job.worker_id.as_ref().map(ToString::to_string).unwrap_or_default(),
            created: When::new(job.created_at, now),
        }
    }
}

async fn list(State(state): State<AppState>, frame: Frame, mut params: Params, share: Share) -> ApiResult {
    let text = params.text("q")?.unwrap_or_default();
    let cursor = params.text("cursor")?;
    let is_first = cursor.is_none();
    let (found, problem) = match Filter::parse(&text, PAGE_JOBS, cursor) {
        Ok(Filter::Job(id)) => return layout::see_other(&format!("/jobs/{id}")),
        Ok(Filter::Jobs(query)) => {
            share.reserve_page().await?;
            (find(&state, *query).await?, None)
        }
        Err(error) => (JobPage::default(), Some(error.message)),
    };
    let (views, now) = (state.coordinator.queue_views().await?, state.coordinator.clock().now());
    let at = |cursor: &str| format!("/jobs?q={}&cursor={}", encode(&text), encode(cursor));
    let hidden = frame.viewer.payloads_hidden;
    let template = JobsTemplate {
        page: frame.page(JOBS, "Jobs"),
        problem,
        tabs: tabs(&text, |status| views.iter().map(|view| view.queue.counts.get(status)).sum()),
        queues: views.iter().map(|view| filter::written("queue", view.queue.name.as_str())).collect(),
        words: filter::known_words().collect::<Vec<_>>().join(" "),
        jobs: found.jobs.iter().map(|job| JobRow::of(job, now, hidden)).collect(),
        is_first,
        first: format!("/jobs?q={}", encode(&text)),
        next: found.next_cursor.as_deref().map(at),
        export: format!("/jobs/export?q={}", encode(&text)),
        text,
    };
    layout::render(&template)
}

/// Reads pages until one has a job: the store ends a page after a bounded number of rows.
async fn find(state: &AppState, mut query: JobQuery) -> ApiResult<JobPage> {
    for _ in 1..TRIES_MAX {
        let page = state.coordinator.store().list(query.clone()).await?;
        if !page.jobs.is_empty() || page.next_cursor.is_none() {
            return Ok(page);
        }
        query.cursor = page.next_cursor;
    }
    Ok(state.coordinator.store().list(query).await?)
}

/// Returns a link for each status. It replaces the status of the filter and keeps the rest.
fn tabs(text: &str, count_of: impl Fn(Status) -> u64) -> Vec<Tab> {
    let rest: Vec<&str> = text.split_whitespace().filter(|word| !word.starts_with("status:")).collect();
    let present = text.split_whitespace().find_map(|word| word.strip_prefix("status:"));
    let path = |word: Option<String>| {
        let words: Vec<String> = word.into_iter().chain(rest.iter().map(ToString::to_string)).collect();
        format!("/jobs?q={}", encode(&words.join(" ")))
    };
    let all = Status::ALL.into_iter().filter(|status| *status != Status::Created);
    let total = all.clone().map(&count_of).sum();
    let every = Tab { word: "all", count: count(total), path: path(None), is_current: present.is_none() };
    let each = all.map(|status| Tab {
        word: status.as_str(),
        count: count(count_of(status)),
        path: path(Some(filter::written("status", status.as_str()))),
        is_current: present == Some(status.as_str()),
    });
    std::iter::once(every).chain(each).collect()
}

/// Sends all jobs of a filter as JSON, one a line: those that `GET /v1/jobs` returns.
async fn export(State(state): State<AppState>, frame: Frame, mut params: Params) -> ApiResult {
    let text = params.text("q")?.unwrap_or_default();
    let query = match Filter::parse(&text, EXPORT_JOBS, None)? {
        Filter::Jobs(query) => *query,
        Filter::Job(id) => return Err(ApiError::invalid("q", format!("expected a filter, got the id {id}"))),
    };
    let hidden = frame.viewer.payloads_hidden;
    let lines = stream::try_unfold(Some(query), move |query| {
        let state = state.clone();
        async move {
            let Some(query) = query else { return Ok::<_, Error>(None) };
            let page = state.coordinator.store().list(query.clone()).await?;
            let text: String = page.jobs.into_iter().map(|job| line(job, hidden)).collect();
            let next = page.next_cursor.map(|cursor| JobQuery { cursor: Some(cursor), ..query });
            Ok(Some((Bytes::from(text), next)))
        }
    });
    let headers =
        [(CONTENT_TYPE, "application/x-ndjson"), (CONTENT_DISPOSITION, "attachment; filename=\"jobs.jsonl\"")];
    Ok((headers, Body::from_stream(lines)).into_response())
}

fn line(mut job: Job, payloads_hidden: bool) -> String {
    if payloads_hidden {
        job.hide_payloads();
    }
    serde_json::to_string(&job).expect("jobs have string keys and no foreign Serialize") + "\n"
}

async fn cancel_selected(State(state): State<AppState>, request: Request) -> ApiResult {
    let form = Form::read(request, SMALL_BYTES_MAX).await?;
    let mut cancelled = 0;
    for id in selected(&form)? {
        cancelled += done(state.coordinator.cancel(id, form.get("reason").map(ToOwned::to_owned)).await)?;
    }
    back(&form, "jobs-cancelled", cancelled)
}

async fn retry_selected(State(state): State<AppState>, request: Request) -> ApiResult {
    let form = Form::read(request, SMALL_BYTES_MAX).await?;
    let mut retried = 0;
    for id in selected(&form)? {
        retried += done(state.coordinator.retry(id).await)?;
    }
    back(&form, "jobs-retried", retried)
}

/// Returns the jobs that a form names.
pub fn selected(form: &Form) -> ApiResult<Vec<JobId>> {
    let ids: Vec<JobId> = form.all("id").map(str::parse).collect::<Result<_, _>>()?;
    match ids.len() {
        0 => Err(ApiError::invalid("id", "expected at least one selected job, got none")),
        1..=SELECTED_MAX => Ok(ids),
        more => Err(ApiError::too_large("id", format!("expected at most {SELECTED_MAX} jobs, got {more}"))),
    }
}

/// Counts a job that was changed; one that has ended or gone meanwhile is not an error of the others.
fn done(result: Result<Job, Error>) -> ApiResult<u64> {
    match result {
        Ok(_) => Ok(1),
        Err(Error::Conflict(_) | Error::NotFound { .. }) => Ok(0),
        Err(error) => Err(error.into()),
    }
}

/// Leads back to the list that the form was on.
pub fn back(form: &Form, notice: &str, number: u64) -> ApiResult<Response> {
    let text = form.get("q").unwrap_or_default();
    layout::see_other(&format!("/jobs?q={}&notice={notice}&n={number}", encode(text)))
}
