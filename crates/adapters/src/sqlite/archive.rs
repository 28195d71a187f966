//! Runs that ended and are followed by another: they move from the job's row to the history.

use convoke_core::JobId;
use convoke_core::jobs::job::{Execution, ExecutionStatus};
use convoke_core::jobs::run_state::present_status;
use convoke_core::ports::store::HistoryPage;
use rusqlite::{Connection, Row, params};

use super::failure::Result;
use super::rows::{count, get};
use crate::statement::sql;

/// Copies the present run of the job at `seq` from the job's row to the history.
pub(super) fn archive(
    db: &Connection,
    seq: i64,
    ended: ExecutionStatus,
    at: Option<i64>,
    error: Option<&str>,
) -> Result<()> {
    db.prepare_cached(sql!(include_str!("sql/archive.sql")))?.execute(params![seq, ended.code(), at, error])?;
    Ok(())
}

pub(super) fn history(db: &Connection, id: JobId, after: u64, limit: usize) -> Result<HistoryPage> {
    let mut statement = db.prepare_cached(sql!(include_str!("sql/history.sql")))?;
    let runs = statement.query_map(params![id.0.as_bytes(), count(after)], read_run)?;
    Ok(HistoryPage::of(after, limit, runs)?)
}

fn read_run(row: &Row<'_>) -> rusqlite::Result<Execution> {
    Ok(Execution {
        execution_id: get(row, "execution_id")?,
        attempt: get(row, "attempt")?,
        worker_id: get(row, "worker")?,
        status: match get(row, "state")? {
            Some(state) => present_status(state, get(row, "status")?),
            None => get(row, "status")?,
        },
        error: get(row, "error")?,
        started_at: get(row, "started_at")?,
        ended_at: get(row, "ended_at")?,
    })
}
