//! Counts of jobs by queue and state. Changes are collected here and written once per transaction.

use std::collections::BTreeMap;

use convoke_core::jobs::Status;
use deadpool_postgres::Transaction;

use super::failure::Result;
use super::sql::{Column, column, params};
use crate::statement::sql;

/// Ordered by queue, so that all transactions lock rows in one order.
#[derive(Debug, Default)]
pub(super) struct Moves(BTreeMap<i32, [i64; Status::ALL.len()]>);

impl Moves {
    /// Moves jobs of `queue` from one state to another; `None` means outside of the store.
    pub(super) fn moved(&mut self, queue: i32, from: Option<Status>, to: Option<Status>, count: i64) {
        let states = self.0.entry(queue).or_default();
        if let Some(from) = from {
            states[usize::from(from.code())] -= count;
        }
        if let Some(to) = to {
            states[usize::from(to.code())] += count;
        }
    }

    /// Returns the columns of `sql/count.sql`. `None` if nothing changes.
    pub(super) fn columns(&self, slot: i16) -> Option<Vec<Column<'static>>> {
        let changed: Vec<_> = self.0.iter().filter(|(_, counts)| counts.iter().any(|count| *count != 0)).collect();
        let mut columns: Vec<Column<'static>> = vec![Box::new(slot), column(&changed, |(queue, _)| **queue)];
        // No stored job has the first state.
        columns.extend((1..Status::ALL.len()).map(|state| column(&changed, |(_, counts)| counts[state])));
        (!changed.is_empty()).then_some(columns)
    }
}

pub(super) fn count_sql() -> &'static str {
    sql!(include_str!("sql/count.sql"))
}

/// The slot in which connections of the pools count.
pub(super) const SHARED_SLOT: i16 = 0;

/// Writes the changes within a transaction of a pool's connection.
pub(super) async fn count(transaction: &Transaction<'_>, moves: &Moves) -> Result<()> {
    if let Some(columns) = moves.columns(SHARED_SLOT) {
        let statement = transaction.prepare_cached(count_sql()).await?;
        transaction.execute(&statement, &params(&columns)).await?;
    }
    Ok(())
}
