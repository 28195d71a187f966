//! Workers and nodes, by their heartbeats.

use convoke_core::election::Fence;
use convoke_core::jobs::wire::{NodeRole, NodeState, WorkerState};
use convoke_core::ports::store::{NodeRecord, WorkerRecord};
use convoke_core::{Error, NodeId, WorkerId};
use deadpool_postgres::Client;
use jiff::Timestamp;
use tokio_postgres::Row;

use super::epoch::{commit, hold};
use super::failure::{Failure, Result};
use super::rows::{code, get, instant, micros, name, name_option, number, readable, unreadable, wide};
use super::sql::{Column, column, params};
use crate::statement::sql;

const WORKER_STATES: [WorkerState; 3] = [WorkerState::Active, WorkerState::Draining, WorkerState::Gone];
const NODE_STATES: [NodeState; 5] =
    [NodeState::Active, NodeState::Draining, NodeState::Dead, NodeState::Left, NodeState::Suspect];
const NODE_ROLES: [NodeRole; 2] = [NodeRole::Leader, NodeRole::Follower];

/// Returns the number under which one of `all` is stored.
fn code_of<T: PartialEq>(all: &[T], value: &T) -> i16 {
    all.iter().position(|known| known == value).map_or(-1, |position| position as i16)
}

fn coded<T: Copy>(all: &[T]) -> impl Fn(u8) -> Option<T> + '_ {
    |code| all.get(usize::from(code)).copied()
}

pub(super) async fn record_worker_heartbeats(db: &Client, workers: &[WorkerRecord]) -> Result<()> {
    // Of a repeated worker the last record counts: a statement must not write a row twice.
    let last: std::collections::BTreeMap<&WorkerId, &WorkerRecord> =
        workers.iter().map(|worker| (&worker.worker_id, worker)).collect();
    let workers: Vec<&WorkerRecord> = last.into_values().collect();
    let statement = db.prepare_cached(sql!(include_str!("sql/record_worker_heartbeats.sql"))).await?;
    let queues = workers.iter().map(|worker| serde_json::to_string(&worker.queues));
    let queues = queues.collect::<serde_json::Result<Vec<_>>>().map_err(|error| Error::unavailable("store", error))?;
    let columns = [
        column(&workers, |worker| worker.worker_id.as_str()),
        column(&workers, |worker| readable(&worker.name)),
        Box::new(queues),
        column(&workers, |worker| i64::from(worker.concurrency)),
        column(&workers, |worker| i64::from(worker.running)),
        column(&workers, |worker| code_of(&WORKER_STATES, &worker.state)),
        column(&workers, |worker| micros(worker.registered_at)),
        column(&workers, |worker| micros(worker.last_heartbeat_at)),
        column(&workers, |worker| worker.via.as_ref().map(NodeId::as_str)),
    ];
    db.execute(&statement, &params(&columns)).await.map_err(Failure::of_commit)?;
    Ok(())
}

fn read_worker(row: &Row) -> Result<WorkerRecord> {
    let queues = serde_json::from_str(get(row, "queues")?);
    Ok(WorkerRecord {
        worker_id: name(row, "id", WorkerId::new)?,
        name: get(row, "name")?,
        queues: queues.map_err(|error| unreadable("queues", error))?,
        concurrency: number(row, "concurrency")?,
        running: number(row, "running")?,
        state: code(row, "state", coded(&WORKER_STATES))?,
        registered_at: instant(row, "registered_at")?,
        last_heartbeat_at: instant(row, "last_heartbeat_at")?,
        via: name_option(row, "via", NodeId::new)?,
    })
}

pub(super) async fn workers(db: &Client) -> Result<Vec<WorkerRecord>> {
    let statement = db.prepare_cached("select * from convoke_workers order by id").await?;
    db.query(&statement, &[]).await?.iter().map(read_worker).collect()
}

pub(super) async fn worker(db: &Client, id: &WorkerId) -> Result<Option<WorkerRecord>> {
    let statement = db.prepare_cached("select * from convoke_workers where id = $1").await?;
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

pub(super) async fn record_node_heartbeat(db: &Client, node: &NodeRecord) -> Result<()> {
    let statement = db.prepare_cached(sql!(include_str!("sql/record_node_heartbeat.sql"))).await?;
    let columns: [Column<'_>; 8] = [
        Box::new(node.node_id.as_str()),
        Box::new(code_of(&NODE_ROLES, &node.role)),
        Box::new(code_of(&NODE_STATES, &node.state)),
        Box::new(wide(node.job_count)),
        Box::new(micros(node.started_at)),
        Box::new(micros(node.last_heartbeat_at)),
        Box::new(readable(&node.version)),
        Box::new(micros(node.since)),
    ];
    db.execute(&statement, &params(&columns)).await.map_err(Failure::of_commit)?;
    Ok(())
}

pub(super) async fn nodes(db: &Client) -> Result<Vec<NodeRecord>> {
    let statement = db.prepare_cached("select * from convoke_nodes order by id").await?;
    let read = |row: &Row| {
        Ok(NodeRecord {
            node_id: name(row, "id", NodeId::new)?,
            role: code(row, "role", coded(&NODE_ROLES))?,
            state: code(row, "state", coded(&NODE_STATES))?,
            job_count: number(row, "job_count")?,
            started_at: instant(row, "started_at")?,
            last_heartbeat_at: instant(row, "last_heartbeat_at")?,
            version: get(row, "version")?,
            since: instant(row, "since")?,
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
