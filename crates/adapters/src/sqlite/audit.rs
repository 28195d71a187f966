//! The record of operators' acts, and the values that all nodes share.

use convoke_core::Json;
use convoke_core::audit::{Act, AuditEntry, AuditPage, AuditQuery};
use convoke_core::election::Fence;
use convoke_core::limits::PAGE_MAX;
use jiff::Timestamp;
use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};

use super::catalog::WriteTx;
use super::epoch::hold;
use super::failure::Result;
use super::rows::{count, get, micros};

pub(super) fn append(tx: &mut WriteTx<'_>, act: &Act) -> Result<u64> {
    let insert = "insert into audit (at, via, who, action, target, node, before, after)
                  values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    let (before, after) = (act.before.as_ref().map(Json::as_str), act.after.as_ref().map(Json::as_str));
    tx.db.prepare_cached(insert)?.execute(params![
        micros(act.at),
        act.via.code(),
        act.who,
        act.action,
        act.target,
        act.node.as_str(),
        before,
        after
    ])?;
    Ok(u64::try_from(tx.db.last_insert_rowid()).unwrap_or_default())
}

pub(super) fn page(db: &Connection, query: &AuditQuery) -> Result<AuditPage> {
    let limit = query.limit.clamp(1, PAGE_MAX);
    // Only the conditions that are given, so that each combination has a plan of its own.
    let (mut sql, mut values) = ("select * from audit where true".to_owned(), Vec::new());
    let text = |text: &Option<String>| text.clone().map(Value::Text);
    let time = |at: Option<Timestamp>| at.map(|at| Value::Integer(micros(at)));
    for (condition, value) in [
        ("seq <", query.cursor.map(|cursor| Value::Integer(count(cursor)))),
        ("who =", text(&query.who)),
        ("action =", text(&query.action)),
        ("target =", text(&query.target)),
        ("at >=", time(query.after)),
        ("at <", time(query.before)),
    ] {
        if let Some(value) = value {
            values.push(value);
            sql.push_str(&format!(" and {condition} ?{}", values.len()));
        }
    }
    values.push(Value::Integer(limit as i64 + 1));
    sql.push_str(&format!(" order by seq desc limit ?{}", values.len()));
    let mut statement = db.prepare_cached(&sql)?;
    let rows = statement.query_map(params_from_iter(values), read)?;
    Ok(AuditPage::of(rows.collect::<rusqlite::Result<_>>()?, limit))
}

fn read(row: &Row<'_>) -> rusqlite::Result<AuditEntry> {
    Ok(AuditEntry {
        seq: get(row, "seq")?,
        act: Act {
            at: get(row, "at")?,
            who: get(row, "who")?,
            via: get(row, "via")?,
            action: get(row, "action")?,
            target: get(row, "target")?,
            before: get(row, "before")?,
            after: get(row, "after")?,
            node: get(row, "node")?,
        },
    })
}

pub(super) fn expire(tx: &mut WriteTx<'_>, fence: Fence, before: Timestamp, limit: usize) -> Result<usize> {
    hold(tx, fence, "expire_audit")?;
    let delete = "delete from audit where seq in (select seq from audit where at < ?1 order by at, seq limit ?2)";
    Ok(tx.db.prepare_cached(delete)?.execute(params![micros(before), limit as i64])?)
}

pub(super) fn value(db: &Connection, name: &str) -> Result<Option<Vec<u8>>> {
    let mut statement = db.prepare_cached("select value from shared_values where name = ?1")?;
    Ok(statement.query_row([name], |row| row.get("value")).optional()?)
}

pub(super) fn swap_value(tx: &mut WriteTx<'_>, name: &str, known: Option<&[u8]>, value: &[u8]) -> Result<bool> {
    let changed = match known {
        None => {
            let insert = "insert or ignore into shared_values (name, value) values (?1, ?2)";
            tx.db.prepare_cached(insert)?.execute(params![name, value])?
        }
        Some(known) => {
            let update = "update shared_values set value = ?3 where name = ?1 and value = ?2";
            tx.db.prepare_cached(update)?.execute(params![name, known, value])?
        }
    };
    Ok(changed > 0)
}
