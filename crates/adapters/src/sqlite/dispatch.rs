//! From pending to dispatched.
//!
//! Each priority of a queue is a range of one index, in the order in which it is to be served. The ranges are walked side by
//! side, always on from the one whose head ranks first, so that a batch reads about as many entries as it takes, however
//! many wait and however they are spread over the priorities.

use std::time::Duration;

use convoke_core::election::Fence;
use convoke_core::jobs::wire::{Dispatch, V1};
use convoke_core::jobs::{Priority, RunInput, Status};
use convoke_core::limits::DISPATCH_BYTES_MAX;
use convoke_core::ports::store::{DispatchOrder, Dispatched, QueueDispatch, Window};
use convoke_core::{ByteBudget, ExecutionId};
use jiff::Timestamp;
use rusqlite::{Connection, Rows, params};

use super::books::{Ledger, QueueId};
use super::epoch;
use super::failure::Result;
use super::rows::{duration_option, job_id, json, micros, number};

/// One text for each priority, so that the four statements are cached side by side.
const PENDING: [&str; Priority::ALL.len()] = [
    include_str!("sql/pending_low.sql"),
    include_str!("sql/pending_normal.sql"),
    include_str!("sql/pending_high.sql"),
    include_str!("sql/pending_critical.sql"),
];

pub(super) fn dispatch(ledger: &mut Ledger<'_>, fence: Fence, order: &DispatchOrder) -> Result<Dispatched> {
    epoch::hold(ledger, fence, "dispatch")?;
    let mut answer = Dispatched::default();
    let mut executions = order.executions.as_slice();
    let mut budget = ByteBudget::new(DISPATCH_BYTES_MAX);
    for window in &order.windows {
        let Some(queue) = ledger.books.find_queue(&window.queue) else {
            answer.queues.push(QueueDispatch { queue: window.queue.clone(), taken: 0, pending: 0, is_cut: false });
            continue;
        };
        let room = room(ledger, queue, window).min(executions.len());
        let chosen = choose(ledger.db, queue, room)?;
        let taken = give_out(ledger, fence, queue, order.now, (&chosen, executions), &mut budget, &mut answer.runs)?;
        executions = &executions[taken..];
        if let Some(kept) = window.metered.filter(|_| taken > 0) {
            note_grant(ledger, queue, order.now, taken, kept)?;
        }
        let pending = ledger.books.queue(queue).count(Status::Pending);
        let is_cut = taken < chosen.len();
        answer.queues.push(QueueDispatch { queue: window.queue.clone(), taken, pending, is_cut });
    }
    Ok(answer)
}

/// How many jobs the queue may be given now.
fn room(ledger: &Ledger<'_>, queue: QueueId, window: &Window) -> usize {
    let entry = ledger.books.queue(queue);
    if entry.paused || entry.count(Status::Pending) == 0 {
        return 0;
    }
    let free = entry.concurrency.map_or(u64::MAX, |limit| limit.saturating_sub(entry.in_flight()));
    window.limit.min(usize::try_from(free).unwrap_or(usize::MAX))
}

/// The head of one priority's range: its rank, then its row.
type Head = (i64, i64);

/// The rows to serve next, at most `room`, by rank.
fn choose(db: &Connection, queue: QueueId, room: usize) -> Result<Vec<i64>> {
    let mut chosen = Vec::with_capacity(room.min(1 << 16));
    if room == 0 {
        return Ok(chosen);
    }
    let mut statements = Vec::with_capacity(PENDING.len());
    for text in PENDING {
        statements.push(db.prepare_cached(text)?);
    }
    let mut ranges: Vec<(Priority, Rows<'_>, Option<Head>)> = Vec::with_capacity(PENDING.len());
    for (priority, statement) in Priority::ALL.into_iter().zip(&mut statements) {
        let mut rows = statement.query(params![queue.0])?;
        let head = next(&mut rows, priority)?;
        if head.is_some() {
            ranges.push((priority, rows, head));
        }
    }
    while chosen.len() < room {
        let first = ranges.iter_mut().filter(|range| range.2.is_some()).min_by_key(|range| range.2);
        let Some((priority, rows, head)) = first else { break };
        chosen.extend(head.map(|(_, seq)| seq));
        *head = next(rows, *priority)?;
    }
    Ok(chosen)
}

fn next(rows: &mut Rows<'_>, priority: Priority) -> Result<Option<Head>> {
    match rows.next()? {
        Some(row) => Ok(Some((priority.rank(super::rows::instant(row, 1)?), row.get(0)?))),
        None => Ok(None),
    }
}

/// Dispatches the chosen jobs in order, each under the execution at its place, until the budget is used up. Returns how many.
fn give_out(
    ledger: &mut Ledger<'_>,
    fence: Fence,
    queue: QueueId,
    now: Timestamp,
    (chosen, executions): (&[i64], &[ExecutionId]),
    budget: &mut ByteBudget,
    runs: &mut Vec<Dispatch>,
) -> Result<usize> {
    let db = ledger.db;
    let name = ledger.books.queue(queue).name.clone();
    // Reading first and writing then costs less than a write that returns what it wrote.
    let mut read = db.prepare_cached(include_str!("sql/pending_job.sql"))?;
    let mut write = db.prepare_cached(include_str!("sql/dispatch.sql"))?;
    runs.reserve(chosen.len());
    for (taken, (seq, execution)) in chosen.iter().zip(executions).enumerate() {
        let mut rows = read.query([seq])?;
        if let Some(row) = rows.next()? {
            let args = json(row, 2)?;
            if !budget.admits(args.as_str().len()) {
                return Ok(taken);
            }
            write.execute(params![seq, execution.0.as_bytes(), micros(now)])?;
            runs.push(Dispatch {
                v: V1,
                job_id: job_id(row, 0)?,
                execution_id: *execution,
                input: RunInput {
                    job_type: ledger.books.job_type(db, row.get(1)?)?,
                    queue: name.clone(),
                    args,
                    max_retries: number(row, 4)?,
                    timeout: duration_option(row, 5)?,
                    correlation_id: row.get(6)?,
                },
                attempt: number(row, 3)?,
                epoch: fence.epoch(),
                rate_limit: None,
            });
            ledger.books.moved(queue, Some(Status::Pending), Some(Status::Dispatched));
        }
    }
    Ok(chosen.len().min(executions.len()))
}

/// Records what was granted, and forgets what is older than `kept`.
fn note_grant(ledger: &Ledger<'_>, queue: QueueId, now: Timestamp, count: usize, kept: Duration) -> Result<()> {
    let kept = i64::try_from(kept.as_micros()).unwrap_or(i64::MAX);
    let insert = "insert into grants (queue_id, at, count) values (?1, ?2, ?3)";
    ledger.db.prepare_cached(insert)?.execute(params![queue.0, micros(now), count as i64])?;
    let forget = "delete from grants where queue_id = ?1 and at < ?2";
    ledger.db.prepare_cached(forget)?.execute(params![queue.0, micros(now).saturating_sub(kept)])?;
    Ok(())
}
