//! The record of operators' acts, and the values that all nodes share.

use convoke_core::NodeId;
use convoke_core::audit::{Act, AuditEntry, AuditPage, AuditQuery, AuditVia};
use convoke_core::election::Fence;
use convoke_core::limits::PAGE_MAX;
use deadpool_postgres::Client;
use jiff::Timestamp;
use tokio_postgres::Row;

use super::epoch::{commit, hold};
use super::failure::{Failure, Result};
use super::rows::{check_exact, code, get, instant, json_option, micros, name, number, readable, wide};
use super::sql::{Column, params};
use crate::statement::sql;

pub(super) async fn append(db: &Client, act: &Act) -> Result<u64> {
    let statement = db
        .prepare_cached(sql!(
            "insert into convoke_audit (at, via, who, action, target, node, before, after)
             values ($1, $2, $3, $4, $5, $6, $7, $8)
             returning seq"
        ))
        .await?;
    let columns: [Column<'_>; 8] = [
        Box::new(micros(act.at)),
        Box::new(i16::from(act.via.code())),
        Box::new(readable(&act.who)),
        Box::new(readable(&act.action)),
        Box::new(readable(&act.target)),
        Box::new(act.node.as_str()),
        Box::new(act.before.as_ref().map(|json| json.as_str())),
        Box::new(act.after.as_ref().map(|json| json.as_str())),
    ];
    let row = db.query_one(&statement, &params(&columns)).await.map_err(Failure::of_commit)?;
    number(&row, "seq")
}

pub(super) async fn page(db: &Client, query: &AuditQuery) -> Result<AuditPage> {
    let limit = query.limit.clamp(1, PAGE_MAX);
    for (field, text) in [("who", &query.who), ("action", &query.action), ("target", &query.target)] {
        check_exact(field, text.as_deref())?;
    }
    // Only the conditions that are given, so that each combination has a plan of its own.
    let (mut sql, mut values) = ("select * from convoke_audit where true".to_owned(), Vec::<Column<'_>>::new());
    let text = |text: &'_ Option<String>| text.clone().map(|text| Box::new(text) as Column<'_>);
    let time = |at: Option<Timestamp>| at.map(|at| Box::new(micros(at)) as Column<'_>);
    for (condition, value) in [
        ("seq <", query.cursor.map(|cursor| Box::new(wide(cursor)) as Column<'_>)),
        ("who =", text(&query.who)),
        ("action =", text(&query.action)),
        ("target =", text(&query.target)),
        ("at >=", time(query.after)),
        ("at <", time(query.before)),
    ] {
        if let Some(value) = value {
            values.push(value);
            sql.push_str(&format!(" and {condition} ${}", values.len()));
        }
    }
    values.push(Box::new(wide(limit + 1)));
    sql.push_str(&format!(" order by seq desc limit ${}", values.len()));
    let statement = db.prepare_cached(&sql).await?;
    let rows = db.query(&statement, &params(&values)).await?;
    Ok(AuditPage::of(rows.iter().map(read).collect::<Result<_>>()?, limit))
}

fn read(row: &Row) -> Result<AuditEntry> {
    Ok(AuditEntry {
        seq: number(row, "seq")?,
        act: Act {
            at: instant(row, "at")?,
            who: get(row, "who")?,
            via: code(row, "via", AuditVia::from_code)?,
            action: get(row, "action")?,
            target: get(row, "target")?,
            before: json_option(row, "before")?,
            after: json_option(row, "after")?,
            node: name(row, "node", NodeId::new)?,
        },
    })
}

pub(super) async fn expire(db: &mut Client, fence: Fence, before: Timestamp, limit: usize) -> Result<usize> {
    let transaction = db.transaction().await?;
    hold(&transaction, fence, "expire_audit").await?;
    let statement = transaction
        .prepare_cached(sql!(
            "delete from convoke_audit where seq = any (array
                 (select seq from convoke_audit where at < $1 order by at, seq limit $2))"
        ))
        .await?;
    let deleted = transaction.execute(&statement, &[&micros(before), &wide(limit)]).await?;
    commit(transaction).await?;
    Ok(usize::try_from(deleted).unwrap_or(usize::MAX))
}

pub(super) async fn value(db: &Client, name: &str) -> Result<Option<Vec<u8>>> {
    let statement = db.prepare_cached("select value from convoke_shared_values where name = $1").await?;
    db.query_opt(&statement, &[&name]).await?.map(|row| get(&row, "value")).transpose()
}

pub(super) async fn swap_value(db: &Client, name: &str, known: Option<&[u8]>, value: &[u8]) -> Result<bool> {
    let changed = match known {
        None => {
            let insert =
                "insert into convoke_shared_values (name, value) values ($1, $2) on conflict (name) do nothing";
            let statement = db.prepare_cached(insert).await?;
            db.execute(&statement, &[&name, &value]).await
        }
        Some(known) => {
            let update = "update convoke_shared_values set value = $3 where name = $1 and value = $2";
            let statement = db.prepare_cached(update).await?;
            db.execute(&statement, &[&name, &known, &value]).await
        }
    };
    Ok(changed.map_err(Failure::of_commit)? > 0)
}
