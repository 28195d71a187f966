//! Dead letters in groups of one type and one kind of error; a group can be retried or deleted.

use askama::Template;
use axum::extract::{Request, State};
use convoke_core::limits::PAGE_MAX;
use convoke_core::ports::store::JobQuery;
use convoke_core::{JobType, QueueName};
use convoke_runtime::jobs::DeadSelection;
use jiff::Timestamp;

use super::jobs::{back, selected};
use crate::AppState;
use crate::access::Caller;
use crate::body::{Params, SMALL_BYTES_MAX};
use crate::dashboard::filter;
use crate::dashboard::form::Form;
use crate::dashboard::layout::{self, DEAD_LETTERS, Frame, Page};
use crate::dashboard::routes::PageRoutes;
use crate::dashboard::text::{When, count, encode};
use crate::dead_letters::{Group, read_groups};
use crate::error::ApiResult;
use crate::memory::Share;

pub fn routes() -> PageRoutes {
    PageRoutes::new()
        .page("/dead-letters", list)
        .form("/dead-letters/retry", retry)
        .form("/dead-letters/purge", purge)
        .form("/dead-letters/purge-selected", purge_selected)
}

#[derive(Template)]
#[template(path = "dead_letters.html")]
struct DeadLettersTemplate {
    page: Page,
    queue: String,
    queues: Vec<String>,
    groups: Vec<GroupRow>,
    read: String,
    total: String,
    next: Option<String>,
}

struct GroupRow {
    /// Distinguishes the groups of a page.
    key: String,
    job_type: String,
    jobs_path: String,
    error: String,
    newest_error: String,
    newest_job: String,
    newest: Option<When>,
    oldest: Option<When>,
    count: String,
    queues: Vec<String>,
}

impl GroupRow {
    fn of(group: &Group, now: Timestamp) -> Self {
        let job_type = group.job_type.as_str();
        let words = format!("status:failed,timedOut {}", filter::written("type", job_type));
        GroupRow {
            key: format!("{job_type} {}", group.error),
            job_type: job_type.to_owned(),
            jobs_path: format!("/jobs?q={}", encode(&words)),
            error: group.error.clone(),
            newest_error: group.newest_error.clone().unwrap_or_default(),
            newest_job: group.newest_job_id.to_string(),
            newest: group.newest_at.map(|at| When::new(at, now)),
            oldest: group.oldest_at.map(|at| When::new(at, now)),
            count: count(group.count),
            queues: group.queues.iter().map(ToString::to_string).collect(),
        }
    }
}

async fn list(
    State(state): State<AppState>,
    frame: Frame,
    caller: Caller,
    mut params: Params,
    share: Share,
) -> ApiResult {
    let queue: Option<QueueName> = params.name("queue")?;
    let cursor = params.text("cursor")?;
    share.reserve_page().await?;
    let query = JobQuery { queue: queue.clone(), limit: PAGE_MAX, cursor, ..JobQuery::default() };
    let found = read_groups(&state, &caller, query).await?;
    let views = state.coordinator.queue_views().await?;
    let of_queue = views.iter().filter(|view| queue.as_ref().is_none_or(|queue| *queue == view.queue.name));
    let total = of_queue.map(|view| super::overview::dead(&view.queue.counts)).sum();
    let queue = queue.map(|queue| queue.to_string()).unwrap_or_default();
    let now = state.coordinator.clock().now();
    let next = |cursor: &str| format!("/dead-letters?queue={}&cursor={}", encode(&queue), encode(cursor));
    layout::render(&DeadLettersTemplate {
        page: frame.page(DEAD_LETTERS, "Dead letters"),
        groups: found.groups.iter().map(|group| GroupRow::of(group, now)).collect(),
        read: count(found.read),
        total: count(total),
        next: found.next_cursor.as_deref().map(next),
        queues: views.iter().map(|view| view.queue.name.to_string()).collect(),
        queue,
    })
}

/// Returns the group that a form names.
fn group(form: &Form) -> ApiResult<DeadSelection> {
    Ok(DeadSelection::Filter {
        queue: form.get("queue").map(QueueName::new).transpose()?,
        job_type: Some(JobType::new(form.need("type")?)?),
        // A group of jobs without an error has an empty one.
        error: Some(form.raw("error").unwrap_or_default().to_owned()),
    })
}

async fn retry(State(state): State<AppState>, request: Request) -> ApiResult {
    let form = Form::read(request, SMALL_BYTES_MAX).await?;
    let retried = state.coordinator.retry_dead(group(&form)?).await?;
    to_list(&form, "jobs-retried", retried)
}

async fn purge(State(state): State<AppState>, request: Request) -> ApiResult {
    let form = Form::read(request, SMALL_BYTES_MAX).await?;
    let purged = state.coordinator.purge_dead(group(&form)?).await?;
    to_list(&form, "jobs-deleted", purged)
}

fn to_list(form: &Form, notice: &str, number: u64) -> ApiResult {
    let queue = encode(form.get("queue").unwrap_or_default());
    layout::see_other(&format!("/dead-letters?queue={queue}&notice={notice}&n={number}"))
}

/// Deletes the dead letters among the jobs that were selected in a list.
async fn purge_selected(State(state): State<AppState>, request: Request) -> ApiResult {
    let form = Form::read(request, SMALL_BYTES_MAX).await?;
    let purged = state.coordinator.purge_dead(DeadSelection::Ids(selected(&form)?)).await?;
    back(&form, "jobs-deleted", purged)
}
