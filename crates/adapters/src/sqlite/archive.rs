//! Runs that are over and followed by another: they leave the job's row for the history.

use convoke_core::JobId;
use convoke_core::jobs::job::{Execution, ExecutionStatus};
use convoke_core::jobs::run_state::present_status;
use convoke_core::ports::store::HistoryPage;
use rusqlite::{Connection, Row, params};

use super::failure::Result;
use super::rows::{execution_id, execution_status, instant_option, number, status, worker_id_option};

/// Copies the present run of the job at `seq` to the history, as it stands in the job's row.
pub(super) fn archive(db: &Connection, seq: i64, ended: ExecutionStatus, at: i64, error: Option<&str>) -> Result<()> {
    let mut statement = db.prepare_cached(include_str!("sql/archive.sql"))?;
    statement.execute(params![seq, ended.code(), at, error])?;
    Ok(())
}

pub(super) fn run_end(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<ExecutionStatus>> {
    match row.get::<_, Option<i64>>(column)? {
        Some(_) => execution_status(row, column).map(Some),
        None => Ok(None),
    }
}

pub(super) fn history(db: &Connection, id: JobId, after: u64, limit: usize) -> Result<HistoryPage> {
    let mut past = db.prepare_cached(include_str!("sql/history.sql"))?;
    let mut present = db.prepare_cached(include_str!("sql/present_run.sql"))?;
    let from = i64::try_from(after).unwrap_or(i64::MAX);
    let past = past.query_map(params![id.0.as_bytes(), from], |row| {
        Ok(Execution {
            execution_id: execution_id(row, 0)?,
            attempt: number(row, 1)?,
            worker_id: worker_id_option(row, 2)?,
            status: execution_status(row, 3)?,
            error: row.get(4)?,
            started_at: instant_option(row, 5)?,
            ended_at: instant_option(row, 6)?,
        })
    })?;
    let present = present.query_map(params![id.0.as_bytes(), from], |row| {
        let state = status(row, 3)?;
        Ok(Execution {
            execution_id: execution_id(row, 0)?,
            attempt: number(row, 1)?,
            worker_id: worker_id_option(row, 2)?,
            status: present_status(state, run_end(row, 7)?),
            // While it is in flight, the row has the error of the run before.
            error: if state.is_live() { None } else { row.get(4)? },
            started_at: instant_option(row, 5)?,
            ended_at: instant_option(row, 6)?,
        })
    })?;
    Ok(HistoryPage::of(after, limit, past.chain(present))?)
}
