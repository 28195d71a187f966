//! From pending to dispatched: one statement for all windows.
//!
//! The statement compares the fence, chooses by rank within what each queue has room for, takes the chosen out of those that
//! wait and makes runs of them. It touches no job's own row.
//!
//! One connection serves it, one order after the other: a queue's concurrency is read and used up in one statement, and no
//! other order can come between.

use std::collections::{HashMap, HashSet, VecDeque};

use async_trait::async_trait;
use convoke_core::election::Fence;
use convoke_core::jobs::Priority;
use convoke_core::jobs::wire::{Dispatch, V1};
use convoke_core::ports::store::{DispatchOrder, Dispatched, QueueDispatch};
use convoke_core::{Error, QueueName};
use std::sync::Arc;
use tokio_postgres::Row;
use uuid::Uuid;

use super::failure::{self, Failure};
use super::lane::Work;
use super::names::{self, Names};
use super::rows::{code, duration_option, execution_id, get, instant, job_id, json, limit, micros, small};
use super::server::Hot;

pub(super) struct DispatchWork {
    pub(super) names: Arc<Names>,
}

pub(super) struct Order {
    pub(super) fence: Fence,
    pub(super) order: DispatchOrder,
}

#[async_trait]
impl Work for DispatchWork {
    type Item = Order;
    type Answer = Dispatched;

    /// An order is a transaction of its own.
    fn weight(_: &Order) -> usize {
        usize::MAX / 2
    }

    async fn run(&self, hot: &mut Hot, orders: &[Order]) -> failure::Result<Vec<Dispatched>> {
        let mut answers = Vec::with_capacity(orders.len());
        for Order { fence, order } in orders {
            answers.push(dispatch(hot, &self.names, *fence, order).await?);
        }
        Ok(answers)
    }
}

/// A window whose queue is known: its place in the order, and the queue.
type Known = (usize, i32);

async fn dispatch(hot: &mut Hot, names: &Names, fence: Fence, order: &DispatchOrder) -> failure::Result<Dispatched> {
    let epoch = epoch(fence)?;
    names.queues.learn(&hot.client, order.windows.iter().map(|window| window.queue.clone())).await?;
    let none = |queue: &QueueName| QueueDispatch { queue: queue.clone(), taken: 0, pending: 0 };
    let mut answer =
        Dispatched { runs: Vec::new(), queues: order.windows.iter().map(|window| none(&window.queue)).collect() };
    let rounds = rounds(names, order);
    let Some(last) = rounds.len().checked_sub(1) else {
        let statement = hot.prepared(include_str!("sql/fence.sql")).await?;
        return hot.client.query_opt(&statement, &[&epoch]).await?.map(|_| answer).ok_or_else(fenced);
    };
    // One round, which is nearly always all there is, commits by itself.
    if last > 0 {
        hot.client.batch_execute("begin").await?;
    }
    let mut executions = order.executions.as_slice();
    for round in &rounds {
        let taken = serve(hot, names, fence, order, round, executions, &mut answer).await?;
        executions = &executions[taken.min(executions.len())..];
    }
    if last > 0 {
        hot.client.batch_execute("commit").await.map_err(Failure::of_commit)?;
    }
    Ok(answer)
}

fn fenced() -> Failure {
    Error::Fenced { what: "dispatch" }.into()
}

fn epoch(fence: Fence) -> failure::Result<i64> {
    i64::try_from(fence.epoch().0).map_err(|_| fenced())
}

/// Windows of known queues, a queue at most once in each round.
fn rounds(names: &Names, order: &DispatchOrder) -> Vec<Vec<Known>> {
    let known = order.windows.iter().enumerate();
    let mut left: VecDeque<Known> =
        known.filter_map(|(at, window)| Some((at, names.queues.id(&window.queue)?))).collect();
    let mut rounds = Vec::new();
    while !left.is_empty() {
        let mut seen = HashSet::new();
        // From the first queue that comes again on, everything waits: windows are served in order.
        let until = left.iter().position(|(_, queue)| !seen.insert(*queue)).unwrap_or(left.len());
        rounds.push(left.drain(..until).collect());
    }
    rounds
}

async fn serve(
    hot: &mut Hot,
    names: &Names,
    fence: Fence,
    order: &DispatchOrder,
    round: &[Known],
    executions: &[convoke_core::ExecutionId],
    answer: &mut Dispatched,
) -> failure::Result<usize> {
    let statement = hot.prepared(include_str!("sql/dispatch.sql")).await?;
    let windows = || round.iter().map(|(at, _)| &order.windows[*at]);
    let queues: Vec<i32> = round.iter().map(|(_, queue)| *queue).collect();
    let limits: Vec<i64> = windows().map(|window| limit(window.limit)).collect();
    let metered: Vec<bool> = windows().map(|window| window.metered).collect();
    let most = windows().map(|window| window.limit).fold(0, usize::saturating_add).min(executions.len());
    let given: Vec<Uuid> = executions[..most].iter().map(|execution| execution.0).collect();
    let (epoch, now) = (epoch(fence)?, micros(order.now));
    let params: [&(dyn tokio_postgres::types::ToSql + Sync); 7] =
        [&epoch, &queues, &limits, &metered, &given, &now, &hot.slot];
    let rows = hot.client.query(&statement, &params).await.map_err(Failure::of_commit)?;
    if rows.is_empty() {
        return Err(fenced());
    }
    let mut types: Vec<i32> = Vec::new();
    for row in &rows {
        types.extend(get::<Option<i32>>(row, 4)?);
    }
    let types = names.types.named(&hot.client, &types).await?;
    let mut ranked = Vec::with_capacity(rows.len());
    for row in &rows {
        let place = usize::try_from(get::<i64>(row, 0)?).unwrap_or(1).saturating_sub(1);
        let Some((window, _)) = round.get(place) else { continue };
        let told = &mut answer.queues[*window];
        told.pending = u64::try_from(get::<i64>(row, 1)?).unwrap_or(0);
        if get::<Option<Uuid>>(row, 2)?.is_some() {
            told.taken += 1;
            ranked.push((*window, rank(row)?, read_run(row, fence, &types, &told.queue)?));
        }
    }
    for (window, _) in round {
        let told = &mut answer.queues[*window];
        told.pending = told.pending.saturating_sub(told.taken as u64);
    }
    let taken = ranked.len();
    ranked.sort_by_key(|(window, rank, _)| (*window, *rank));
    answer.runs.extend(ranked.into_iter().map(|(_, _, run)| run));
    Ok(taken)
}

/// Whom to serve first, and among equals who came first.
fn rank(row: &Row) -> failure::Result<(i64, i64)> {
    let priority = code(row, 5, Priority::from_code)?;
    Ok((priority.rank(instant(row, 6)?), get(row, 7)?))
}

fn read_run(
    row: &Row,
    fence: Fence,
    types: &HashMap<i32, convoke_core::JobType>,
    queue: &QueueName,
) -> failure::Result<Dispatch> {
    Ok(Dispatch {
        v: V1,
        job_id: job_id(row, 2)?,
        execution_id: execution_id(row, 3)?,
        job_type: names::of(types, get(row, 4)?)?,
        queue: queue.clone(),
        args: json(row, 12)?,
        attempt: small(row, 8)?,
        max_retries: small(row, 9)?,
        timeout: duration_option(row, 10)?,
        correlation_id: get(row, 11)?,
        epoch: fence.epoch(),
    })
}
