//! The sealed epoch, and the fence that leaders' writes are compared with.

use convoke_core::election::Fence;
use convoke_core::{Epoch, Error};
use deadpool_postgres::{Client, Transaction};

use super::failure::{Failure, Result};
use super::rows::number;

pub(super) async fn raise_seal(db: &Client, epoch: Epoch) -> Result<()> {
    let fenced = || Failure::from(Error::Fenced { what: "seal" });
    let number = i64::try_from(epoch.0).map_err(|_| fenced())?;
    let seal = "update convoke_cluster set sealed = $1 where id = 1 and sealed < $1";
    let statement = db.prepare_cached(seal).await?;
    let sealed = db.execute(&statement, &[&number]).await.map_err(Failure::of_commit)?;
    if sealed == 1 { Ok(()) } else { Err(fenced()) }
}

pub(super) async fn sealed(db: &Client) -> Result<Epoch> {
    let statement = db.prepare_cached("select sealed from convoke_cluster where id = 1").await?;
    Ok(Epoch(number(&db.query_one(&statement, &[]).await?, "sealed")?))
}

/// Returns a row if the epoch is the sealed one.
pub(super) const FENCE: &str = "select 1 from convoke_cluster where id = 1 and sealed = $1 for share";

/// Rejects the write of a former leader. Runs inside the transaction of the write that follows and locks the row until
/// its end, so that no seal can come between.
pub(super) async fn hold(transaction: &Transaction<'_>, fence: Fence, what: &'static str) -> Result<()> {
    let number = fence_number(fence, what)?;
    let statement = transaction.prepare_cached(FENCE).await?;
    let held = transaction.query_opt(&statement, &[&number]).await?;
    held.map(drop).ok_or_else(|| Error::Fenced { what }.into())
}

/// Returns the epoch as statements compare it. A larger one than the store can keep was never sealed.
pub(super) fn fence_number(fence: Fence, what: &'static str) -> Result<i64> {
    i64::try_from(fence.epoch().0).map_err(|_| Error::Fenced { what }.into())
}

/// Writes: the only way to know that writes are accepted.
pub(super) async fn ping(db: &Client) -> Result<()> {
    let statement = db.prepare_cached("update convoke_probe set at = clock_timestamp() where id = 1").await?;
    db.execute(&statement, &[]).await?;
    Ok(())
}

pub(super) async fn commit(transaction: Transaction<'_>) -> Result<()> {
    transaction.commit().await.map_err(Failure::of_commit)
}
