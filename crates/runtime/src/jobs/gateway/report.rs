//! Combines a worker's events into one report per run, and commits them before the response.

use convoke_core::jobs::fold::EventFold;
use convoke_core::jobs::link::{Event, Rejected, RejectedCode, Report, Reported};
use convoke_core::jobs::{Claim, RunReport};
use convoke_core::limits::REPORT_EVENTS_MAX;
use convoke_core::mutant::mutant;
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
    let recorded = match recorder::record(node, reports).await {
        Err(_) if mutant("commit before the confirmation") => vec![Recorded::Duplicate; executions.len()],
        recorded => recorded?,
    };
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
    for (position, event) in events.iter().enumerate() {
        event.check().map_err(|invalid| invalid.within(format_args!("events[{position}]")))?;
    }
    let now = node.now();
    let ages = node.gateway.sessions.ages(events.iter().map(|event| event.execution_id));
    let mut fold = EventFold::with_capacity(events.len());
    let mut takes: Vec<Take> = Vec::with_capacity(events.len());
    for (event, age) in events.into_iter().zip(ages) {
        // No event of a run happened before the run was handed out.
        let earliest = age.map_or(Timestamp::MIN, |age| now - age);
        let folded = fold.add(Some(worker), event, earliest, now, || node.fraction());
        if folded.report == takes.len() {
            takes.push(Take::default());
        }
        let take = &mut takes[folded.report];
        take.count += usize::from(folded.fits);
        take.has_more |= !folded.fits;
    }
    let mut reports = fold.into_reports();
    for report in &mut reports {
        // An ended run is not handed off: a draining node records it as its own, even if another node has taken it.
        report.owner = if report.end.is_some() { Some(Claim::Take(node.id.clone())) } else { node.takes() };
    }
    Ok((reports, takes))
}
