//! Heartbeats of workers: a run that a worker no longer lists is lost, a run that is new here is taken over.

use std::collections::{BTreeMap, BTreeSet};

use convoke_core::jobs::RunReport;
use convoke_core::jobs::deadline;
use convoke_core::jobs::link::{Heartbeat, HeartbeatReply};
use convoke_core::jobs::unlisted::{lost_reports, unlisted_error};
use convoke_core::jobs::wire::RunRef;
use convoke_core::ports::store::{InFlightFilter, Recorded};
use convoke_core::{Error, ExecutionId, JobId, Result, WorkerId};
use tracing::info;

use super::link::runs_of;
use crate::jobs::node::Node;
use crate::jobs::recorder;
use crate::jobs::views::in_flight;

pub async fn heartbeat(node: &Node, heartbeat: Heartbeat) -> Result<HeartbeatReply> {
    heartbeat.check()?;
    super::link::ensure_known(node, &heartbeat.worker_id).await?;
    let unknown = || Error::not_found("worker", &heartbeat.worker_id);
    let compared =
        node.gateway.sessions.compare(&heartbeat, node.settings.worker.stale_after / 2).ok_or_else(unknown)?;
    if heartbeat.draining {
        node.gateway.hints.slots(&heartbeat.worker_id);
    }
    let mut cancel = compared.cancel;
    if !compared.lost.is_empty() {
        lose(node, &heartbeat.worker_id, compared.lost).await?;
    }
    if compared.is_due {
        expect(node, &heartbeat).await?;
    }
    if !compared.unknown.is_empty() {
        cancel.extend(adopt(node, &heartbeat.worker_id, compared.unknown).await?);
    }
    node.gateway.sessions.agree(&heartbeat.worker_id);
    cancel.sort();
    cancel.dedup();
    Ok(HeartbeatReply { cancel, drain: false })
}

async fn lose(node: &Node, worker: &WorkerId, runs: Vec<RunRef>) -> Result<()> {
    info!(%worker, runs = runs.len(), "worker lost runs that it was given");
    let reports = lost_reports(worker, runs, &unlisted_error(worker), node.now(), || node.fraction());
    recorder::record(node, reports).await.map(|_| ())
}

/// Enters runs that a worker has by the store and does not list: another node handed them out, or this one before it
/// was restarted. Unless the next heartbeats list them, they are lost; without this they would not be missed while the
/// worker, or another that was started under its id, is alive.
async fn expect(node: &Node, heartbeat: &Heartbeat) -> Result<()> {
    let mut runs = runs_of(node, &heartbeat.worker_id).await?;
    let running: BTreeSet<&ExecutionId> = heartbeat.running.iter().collect();
    runs.retain(|run| !running.contains(&run.execution_id) && !node.gateway.sessions.has(&run.execution_id));
    node.gateway.sessions.hand_out(&heartbeat.worker_id, &runs, tokio::time::Instant::now());
    Ok(())
}

/// Takes over runs that another node handed out, or this one before it was restarted. Returns those that have ended.
async fn adopt(node: &Node, worker: &WorkerId, unknown: Vec<ExecutionId>) -> Result<Vec<ExecutionId>> {
    let own = runs_of(node, worker).await?.into_iter();
    let mut jobs: BTreeMap<ExecutionId, JobId> = own.map(|run| (run.execution_id, run.job_id)).collect();
    let executions: Vec<_> = unknown.iter().filter(|execution| !jobs.contains_key(execution)).copied().collect();
    if !executions.is_empty() {
        // A worker must not list a run of another. One such search at a time, whatever workers list.
        let _searching = node.gateway.sessions.adoption.lock().await;
        let count = executions.len();
        let filter = InFlightFilter { executions, without_worker: true, ..InFlightFilter::default() };
        let free = in_flight(node, filter).await?;
        let is_all = free.len() == count;
        jobs.extend(free.into_iter().map(|run| (run.execution, run.job)));
        if !is_all {
            // Its own run may have been recorded between the two reads.
            jobs.extend(runs_of(node, worker).await?.into_iter().map(|run| (run.execution_id, run.job_id)));
        }
    }
    let (known, over): (Vec<_>, Vec<_>) = unknown.into_iter().partition(|execution| jobs.contains_key(execution));
    let runs: Vec<RunRef> =
        known.iter().map(|execution| RunRef { job_id: jobs[execution], execution_id: *execution }).collect();
    let claims = runs.iter().map(|run| {
        let mut report = RunReport::of(run.job_id, run.execution_id);
        report.worker = Some(worker.clone());
        report.owner = node.takes();
        report.handed_out_at = Some(deadline::happened_at(run.execution_id, node.now(), node.now()));
        report
    });
    let recorded = recorder::record(node, claims.collect()).await?;
    let mut stop = over;
    for (run, recorded) in runs.into_iter().zip(recorded) {
        if matches!(recorded, Recorded::Applied(_)) {
            node.gateway.sessions.hand_out(worker, &[run], tokio::time::Instant::now());
            node.ownership.claims.adopted(run, worker.clone(), tokio::time::Instant::now());
        } else {
            stop.push(run.execution_id);
        }
    }
    node.gateway.hints.slots(worker);
    Ok(stop)
}
