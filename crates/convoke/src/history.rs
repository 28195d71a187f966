//! Histories of fenced decisions: read from files, exported from a coordinator, checked.
//!
//! A node that keeps a history ([`CoordinatorBuilder::history`](crate::CoordinatorBuilder::history)) appends a line for each
//! fenced decision. [`read`] adds such a file to a [`History`], [`export`] adds what a store holds, and
//! [`History::check`] finds the breaches of the invariants.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::sync::Arc;

use convoke_core::decisions::{Decision, LINE_BYTES_MAX, Mark, Outcome, What};
use convoke_core::error::Result;
use convoke_core::jobs::{Execution, Status};
use convoke_core::limits::PAGE_MAX;
use convoke_core::{Epoch, Error, ExecutionId, JobId, JobType, NodeId, QueueName, ScheduleName};
use convoke_runtime::decisions::DecisionSink;
use futures_util::{StreamExt as _, TryStreamExt as _};
use http::Method;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::connect::{self, Http};

pub use convoke_core::verify::{Expectations, History, Place, Record, Report, Summary, Violation};
pub use convoke_runtime::decisions::{DecisionFile, DecisionLog, Recorder};

/// Characters of a line that are shown.
const LINE_CHARS_MAX: usize = 400;
/// Violations that are shown.
const VIOLATIONS_MAX: usize = 50;
/// No body.
const NOTHING: Option<&()> = None;
/// Requests for the runs of jobs that are made at once.
const REQUESTS_MAX: usize = 8;

/// Reads a file into a history. Returns why it is no history, as text.
pub fn read(path: &Path, history: &mut History) -> Result<(), String> {
    let name: Arc<str> = path.display().to_string().into();
    let unreadable = |error: std::io::Error| format!("{name}: {error}");
    let mut reader = BufReader::new(File::open(path).map_err(unreadable)?);
    let mut text = Vec::new();
    for line in 1.. {
        text.clear();
        // A file that is no history may have no end of a line.
        let limit = LINE_BYTES_MAX as u64 + 2;
        let count = std::io::Read::take(&mut reader, limit).read_until(b'\n', &mut text).map_err(unreadable)?;
        if count == 0 {
            return Ok(());
        }
        let place = Place { file: name.clone(), line };
        let text = std::str::from_utf8(&text).map_err(|_| format!("{place}: expected a line of JSON in UTF-8"))?;
        history.read_line(place, text)?;
    }
    Ok(())
}

/// Returns a recorder of this process, for its part of a history.
pub fn recorder(name: &str, sink: Arc<dyn DecisionSink>) -> Result<Arc<Recorder>> {
    let recorder = Recorder::new(NodeId::new(name)?, connect::clock(), &*connect::chance(), sink);
    recorder.begin(None, None);
    Ok(recorder)
}

/// A job in a list.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredJob {
    id: JobId,
    #[serde(rename = "type")]
    job_type: JobType,
    queue: QueueName,
    status: Status,
    attempt: u32,
    max_retries: u32,
    execution_id: Option<ExecutionId>,
    schedule: Option<ScheduleName>,
    scheduled_at: Option<Timestamp>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Jobs {
    jobs: Vec<StoredJob>,
    next_cursor: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Runs {
    executions: Vec<Execution>,
    #[serde(default)]
    next_after: Option<u64>,
}

#[derive(Deserialize)]
struct Cluster {
    leader: Option<NodeId>,
    epoch: Epoch,
}

/// Records what the store of a coordinator holds: its epoch, all jobs, and the runs of those that ended after more than one.
/// Returns the number of jobs.
pub async fn export(http: &Http, recorder: &Recorder) -> Result<u64> {
    let record = |decisions| recorder.record(recorder.since(), decisions);
    record(vec![Decision::of(What::StoreBegin, Outcome::Accepted)]);
    let cluster: Cluster = http.json(Method::GET, "/v1/cluster", NOTHING).await?;
    record(vec![Decision {
        before: cluster.leader.map(Mark::Name),
        after: Some(Mark::from(cluster.epoch)),
        ..Decision::of(What::StoreEpoch, Outcome::Accepted)
    }]);
    let (mut count, mut cursor) = (0, None);
    loop {
        let after = cursor.map(|cursor: String| format!("&cursor={}", crate::encode(&cursor))).unwrap_or_default();
        let page: Jobs = http.json(Method::GET, &format!("/v1/jobs?limit={PAGE_MAX}{after}"), NOTHING).await?;
        count += page.jobs.len() as u64;
        record(page.jobs.iter().map(stored).collect());
        let several = page.jobs.iter().filter(|job| !job.status.is_live() && is_eventful(job)).map(|job| job.id);
        let mut runs = futures_util::stream::iter(several).map(|job| runs(http, job)).buffer_unordered(REQUESTS_MAX);
        while let Some(runs) = runs.try_next().await? {
            record(runs);
        }
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    record(vec![Decision { count: Some(count), ..Decision::of(What::StoreEnd, Outcome::Accepted) }]);
    Ok(count)
}

/// Returns whether a job is more than one run that completed it.
fn is_eventful(job: &StoredJob) -> bool {
    job.status != Status::Completed || job.attempt != 1
}

fn stored(job: &StoredJob) -> Decision {
    Decision {
        job: Some(job.id),
        job_type: Some(job.job_type.clone()),
        queue: Some(job.queue.clone()),
        status: Some(job.status),
        run: job.execution_id,
        attempt: Some(job.attempt),
        attempts_max: Some(job.max_retries.saturating_add(1)),
        tick: job.scheduled_at.filter(|_| job.schedule.is_some()),
        schedule: job.schedule.clone(),
        ..Decision::of(What::StoreJob, Outcome::Accepted)
    }
}

/// Reads all runs of a job. None if it was deleted meanwhile.
async fn runs(http: &Http, job: JobId) -> Result<Vec<Decision>> {
    let (mut decisions, mut after) = (Vec::new(), 0);
    loop {
        let path = format!("/v1/jobs/{job}/history?after={after}&limit={PAGE_MAX}");
        let page: Runs = match http.json(Method::GET, &path, NOTHING).await {
            Ok(page) => page,
            Err(Error::NotFound { .. }) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        decisions.extend(page.executions.iter().map(|run| Decision {
            job: Some(job),
            run: Some(run.execution_id),
            attempt: Some(run.attempt),
            end: Some(run.status),
            worker: run.worker_id.clone(),
            ..Decision::of(What::StoreRun, Outcome::Accepted)
        }));
        match page.next_after {
            Some(next) => after = next,
            None => return Ok(decisions),
        }
    }
}

/// Returns the line at a place, as it would be written.
fn shown(history: &History, place: &Place) -> String {
    let mut text = Vec::new();
    if let Some(decision) = history.decision(place) {
        decision.write_line(&mut text);
    }
    let text = String::from_utf8_lossy(&text);
    text.trim_end().chars().take(LINE_CHARS_MAX).collect()
}

/// Returns the report as text for people, with the lines that prove each violation.
pub fn to_text(report: &Report, history: &History) -> String {
    let it = &report.summary;
    let mut lines = vec![
        format!(
            "{} lines of {} processes: {} starts, {} of them killed or still running, {} with gaps",
            it.lines, it.processes, it.starts, it.killed, it.gaps
        ),
        format!(
            "{} decisions, {} of them refused: {} epochs, {} jobs, {} runs, {} grants of shards",
            it.decisions, it.refused, it.epochs, it.jobs, it.runs, it.grants
        ),
        format!("{} enqueues acknowledged to clients, {} jobs exported from the store", it.acknowledged, it.exported),
    ];
    lines.extend(report.notes.iter().map(|note| format!("note: {note}")));
    for violation in report.violations.iter().take(VIOLATIONS_MAX) {
        lines.push(format!("violated {}: {}", violation.invariant, violation.what));
        lines.extend(violation.proof.iter().map(|place| format!("  {place}: {}", shown(history, place))));
    }
    let count = report.violations.len();
    if count > VIOLATIONS_MAX {
        lines.push(format!("and {} more violations", count - VIOLATIONS_MAX));
    }
    lines.push(match (count, report.is_complete()) {
        (0, true) => "clean: nothing was violated".to_owned(),
        (0, false) => "incomplete: nothing was found, but lines are missing, so that this proves nothing".to_owned(),
        (1, _) => "violated: 1 violation".to_owned(),
        _ => format!("violated: {count} violations"),
    });
    lines.join("\n")
}

/// Returns the report as JSON, with the lines that prove each violation.
pub fn to_json(report: &Report, history: &History) -> Value {
    // These types are numbers and texts, whose encoding does not fail.
    let mut value = serde_json::to_value(report).unwrap_or_default();
    value["complete"] = report.is_complete().into();
    value["clean"] = report.is_clean().into();
    let violations = report.violations.iter().map(|violation| {
        let proof = violation.proof.iter().map(|place| {
            let decision = history.decision(place).and_then(|decision| serde_json::to_value(decision).ok());
            json!({ "file": place.file, "line": place.line, "decision": decision })
        });
        let proof: Vec<Value> = proof.collect();
        json!({ "invariant": violation.invariant, "what": violation.what, "proof": proof })
    });
    value["violations"] = violations.collect();
    value
}
