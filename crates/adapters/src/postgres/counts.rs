//! How many jobs of each queue are in each state: changes gather here and are written once for a whole transaction.

use std::collections::BTreeMap;

use convoke_core::jobs::Status;

/// By queue, so that all who write several take them in one order.
#[derive(Debug, Default)]
pub(super) struct Moves(BTreeMap<i32, [i64; Status::ALL.len()]>);

/// The arrays of `sql/count.sql`.
pub(super) struct Columns {
    pub(super) queues: Vec<i32>,
    /// One for each state but the first, which is none of the store's.
    pub(super) states: [Vec<i64>; Status::ALL.len() - 1],
}

impl Moves {
    /// Jobs of `queue` went from one state to another; `None` is outside of the store.
    pub(super) fn moved(&mut self, queue: i32, from: Option<Status>, to: Option<Status>, count: i64) {
        let states = self.0.entry(queue).or_default();
        if let Some(from) = from {
            states[usize::from(from.code())] -= count;
        }
        if let Some(to) = to {
            states[usize::from(to.code())] += count;
        }
    }

    /// `None` where nothing changes.
    pub(super) fn columns(&self) -> Option<Columns> {
        let mut columns = Columns { queues: Vec::new(), states: Default::default() };
        for (queue, counts) in self.0.iter().filter(|(_, counts)| counts.iter().any(|count| *count != 0)) {
            columns.queues.push(*queue);
            for (column, count) in columns.states.iter_mut().zip(&counts[1..]) {
                column.push(*count);
            }
        }
        (!columns.queues.is_empty()).then_some(columns)
    }
}

pub(super) const COUNT: &str = include_str!("sql/count.sql");

impl Columns {
    pub(super) fn params<'a>(&'a self, slot: &'a i16) -> Vec<&'a (dyn tokio_postgres::types::ToSql + Sync)> {
        let mut params: Vec<&(dyn tokio_postgres::types::ToSql + Sync)> = vec![slot, &self.queues];
        params.extend(self.states.iter().map(|column| column as &(dyn tokio_postgres::types::ToSql + Sync)));
        params
    }
}

/// Where connections of the pools count.
pub(super) const SHARED_SLOT: i16 = 0;

/// Writes the changes within a transaction of a pool's connection.
pub(super) async fn count(
    transaction: &deadpool_postgres::Transaction<'_>,
    moves: &Moves,
) -> super::failure::Result<()> {
    if let Some(columns) = moves.columns() {
        let statement = transaction.prepare_cached(COUNT).await?;
        transaction.execute(&statement, &columns.params(&SHARED_SLOT)).await?;
    }
    Ok(())
}
