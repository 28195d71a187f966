//! Log lines of jobs.

use convoke_core::jobs::{LogLevel, LogLine};
use convoke_core::limits::LOG_PAGE_BYTES_MAX;
use convoke_core::{ByteBudget, JobId};
use rusqlite::{Connection, params};

use super::failure::Result;
use super::rows::{code, execution_id, instant, number};

pub(super) fn logs(db: &Connection, id: JobId, after: u64, limit: usize) -> Result<Vec<LogLine>> {
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    let mut statement = db.prepare_cached(include_str!("sql/logs.sql"))?;
    let lines = statement.query_map(params![id.0.as_bytes(), after, limit as i64], |row| {
        Ok(LogLine {
            seq: number(row, 0)?,
            at: instant(row, 1)?,
            level: code(row, 2, LogLevel::from_code)?,
            message: row.get(3)?,
            execution_id: execution_id(row, 4)?,
        })
    })?;
    let mut budget = ByteBudget::new(LOG_PAGE_BYTES_MAX);
    let fits = |line: &rusqlite::Result<LogLine>| line.as_ref().map_or(true, |line| budget.admits(line.message.len()));
    let lines: rusqlite::Result<Vec<LogLine>> = lines.take_while(fits).collect();
    Ok(lines?)
}
