//! Writes runs after their reports: those still in flight, ends, retries, log lines, counts.

use convoke_core::jobs::run_state::{Write, present_status};
use convoke_core::{Json, NodeId, WorkerId};
use tokio_postgres::Statement;

use super::apply_reports::Run;
use super::counts::{Moves, count_sql};
use super::failure::{self, Failure};
use super::rows::{micros, wide};
use super::server::Hot;
use super::sql::{Column, column, params};
use crate::statement::sql;

/// The part of a statement that ends the runs of reports.
const OVER: &str = include_str!("sql/end_run.sql");

pub(super) fn finish_sql() -> &'static str {
    sql!(include_str!("sql/finish.sql"), over = OVER)
}

pub(super) fn again_sql() -> &'static str {
    sql!(include_str!("sql/retry.sql"), over = OVER)
}

/// Writes and commits: one statement for each kind of write, sent together.
pub(super) async fn write(hot: &mut Hot, runs: &[Run<'_>]) -> failure::Result<()> {
    let mut moves = Moves::default();
    for run in runs {
        moves.moved(run.queue, Some(run.was), Some(run.state.status), 1);
    }
    let update = Prepared::of(hot, sql!(include_str!("sql/update_run.sql")), in_flight(runs)).await?;
    let append = Prepared::of(hot, APPEND_LOGS, log_lines(runs)).await?;
    let finish = Prepared::of(hot, finish_sql(), finals(runs)).await?;
    let again = Prepared::of(hot, again_sql(), retries(runs)).await?;
    let count = Prepared::of(hot, count_sql(), moves.columns(hot.slot)).await?;
    let (updated, appended, finished, retried, counted, committed) = tokio::join!(
        update.execute(hot),
        append.execute(hot),
        finish.execute(hot),
        again.execute(hot),
        count.execute(hot),
        async { hot.client.batch_execute("commit").await.map_err(Failure::of_commit) },
    );
    // If one of them was rejected, nothing was committed.
    updated.and(appended).and(finished).and(retried).and(counted).and(committed)
}

/// A statement with its columns. `None` if there is nothing to write.
struct Prepared<'r>(Option<(Statement, Vec<Column<'r>>)>);

impl<'r> Prepared<'r> {
    async fn of(hot: &mut Hot, sql: &'static str, columns: Option<Vec<Column<'r>>>) -> failure::Result<Self> {
        Ok(Prepared(match columns {
            Some(columns) => Some((hot.prepared(sql).await?, columns)),
            None => None,
        }))
    }

    async fn execute(&self, hot: &Hot) -> failure::Result<()> {
        if let Some((statement, columns)) = &self.0 {
            hot.client.execute(statement, &params(columns)).await?;
        }
        Ok(())
    }
}

/// Returns the columns that all kinds of write begin with, and those of one kind. `kind` pairs each run with its write.
fn columns<'r, K>(
    kind: &[(&'r Run<'r>, K)],
    further: impl FnOnce(&[(&'r Run<'r>, K)]) -> Vec<Column<'r>>,
) -> Option<Vec<Column<'r>>> {
    let mut columns = vec![
        column(kind, |(run, _)| run.id),
        column(kind, |(run, _)| run.execution.0),
        column(kind, |(run, _)| run.state.started_at.map(micros)),
        column(kind, |(run, _)| run.state.worker.as_ref().map(WorkerId::as_str)),
        column(kind, |(run, _)| run.state.owner.as_ref().map(NodeId::as_str)),
        column(kind, |(run, _)| run.state.progress.as_ref().map(|progress| i16::from(progress.percent))),
        column(kind, |(run, _)| run.state.progress.as_ref().and_then(|progress| progress.message.as_deref())),
        column(kind, |(run, _)| wide(run.state.log_seq)),
    ];
    columns.extend(further(kind));
    (!kind.is_empty()).then_some(columns)
}

fn in_flight<'r>(runs: &'r [Run<'r>]) -> Option<Vec<Column<'r>>> {
    let updated: Vec<_> = runs.iter().filter(|run| run.write == Some(Write::InFlight)).map(|run| (run, ())).collect();
    columns(&updated, |updated| {
        vec![
            column(updated, |(run, ())| i16::from(run.state.ownership.code())),
            column(updated, |(run, ())| run.state.deadline.map(micros)),
            column(updated, |(run, ())| run.state.by_channel),
            column(updated, |(run, ())| wide(run.state.log.next)),
            column(updated, |(run, ())| wide(run.state.log.kept)),
        ]
    })
}

fn finals<'r>(runs: &'r [Run<'r>]) -> Option<Vec<Column<'r>>> {
    let ended = runs.iter().filter_map(|run| match run.write {
        Some(Write::Final { at, result, error, run_end, channels_cleaned }) => {
            let run_end = present_status(run.state.status, run_end);
            Some((run, (at, error, result.map(Json::as_str), run_end, channels_cleaned)))
        }
        _ => None,
    });
    columns(&ended.collect::<Vec<_>>(), |ended| {
        vec![
            column(ended, |(run, _)| i16::from(run.state.status.code())),
            column(ended, |(_, (at, ..))| micros(*at)),
            column(ended, |(_, (_, error, ..))| *error),
            column(ended, |(_, (_, _, result, ..))| *result),
            column(ended, |(_, (_, _, _, run_end, _))| i16::from(run_end.code())),
            column(ended, |(_, (.., channels_cleaned))| !channels_cleaned),
        ]
    })
}

fn retries<'r>(runs: &'r [Run<'r>]) -> Option<Vec<Column<'r>>> {
    let again = runs.iter().filter_map(|run| match run.write {
        Some(Write::Again { due_at, attempt, error }) => {
            run.history.as_ref().map(|past| (run, (due_at, attempt, error, past)))
        }
        _ => None,
    });
    columns(&again.collect::<Vec<_>>(), |again| {
        vec![
            column(again, |(run, _)| i16::from(run.state.status.code())),
            column(again, |(_, (due_at, ..))| micros(*due_at)),
            column(again, |(_, (_, attempt, ..))| i32::try_from(*attempt).unwrap_or(i32::MAX)),
            column(again, |(_, (_, _, error, _))| *error),
            column(again, |(_, (.., past))| i16::from(past.status.code())),
            column(again, |(_, (.., past))| past.ended_at.map(micros)),
        ]
    })
}

const APPEND_LOGS: &str = "insert into convoke_logs (job, seq, at, level, execution_id, message) \
     select * from unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::smallint[], $5::uuid[], $6::text[])";

fn log_lines<'r>(runs: &'r [Run<'r>]) -> Option<Vec<Column<'r>>> {
    let lines: Vec<_> = runs.iter().flat_map(|run| run.logs.iter().map(move |line| (run, line))).collect();
    let columns = vec![
        column(&lines, |(run, _)| run.seq),
        column(&lines, |(_, line)| wide(line.seq)),
        column(&lines, |(_, line)| micros(line.at)),
        column(&lines, |(_, line)| i16::from(line.level.code())),
        column(&lines, |(run, _)| run.execution.0),
        column(&lines, |(_, line)| line.message),
    ];
    (!lines.is_empty()).then_some(columns)
}
