//! Rosters and terms of leadership as rows, by the machine's wall clock: a file has no clock of its own, and all its
//! users are on one machine. A clock that is set ahead ends terms before their holders notice; their epochs distinguish
//! them.

use std::time::Duration;

use convoke_core::ports::leases::{Floor, Lease, TTL_MAX};
use convoke_core::{Epoch, Error};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::failure::Result;
use super::rows::get;
use crate::statement::sql;

/// The time of the machine in milliseconds.
const NOW: &str = "cast(unixepoch('now', 'subsec') * 1000 as integer)";

fn ttl_ms(ttl: Duration) -> i64 {
    i64::try_from(ttl.min(TTL_MAX).as_millis()).unwrap_or(i64::MAX)
}

fn number(epoch: Epoch) -> Result<i64> {
    Ok(i64::try_from(epoch.0).map_err(|_| Error::Fenced { what: "lease" })?)
}

fn read_lease(row: &Row<'_>) -> rusqlite::Result<Lease> {
    let left_ms: i64 = get(row, "left_ms")?;
    let remaining = Duration::from_millis(left_ms.max(0) as u64);
    Ok(Lease { holder: get(row, "holder")?, epoch: Epoch(get(row, "epoch")?), remaining, is_foreign: false })
}

pub(super) fn enroll(db: &Connection, namespace: &str, member: &str, ttl: Duration) -> Result<()> {
    let enroll = sql!(
        "insert into members (namespace, member, expires_at)
         values (?1, ?2, {now} + ?3)
         on conflict (namespace, member) do update set expires_at = excluded.expires_at",
        now = NOW
    );
    db.prepare_cached(enroll)?.execute(params![namespace, member, ttl_ms(ttl)])?;
    let forget = sql!("delete from members where namespace = ?1 and expires_at <= {now}", now = NOW);
    db.prepare_cached(forget)?.execute([namespace])?;
    Ok(())
}

pub(super) fn withdraw(db: &Connection, namespace: &str, member: &str) -> Result<()> {
    db.prepare_cached("delete from members where namespace = ?1 and member = ?2")?.execute([namespace, member])?;
    Ok(())
}

pub(super) fn roster(db: &Connection, namespace: &str) -> Result<Vec<String>> {
    let text =
        sql!("select member from members where namespace = ?1 and expires_at > {now} order by member", now = NOW);
    let mut statement = db.prepare_cached(text)?;
    Ok(statement.query_map([namespace], |row| get(row, "member"))?.collect::<rusqlite::Result<_>>()?)
}

pub(super) fn namespaces(db: &Connection, limit: usize) -> Result<Vec<String>> {
    let text = sql!(
        "select namespace from leases where expires_at > {now}
         union
         select namespace from members where expires_at > {now}
         order by 1 limit ?1",
        now = NOW
    );
    let mut statement = db.prepare_cached(text)?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    Ok(statement.query_map([limit], |row| get(row, "namespace"))?.collect::<rusqlite::Result<_>>()?)
}

pub(super) fn read(db: &Connection, namespace: &str) -> Result<Option<Lease>> {
    let mut statement = db.prepare_cached(sql!(
        "select holder, epoch, expires_at - {now} as left_ms
         from leases
         where namespace = ?1 and expires_at > {now}",
        now = NOW
    ))?;
    Ok(statement.query_row([namespace], read_lease).optional()?)
}

pub(super) fn elect(db: &Connection, namespace: &str, candidate: &str, ttl: Duration, floor: Floor) -> Result<Lease> {
    let mut statement = db.prepare_cached(sql!(include_str!("sql/elect.sql"), now = NOW))?;
    let elected = statement
        .query_row(params![namespace, candidate, ttl_ms(ttl), number(floor.epoch())?], read_lease)
        .optional()?;
    match elected {
        Some(lease) => Ok(lease),
        None => Err(Error::Conflict(format!("{namespace} has a leader")).into()),
    }
}

pub(super) fn renew(db: &Connection, namespace: &str, holder: &str, epoch: Epoch, ttl: Duration) -> Result<Lease> {
    let mut statement = db.prepare_cached(sql!(include_str!("sql/renew.sql"), now = NOW))?;
    let renewed =
        statement.query_row(params![namespace, holder, number(epoch)?, ttl_ms(ttl)], read_lease).optional()?;
    renewed.ok_or_else(|| Error::Fenced { what: "renew" }.into())
}

pub(super) fn resign(db: &Connection, namespace: &str, holder: &str, epoch: Epoch) -> Result<()> {
    let Ok(epoch) = number(epoch) else { return Ok(()) };
    let resign = "update leases set expires_at = 0 where namespace = ?1 and holder = ?2 and epoch = ?3";
    db.prepare_cached(resign)?.execute(params![namespace, holder, epoch])?;
    Ok(())
}

/// Returns the last term if it was resigned.
pub(super) fn resigned(db: &Connection, namespace: &str) -> Result<Option<Epoch>> {
    let mut statement = db.prepare_cached("select epoch from leases where namespace = ?1 and expires_at = 0")?;
    Ok(statement.query_row([namespace], |row| get(row, "epoch").map(Epoch)).optional()?)
}

pub(super) fn publish(db: &Connection, namespace: &str, report: &str) -> Result<()> {
    db.prepare_cached("update leases set report = ?2 where namespace = ?1")?.execute([namespace, report])?;
    Ok(())
}

pub(super) fn published(db: &Connection, namespace: &str) -> Result<Option<String>> {
    let mut statement = db.prepare_cached("select report from leases where namespace = ?1")?;
    Ok(statement.query_row([namespace], |row| get(row, "report")).optional()?.flatten())
}

/// Ends the present term, if any: its holder is known to be dead.
pub(super) fn end_term(db: &Connection, namespace: &str) -> rusqlite::Result<()> {
    db.prepare_cached("update leases set expires_at = 0 where namespace = ?1")?.execute([namespace])?;
    Ok(())
}
