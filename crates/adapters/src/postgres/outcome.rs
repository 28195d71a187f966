//! Writes runs that were reported on: those still in flight, ends, retries, log lines, counts.

use std::collections::HashMap;

use convoke_core::jobs::run_state::Write;
use convoke_core::{Json, NodeId, WorkerId};
use jiff::Timestamp;
use tokio_postgres::Statement;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::counts::{COUNT, Moves};
use super::failure;
use super::rows::micros;
use super::server::Hot;
use super::settle::{Run, commit};

type Param<'a> = &'a (dyn ToSql + Sync);

/// Writes and commits: one statement for each kind of write, sent together.
pub(super) async fn write(hot: &mut Hot, runs: &HashMap<Uuid, Run<'_>>) -> failure::Result<()> {
    let mut touched: Vec<&Run<'_>> = runs.values().filter(|run| run.write.is_some()).collect();
    // In one order for everybody.
    touched.sort_unstable_by_key(|run| run.id);
    let mut moves = Moves::default();
    for run in &touched {
        moves.moved(run.queue, Some(run.was), Some(run.state.status), 1);
    }
    let (notes, lines) = (Notes::of(&touched), Lines::of(&touched));
    let (finals, retries) = (Finals::of(&touched), Retries::of(&touched));
    let counts = moves.columns();
    let note = prepared(hot, include_str!("sql/note.sql"), !notes.ids.is_empty()).await?;
    let append = prepared(hot, include_str!("sql/append_logs.sql"), !lines.jobs.is_empty()).await?;
    let finish = prepared(hot, include_str!("sql/finish.sql"), !finals.ids.is_empty()).await?;
    let again = prepared(hot, include_str!("sql/again.sql"), !retries.ids.is_empty()).await?;
    let count = prepared(hot, COUNT, counts.is_some()).await?;
    let (noted, appended, finished, retried, counted, committed) = tokio::join!(
        execute(hot, note, notes.params()),
        execute(hot, append, lines.params()),
        execute(hot, finish, finals.params()),
        execute(hot, again, retries.params()),
        execute(hot, count, counts.as_ref().map(|columns| columns.params(&hot.slot)).unwrap_or_default()),
        commit(hot),
    );
    // Where one of them was refused, the commit was none.
    noted.and(appended).and(finished).and(retried).and(counted).and(committed)
}

async fn prepared(hot: &mut Hot, sql: &'static str, wanted: bool) -> failure::Result<Option<Statement>> {
    if wanted { hot.prepared(sql).await.map(Some) } else { Ok(None) }
}

async fn execute(hot: &Hot, statement: Option<Statement>, params: Vec<Param<'_>>) -> failure::Result<()> {
    if let Some(statement) = statement {
        hot.client.execute(&statement, &params).await?;
    }
    Ok(())
}

fn each<'r, T>(runs: &[&'r Run<'r>], get: impl Fn(&'r Run<'r>) -> T) -> Vec<T> {
    runs.iter().map(|run| get(run)).collect()
}

fn instants<'r>(runs: &[&'r Run<'r>], get: impl Fn(&Run<'r>) -> Option<Timestamp>) -> Vec<Option<i64>> {
    runs.iter().map(|run| get(run).map(micros)).collect()
}

/// The columns of all kinds of write.
#[derive(Default)]
struct Common<'r> {
    started_ats: Vec<Option<i64>>,
    workers: Vec<Option<&'r str>>,
    owners: Vec<Option<&'r str>>,
    percents: Vec<Option<i16>>,
    messages: Vec<Option<&'r str>>,
    log_seqs: Vec<i64>,
}

impl<'r> Common<'r> {
    fn of(runs: &[&'r Run<'r>]) -> Self {
        Common {
            started_ats: instants(runs, |run| run.state.started_at),
            workers: each(runs, |run| run.state.worker.as_ref().map(WorkerId::as_str)),
            owners: each(runs, |run| run.state.owner.as_ref().map(NodeId::as_str)),
            percents: each(runs, |run| run.state.progress.as_ref().map(|progress| progress.percent.into())),
            messages: each(runs, |run| run.state.progress.as_ref().and_then(|progress| progress.message.as_deref())),
            log_seqs: each(runs, |run| count(run.state.log_seq)),
        }
    }
}

struct Notes<'r> {
    ids: Vec<Uuid>,
    executions: Vec<Uuid>,
    ownerships: Vec<i16>,
    deadlines: Vec<Option<i64>>,
    by_channel: Vec<bool>,
    /// How far each run's log is recorded.
    log_nexts: Vec<i64>,
    log_kepts: Vec<i64>,
    common: Common<'r>,
}

impl<'r> Notes<'r> {
    fn of(touched: &[&'r Run<'r>]) -> Self {
        let runs: Vec<&Run<'_>> = touched.iter().copied().filter(|run| run.write == Some(Write::InFlight)).collect();
        Notes {
            ids: each(&runs, |run| run.id),
            executions: each(&runs, |run| run.execution.0),
            ownerships: each(&runs, |run| run.state.ownership.code().into()),
            deadlines: instants(&runs, |run| run.state.deadline),
            by_channel: each(&runs, |run| run.state.by_channel),
            log_nexts: each(&runs, |run| count(run.state.log.next)),
            log_kepts: each(&runs, |run| count(run.state.log.kept)),
            common: Common::of(&runs),
        }
    }

    fn params(&self) -> Vec<Param<'_>> {
        let common = &self.common;
        vec![
            &self.ids,
            &self.executions,
            &common.workers,
            &common.owners,
            &self.ownerships,
            &common.started_ats,
            &self.deadlines,
            &common.percents,
            &common.messages,
            &self.by_channel,
            &common.log_seqs,
            &self.log_nexts,
            &self.log_kepts,
        ]
    }
}

#[derive(Default)]
struct Lines<'r> {
    jobs: Vec<i64>,
    seqs: Vec<i64>,
    ats: Vec<i64>,
    levels: Vec<i16>,
    executions: Vec<Uuid>,
    messages: Vec<&'r str>,
}

impl<'r> Lines<'r> {
    fn of(touched: &[&'r Run<'r>]) -> Self {
        let mut lines = Lines::default();
        for run in touched {
            for line in &run.logs {
                lines.jobs.push(run.seq);
                lines.seqs.push(count(line.seq));
                lines.ats.push(micros(line.at));
                lines.levels.push(line.level.code().into());
                lines.executions.push(run.execution.0);
                lines.messages.push(line.message);
            }
        }
        lines
    }

    fn params(&self) -> Vec<Param<'_>> {
        vec![&self.jobs, &self.seqs, &self.ats, &self.levels, &self.executions, &self.messages]
    }
}

#[derive(Default)]
struct Finals<'r> {
    runs: Vec<&'r Run<'r>>,
    ids: Vec<Uuid>,
    executions: Vec<Uuid>,
    states: Vec<i16>,
    ats: Vec<i64>,
    errors: Vec<Option<&'r str>>,
    results: Vec<Option<&'r str>>,
    run_ends: Vec<Option<i16>>,
    unclean: Vec<bool>,
    common: Common<'r>,
}

impl<'r> Finals<'r> {
    fn of(touched: &[&'r Run<'r>]) -> Self {
        let mut finals = Finals::default();
        for run in touched {
            let Some(Write::Final { at, result, error, run_end, channels_cleaned }) = run.write else { continue };
            finals.runs.push(run);
            finals.ids.push(run.id);
            finals.executions.push(run.execution.0);
            finals.states.push(run.state.status.code().into());
            finals.ats.push(micros(at));
            finals.errors.push(error);
            finals.results.push(result.map(Json::as_str));
            finals.run_ends.push(run_end.map(|ended| ended.code().into()));
            finals.unclean.push(!channels_cleaned);
        }
        finals.common = Common::of(&finals.runs);
        finals
    }

    fn params(&self) -> Vec<Param<'_>> {
        let common = &self.common;
        vec![
            &self.ids,
            &self.executions,
            &self.states,
            &self.ats,
            &self.errors,
            &self.results,
            &self.run_ends,
            &common.started_ats,
            &common.workers,
            &common.owners,
            &common.percents,
            &common.messages,
            &self.unclean,
            &common.log_seqs,
        ]
    }
}

#[derive(Default)]
struct Retries<'r> {
    runs: Vec<&'r Run<'r>>,
    ids: Vec<Uuid>,
    executions: Vec<Uuid>,
    states: Vec<i16>,
    due_ats: Vec<i64>,
    attempts: Vec<i32>,
    errors: Vec<Option<&'r str>>,
    ended_as: Vec<i16>,
    ended_ats: Vec<i64>,
    common: Common<'r>,
}

impl<'r> Retries<'r> {
    fn of(touched: &[&'r Run<'r>]) -> Self {
        let mut retries = Retries::default();
        for run in touched {
            let Some(Write::Again { due_at, attempt, error, ended_as, ended_at }) = run.write else { continue };
            retries.runs.push(run);
            retries.ids.push(run.id);
            retries.executions.push(run.execution.0);
            retries.states.push(run.state.status.code().into());
            retries.due_ats.push(micros(due_at));
            retries.attempts.push(i32::try_from(attempt).unwrap_or(i32::MAX));
            retries.errors.push(error);
            retries.ended_as.push(ended_as.code().into());
            retries.ended_ats.push(micros(ended_at));
        }
        retries.common = Common::of(&retries.runs);
        retries
    }

    fn params(&self) -> Vec<Param<'_>> {
        vec![
            &self.ids,
            &self.executions,
            &self.states,
            &self.due_ats,
            &self.attempts,
            &self.errors,
            &self.ended_as,
            &self.ended_ats,
            &self.common.started_ats,
            &self.common.workers,
            &self.common.log_seqs,
        ]
    }
}

fn count(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
