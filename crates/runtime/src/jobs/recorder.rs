//! The only path by which reports of runs are committed, whichever way they came.
//!
//! After the commit, and only then, the rest of the node is notified: slots become free, claims end, waiters wake,
//! retries are announced, rejections are counted.

use convoke_core::election::Fence;
use convoke_core::history::{FenceKind, RefusedWrite};
use convoke_core::jobs::event::ClusterEvent;
use convoke_core::jobs::wire::{self, Cancel, RunRef, V1};
use convoke_core::jobs::{Outcome, RunReport, Status};
use convoke_core::limits::CANCELLATIONS_KEPT;
use convoke_core::mutant::mutant;
use convoke_core::ports::store::{Change, Recorded};
use convoke_core::{JobId, JobType, QueueName, Result};
use tracing::{debug, warn};

use super::node::Node;
use super::{follower, telemetry};

/// How much of an error is logged.
const ERROR_LOGGED_BYTES_MAX: usize = 500;

/// Commits the reports of workers.
pub async fn record(node: &Node, reports: Vec<RunReport>) -> Result<Vec<Recorded>> {
    if reports.is_empty() {
        return Ok(Vec::new());
    }
    let summaries = reports.iter().map(ReportSummary::of).collect();
    if mutant("commit before the publication") {
        publish_uncommitted(node, &reports);
    }
    let recorded = telemetry::timed("record", node.store().record(reports)).await;
    let recorded = node
        .reach
        .store_failures
        .record_result(recorded)
        .inspect_err(|error| node.outages.request_failed("run reports", error))?;
    publish_effects(node, summaries, &recorded).await;
    Ok(recorded)
}

/// Shows ends that the store does not have yet: for the simulator, which has to notice.
fn publish_uncommitted(node: &Node, reports: &[RunReport]) {
    let is_completed =
        |report: &&RunReport| report.end.as_ref().is_some_and(|end| matches!(end.outcome, Outcome::Completed { .. }));
    let (Ok(job_type), Ok(queue)) = (JobType::new("uncommitted"), QueueName::new("uncommitted")) else { return };
    for report in reports.iter().filter(is_completed) {
        let (job_type, queue) = (job_type.clone(), queue.clone());
        let (status, job_id, attempt) = (Status::Completed, report.job, 0);
        node.publish_event(ClusterEvent::Job { status, job_id, job_type, queue, attempt });
    }
}

/// Ends runs on the leader's authority. Their workers, if they are alive, are asked to stop.
pub async fn end_as_leader(node: &Node, fence: Fence, reports: Vec<RunReport>) -> Result<Vec<Recorded>> {
    if reports.is_empty() {
        return Ok(Vec::new());
    }
    let summaries: Vec<ReportSummary> = reports.iter().map(ReportSummary::of).collect();
    let reasons: Vec<Option<String>> =
        reports.iter().map(|report| report.end.as_ref().map(|end| reason(&end.outcome))).collect();
    let recorded = telemetry::timed("end_as_leader", node.store().end_as_leader(fence, reports)).await?;
    for ((summaries, reason), recorded) in summaries.iter().zip(reasons).zip(&recorded) {
        if matches!(recorded, Recorded::Applied(_)) {
            publish_cancellation(
                node,
                Cancel { v: V1, job_id: summaries.job, execution_id: summaries.execution, reason },
            )
            .await;
        }
    }
    publish_effects(node, summaries, &recorded).await;
    Ok(recorded)
}

/// Asks the worker of a run to stop it. A hint: its reports are rejected in any case.
pub async fn publish_cancellation(node: &Node, cancel: Cancel) {
    // A worker of this node is notified directly: by the time the topic's message comes back its run may be forgotten.
    node.gateway.sessions.cancel(cancel.execution_id);
    // On the topic, and on a queue of the same name for workers that can only read queues.
    let announced = node.bus().announce(&node.channels.cancel(), wire::encode(&cancel), CANCELLATIONS_KEPT).await;
    if let Err(error) = announced {
        debug!(%error, job = %cancel.job_id, "announcing a cancellation failed");
    }
}

fn reason(outcome: &Outcome) -> String {
    match outcome {
        Outcome::TimedOut { error } | Outcome::Lost { error } => error.clone(),
        _ => "taken back".into(),
    }
}

/// The parts of a report that are needed after the commit.
struct ReportSummary {
    job: JobId,
    execution: convoke_core::ExecutionId,
    ends: bool,
    starts: bool,
    worker: Option<convoke_core::WorkerId>,
    /// Only a claim of this node: it is not counted as a stale report.
    is_claim: bool,
    ended_at: Option<jiff::Timestamp>,
    /// How the run failed, if it did: the outcome and the beginning of the error.
    failure: Option<(&'static str, String)>,
}

impl ReportSummary {
    fn of(report: &RunReport) -> Self {
        ReportSummary {
            job: report.job,
            execution: report.execution,
            ends: report.end.is_some(),
            starts: report.started_at.is_some(),
            worker: report.worker.clone(),
            is_claim: report.end.is_none()
                && report.started_at.is_none()
                && report.progress.is_none()
                && report.logs.is_empty(),
            ended_at: report.end.as_ref().map(|end| end.at),
            failure: report.end.as_ref().and_then(|end| failure(&end.outcome)),
        }
    }
}

fn failure(outcome: &Outcome) -> Option<(&'static str, String)> {
    let (outcome, error) = match outcome {
        Outcome::Failed { error, .. } => ("failed", error),
        Outcome::TimedOut { error } => ("timedOut", error),
        Outcome::Lost { error } => ("lost", error),
        Outcome::Completed { .. } | Outcome::Cancelled { .. } | Outcome::Released => return None,
    };
    Some((outcome, error[..error.floor_char_boundary(ERROR_LOGGED_BYTES_MAX)].to_owned()))
}

/// Logs one line for an attempt that failed, or for the dead letter that its job became.
fn log_failure(node: &Node, summaries: &ReportSummary, change: &Change) {
    let Some((outcome, error)) = &summaries.failure else { return };
    if !node.job_lines.admits() {
        return;
    }
    let (job, queue, attempt) = (summaries.job, &change.queue, change.attempt);
    match change.retry_at {
        Some(retry_at) => {
            warn!(%job, "type" = %change.job_type, %queue, attempt, outcome, error, %retry_at, "job attempt failed");
        }
        None => {
            warn!(%job, "type" = %change.job_type, %queue, attempt, outcome, error, "job failed for good: dead letter");
        }
    }
}

async fn publish_effects(node: &Node, summaries: Vec<ReportSummary>, recorded: &[Recorded]) {
    let mut tally = telemetry::Tally::default();
    let mut over = Vec::with_capacity(summaries.len());
    for (summaries, recorded) in summaries.iter().zip(recorded) {
        match recorded {
            Recorded::Applied(change) => {
                announce(node, summaries, change, &mut tally);
                if summaries.ends {
                    over.push((summaries.job, summaries.execution));
                }
            }
            Recorded::Duplicate => over.push((summaries.job, summaries.execution)),
            // The run goes on, but another node records it.
            Recorded::NotOwner => {
                tally.not_owner += u64::from(!summaries.is_claim);
                record_refused(node, summaries, FenceKind::Owner);
                over.push((summaries.job, summaries.execution));
            }
            Recorded::Stale => {
                tally.stale += u64::from(!summaries.is_claim);
                record_refused(node, summaries, FenceKind::Run);
                over.push((summaries.job, summaries.execution));
            }
        }
    }
    tally.publish(node);
    forget(node, &over).await;
}

/// Records a report that the store refused, for display. A claim of this node is no write of a former owner.
fn record_refused(node: &Node, summaries: &ReportSummary, fence: FenceKind) {
    if summaries.is_claim {
        return;
    }
    let what = match (summaries.ends, summaries.starts) {
        (true, _) => "end of a run",
        (false, true) => "start of a run",
        (false, false) => "progress or log lines of a run",
    };
    let worker = summaries.worker.as_ref().map(|worker| worker.to_string());
    node.history.refused(RefusedWrite {
        at: node.now(),
        node: node.id.clone(),
        fence,
        what: what.into(),
        by: worker.unwrap_or_else(|| node.id.to_string()),
        number: match fence {
            FenceKind::Owner => node.id.to_string(),
            FenceKind::Run | FenceKind::Leader => summaries.execution.to_string(),
        },
        against: None,
        job_id: Some(summaries.job),
    });
}

fn announce(node: &Node, summaries: &ReportSummary, change: &Change, tally: &mut telemetry::Tally) {
    log_failure(node, summaries, change);
    if let Some(ended_at) = summaries.ended_at {
        tally.ended(change, ended_at, summaries.failure.is_some());
        if let Some(at) = change.retry_at {
            if change.status == Status::Pending {
                node.gateway.hints.ready(&change.queue)
            } else {
                node.gateway.hints.due(at)
            }
        } else {
            node.gateway.waiters.wake(summaries.job);
        }
    }
    if (summaries.ends || summaries.starts) && node.is_watched() {
        node.publish_event(ClusterEvent::Job {
            status: change.status,
            job_id: summaries.job,
            job_type: change.job_type.clone(),
            queue: change.queue.clone(),
            attempt: change.attempt,
        });
    }
}

/// Frees the slots of ended runs and stops reading their channels.
pub async fn forget(node: &Node, over: &[(JobId, convoke_core::ExecutionId)]) {
    let freed = node.gateway.sessions.forget(over.iter().map(|(_, execution)| execution));
    for worker in &freed {
        node.gateway.hints.slots(worker);
    }
    let runs = over.iter().map(|(job, execution)| RunRef { job_id: *job, execution_id: *execution });
    follower::drop_claims(node, &node.ownership, runs).await;
}
