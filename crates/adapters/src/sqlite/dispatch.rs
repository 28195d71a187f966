//! From pending to dispatched.
//!
//! The pending jobs of a queue are one range of an index, in the order of dispatch. A batch reads as many entries as it
//! takes, however many wait.

use std::time::Duration;

use convoke_core::election::Fence;
use convoke_core::jobs::dispatch::{Choice, WindowChoice};
use convoke_core::jobs::wire::{Dispatch, V1};
use convoke_core::jobs::{Documents, Ownership, Status};
use convoke_core::ports::store::{DispatchOrder, Dispatched, QueueDispatch, UnreadableRun};
use convoke_core::{ExecutionId, Json, NodeId};
use jiff::Timestamp;
use rusqlite::params;

use super::catalog::{QueueId, WriteTx};
use super::columns::columns;
use super::epoch;
use super::failure::Result;
use super::rows::{duration_micros, get, micros, read_document};
use crate::statement::sql;

columns!(PENDING: PendingColumns { seq, id, attempt, document, args });

pub(super) fn dispatch(tx: &mut WriteTx<'_>, fence: Fence, order: &DispatchOrder) -> Result<Dispatched> {
    epoch::hold(tx, fence, "dispatch")?;
    let mut dispatched = Dispatched::default();
    let mut choice = Choice::new(order.executions.len());
    for window in &order.windows {
        let (mut taken, mut pending, mut is_cut) = (0, 0, false);
        if let Some(queue) = tx.catalog.find_queue(&window.queue) {
            let executions = &order.executions[dispatched.runs.len()..];
            let first = dispatched.runs.len();
            let mut choice = choice.window(tx.catalog.room(queue), window.limit);
            let seats: Vec<Seat<'_>> = executions.iter().zip(window.owner_of_each()).take(choice.most()).collect();
            take(tx, fence, queue, order.now, &seats, &mut choice, &mut dispatched)?;
            is_cut = choice.is_cut();
            taken = dispatched.runs.len() - first;
            if let Some(kept) = window.metered.filter(|_| taken > 0) {
                record_grant(tx, queue, order.now, taken, kept)?;
            }
            pending = tx.catalog.queue(queue).counts.get(Status::Pending);
        }
        dispatched.queues.push(QueueDispatch { queue: window.queue.clone(), taken, pending, is_cut });
    }
    Ok(dispatched)
}

/// The id of a run to be made, and its owner.
type Seat<'o> = (&'o ExecutionId, Option<&'o NodeId>);

/// Dispatches the first jobs of the queue that are chosen, each under the execution at its place.
fn take(
    tx: &mut WriteTx<'_>,
    fence: Fence,
    queue: QueueId,
    now: Timestamp,
    seats: &[Seat<'_>],
    choice: &mut WindowChoice<'_>,
    dispatched: &mut Dispatched,
) -> Result<()> {
    let waiting = tx.catalog.queue(queue).counts.get(Status::Pending);
    let most = seats.len().min(usize::try_from(waiting).unwrap_or(usize::MAX));
    if most == 0 {
        return Ok(());
    }
    let text = sql!(include_str!("sql/pending.sql"), columns = PENDING.list);
    let mut read = tx.db.prepare_cached(text)?;
    let mut rows = read.query(params![queue.0, most as i64])?;
    let mut taken = Vec::with_capacity(most);
    let mut documents = Documents::default();
    dispatched.runs.reserve(most);
    // All are read before the first is written: a write removes its job from the range.
    for &(execution, owner) in seats {
        let Some(row) = rows.next()? else { break };
        let args: rusqlite::Result<Json> = get(row, PENDING.args);
        let read = read_document(&mut documents, row, PENDING.document)?;
        let error = read.error.clone().map(|error| format!("the definition cannot be read: {error}"));
        let error = error.or(args.as_ref().err().map(|error| format!("the arguments cannot be read: {error}")));
        let args = args.unwrap_or_else(|_| Json::null());
        if !choice.takes(args.as_str().len()) {
            break;
        }
        taken.push((get::<i64>(row, PENDING.seq)?, execution, owner));
        let job = get(row, PENDING.id)?;
        dispatched.unreadable.extend(error.map(|error| UnreadableRun { job, execution: *execution, error }));
        dispatched.runs.push(Dispatch {
            v: V1,
            job_id: job,
            execution_id: *execution,
            input: read.definition.input(args),
            attempt: get::<u32>(row, PENDING.attempt)?.saturating_add(1),
            epoch: fence.epoch(),
            rate_limit: None,
        });
    }
    drop(rows);
    let mut write = tx.db.prepare_cached(sql!("update jobs
         set state = {dispatched}, execution_id = ?2, attempt = attempt + 1, dispatched_at = ?3, run_log_next = 0, run_log_kept = 0,
             owner = ?4, ownership = ?5
         where seq = ?1 and state = {pending}"))?;
    for (seq, execution, owner) in taken {
        let ownership = if owner.is_some() { Ownership::Owned } else { Ownership::Unowned };
        let owner = owner.map(NodeId::as_str);
        write.execute(params![seq, execution.0.as_bytes(), micros(now), owner, ownership.code()])?;
        tx.catalog.moved(queue, Some(Status::Pending), Some(Status::Dispatched));
    }
    Ok(())
}

/// Records a grant, and deletes grants older than `kept`.
fn record_grant(tx: &WriteTx<'_>, queue: QueueId, now: Timestamp, count: usize, kept: Duration) -> Result<()> {
    let insert = "insert into grants (queue_id, at, count) values (?1, ?2, ?3)";
    tx.db.prepare_cached(insert)?.execute(params![queue.0, micros(now), count as i64])?;
    let forget = "delete from grants where queue_id = ?1 and at < ?2";
    tx.db.prepare_cached(forget)?.execute(params![queue.0, micros(now).saturating_sub(duration_micros(kept))])?;
    Ok(())
}
