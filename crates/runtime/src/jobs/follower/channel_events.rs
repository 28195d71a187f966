//! Records the reports that workers send over the bus: the status and the logs of the jobs this node owns.
//!
//! All waiting entries are coalesced into one report per run and one write for all of them; entries are acknowledged
//! after the commit, so that a node that dies before it leaves them for the next owner.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use convoke_core::jobs::deadline;
use convoke_core::jobs::run::NewLog;
use convoke_core::jobs::wire::{Bell, LogMessage, StatusKind, StatusMessage};
use convoke_core::jobs::{Claim, Outcome, Progress, RunReport};
use convoke_core::limits::{ERROR_BYTES_MAX, LOG_LINE_BYTES_MAX, PROGRESS_MESSAGE_BYTES_MAX, RESULT_BYTES_MAX};
use convoke_core::ports::store::Recorded;
use convoke_core::{ExecutionId, JobId, NodeId, Result};
use jiff::Timestamp;
use serde::de::Error;
use tokio::time::Instant;

use super::claims;
use crate::jobs::duty::{DutyRun, WokenBy};
use crate::jobs::node::Node;
use crate::jobs::{recorder, telemetry};

const RETRY_AFTER: Duration = Duration::from_millis(250);

/// Reads the channels of owned jobs.
pub async fn record_channel_events(node: Arc<Node>, mut run: DutyRun<WokenBy>) -> Result<()> {
    while !run.must_stop() {
        let stop = run.stop();
        let served = tokio::select! {
            () = stop.due() => return Ok(()),
            served = serve(&node, &mut run) => served,
        };
        if let Err(error) = served {
            run.failed("job events", &error);
            run.sleep(RETRY_AFTER).await;
        }
    }
    Ok(())
}

async fn serve(node: &Node, run: &mut DutyRun<WokenBy>) -> Result<()> {
    let channels = &node.ownership.job_channels;
    while let Some(batch) = run.wait(channels.next()).await {
        let batch = batch?;
        node.ownership.claims.mark_channel_read(Instant::now());
        let now = node.now();
        let bell = node.channels.bell();
        let mut reports = Reports { owner: node.id.clone(), bell, list: Vec::new(), by_run: HashMap::new() };
        let mut read = Vec::with_capacity(batch.len());
        for (queue, deliveries) in batch {
            let mut entries = Vec::with_capacity(deliveries.len());
            for delivery in deliveries {
                let report = match reports.add(&queue, &delivery.body, now) {
                    Ok(report) => Some(report),
                    Err(error) => {
                        telemetry::poison(node, queue.clone(), delivery.body, &error).await;
                        None
                    }
                };
                entries.push((delivery.id, report));
            }
            read.push((queue, entries));
        }
        let jobs: Vec<JobId> = reports.list.iter().map(|report| report.job).collect();
        let recorded = record_until_stored(node, reports.list).await?;
        let foreign = jobs.into_iter().zip(&recorded).filter(|(_, recorded)| **recorded == Recorded::NotOwner);
        claims::drop_claims_of_jobs(node, &node.ownership, foreign.map(|(job, _)| job)).await;
        // Entries of jobs that another node owns are left for it to read.
        let is_ours = |report: &Option<usize>| report.is_none_or(|index| recorded[index] != Recorded::NotOwner);
        let done = read.into_iter().map(|(queue, entries)| {
            let ids = entries.into_iter().filter(|(_, report)| is_ours(report)).map(|(id, _)| id);
            (queue, ids.collect::<Vec<_>>())
        });
        let done: Vec<_> = done.filter(|(_, ids)| !ids.is_empty()).collect();
        channels.ack(&done).await?;
    }
    Ok(())
}

/// Entries that were read must not be dropped because the store is unavailable for a while.
async fn record_until_stored(node: &Node, reports: Vec<RunReport>) -> Result<Vec<Recorded>> {
    let mut pause = Duration::from_millis(50);
    loop {
        match recorder::record(node, reports.clone()).await {
            Err(error) if error.is_transient() => {
                node.outages.failed("job events", &error);
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_secs(2));
            }
            other => return other,
        }
    }
}

struct Reports {
    owner: NodeId,
    /// The name of the channel of bells.
    bell: String,
    list: Vec<RunReport>,
    by_run: HashMap<ExecutionId, usize>,
}

impl Reports {
    /// Returns the index of the report that the event became part of.
    fn add(&mut self, queue: &str, body: &Bytes, now: Timestamp) -> serde_json::Result<usize> {
        if queue == self.bell {
            // The reader passes a bell on only if it could not read it.
            serde_json::from_slice::<Bell>(body)?;
            Err(serde_json::Error::custom("a bell is no event"))
        } else if queue.ends_with(".logs") {
            let log: LogMessage = serde_json::from_slice(body)?;
            let index = self.of(log.job_id, log.execution_id);
            let message = cut(log.message, LOG_LINE_BYTES_MAX);
            let at = deadline::happened_at(log.execution_id, log.at, now);
            let line = NewLog { seq: Some(log.seq), at, level: log.level, message };
            self.list[index].logs.push(line);
            Ok(index)
        } else {
            let status: StatusMessage = serde_json::from_slice(body)?;
            let index = self.of(status.job_id, status.execution_id);
            apply(&mut self.list[index], status, now);
            Ok(index)
        }
    }

    fn of(&mut self, job: JobId, execution: ExecutionId) -> usize {
        *self.by_run.entry(execution).or_insert_with(|| {
            let owner = Some(Claim::IfFree(self.owner.clone()));
            self.list.push(RunReport { owner, by_channel: true, ..RunReport::of(job, execution) });
            self.list.len() - 1
        })
    }
}

fn apply(report: &mut RunReport, status: StatusMessage, now: Timestamp) {
    let at = deadline::happened_at(report.execution, status.at, now);
    report.worker = Some(status.worker_id);
    let message = status.message.map(|message| cut(message, PROGRESS_MESSAGE_BYTES_MAX));
    let error = || cut(status.error.clone().unwrap_or_default(), ERROR_BYTES_MAX);
    let outcome = match status.kind {
        StatusKind::Started => {
            report.started_at = Some(at);
            return;
        }
        StatusKind::Progress => {
            report.progress = Some(Progress { percent: status.percent.unwrap_or(0).min(100), message });
            return;
        }
        // No sender waits for a reply and could correct it: such a run has failed, and would fail again.
        StatusKind::Completed => match status.result.as_ref().map(|result| result.check("result", RESULT_BYTES_MAX)) {
            Some(Err(invalid)) => Outcome::Failed { error: invalid.to_string(), retry: false },
            _ => Outcome::Completed { result: status.result },
        },
        StatusKind::Failed => Outcome::Failed { error: error(), retry: status.retry.unwrap_or(true) },
        StatusKind::TimedOut => Outcome::TimedOut { error: error() },
        StatusKind::Cancelled => Outcome::Cancelled { reason: message },
        StatusKind::Released => Outcome::Released,
    };
    report.end = Some(convoke_core::jobs::RunEnd { at, outcome, roll: rand::random() });
}

/// A text that is too long is cut: a worker on the bus does not learn of a rejection.
fn cut(mut text: String, bytes_max: usize) -> String {
    text.truncate(text.floor_char_boundary(bytes_max));
    text
}

#[cfg(test)]
mod tests {
    use super::cut;

    #[test]
    fn what_is_too_long_is_cut_between_characters() {
        assert_eq!(cut("häh".into(), 2), "h");
        assert_eq!(cut("häh".into(), 3), "hä");
        assert_eq!(cut("häh".into(), 99), "häh");
    }
}
