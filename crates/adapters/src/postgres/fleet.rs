//! Workers and nodes that have been heard of.

use convoke_core::election::Fence;
use convoke_core::jobs::wire::{NodeRole, NodeState, WorkerState};
use convoke_core::ports::store::{NodeRecord, WorkerRecord};
use convoke_core::{Error, NodeId, QueueName, WorkerId};
use deadpool_postgres::Client;
use jiff::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::epoch::{commit, hold};
use super::failure::{Failure, Result};
use super::rows::{code, get, instant, micros, node_id, node_id_option, number, readable, worker_id};

const WORKER_STATES: [WorkerState; 3] = [WorkerState::Active, WorkerState::Draining, WorkerState::Gone];
const NODE_STATES: [NodeState; 5] =
    [NodeState::Active, NodeState::Draining, NodeState::Dead, NodeState::Left, NodeState::Suspect];
const NODE_ROLES: [NodeRole; 2] = [NodeRole::Leader, NodeRole::Follower];

/// The number under which one of `all` is stored.
fn code_of<T: PartialEq>(all: &[T], value: &T) -> i16 {
    all.iter().position(|known| known == value).map_or(-1, |position| position as i16)
}

fn coded<T: Copy>(all: &[T]) -> impl Fn(u8) -> Option<T> + '_ {
    |code| all.get(usize::from(code)).copied()
}

pub(super) async fn beat_workers(db: &Client, workers: &[WorkerRecord]) -> Result<()> {
    // One that is named twice is as it was named last: a statement may not write a row twice.
    let last: std::collections::BTreeMap<&WorkerId, &WorkerRecord> =
        workers.iter().map(|worker| (&worker.worker_id, worker)).collect();
    let workers: Vec<&WorkerRecord> = last.into_values().collect();
    let statement = db.prepare_cached(include_str!("sql/beat_workers.sql")).await?;
    let queues = workers.iter().map(|worker| serde_json::to_string(&worker.queues));
    let queues = queues.collect::<serde_json::Result<Vec<_>>>().map_err(|error| Error::unavailable("store", error))?;
    fn each<'w, T>(workers: &[&'w WorkerRecord], get: impl Fn(&'w WorkerRecord) -> T) -> Vec<T> {
        workers.iter().map(|worker| get(worker)).collect()
    }
    let params: [&(dyn ToSql + Sync); 9] = [
        &each(&workers, |worker| worker.worker_id.as_str()),
        &each(&workers, |worker| readable(&worker.name)),
        &queues,
        &each(&workers, |worker| i64::from(worker.concurrency)),
        &each(&workers, |worker| i64::from(worker.running)),
        &each(&workers, |worker| code_of(&WORKER_STATES, &worker.state)),
        &each(&workers, |worker| micros(worker.registered_at)),
        &each(&workers, |worker| micros(worker.last_heartbeat_at)),
        &each(&workers, |worker| worker.via.as_ref().map(NodeId::as_str)),
    ];
    db.execute(&statement, &params).await.map_err(Failure::of_commit)?;
    Ok(())
}

fn read_worker(row: &Row) -> Result<WorkerRecord> {
    let queues: Vec<QueueName> =
        serde_json::from_str(get(row, 2)?).map_err(|error| Failure::Unreadable(format!("a worker: {error}")))?;
    Ok(WorkerRecord {
        worker_id: worker_id(row, 0)?,
        name: get(row, 1)?,
        queues,
        concurrency: number(row, 3)?,
        running: number(row, 4)?,
        state: code(row, 5, coded(&WORKER_STATES))?,
        registered_at: instant(row, 6)?,
        last_heartbeat_at: instant(row, 7)?,
        via: node_id_option(row, 8)?,
    })
}

pub(super) async fn workers(db: &Client) -> Result<Vec<WorkerRecord>> {
    let statement = db.prepare_cached(include_str!("sql/workers.sql")).await?;
    db.query(&statement, &[]).await?.iter().map(read_worker).collect()
}

pub(super) async fn worker(db: &Client, id: &WorkerId) -> Result<Option<WorkerRecord>> {
    let statement = db.prepare_cached(include_str!("sql/worker.sql")).await?;
    db.query_opt(&statement, &[&id.as_str()]).await?.as_ref().map(read_worker).transpose()
}

pub(super) async fn remove_workers(db: &mut Client, fence: Option<Fence>, ids: &[WorkerId]) -> Result<()> {
    let transaction = db.transaction().await?;
    if let Some(fence) = fence {
        hold(&transaction, fence, "remove_workers").await?;
    }
    let ids: Vec<&str> = ids.iter().map(WorkerId::as_str).collect();
    let statement = transaction.prepare_cached("delete from convoke_workers where id = any ($1)").await?;
    transaction.execute(&statement, &[&ids]).await?;
    commit(transaction).await
}

pub(super) async fn beat_node(db: &Client, node: &NodeRecord) -> Result<()> {
    let statement = db.prepare_cached(include_str!("sql/beat_node.sql")).await?;
    let params: [&(dyn ToSql + Sync); 8] = [
        &node.node_id.as_str(),
        &code_of(&NODE_ROLES, &node.role),
        &code_of(&NODE_STATES, &node.state),
        &i64::try_from(node.job_count).unwrap_or(i64::MAX),
        &micros(node.started_at),
        &micros(node.last_heartbeat_at),
        &readable(&node.version),
        &micros(node.since),
    ];
    db.execute(&statement, &params).await.map_err(Failure::of_commit)?;
    Ok(())
}

pub(super) async fn nodes(db: &Client) -> Result<Vec<NodeRecord>> {
    let statement = db.prepare_cached(include_str!("sql/nodes.sql")).await?;
    let read = |row: &Row| {
        Ok(NodeRecord {
            node_id: node_id(row, 0)?,
            role: code(row, 1, coded(&NODE_ROLES))?,
            state: code(row, 2, coded(&NODE_STATES))?,
            job_count: number(row, 3)?,
            started_at: instant(row, 4)?,
            last_heartbeat_at: instant(row, 5)?,
            version: get(row, 6)?,
            since: instant(row, 7)?,
        })
    };
    db.query(&statement, &[]).await?.iter().map(read).collect()
}

pub(super) async fn retire_node(
    db: &mut Client,
    fence: Option<Fence>,
    id: &NodeId,
    state: NodeState,
    at: Timestamp,
) -> Result<()> {
    let transaction = db.transaction().await?;
    if let Some(fence) = fence {
        hold(&transaction, fence, "retire_node").await?;
    }
    let update = "update convoke_nodes set role = $2, state = $3, since = $4 where id = $1";
    let statement = transaction.prepare_cached(update).await?;
    let (role, state) = (code_of(&NODE_ROLES, &NodeRole::Follower), code_of(&NODE_STATES, &state));
    transaction.execute(&statement, &[&id.as_str(), &role, &state, &micros(at)]).await?;
    commit(transaction).await
}

pub(super) async fn forget_nodes(db: &mut Client, fence: Fence, ids: &[NodeId]) -> Result<()> {
    let transaction = db.transaction().await?;
    hold(&transaction, fence, "forget_nodes").await?;
    let ids: Vec<&str> = ids.iter().map(NodeId::as_str).collect();
    let gone = [NodeState::Dead, NodeState::Left].map(|state| code_of(&NODE_STATES, &state));
    let delete = "delete from convoke_nodes where id = any ($1) and state = any ($2)";
    let statement = transaction.prepare_cached(delete).await?;
    transaction.execute(&statement, &[&ids, &gone.as_slice()]).await?;
    commit(transaction).await
}
