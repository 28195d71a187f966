//! Workers and nodes that have sent heartbeats, each as a document.

use convoke_core::election::Fence;
use convoke_core::jobs::wire::{NodeRole, NodeState};
use convoke_core::ports::store::{NodeRecord, WorkerRecord};
use convoke_core::{Error, NodeId, WorkerId};
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension};
use serde::Serialize;

use super::catalog::WriteTx;
use super::epoch::hold;
use super::failure::Result;
use super::rows::{document, or_log};

const PUT_WORKER: &str = "insert or replace into workers (id, document) values (?1, ?2)";
const PUT_NODE: &str = "insert or replace into nodes (id, document) values (?1, ?2)";

fn put(db: &Connection, statement: &str, id: &str, record: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string(record).map_err(|error| Error::unavailable("store", error))?;
    db.prepare_cached(statement)?.execute([id, &text])?;
    Ok(())
}

pub(super) fn record_worker_heartbeats(tx: &mut WriteTx<'_>, workers: &[WorkerRecord]) -> Result<()> {
    workers.iter().try_for_each(|worker| put(tx.db, PUT_WORKER, worker.worker_id.as_str(), worker))
}

pub(super) fn workers(db: &Connection) -> Result<Vec<WorkerRecord>> {
    let mut statement = db.prepare_cached("select id as name, document from workers order by id")?;
    let read = statement.query_map([], |row| or_log("worker", row, document))?;
    Ok(read.filter_map(rusqlite::Result::transpose).collect::<rusqlite::Result<_>>()?)
}

pub(super) fn worker(db: &Connection, id: &WorkerId) -> Result<Option<WorkerRecord>> {
    let mut statement = db.prepare_cached("select document from workers where id = ?1")?;
    Ok(statement.query_row([id.as_str()], document).optional()?)
}

pub(super) fn remove_workers(tx: &mut WriteTx<'_>, fence: Option<Fence>, ids: &[WorkerId]) -> Result<()> {
    fence.map_or(Ok(()), |fence| hold(tx, fence, "remove_workers"))?;
    let mut statement = tx.db.prepare_cached("delete from workers where id = ?1")?;
    for id in ids {
        statement.execute([id.as_str()])?;
    }
    Ok(())
}

pub(super) fn record_node_heartbeat(tx: &mut WriteTx<'_>, node: &NodeRecord) -> Result<()> {
    put(tx.db, PUT_NODE, node.node_id.as_str(), node)
}

pub(super) fn nodes(db: &Connection) -> Result<Vec<NodeRecord>> {
    let mut statement = db.prepare_cached("select id as name, document from nodes order by id")?;
    let read = statement.query_map([], |row| or_log("node", row, document))?;
    Ok(read.filter_map(rusqlite::Result::transpose).collect::<rusqlite::Result<_>>()?)
}

fn node(db: &Connection, id: &NodeId) -> Result<Option<NodeRecord>> {
    let mut statement = db.prepare_cached("select document from nodes where id = ?1")?;
    Ok(statement.query_row([id.as_str()], document).optional()?)
}

pub(super) fn retire_node(
    tx: &mut WriteTx<'_>,
    fence: Option<Fence>,
    id: &NodeId,
    state: NodeState,
    at: Timestamp,
) -> Result<()> {
    fence.map_or(Ok(()), |fence| hold(tx, fence, "retire_node"))?;
    match node(tx.db, id)? {
        Some(node) => record_node_heartbeat(tx, &NodeRecord { role: NodeRole::Follower, state, since: at, ..node }),
        None => Ok(()),
    }
}

pub(super) fn forget_nodes(tx: &mut WriteTx<'_>, fence: Fence, ids: &[NodeId]) -> Result<()> {
    hold(tx, fence, "forget_nodes")?;
    let mut statement = tx.db.prepare_cached("delete from nodes where id = ?1")?;
    for id in ids {
        if node(tx.db, id)?.is_some_and(|node| matches!(node.state, NodeState::Dead | NodeState::Left)) {
            statement.execute([id.as_str()])?;
        }
    }
    Ok(())
}
