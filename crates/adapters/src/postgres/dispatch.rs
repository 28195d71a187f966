//! From pending to dispatched: one statement for all windows.
//!
//! The statement compares the fence, chooses by rank within what each queue has room for, takes the chosen out of those that
//! wait and makes runs of them. It touches no job's own row.
//!
//! One connection serves it, one order after the other: a queue's concurrency is read and used up in one statement, and no
//! other order can come between.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use convoke_core::election::Fence;
use convoke_core::jobs::wire::{Dispatch, V1};
use convoke_core::jobs::{Priority, RunInput};
use convoke_core::limits::DISPATCH_BYTES_MAX;
use convoke_core::ports::store::{DispatchOrder, Dispatched, QueueDispatch};
use convoke_core::{Error, ExecutionId, JobType, QueueName};
use parking_lot::Mutex;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::failure::{self, Failure};
use super::floors::{self, Floor, Floors};
use super::lane::Work;
use super::names::{self, Named, Names};
use super::rows::{
    code, duration_micros, duration_option, execution_id, get, instant, job_id, json, limit, micros, small,
};
use super::server::Hot;

pub(super) struct DispatchWork {
    names: Arc<Names>,
    floors: Mutex<Floors>,
}

impl DispatchWork {
    pub(super) fn new(names: Arc<Names>) -> Self {
        DispatchWork { names, floors: Mutex::default() }
    }
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
            answers.push(self.dispatch(hot, *fence, order).await?);
        }
        Ok(answers)
    }
}

/// A window whose queue is known: its place in the order, and the queue.
type Known = (usize, i32);

impl DispatchWork {
    async fn dispatch(&self, hot: &mut Hot, fence: Fence, order: &DispatchOrder) -> failure::Result<Dispatched> {
        let names = &*self.names;
        let epoch = epoch(fence)?;
        // A queue that has workers before it has jobs is looked up every time.
        let by_name = hot.prepared(QueueName::BY_NAME).await?;
        names.queues.learn(&hot.client, &by_name, order.windows.iter().map(|window| window.queue.clone())).await?;
        let none = |queue: &QueueName| QueueDispatch { queue: queue.clone(), taken: 0, pending: 0, is_cut: false };
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
            let taken = self.serve(hot, fence, order, round, executions, &mut answer).await?;
            executions = &executions[taken.min(executions.len())..];
        }
        if last > 0 {
            hot.client.batch_execute("commit").await.map_err(Failure::of_commit)?;
        }
        Ok(answer)
    }

    /// One statement. Answers how many were taken.
    async fn serve(
        &self,
        hot: &mut Hot,
        fence: Fence,
        order: &DispatchOrder,
        round: &[Known],
        executions: &[ExecutionId],
        answer: &mut Dispatched,
    ) -> failure::Result<usize> {
        let asked = Instant::now();
        let floors: Vec<Floor> = {
            let floors = self.floors.lock();
            round.iter().map(|(_, queue)| floors.of(*queue, asked)).collect()
        };
        let used: usize = answer.runs.iter().map(|run| run.input.args.as_str().len()).sum();
        let bytes_max = limit(DISPATCH_BYTES_MAX.saturating_sub(used));
        let rows = ask(hot, fence, order, round, executions, (&floors, bytes_max)).await?;
        let elapsed = asked.elapsed();
        let mut types: Vec<i32> = Vec::new();
        for row in &rows {
            types.extend(get::<Option<i32>>(row, 4)?);
        }
        let types = self.names.types.named(&hot.client, &types).await?;
        let mut highest = vec![floors::NONE; round.len()];
        let mut ranked = Vec::with_capacity(rows.len());
        for row in &rows {
            let place = usize::try_from(get::<i64>(row, 0)?).unwrap_or(1).saturating_sub(1);
            let Some((window, _)) = round.get(place) else { continue };
            let told = &mut answer.queues[*window];
            told.pending = u64::try_from(get::<i64>(row, 1)?).unwrap_or(0);
            told.is_cut = get(row, 13)?;
            if get::<Option<Uuid>>(row, 2)?.is_some() {
                told.taken += 1;
                let priority = code(row, 5, Priority::from_code)?;
                let last = &mut highest[place][usize::from(priority.code())];
                *last = get::<i64>(row, 6)?.max(*last);
                let rank = (priority.rank(instant(row, 6)?), get::<i64>(row, 7)?);
                ranked.push((*window, rank, read_run(row, fence, &types, &told.queue)?));
            }
        }
        let now = Instant::now();
        for (((window, queue), floor), highest) in round.iter().zip(floors).zip(highest) {
            let told = &mut answer.queues[*window];
            told.pending = told.pending.saturating_sub(told.taken as u64);
            self.floors.lock().served(*queue, floor, highest, ranked.len(), elapsed, now);
        }
        let taken = ranked.len();
        // Whom to serve first, and among equals who came first.
        ranked.sort_by_key(|(window, rank, _)| (*window, *rank));
        answer.runs.extend(ranked.into_iter().map(|(_, _, run)| run));
        Ok(taken)
    }
}

/// At least one row for each window, unless the fence does not hold.
async fn ask(
    hot: &mut Hot,
    fence: Fence,
    order: &DispatchOrder,
    round: &[Known],
    executions: &[ExecutionId],
    (floors, bytes_max): (&[Floor], i64),
) -> failure::Result<Vec<Row>> {
    let statement = hot.prepared(include_str!("sql/dispatch.sql")).await?;
    let windows = || round.iter().map(|(at, _)| &order.windows[*at]);
    let queues: Vec<i32> = round.iter().map(|(_, queue)| *queue).collect();
    let limits: Vec<i64> = windows().map(|window| limit(window.limit)).collect();
    let metered: Vec<Option<i64>> = windows().map(|window| window.metered.map(duration_micros)).collect();
    let most = windows().map(|window| window.limit).fold(0, usize::saturating_add).min(executions.len());
    let given: Vec<Uuid> = executions[..most].iter().map(|execution| execution.0).collect();
    let (epoch, now) = (epoch(fence)?, micros(order.now));
    let of = |priority: Priority| floors.iter().map(move |floor| floor[usize::from(priority.code())]);
    let [low, normal, high, critical] = Priority::ALL.map(|priority| of(priority).collect::<Vec<i64>>());
    let params: [&(dyn ToSql + Sync); 12] =
        [&epoch, &queues, &limits, &metered, &given, &now, &hot.slot, &low, &normal, &high, &critical, &bytes_max];
    let rows = hot.client.query(&statement, &params).await.map_err(Failure::of_commit)?;
    if rows.is_empty() { Err(fenced()) } else { Ok(rows) }
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

fn read_run(row: &Row, fence: Fence, types: &HashMap<i32, JobType>, queue: &QueueName) -> failure::Result<Dispatch> {
    Ok(Dispatch {
        v: V1,
        job_id: job_id(row, 2)?,
        execution_id: execution_id(row, 3)?,
        input: RunInput {
            job_type: names::of(types, get(row, 4)?)?,
            queue: queue.clone(),
            args: json(row, 12)?,
            max_retries: small(row, 9)?,
            timeout: duration_option(row, 10)?,
            correlation_id: get(row, 11)?,
        },
        attempt: small(row, 8)?,
        epoch: fence.epoch(),
        rate_limit: None,
    })
}
