//! Log lines of jobs.

use convoke_core::jobs::LogLine;
use convoke_core::limits::LOG_PAGE_BYTES_MAX;
use convoke_core::{ByteBudget, JobId};
use rusqlite::{Connection, params};

use super::failure::Result;
use super::rows::{count, get};
use crate::statement::sql;

pub(super) fn logs(db: &Connection, id: JobId, after: u64, limit: usize) -> Result<Vec<LogLine>> {
    let mut statement = db.prepare_cached(sql!(include_str!("sql/logs.sql")))?;
    let lines = statement.query_map(params![id.0.as_bytes(), count(after), limit as i64], |row| {
        Ok(LogLine {
            seq: get(row, "seq")?,
            at: get(row, "at")?,
            level: get(row, "level")?,
            message: get(row, "message")?,
            execution_id: get(row, "execution_id")?,
        })
    })?;
    let mut budget = ByteBudget::new(LOG_PAGE_BYTES_MAX);
    let fits = |line: &rusqlite::Result<LogLine>| line.as_ref().map_or(true, |line| budget.admits(line.message.len()));
    let lines: rusqlite::Result<Vec<LogLine>> = lines.take_while(fits).collect();
    Ok(lines?)
}
