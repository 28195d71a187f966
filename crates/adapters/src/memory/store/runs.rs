//! A job's runs, from dispatch to cleaning up.

use std::collections::{BTreeSet, HashSet};
use std::ops::Bound;

use async_trait::async_trait;
use convoke_core::election::Fence;
use convoke_core::jobs::dispatch::{Choice, Room};
use convoke_core::jobs::run_state::Source;
use convoke_core::jobs::wire::{Dispatch, V1};
use convoke_core::jobs::{Job, Ownership, RunReport, Status, retention};
use convoke_core::ports::store::{
    Cutoffs, DispatchOrder, Dispatched, Expired, Holders, InFlight, InFlightFilter, Overdue, Promoted, QueueDispatch,
    Reassign, Reassigned, Recorded, RunStore, Window,
};
use convoke_core::{Epoch, ExecutionId, JobId, NodeId, Result};
use jiff::Timestamp;

use super::MemoryStore;
use super::row::Row;
use super::state::{Kind, State};

#[async_trait]
impl RunStore for MemoryStore {
    async fn promote(&self, fence: Fence, now: Timestamp, limit: usize) -> Result<Promoted> {
        Ok(self.fenced(fence, "promote")?.promote(now, limit))
    }

    async fn dispatch(&self, fence: Fence, order: DispatchOrder) -> Result<Dispatched> {
        let mut state = self.fenced(fence, "dispatch")?;
        let mut executions = order.executions.into_iter();
        let mut dispatched = Dispatched::default();
        let mut choice = Choice::new(executions.len());
        for window in order.windows {
            let (runs, is_cut) = state.dispatch(&window, &mut executions, &mut choice, order.now, fence.epoch());
            let pending = state.indexes.counts(&window.queue).get(Status::Pending);
            dispatched.queues.push(QueueDispatch { queue: window.queue, taken: runs.len(), pending, is_cut });
            dispatched.runs.extend(runs);
        }
        state.dispatched += dispatched.runs.len() as u64;
        Ok(dispatched)
    }

    async fn record(&self, reports: Vec<RunReport>) -> Result<Vec<Recorded>> {
        let mut state = self.state();
        Ok(reports.iter().map(|report| state.record(report, Source::Run)).collect())
    }

    async fn end_as_leader(&self, fence: Fence, reports: Vec<RunReport>) -> Result<Vec<Recorded>> {
        let mut state = self.fenced(fence, "end_as_leader")?;
        Ok(reports.iter().map(|report| state.record(report, Source::Leader)).collect())
    }

    async fn reassign(&self, changes: Vec<Reassign>) -> Result<Vec<Reassigned>> {
        let mut state = self.state();
        let reassigned = changes.into_iter().map(|change| {
            let runs = |row: &&Row| row.job.status.is_in_flight() && row.job.execution_id == Some(change.execution);
            match state.row(change.job).filter(runs).map(|row| row.seq) {
                Some(seq) => state.change(seq, |row| row.reassign(change)),
                None => Reassigned::Over,
            }
        });
        Ok(reassigned.collect())
    }

    async fn in_flight(&self, filter: InFlightFilter, after: Option<JobId>, limit: usize) -> Result<Vec<InFlight>> {
        let state = self.state();
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let rows = state.indexes.in_flight.range((from, Bound::Unbounded)).filter_map(|id| state.row(*id));
        let executions: HashSet<&ExecutionId> = filter.executions.iter().collect();
        let is_named = |run: &InFlight| executions.is_empty() || executions.contains(&run.execution);
        let runs = rows.filter_map(Row::in_flight).filter(|run| is_named(run) && matches(run, &filter));
        Ok(runs.take(limit).collect())
    }

    async fn holders(&self) -> Result<Holders> {
        let state = self.state();
        let (mut workers, mut owners) = (BTreeSet::new(), BTreeSet::new());
        for run in state.indexes.in_flight.iter().filter_map(|id| state.row(*id)?.in_flight()) {
            workers.extend(run.worker);
            owners.extend(run.owner);
        }
        Ok(Holders { workers: workers.into_iter().collect(), owners: owners.into_iter().collect() })
    }

    async fn overdue(&self, now: Timestamp, limit: usize) -> Result<Overdue> {
        let state = self.state();
        let mut deadlines = state.indexes.deadlines.iter().peekable();
        let mut runs = Vec::new();
        while runs.len() < limit
            && let Some((at, seq)) = deadlines.next_if(|(at, _)| *at <= now)
        {
            let run = state.rows.get(seq).and_then(Row::in_flight);
            runs.extend(run.map(|run| InFlight { deadline: Some(*at), ..run }));
        }
        Ok(Overdue { runs, next_at: deadlines.next().map(|(at, _)| *at) })
    }

    async fn uncleaned(&self, before: Timestamp, limit: usize) -> Result<Vec<JobId>> {
        let state = self.state();
        let ended = state.indexes.uncleaned.iter().take_while(|(at, _)| *at < before).take(limit);
        Ok(ended.filter_map(|(_, seq)| state.rows.get(seq)).map(|row| row.job.id).collect())
    }

    async fn mark_cleaned(&self, fence: Fence, before: Timestamp, ids: &[JobId]) -> Result<Vec<JobId>> {
        let mut state = self.fenced(fence, "mark_cleaned")?;
        let mut marked = Vec::new();
        for id in ids {
            let has_ended = |job: &Job| !job.status.is_live() && job.completed_at.is_some_and(|at| at < before);
            let is_due = |job: &Job| has_ended(job) && !job.channels_cleaned;
            let due = state.row(*id).filter(|row| is_due(&row.job)).map(|row| row.seq);
            if let Some(seq) = due {
                state.change(seq, |row| row.job.channels_cleaned = true);
                marked.push(*id);
            }
        }
        Ok(marked)
    }

    async fn expire(&self, fence: Fence, cutoffs: Cutoffs, rows_max: usize) -> Result<Expired> {
        let mut state = self.fenced(fence, "expire")?;
        let kinds =
            [(Kind::Completed, cutoffs.completed), (Kind::Cancelled, cutoffs.cancelled), (Kind::Dead, cutoffs.dead)];
        let ended = kinds.into_iter().flat_map(|(kind, cutoff)| {
            let range = (kind, Timestamp::MIN, 0)..(kind, cutoff, 0);
            state.indexes.expiring.range(range).map(|(_, _, seq)| *seq)
        });
        let ended: Vec<u64> = ended.take(rows_max.saturating_add(1)).collect();
        let slice = retention::slice(ended.iter().filter_map(|seq| state.rows.get(seq)).map(Row::rows), rows_max);
        let (whole, rest) = ended.split_at(slice.jobs);
        whole.iter().for_each(|seq| state.delete(*seq));
        if let Some(next) = rest.first() {
            state.change(*next, |row| row.trim_logs(slice.log_lines));
        }
        Ok(Expired { jobs: whole.len() as u64, more: !rest.is_empty() })
    }
}

/// Compares all but its execution.
fn matches(run: &InFlight, filter: &InFlightFilter) -> bool {
    let unclaimed = |before| run.status == Status::Dispatched && run.worker.is_none() && run.dispatched_at < before;
    filter.worker.as_ref().is_none_or(|worker| run.worker.as_ref() == Some(worker))
        && filter.owner.as_ref().is_none_or(|owner| run.owner.as_ref() == Some(owner))
        && (!filter.without_worker || run.worker.is_none())
        && filter.unclaimed_before.is_none_or(unclaimed)
        && filter.unowned_before.is_none_or(|before| run.owner.is_none() && run.dispatched_at < before)
        && (!filter.moving || matches!(run.ownership, Ownership::HandingOff | Ownership::OrphanPending))
}

impl State {
    fn promote(&mut self, now: Timestamp, limit: usize) -> Promoted {
        let due = self.indexes.scheduled.iter().take_while(|(at, _)| *at <= now).take(limit);
        let due: Vec<u64> = due.map(|(_, seq)| *seq).collect();
        let mut queues = BTreeSet::new();
        for seq in &due {
            queues.insert(self.change(*seq, |row| {
                row.become_status(Status::Pending);
                row.job.definition.queue.clone()
            }));
        }
        Promoted {
            count: due.len(),
            queues: queues.into_iter().collect(),
            next_due_at: self.indexes.scheduled.first().map(|(at, _)| *at),
        }
    }

    /// Returns the runs, and whether the budget ended before the window was full.
    fn dispatch(
        &mut self,
        window: &Window,
        executions: &mut impl Iterator<Item = ExecutionId>,
        choice: &mut Choice,
        now: Timestamp,
        epoch: Epoch,
    ) -> (Vec<Dispatch>, bool) {
        let Some(settings) = self.queues.get(&window.queue) else { return (Vec::new(), false) };
        let room = Room {
            paused: settings.paused,
            concurrency: settings.concurrency.map(u64::from),
            in_flight: self.indexes.counts(&window.queue).in_flight(),
        };
        let mut choice = choice.window(room, window.limit);
        let pending: Vec<u64> = self.indexes.pending(&window.queue).take(choice.most()).collect();
        let args_bytes = |seq: &u64| self.rows.get(seq).map_or(0, |row| row.job.definition.args.as_str().len());
        let taken: Vec<u64> = pending.into_iter().take_while(|seq| choice.takes(args_bytes(seq))).collect();
        let is_cut = choice.is_cut();
        let mut runs = Vec::with_capacity(taken.len());
        for ((seq, execution), owner) in taken.into_iter().zip(executions).zip(window.owner_of_each()) {
            runs.push(self.change(seq, |row| dispatch_row(row, execution, owner, now, epoch)));
        }
        if let Some(kept) = window.metered
            && !runs.is_empty()
            && let Some(settings) = self.queues.get_mut(&window.queue)
        {
            settings.grant(now, runs.len() as u32, kept);
        }
        (runs, is_cut)
    }

    fn record(&mut self, report: &RunReport, source: Source) -> Recorded {
        let Some(seq) = self.row(report.job).map(|row| row.seq) else { return Recorded::Stale };
        self.change(seq, |row| row.record(report, source))
    }
}

fn dispatch_row(
    row: &mut Row,
    execution: ExecutionId,
    owner: Option<&NodeId>,
    now: Timestamp,
    epoch: Epoch,
) -> Dispatch {
    row.become_status(Status::Dispatched);
    row.set_attempt(row.job.attempt + 1);
    row.job.execution_id = Some(execution);
    row.job.dispatched_at = Some(now);
    if let Some(owner) = owner {
        row.job.owner_node = Some(owner.clone());
        row.job.ownership = Ownership::Owned;
    }
    let job = &row.job;
    Dispatch {
        v: V1,
        job_id: job.id,
        execution_id: execution,
        input: job.definition.input(job.definition.args.clone()),
        attempt: job.attempt,
        epoch,
        rate_limit: None,
    }
}
