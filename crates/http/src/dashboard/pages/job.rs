//! One job: its life, its arguments and results, its log, and what can be done with it.

use std::time::Duration;

use std::sync::Arc;

use askama::Template;
use axum::extract::{Request, State};
use convoke_core::JobId;
use convoke_core::history::HandoffRecord;
use convoke_core::jobs::{Execution, Job, LogLevel, LogLine, Ownership, Status};
use convoke_core::limits::{ARGS_BYTES_MAX, LOG_PAGE_BYTES_MAX, RESULT_BYTES_MAX};
use convoke_core::ports::store::HistoryPage;
use jiff::Timestamp;

use super::schedules::word;
use crate::AppState;
use crate::body::{Params, SMALL_BYTES_MAX, Segment};
use crate::dashboard::fields::{self, Fact};
use crate::dashboard::form::Form;
use crate::dashboard::json::pretty;
use crate::dashboard::layout::{self, Frame, JOBS, Page};
use crate::dashboard::routes::PageRoutes;
use crate::dashboard::text::{self, Mark, When, encode, span};
use crate::error::ApiResult;
use crate::jobs::check_reason;
use crate::memory::Share;

/// A command with a longer body reads it from a file.
const SHOWN_BYTES_MAX: usize = 8 << 10;
/// Runs that are shown; the API has them all.
const RUNS_MAX: usize = 100;
/// Log lines that are shown at once; the script follows from there.
const LINES_MAX: usize = 500;

pub fn routes() -> PageRoutes {
    PageRoutes::new().page("/jobs/{id}", show).form("/jobs/{id}/cancel", cancel).form("/jobs/{id}/retry", retry)
}

#[derive(Template)]
#[template(path = "job.html")]
struct JobTemplate {
    page: Page,
    id: JobId,
    job_type: String,
    mark: Mark,
    is_live: bool,
    may_cancel: bool,
    may_retry: bool,
    progress: Option<(u8, String)>,
    error: Option<String>,
    args: String,
    result: Option<String>,
    facts: Vec<Fact>,
    life: Vec<Moment>,
    runs: Vec<RunRow>,
    has_more_runs: bool,
    log: Log,
    commands: Vec<(&'static str, String)>,
}

/// A moment in the life of a job.
struct Moment {
    sign: &'static str,
    class: &'static str,
    title: String,
    detail: String,
    at: Option<When>,
    /// How long it lasted until the next.
    lasted: String,
}

struct RunRow {
    attempt: u32,
    execution: String,
    mark: Mark,
    worker: String,
    started: Option<When>,
    took: String,
    error: String,
}

impl RunRow {
    fn of(run: &Execution, now: Timestamp) -> Self {
        let ended = run.ended_at.unwrap_or(now);
        RunRow {
            attempt: run.attempt,
            execution: run.execution_id.to_string(),
            mark: run.status.into(),
            worker: run.worker_id.as_ref().map(ToString::to_string).unwrap_or_default(),
            started: run.started_at.map(|at| When::new(at, now)),
            took: run.started_at.map(|at| span(text::age(at, ended))).unwrap_or_default(),
            error: run.error.clone().unwrap_or_default(),
        }
    }
}

/// The lines of a job's log that are shown, of a level and above.
struct Log {
    is_hidden: bool,
    level: &'static str,
    levels: Vec<&'static str>,
    lines: Vec<LogRow>,
    /// The last line that was read.
    last: u64,
    next: Option<String>,
}

struct LogRow {
    seq: u64,
    at: String,
    level: &'static str,
    message: String,
}

impl From<&LogLine> for LogRow {
    fn from(line: &LogLine) -> Self {
        LogRow {
            seq: line.seq,
            at: line.at.strftime("%H:%M:%S%.3f").to_string(),
            level: text::level(line.level),
            message: line.message.clone(),
        }
    }
}

async fn show(
    State(state): State<AppState>,
    Segment(id): Segment<JobId>,
    frame: Frame,
    mut params: Params,
    share: Share,
) -> ApiResult {
    let level = params.parse_by("level", level)?.unwrap_or(LogLevel::Trace);
    let after = params.parse("after")?.unwrap_or(0);
    share.reserve(ARGS_BYTES_MAX + RESULT_BYTES_MAX + LOG_PAGE_BYTES_MAX).await?;
    let coordinator = &state.coordinator;
    let job = coordinator.job_view(id).await?;
    let history = coordinator.store().history(id, 0, RUNS_MAX).await?;
    let hidden = frame.viewer.payloads_hidden;
    // Payloads are copied only if they must be hidden.
    let job = if hidden { Arc::new(frame.viewer.shown((*job).clone())) } else { job };
    let history = HistoryPage { runs: frame.viewer.shown(history.runs), ..history };
    let lines = if hidden { Vec::new() } else { coordinator.store().logs(id, after, LINES_MAX).await? };
    let mut handoffs = coordinator.past_handoffs().records;
    handoffs.retain(|handoff| handoff.job_id == id);
    let now = coordinator.clock().now();
    let payload = |text: &str| if hidden { "hidden from this token".to_owned() } else { pretty(text) };
    let job_type = job.definition.job_type.to_string();
    let template = JobTemplate {
        page: frame.page(JOBS, format!("{job_type} {id}")),
        id,
        job_type,
        mark: job.status.into(),
        is_live: job.status.is_live(),
        may_cancel: frame.viewer.may_act && job.status.is_live(),
        may_retry: frame.viewer.may_act && !job.status.is_live() && job.status != Status::Completed,
        progress: job
            .progress
            .as_ref()
            // How far a job came is of interest unless it is complete, whatever it reported last.
            .filter(|_| job.status != Status::Completed)
            .map(|done| (done.percent, done.message.clone().unwrap_or_default())),
        error: job.error.clone(),
        args: payload(job.definition.args.as_str()),
        result: job.result.as_ref().map(|result| payload(result.as_str())),
        facts: facts(&job),
        life: life(&job, &history.runs, &handoffs, now),
        runs: history.runs.iter().rev().map(|run| RunRow::of(run, now)).collect(),
        has_more_runs: history.next_after.is_some(),
        log: log(id, &lines, level, hidden),
        commands: commands(&frame, &job),
    };
    layout::render(&template)
}

fn level(text: &str) -> Result<LogLevel, String> {
    let found = LogLevel::ALL.into_iter().find(|level| text::level(*level) == text);
    found.ok_or_else(|| format!("expected trace, debug, info, warn or error, got {text:?}"))
}

fn log(id: JobId, lines: &[LogLine], level: LogLevel, is_hidden: bool) -> Log {
    let last = lines.last().map_or(0, |line| line.seq);
    let next = (lines.len() == LINES_MAX).then(|| format!("/jobs/{id}?after={last}&level={}#log", text::level(level)));
    let shown = lines.iter().filter(|line| line.level.code() >= level.code());
    Log {
        is_hidden,
        level: text::level(level),
        levels: LogLevel::ALL.map(text::level).to_vec(),
        lines: shown.map(LogRow::from).collect(),
        last,
        next,
    }
}

fn facts(job: &Job) -> Vec<Fact> {
    let mut facts = fields::facts(&job.definition);
    let mut fact = |name, text: Option<String>, path: Option<String>| {
        facts.extend(text.map(|text| Fact { name, text, path }));
    };
    let attempts = u64::from(job.definition.max_retries) + 1;
    fact("Attempt", Some(format!("{} of {attempts}", job.attempt)), None);
    let schedule = job.schedule.as_ref().map(ToString::to_string);
    fact("Schedule", schedule.clone(), schedule.map(|name| format!("/schedules/{}", encode(&name))));
    let worker = job.worker_id.as_ref().map(ToString::to_string);
    fact("Worker", worker.clone(), worker.map(|id| format!("/workers/{}", encode(&id))));
    let owner = job.owner_node.as_ref().map(|node| match job.ownership {
        Ownership::Unowned => format!("{node} (recorded the end)"),
        Ownership::Owned => node.to_string(),
        Ownership::HandingOff => format!("{node}, handing off"),
        Ownership::OrphanPending => format!("{node}, left without an owner"),
    });
    fact("Owner node", owner, None);
    fact("Run", job.execution_id.map(|id| id.to_string()), None);
    facts
}

/// Returns what happened to a job, oldest first.
fn life(job: &Job, runs: &[Execution], handoffs: &[HandoffRecord], now: Timestamp) -> Vec<Moment> {
    let mut life: Vec<(Timestamp, Moment)> = Vec::new();
    let mut add = |at: Timestamp, sign, class, title: String, detail: String| {
        life.push((at, Moment { sign, class, title, detail, at: Some(When::new(at, now)), lasted: String::new() }));
    };
    let by = job.schedule.as_ref().map(|name| format!("by schedule {name}")).unwrap_or_default();
    add(job.created_at, "○", "quiet", "Enqueued".into(), by);
    if let Some(at) = job.scheduled_at.filter(|at| *at > job.created_at) {
        add(at, "◷", "quiet", if at > now { "Due".into() } else { "Became due".into() }, String::new());
    }
    for run in runs {
        let worker = run.worker_id.as_ref().map(|worker| format!("by {worker}")).unwrap_or_default();
        if let Some(at) = run.started_at {
            add(at, "▶", "busy", format!("Attempt {} started", run.attempt), worker);
        }
        if let Some(at) = run.ended_at {
            let mark = Mark::from(run.status);
            let title = format!("Attempt {} {}", run.attempt, mark.word);
            add(at, mark.sign(), mark.class(), title, run.error.clone().unwrap_or_default());
        }
    }
    for handoff in handoffs {
        let (to, class) = match &handoff.to_node {
            Some(node) => (format!("to {node}"), "busy"),
            None => ("and no node took it".to_owned(), "warn"),
        };
        let title = format!("Handed off from {} {to}", handoff.from_node);
        let case = handoff.case.as_ref().map(|case| format!(", {}", word(case))).unwrap_or_default();
        add(handoff.at, "⇄", class, title, format!("{}{case}", word(&handoff.reason)));
    }
    if let Some(at) = job.dispatched_at.filter(|_| job.status.is_in_flight()) {
        let owner = job.owner_node.as_ref().map(|node| format!("owned by {node}")).unwrap_or_default();
        add(at, "→", "busy", format!("Attempt {} dispatched", job.attempt), owner);
    }
    if let Some(at) = job.completed_at {
        let mark = Mark::from(job.status);
        let owner = job.owner_node.as_ref().map(|node| format!("recorded by {node}")).unwrap_or_default();
        add(at, mark.sign(), mark.class(), format!("Job {}", mark.word), owner);
    }
    // Moments of one instant stay in the order in which they were added: a run ends before its job.
    life.sort_by_key(|(at, _)| *at);
    let ends: Vec<Timestamp> =
        life.iter().skip(1).map(|(at, _)| *at).chain(job.status.is_live().then_some(now)).collect();
    let with_ends = life.into_iter().zip(ends.into_iter().map(Some).chain(std::iter::repeat(None)));
    let lasted = |from: Timestamp, to: Timestamp| match text::age(from, to) {
        short if short < Duration::from_millis(1) => String::new(),
        long => span(long),
    };
    with_ends
        .map(|((at, moment), end)| Moment { lasted: end.map(|end| lasted(at, end)).unwrap_or_default(), ..moment })
        .collect()
}

/// Returns the command of each action, to be typed in a terminal.
fn commands(frame: &Frame, job: &Job) -> Vec<(&'static str, String)> {
    let (id, call) = (job.id, |method: &str, path: String| frame.curl(method, &path));
    let mut commands = vec![
        ("Show", call("GET", format!("/v1/jobs/{id}"))),
        ("Wait for its end", call("GET", format!("/v1/jobs/{id}?wait=5m"))),
        ("Runs", call("GET", format!("/v1/jobs/{id}/history"))),
        ("Follow the log", call("GET", format!("/v1/jobs/{id}/logs/stream"))),
    ];
    if job.status.is_live() {
        commands.push(("Cancel", call("POST", format!("/v1/jobs/{id}/cancel"))));
    } else if job.status != Status::Completed {
        commands.push(("Retry", call("POST", format!("/v1/jobs/{id}/retry"))));
    }
    let copy = fields::template_of_copy(&job.definition, frame.viewer.payloads_hidden);
    let copy = serde_json::to_string(&copy).expect("templates have string keys and no foreign Serialize");
    let copy = if copy.len() > SHOWN_BYTES_MAX { "@job.json" } else { &copy };
    commands.push(("Enqueue a copy", frame.curl_with("POST", "/v1/jobs", copy)));
    commands
}

async fn cancel(State(state): State<AppState>, Segment(id): Segment<JobId>, request: Request) -> ApiResult {
    let form = Form::read(request, SMALL_BYTES_MAX).await?;
    let reason = form.get("reason").map(ToOwned::to_owned);
    check_reason(reason.as_deref())?;
    state.coordinator.cancel(id, reason).await?;
    layout::see_other(&format!("/jobs/{id}?notice=cancelled"))
}

async fn retry(State(state): State<AppState>, Segment(id): Segment<JobId>, request: Request) -> ApiResult {
    Form::read(request, SMALL_BYTES_MAX).await?;
    state.coordinator.retry(id).await?;
    layout::see_other(&format!("/jobs/{id}?notice=retried"))
}
