//! Workers and nodes that have been heard of.

use convoke_core::election::Fence;
use convoke_core::jobs::wire::{NodeRole, NodeState, WorkerState};
use convoke_core::ports::store::{NodeRecord, WorkerRecord};
use convoke_core::{Error, NodeId, QueueName, WorkerId};
use jiff::Timestamp;
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::books::Ledger;
use super::epoch::hold;
use super::failure::Result;
use super::rows::{code, instant, micros, node_id, node_id_option, number, worker_id};

const WORKER_STATES: [WorkerState; 3] = [WorkerState::Active, WorkerState::Draining, WorkerState::Gone];
const NODE_STATES: [NodeState; 5] =
    [NodeState::Active, NodeState::Draining, NodeState::Dead, NodeState::Left, NodeState::Suspect];
const NODE_ROLES: [NodeRole; 2] = [NodeRole::Leader, NodeRole::Follower];

/// The number under which one of `all` is stored.
fn code_of<T: PartialEq>(all: &[T], value: &T) -> i64 {
    all.iter().position(|known| known == value).map_or(-1, |position| position as i64)
}

fn coded<T: Copy>(all: &[T]) -> impl Fn(u8) -> Option<T> + '_ {
    |code| all.get(usize::from(code)).copied()
}

pub(super) fn beat_workers(ledger: &mut Ledger<'_>, workers: &[WorkerRecord]) -> Result<()> {
    let mut statement = ledger.db.prepare_cached(include_str!("sql/beat_worker.sql"))?;
    for worker in workers {
        let queues = serde_json::to_string(&worker.queues).map_err(|error| Error::unavailable("store", error))?;
        statement.execute(params![
            worker.worker_id.as_str(),
            worker.name,
            queues,
            worker.concurrency,
            worker.running,
            code_of(&WORKER_STATES, &worker.state),
            micros(worker.registered_at),
            micros(worker.last_heartbeat_at),
            worker.via.as_ref().map(NodeId::as_str),
        ])?;
    }
    Ok(())
}

fn read_worker(row: &Row<'_>) -> rusqlite::Result<WorkerRecord> {
    let queues: Vec<QueueName> = serde_json::from_str(row.get_ref(2)?.as_str()?)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(2, Type::Text, Box::new(error)))?;
    Ok(WorkerRecord {
        worker_id: worker_id(row, 0)?,
        name: row.get(1)?,
        queues,
        concurrency: number(row, 3)?,
        running: number(row, 4)?,
        state: code(row, 5, coded(&WORKER_STATES))?,
        registered_at: instant(row, 6)?,
        last_heartbeat_at: instant(row, 7)?,
        via: node_id_option(row, 8)?,
    })
}

pub(super) fn workers(db: &Connection) -> Result<Vec<WorkerRecord>> {
    let mut statement = db.prepare_cached(include_str!("sql/workers.sql"))?;
    Ok(statement.query_map([], read_worker)?.collect::<rusqlite::Result<_>>()?)
}

pub(super) fn worker(db: &Connection, id: &WorkerId) -> Result<Option<WorkerRecord>> {
    let mut statement = db.prepare_cached(include_str!("sql/worker.sql"))?;
    Ok(statement.query_row([id.as_str()], read_worker).optional()?)
}

pub(super) fn remove_workers(ledger: &mut Ledger<'_>, fence: Option<Fence>, ids: &[WorkerId]) -> Result<()> {
    fence.map_or(Ok(()), |fence| hold(ledger, fence, "remove_workers"))?;
    let mut statement = ledger.db.prepare_cached("delete from workers where id = ?1")?;
    for id in ids {
        statement.execute([id.as_str()])?;
    }
    Ok(())
}

pub(super) fn beat_node(ledger: &mut Ledger<'_>, node: &NodeRecord) -> Result<()> {
    ledger.db.prepare_cached(include_str!("sql/beat_node.sql"))?.execute(params![
        node.node_id.as_str(),
        code_of(&NODE_ROLES, &node.role),
        code_of(&NODE_STATES, &node.state),
        i64::try_from(node.job_count).unwrap_or(i64::MAX),
        micros(node.started_at),
        micros(node.last_heartbeat_at),
        node.version,
        micros(node.since),
    ])?;
    Ok(())
}

pub(super) fn nodes(db: &Connection) -> Result<Vec<NodeRecord>> {
    let mut statement = db.prepare_cached(include_str!("sql/nodes.sql"))?;
    let nodes = statement.query_map([], |row| {
        Ok(NodeRecord {
            node_id: node_id(row, 0)?,
            role: code(row, 1, coded(&NODE_ROLES))?,
            state: code(row, 2, coded(&NODE_STATES))?,
            job_count: number(row, 3)?,
            started_at: instant(row, 4)?,
            last_heartbeat_at: instant(row, 5)?,
            version: row.get(6)?,
            since: instant(row, 7)?,
        })
    })?;
    Ok(nodes.collect::<rusqlite::Result<_>>()?)
}

pub(super) fn retire_node(
    ledger: &mut Ledger<'_>,
    fence: Option<Fence>,
    id: &NodeId,
    state: NodeState,
    at: Timestamp,
) -> Result<()> {
    fence.map_or(Ok(()), |fence| hold(ledger, fence, "retire_node"))?;
    ledger.db.prepare_cached("update nodes set role = ?2, state = ?3, since = ?4 where id = ?1")?.execute(params![
        id.as_str(),
        code_of(&NODE_ROLES, &NodeRole::Follower),
        code_of(&NODE_STATES, &state),
        micros(at),
    ])?;
    Ok(())
}

pub(super) fn forget_nodes(ledger: &mut Ledger<'_>, fence: Fence, ids: &[NodeId]) -> Result<()> {
    hold(ledger, fence, "forget_nodes")?;
    let [dead, left] = [NodeState::Dead, NodeState::Left].map(|state| code_of(&NODE_STATES, &state));
    let mut statement = ledger.db.prepare_cached("delete from nodes where id = ?1 and state in (?2, ?3)")?;
    for id in ids {
        statement.execute(params![id.as_str(), dead, left])?;
    }
    Ok(())
}
