//! Combines a worker's events into one report per run, and commits them before the response.

use std::collections::HashMap;

use convoke_core::jobs::deadline;
use convoke_core::jobs::link::{Event, EventKind, Rejected, RejectedCode, Report, Reported};
use convoke_core::jobs::run::NewLog;
use convoke_core::jobs::{Claim, Outcome, Progress, RunEnd, RunReport};
use convoke_core::limits::{
    ERROR_BYTES_MAX, LOG_LINE_BYTES_MAX, PROGRESS_MESSAGE_BYTES_MAX, REPORT_EVENTS_MAX, RESULT_BYTES_MAX,
};
use convoke_core::ports::store::Recorded;
use convoke_core::{ExecutionId, Invalid, Result, WorkerId};
use jiff::Timestamp;

use crate::jobs::node::Node;
use crate::jobs::recorder;

pub async fn report(node: &Node, report: Report) -> Result<Reported> {
    if report.events.len() > REPORT_EVENTS_MAX {
        let message = format!("expected at most {REPORT_EVENTS_MAX} events, got {}", report.events.len());
        return Err(Invalid::too_large("events", message).into());
    }
    node.gateway.sessions.see(&report.worker_id);
    node.gateway.sessions.name(&report.worker_id, report.events.iter().map(|event| event.execution_id));
    let (reports, takes) = coalesce(node, &report.worker_id, report.events)?;
    let executions: Vec<ExecutionId> = reports.iter().map(|report| report.execution).collect();
    let recorded = recorder::record(node, reports).await?;
    let mut reported = Reported::default();
    for ((execution_id, take), recorded) in executions.into_iter().zip(takes).zip(recorded) {
        let is_recorded = matches!(recorded, Recorded::Applied(_) | Recorded::Duplicate);
        reported.accepted += if is_recorded { take.count } else { 0 };
        if !is_recorded || take.has_more {
            reported.rejected.push(Rejected { execution_id, code: RejectedCode::StaleExecution });
        }
    }
    Ok(reported)
}

/// How many of a run's events a report combines, and whether more came after the run's end.
#[derive(Default)]
struct Take {
    count: usize,
    has_more: bool,
}

/// Returns one report for each run, in order of first mention.
fn coalesce(node: &Node, worker: &WorkerId, events: Vec<Event>) -> Result<(Vec<RunReport>, Vec<Take>), Invalid> {
    let now = node.now();
    let mut reports: Vec<RunReport> = Vec::with_capacity(events.len());
    let mut takes: Vec<Take> = Vec::with_capacity(events.len());
    let mut events_of: Vec<Vec<Event>> = Vec::with_capacity(events.len());
    let mut by_run: HashMap<ExecutionId, usize> = HashMap::with_capacity(events.len());
    for (position, event) in events.into_iter().enumerate() {
        check(&event).map_err(|invalid| invalid.within(format_args!("events[{position}]")))?;
        let index = *by_run.entry(event.execution_id).or_insert_with(|| {
            let mut report = RunReport::of(event.job_id, event.execution_id);
            report.worker = Some(worker.clone());
            report.owner = node.takes();
            reports.push(report);
            takes.push(Take::default());
            events_of.push(Vec::with_capacity(2));
            reports.len() - 1
        });
        events_of[index].push(event);
    }
    // A worker's clock may be minutes off: no event of a run happened before the run was handed out, or after now.
    let ages = node.gateway.sessions.ages(reports.iter().map(|report| report.execution));
    for (((report, take), events), age) in reports.iter_mut().zip(&mut takes).zip(events_of).zip(ages) {
        let earliest = age.map_or(jiff::Timestamp::MIN, |age| now - age);
        for event in events {
            let fits = apply(report, event, earliest, now);
            take.count += usize::from(fits);
            take.has_more |= !fits;
        }
        if report.end.is_some() {
            // An ended run is not handed off: a draining node records it as its own, even if another node has taken it.
            report.owner = Some(Claim::Take(node.id.clone()));
        }
    }
    Ok((reports, takes))
}

/// Returns false if the event comes after the run's end and does not repeat that end, as if events came one by one.
fn apply(report: &mut RunReport, event: Event, earliest: Timestamp, now: Timestamp) -> bool {
    let is_over = report.end.is_some();
    let at = deadline::happened_at(report.execution, event.at.map_or(now, |at| at.max(earliest)), now);
    let error = event.error.unwrap_or_default();
    let outcome = match event.kind {
        EventKind::Started | EventKind::Progress | EventKind::Log if is_over => return false,
        EventKind::Started => {
            report.started_at = Some(at);
            return true;
        }
        EventKind::Progress => {
            report.progress = Some(Progress { percent: event.percent.unwrap_or(0), message: event.message });
            return true;
        }
        EventKind::Log => {
            let message = event.message.unwrap_or_default();
            report.logs.push(NewLog { seq: event.seq, at, level: event.level.unwrap_or_default(), message });
            return true;
        }
        EventKind::Completed => Outcome::Completed { result: event.result },
        EventKind::Failed => Outcome::Failed { error, retry: event.retry.unwrap_or(true) },
        EventKind::TimedOut => Outcome::TimedOut { error },
        EventKind::Cancelled => Outcome::Cancelled { reason: event.message },
        EventKind::Released => Outcome::Released,
    };
    // The first end counts: a run cannot end twice.
    if let Some(end) = &report.end {
        return end.outcome == outcome;
    }
    report.end = Some(RunEnd { at, outcome, roll: rand::random() });
    true
}

/// Checks that an event has only the fields of its kind.
fn check(event: &Event) -> Result<(), Invalid> {
    use EventKind::*;
    let kind = event.kind;
    let fields = [
        ("percent", event.percent.is_some(), kind == Progress),
        ("message", event.message.is_some(), matches!(kind, Log | Progress | Cancelled)),
        ("level", event.level.is_some(), kind == Log),
        ("seq", event.seq.is_some(), kind == Log),
        ("result", event.result.is_some(), kind == Completed),
        ("error", event.error.is_some(), matches!(kind, Failed | TimedOut)),
        ("retry", event.retry.is_some(), kind == Failed),
    ];
    if let Some((field, ..)) = fields.iter().find(|(_, given, fits)| *given && !fits) {
        return Err(Invalid::new(*field, format!("does not go with kind {kind:?}")));
    }
    let needed = match kind {
        Progress if event.percent.is_none() => Some("percent"),
        Log if event.message.is_none() => Some("message"),
        Failed if event.error.is_none() => Some("error"),
        _ => None,
    };
    if let Some(field) = needed {
        return Err(Invalid::new(field, format!("expected with kind {kind:?}")));
    }
    if event.percent.is_some_and(|percent| percent > 100) {
        return Err(Invalid::new("percent", "expected 0 to 100"));
    }
    if event.seq.is_some_and(|seq| i64::try_from(seq).is_err()) {
        return Err(Invalid::new("seq", format!("expected at most {}", i64::MAX)));
    }
    let message_bytes_max = if kind == Log { LOG_LINE_BYTES_MAX } else { PROGRESS_MESSAGE_BYTES_MAX };
    for (field, text, bytes_max) in
        [("message", &event.message, message_bytes_max), ("error", &event.error, ERROR_BYTES_MAX)]
    {
        if let Some(text) = text.as_ref().filter(|text| text.len() > bytes_max) {
            let message = format!("expected at most {bytes_max} bytes, got {}", text.len());
            return Err(Invalid::too_large(field, message));
        }
    }
    event.result.as_ref().map_or(Ok(()), |result| result.check("result", RESULT_BYTES_MAX))
}
