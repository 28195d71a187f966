//! The workers that may hold shards.

use convoke_core::election::Fence;
use convoke_core::shards::{RosterChange, ShardMember};
use rusqlite::Connection;

use super::catalog::WriteTx;
use super::epoch::hold;
use super::failure::Result;
use super::rows::get;

pub(super) fn change(tx: &mut WriteTx<'_>, fence: Fence, change: &RosterChange) -> Result<()> {
    hold(tx, fence, "change_shard_roster")?;
    let mut remove = tx.db.prepare_cached("delete from shard_roster where service = ?1 and worker = ?2")?;
    for member in &change.remove {
        remove.execute([member.service.as_str(), member.worker.as_str()])?;
    }
    let mut add = tx.db.prepare_cached("insert or ignore into shard_roster (service, worker) values (?1, ?2)")?;
    for member in &change.add {
        add.execute([member.service.as_str(), member.worker.as_str()])?;
    }
    Ok(())
}

pub(super) fn all(db: &Connection) -> Result<Vec<ShardMember>> {
    let mut statement = db.prepare_cached("select service, worker from shard_roster order by service, worker")?;
    let rows = statement
        .query_map([], |row| Ok(ShardMember { service: get(row, "service")?, worker: get(row, "worker")? }))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}
