//! The history of a job: its runs and their log lines.

use convoke_core::jobs::{Execution, LogLevel, LogLine};
use convoke_core::limits::LOG_PAGE_BYTES_MAX;
use convoke_core::ports::store::HistoryPage;
use convoke_core::{JobId, WorkerId};
use deadpool_postgres::Client;
use tokio_postgres::Row;

use super::failure::Result;
use super::rows::{
    code, execution_id, execution_status, get, instant, instant_option, name_option, number, small, wide,
};
use super::runs::FLIGHT;
use crate::statement::sql;

pub(super) async fn history(db: &Client, id: JobId, after: u64, most: usize) -> Result<HistoryPage> {
    let from = i32::try_from(after).unwrap_or(i32::MAX);
    let statement = db.prepare_cached(sql!(include_str!("sql/history.sql"), flight = FLIGHT)).await?;
    // One more than asked for shows whether there is another page.
    let rows = db.query(&statement, &[&id.0, &from, &wide(most.saturating_add(1))]).await?;
    HistoryPage::of(after, most, rows.iter().map(read_run))
}

fn read_run(row: &Row) -> Result<Execution> {
    Ok(Execution {
        execution_id: execution_id(row, "execution_id")?,
        attempt: small(row, "attempt")?,
        worker_id: name_option(row, "worker", WorkerId::new)?,
        status: execution_status(row)?,
        error: get(row, "error")?,
        started_at: instant_option(row, "started_at")?,
        ended_at: instant_option(row, "ended_at")?,
    })
}

pub(super) async fn logs(db: &Client, id: JobId, after: u64, most: usize) -> Result<Vec<LogLine>> {
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    let statement = db.prepare_cached(sql!(include_str!("sql/logs.sql"))).await?;
    let rows = db.query(&statement, &[&id.0, &after, &wide(most), &wide(LOG_PAGE_BYTES_MAX)]).await?;
    let line = |row: &Row| {
        Ok(LogLine {
            seq: number(row, "seq")?,
            at: instant(row, "at")?,
            level: code(row, "level", LogLevel::from_code)?,
            message: get(row, "message")?,
            execution_id: execution_id(row, "execution_id")?,
        })
    };
    rows.iter().map(line).collect()
}
