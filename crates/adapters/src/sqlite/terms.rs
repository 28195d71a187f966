//! Rosters and terms of leadership as rows, judged by the machine's wall clock: a file has no time of its own, and whoever
//! uses it is on one machine. A clock that is set ahead ends terms before their holders believe it; their epochs tell them apart.

use std::time::Duration;

use convoke_core::ports::leases::{Floor, Lease, TTL_MAX};
use convoke_core::{Epoch, Error};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::failure::Result;

fn ttl_ms(ttl: Duration) -> i64 {
    i64::try_from(ttl.min(TTL_MAX).as_millis()).unwrap_or(i64::MAX)
}

fn number(epoch: Epoch) -> Result<i64> {
    Ok(i64::try_from(epoch.0).map_err(|_| Error::Fenced { what: "lease" })?)
}

fn read_lease(row: &Row<'_>) -> rusqlite::Result<Lease> {
    let epoch: i64 = row.get(1)?;
    let left_ms: i64 = row.get(2)?;
    let remaining = Duration::from_millis(left_ms.max(0) as u64);
    Ok(Lease { holder: row.get(0)?, epoch: Epoch(epoch.max(0) as u64), remaining, is_foreign: false })
}

pub(super) fn enroll(db: &Connection, namespace: &str, member: &str, ttl: Duration) -> Result<()> {
    db.prepare_cached(include_str!("sql/enroll.sql"))?.execute(params![namespace, member, ttl_ms(ttl)])?;
    db.prepare_cached(include_str!("sql/forget_members.sql"))?.execute([namespace])?;
    Ok(())
}

pub(super) fn withdraw(db: &Connection, namespace: &str, member: &str) -> Result<()> {
    db.prepare_cached("delete from members where namespace = ?1 and member = ?2")?.execute([namespace, member])?;
    Ok(())
}

pub(super) fn roster(db: &Connection, namespace: &str) -> Result<Vec<String>> {
    let mut statement = db.prepare_cached(include_str!("sql/roster.sql"))?;
    Ok(statement.query_map([namespace], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?)
}

pub(super) fn read(db: &Connection, namespace: &str) -> Result<Option<Lease>> {
    let mut statement = db.prepare_cached(include_str!("sql/lease.sql"))?;
    Ok(statement.query_row([namespace], read_lease).optional()?)
}

pub(super) fn elect(db: &Connection, namespace: &str, candidate: &str, ttl: Duration, floor: Floor) -> Result<Lease> {
    let mut statement = db.prepare_cached(include_str!("sql/elect.sql"))?;
    let elected = statement
        .query_row(params![namespace, candidate, ttl_ms(ttl), number(floor.epoch())?], read_lease)
        .optional()?;
    match elected {
        Some(lease) => Ok(lease),
        None => Err(Error::Conflict(format!("{namespace} has a leader")).into()),
    }
}

pub(super) fn renew(db: &Connection, namespace: &str, holder: &str, epoch: Epoch, ttl: Duration) -> Result<Lease> {
    let mut statement = db.prepare_cached(include_str!("sql/renew.sql"))?;
    let renewed =
        statement.query_row(params![namespace, holder, number(epoch)?, ttl_ms(ttl)], read_lease).optional()?;
    renewed.ok_or_else(|| Error::Fenced { what: "renew" }.into())
}

pub(super) fn resign(db: &Connection, namespace: &str, holder: &str, epoch: Epoch) -> Result<()> {
    let Ok(epoch) = number(epoch) else { return Ok(()) };
    db.prepare_cached(include_str!("sql/resign.sql"))?.execute(params![namespace, holder, epoch])?;
    Ok(())
}

pub(super) fn publish(db: &Connection, namespace: &str, report: &str) -> Result<()> {
    db.prepare_cached("update leases set report = ?2 where namespace = ?1")?.execute([namespace, report])?;
    Ok(())
}

pub(super) fn published(db: &Connection, namespace: &str) -> Result<Option<String>> {
    let mut statement = db.prepare_cached("select report from leases where namespace = ?1")?;
    Ok(statement.query_row([namespace], |row| row.get(0)).optional()?.flatten())
}

/// Ends whatever term there is: its holder is known to be dead.
pub(super) fn end_term(db: &Connection, namespace: &str) -> rusqlite::Result<()> {
    db.prepare_cached("update leases set expires_at = 0 where namespace = ?1")?.execute([namespace])?;
    Ok(())
}

/// Takes the write lock and writes: whether the database answers.
pub(super) fn ping(db: &Connection) -> Result<()> {
    db.prepare_cached("update cluster set sealed = sealed where id = 1")?.execute([])?;
    Ok(())
}
