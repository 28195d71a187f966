//! What is left of a job's runs: the runs themselves, and their log lines.

use convoke_core::JobId;
use convoke_core::jobs::{Execution, LogLevel, LogLine};
use convoke_core::limits::LOG_PAGE_BYTES_MAX;
use convoke_core::ports::store::HistoryPage;
use deadpool_postgres::Client;
use tokio_postgres::Row;

use super::failure::Result;
use super::rows::{
    code, execution_id, execution_status, get, instant, instant_option, limit, number, small, worker_id_option,
};

pub(super) async fn history(db: &mut Client, id: JobId, after: u64, most: usize) -> Result<HistoryPage> {
    // Of one moment: a run that ends in between would be seen twice, or not at all.
    let transaction = db
        .build_transaction()
        .isolation_level(tokio_postgres::IsolationLevel::RepeatableRead)
        .read_only(true)
        .start()
        .await?;
    let from = i32::try_from(after).unwrap_or(i32::MAX);
    let past = transaction.prepare_cached(include_str!("sql/history.sql")).await?;
    // One more than asked for tells whether there is another page.
    let mut rows = transaction.query(&past, &[&id.0, &from, &limit(most.saturating_add(1))]).await?;
    let present = transaction.prepare_cached(include_str!("sql/present_run.sql")).await?;
    rows.extend(transaction.query(&present, &[&id.0, &from]).await?);
    transaction.commit().await?;
    HistoryPage::of(after, most, rows.iter().map(read_run))
}

fn read_run(row: &Row) -> Result<Execution> {
    Ok(Execution {
        execution_id: execution_id(row, 0)?,
        attempt: small(row, 1)?,
        worker_id: worker_id_option(row, 2)?,
        status: execution_status(row, 3)?,
        error: get(row, 4)?,
        started_at: instant_option(row, 5)?,
        ended_at: instant_option(row, 6)?,
    })
}

pub(super) async fn logs(db: &Client, id: JobId, after: u64, most: usize) -> Result<Vec<LogLine>> {
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    let statement = db.prepare_cached(include_str!("sql/logs.sql")).await?;
    let rows = db.query(&statement, &[&id.0, &after, &limit(most), &limit(LOG_PAGE_BYTES_MAX)]).await?;
    let line = |row: &Row| {
        Ok(LogLine {
            seq: number(row, 0)?,
            at: instant(row, 1)?,
            level: code(row, 2, LogLevel::from_code)?,
            message: get(row, 3)?,
            execution_id: execution_id(row, 4)?,
        })
    };
    rows.iter().map(line).collect()
}
