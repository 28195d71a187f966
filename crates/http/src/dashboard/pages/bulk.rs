//! Cancel, retry or delete all jobs that match a filter: a preview with their number, the progress, and the result.
//!
//! One request acts on slices of jobs for about a second, then returns a page with its progress and a form that goes on
//! from there. The script sends that form at once; without it a person does. A page that is closed stops the action
//! after its last request.

use std::time::Duration;

use askama::Template;
use axum::extract::{Request, State};
use convoke_core::ports::store::JobQuery;
use tokio::time::Instant;

use crate::AppState;
use crate::body::{Params, SMALL_BYTES_MAX};
use crate::bulk::{self, Action};
use crate::dashboard::filter::Filter;
use crate::dashboard::form::Form;
use crate::dashboard::layout::{self, Frame, JOBS, Page};
use crate::dashboard::routes::PageRoutes;
use crate::dashboard::text::{count, encode};
use crate::error::{ApiError, ApiResult};
use crate::jobs::check_reason;
use crate::memory::Share;

/// How long a preview counts before the page is sent: the page is there at once, and a link on it counts for longer.
const PREVIEW_PATIENCE: Duration = Duration::from_millis(20);
/// How long one request goes on with further slices.
const REQUEST_TIME: Duration = Duration::from_secs(1);

pub fn routes() -> PageRoutes {
    PageRoutes::new().page("/bulk", preview).form("/bulk", act)
}

#[derive(Template)]
#[template(path = "bulk.html")]
struct BulkTemplate {
    page: Page,
    action: &'static str,
    is_cancel: bool,
    /// The filter, as it was typed.
    text: String,
    reason: String,
    list: String,
    total: u64,
    total_text: String,
    is_at_least: bool,
    /// The preview that counts for longer, if there may be more jobs.
    count_further: Option<String>,
    done: u64,
    done_text: String,
    skipped: u64,
    /// The end of the last slice; empty before the first.
    cursor: String,
}

fn action(text: &str) -> Result<Action, String> {
    match text {
        "cancel" => Ok(Action::Cancel),
        "retry" => Ok(Action::Retry),
        "delete" => Ok(Action::Delete),
        _ => Err(format!("expected cancel, retry or delete, got {text:?}")),
    }
}

const fn word(action: Action) -> &'static str {
    match action {
        Action::Cancel => "Cancel",
        Action::Retry => "Retry",
        Action::Delete => "Delete",
    }
}

const fn notice(action: Action) -> &'static str {
    match action {
        Action::Cancel => "jobs-cancelled",
        Action::Retry => "jobs-retried",
        Action::Delete => "jobs-deleted",
    }
}

/// Returns the query of a filter, without a page.
fn query(text: &str, cursor: Option<String>) -> ApiResult<JobQuery> {
    match Filter::parse(text, 1, None)? {
        Filter::Jobs(query) => Ok(JobQuery { limit: 0, cursor, ..*query }),
        Filter::Job(id) => Err(ApiError::invalid("q", format!("expected a filter, got the id {id}"))),
    }
}

async fn preview(State(state): State<AppState>, frame: Frame, mut params: Params) -> ApiResult {
    let action = params.parse_by("action", action)?.unwrap_or(Action::Cancel);
    let text = params.text("q")?.unwrap_or_default();
    let is_long = params.text("count")?.as_deref() == Some("long");
    let patience = if is_long { bulk::COUNT_PATIENCE } else { PREVIEW_PATIENCE };
    let counted = bulk::count(&state, action, query(&text, None)?, patience).await?;
    let total = counted.count.unwrap_or(0);
    let further = format!("/bulk?action={}&q={}&count=long", word(action).to_lowercase(), encode(&text));
    layout::render(&BulkTemplate {
        page: frame.page(JOBS, format!("{} all that match", word(action))).at_rest(),
        action: word(action),
        is_cancel: action == Action::Cancel,
        list: format!("/jobs?q={}", encode(&text)),
        text,
        reason: String::new(),
        total,
        total_text: count(total),
        is_at_least: counted.is_at_least,
        count_further: (counted.is_at_least && !is_long && total < bulk::COUNT_MAX).then_some(further),
        done: 0,
        done_text: count(0),
        skipped: 0,
        cursor: String::new(),
    })
}

async fn act(State(state): State<AppState>, frame: Frame, share: Share, request: Request) -> ApiResult {
    let form = Form::read(request, SMALL_BYTES_MAX).await?;
    let action =
        action(&form.need("action")?.to_lowercase()).map_err(|message| ApiError::invalid("action", message))?;
    let text = form.get("q").unwrap_or_default().to_owned();
    let reason = form.get("reason");
    check_reason(reason)?;
    let number = |name: &str| form.get(name).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    let (mut done, mut skipped) = (number("done"), number("skipped"));
    let mut cursor = form.get("cursor").map(ToOwned::to_owned);
    share.reserve_page().await?;
    let until = Instant::now() + REQUEST_TIME;
    loop {
        let slice = bulk::run(&state, action, query(&text, cursor.take())?, reason).await?;
        (done, skipped) = (done.saturating_add(slice.done), skipped.saturating_add(slice.skipped));
        let Some(next) = slice.next_cursor else {
            let response = layout::see_other(&format!("/jobs?q={}&notice={}&n={done}", encode(&text), notice(action)))?;
            return Ok(bulk::noted(action, text, done, skipped).on(response));
        };
        cursor = Some(next);
        if Instant::now() >= until {
            break;
        }
    }
    let total = number("total").max(done);
    let noted = bulk::noted(action, text.clone(), done, skipped);
    let response = layout::render(&BulkTemplate {
        page: frame.page(JOBS, format!("{} all that match", word(action))).at_rest(),
        action: word(action),
        is_cancel: action == Action::Cancel,
        list: format!("/jobs?q={}", encode(&text)),
        reason: reason.unwrap_or_default().to_owned(),
        total,
        total_text: count(total),
        is_at_least: form.has("atLeast"),
        count_further: None,
        done,
        done_text: count(done),
        skipped,
        cursor: cursor.unwrap_or_default(),
        text,
    })?;
    Ok(noted.on(response))
}
