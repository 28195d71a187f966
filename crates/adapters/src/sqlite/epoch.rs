//! The sealed epoch, and the fence that leaders' writes are compared with.

use convoke_core::election::Fence;
use convoke_core::{Epoch, Error};
use rusqlite::Connection;

use super::catalog::WriteTx;
use super::failure::Result;

pub(super) fn raise_seal(tx: &mut WriteTx<'_>, epoch: Epoch) -> Result<()> {
    let number = i64::try_from(epoch.0).map_err(|_| Error::Fenced { what: "seal" })?;
    let sealed =
        tx.db.prepare_cached("update cluster set sealed = ?1 where id = 1 and sealed < ?1")?.execute([number])?;
    if sealed == 1 { Ok(()) } else { Err(Error::Fenced { what: "seal" }.into()) }
}

pub(super) fn sealed(db: &Connection) -> Result<Epoch> {
    let epoch: i64 =
        db.prepare_cached("select sealed from cluster where id = 1")?.query_row([], |row| row.get("sealed"))?;
    Ok(Epoch(epoch.max(0) as u64))
}

/// Rejects the write of a former leader. Runs inside the transaction of the write that follows, so that no seal can
/// come between.
pub(super) fn hold(tx: &WriteTx<'_>, fence: Fence, what: &'static str) -> Result<()> {
    let fenced = || Error::Fenced { what };
    let number = i64::try_from(fence.epoch().0).map_err(|_| fenced())?;
    let holds = tx.db.prepare_cached("select 1 from cluster where id = 1 and sealed = ?1")?.exists([number])?;
    if holds { Ok(()) } else { Err(fenced().into()) }
}

/// Writes, and changes nothing: the only way to know that writes are accepted.
pub(super) fn ping(db: &Connection) -> Result<()> {
    db.prepare_cached("update cluster set sealed = sealed where id = 1")?.execute([])?;
    Ok(())
}
