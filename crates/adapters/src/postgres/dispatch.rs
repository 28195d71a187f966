//! From pending to dispatched: one statement for all windows.
//!
//! The statement compares the fence, takes the first jobs of each queue's range within the room of the queue, deletes
//! them from the waiting jobs and makes runs of them, many in a row. It does not touch the rows of the jobs.
//!
//! One connection serves the orders one after the other: a queue's concurrency is read and used up in one statement,
//! and no other order can come between.

use std::collections::HashSet;
use std::time::Instant;

use async_trait::async_trait;
use convoke_core::election::Fence;
use convoke_core::jobs::Documents;
use convoke_core::jobs::wire::{Dispatch, V1};
use convoke_core::limits::DISPATCH_BYTES_MAX;
use convoke_core::ports::store::{DispatchOrder, Dispatched, QueueDispatch, UnreadableRun, Window};
use convoke_core::{Error, JobId, Json};
use parking_lot::Mutex;
use tokio_postgres::Row;
use uuid::Uuid;

use super::failure::{self, Failure};
use super::floors::{self, Floors};
use super::lane::Work;
use super::rows::{duration_micros, execution_id, get, micros, number, places, small, wide};
use super::server::Hot;
use super::sql::{Column, column, params};
use crate::statement::sql;

#[derive(Default)]
pub(super) struct DispatchWork {
    floors: Mutex<Floors>,
}

pub(super) struct Order {
    pub(super) fence: Fence,
    pub(super) order: DispatchOrder,
}

#[async_trait]
impl Work for DispatchWork {
    type Item = Order;
    type Output = Dispatched;

    /// Each order is a transaction of its own.
    fn weight(_: &Order) -> usize {
        usize::MAX / 2
    }

    async fn run(&self, hot: &mut Hot, orders: &[Order]) -> failure::Result<Vec<Dispatched>> {
        let mut answers = Vec::with_capacity(orders.len());
        for Order { fence, order } in orders {
            answers.push(self.dispatch(hot, *fence, order).await?);
        }
        Ok(answers)
    }
}

pub(super) fn dispatch_sql() -> &'static str {
    sql!(include_str!("sql/dispatch.sql"))
}

places!(Taken { ord, pending, is_cut, id, execution, rank, seq, attempt, document, args });

impl DispatchWork {
    async fn dispatch(&self, hot: &mut Hot, fence: Fence, order: &DispatchOrder) -> failure::Result<Dispatched> {
        let mut answer = Dispatched::default();
        let rounds = rounds(&order.windows);
        // A single round, the usual case, commits by itself.
        let is_one = rounds.len() == 1;
        if !is_one {
            hot.client.batch_execute("begin").await?;
        }
        for windows in rounds {
            self.serve(hot, fence, order, windows, &mut answer).await?;
        }
        if !is_one {
            hot.client.batch_execute("commit").await.map_err(Failure::of_commit)?;
        }
        Ok(answer)
    }

    /// Serves windows of different queues with one statement.
    async fn serve(
        &self,
        hot: &mut Hot,
        fence: Fence,
        order: &DispatchOrder,
        windows: &[Window],
        answer: &mut Dispatched,
    ) -> failure::Result<()> {
        let asked = Instant::now();
        let floors: Vec<i64> = {
            let floors = self.floors.lock();
            windows.iter().map(|window| floors.of(&window.queue, asked)).collect()
        };
        let (column, rows) = take(hot, fence, order, windows, &floors, answer).await?;
        let elapsed = asked.elapsed();
        let none = |window: &Window| QueueDispatch { queue: window.queue.clone(), taken: 0, pending: 0, is_cut: false };
        let mut queues: Vec<QueueDispatch> = windows.iter().map(none).collect();
        let mut highest = vec![floors::NONE; windows.len()];
        let mut ranked = Vec::with_capacity(rows.len());
        let mut documents = Documents::default();
        for row in &rows {
            // A window of an unknown queue has no row.
            let Some(place) = get::<Option<i64>>(row, column.ord)? else { continue };
            let place = usize::try_from(place - 1).unwrap_or(usize::MAX);
            let Some(reported) = queues.get_mut(place) else { continue };
            let Some(id) = get::<Option<Uuid>>(row, column.id)? else {
                reported.pending = number::<i64>(row, column.pending)?.try_into().unwrap_or(0);
                reported.is_cut = get(row, column.is_cut)?;
                continue;
            };
            let rank: i64 = get(row, column.rank)?;
            reported.taken += 1;
            highest[place] = highest[place].max(rank);
            let (job, execution) = (JobId(id), execution_id(row, column.execution)?);
            let args = Json::parse(get(row, column.args)?);
            let read = documents.read(get(row, column.document)?);
            let error = read.error.clone().map(|error| format!("the definition cannot be read: {error}"));
            let error = error.or(args.as_ref().err().map(|error| format!("the arguments cannot be read: {error}")));
            answer.unreadable.extend(error.map(|error| UnreadableRun { job, execution, error }));
            let run = Dispatch {
                v: V1,
                job_id: job,
                execution_id: execution,
                input: read.definition.input(args.unwrap_or_else(|_| Json::null())),
                attempt: small(row, column.attempt)?,
                epoch: fence.epoch(),
                rate_limit: None,
            };
            ranked.push(((place, rank, get::<i64>(row, column.seq)?), run));
        }
        let now = Instant::now();
        for ((reported, floor), highest) in queues.iter_mut().zip(floors).zip(highest) {
            reported.pending = reported.pending.saturating_sub(reported.taken as u64);
            self.floors.lock().served(&reported.queue, floor, highest, ranked.len(), elapsed, now);
        }
        // By the order of dispatch, then by the order of arrival.
        ranked.sort_by_key(|(place, _)| *place);
        answer.runs.extend(ranked.into_iter().map(|(_, run)| run));
        answer.queues.extend(queues);
        Ok(())
    }
}

/// Takes jobs within the executions and bytes that are left of the order after `answer`.
async fn take(
    hot: &mut Hot,
    fence: Fence,
    order: &DispatchOrder,
    windows: &[Window],
    floors: &[i64],
    answer: &Dispatched,
) -> failure::Result<(Taken, Vec<Row>)> {
    let fenced = || Failure::from(Error::Fenced { what: "dispatch" });
    let epoch = i64::try_from(fence.epoch().0).map_err(|_| fenced())?;
    let statement = hot.prepared(dispatch_sql()).await?;
    let left = &order.executions[answer.runs.len().min(order.executions.len())..];
    let most = windows.iter().map(|window| window.limit).fold(0, usize::saturating_add).min(left.len());
    let used: usize = answer.runs.iter().map(|run| run.input.args.as_str().len()).sum();
    let (ends, owners) = shares(windows);
    let columns: [Column<'_>; 11] = [
        Box::new(epoch),
        column(windows, |window| window.queue.as_str()),
        column(windows, |window| wide(window.limit)),
        column(windows, |window| window.metered.map(duration_micros)),
        column(&left[..most], |execution| execution.0),
        Box::new(micros(order.now)),
        Box::new(hot.slot),
        column(floors, |floor| *floor),
        Box::new(wide(DISPATCH_BYTES_MAX.saturating_sub(used))),
        Box::new(ends),
        Box::new(owners),
    ];
    let rows = hot.client.query(&statement, &params(&columns)).await.map_err(Failure::of_commit)?;
    if rows.is_empty() { Err(fenced()) } else { Ok((Taken::of(&statement)?, rows)) }
}

/// Returns the ends of the owners' shares and the owners, the last of each window without one. An end is the number of
/// the window and that of the first run behind the share, so that the ends of all windows are in one order.
fn shares(windows: &[Window]) -> (Vec<i64>, Vec<Option<&str>>) {
    const NUMBER: i64 = 1 << 32;
    let (mut ends, mut owners) = (Vec::new(), Vec::new());
    for (ord, window) in (1..).zip(windows) {
        let mut end = 0;
        for share in &window.owners {
            end = wide(share.runs).saturating_add(end).min(NUMBER - 1);
            ends.push(ord * NUMBER + end);
            owners.push(Some(share.node.as_str()));
        }
        ends.push((ord + 1) * NUMBER);
        owners.push(None);
    }
    (ends, owners)
}

/// Divides windows into rounds, in order, a queue at most once in each. At least one round, which compares the fence.
fn rounds(windows: &[Window]) -> Vec<&[Window]> {
    let mut rounds = Vec::new();
    let mut left = windows;
    loop {
        let mut seen = HashSet::new();
        // From the first repeated queue on, all windows wait for the next round: windows are served in order.
        let until = left.iter().position(|window| !seen.insert(&window.queue)).unwrap_or(left.len());
        let (round, rest) = left.split_at(until);
        rounds.push(round);
        left = rest;
        if left.is_empty() {
            return rounds;
        }
    }
}
