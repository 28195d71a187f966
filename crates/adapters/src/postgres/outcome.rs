//! What came of runs, written: notes on those that go on, ends, retries, log lines, counts.

use std::collections::HashMap;

use convoke_core::jobs::lifecycle::Next;
use convoke_core::jobs::run::RunEnd;
use convoke_core::jobs::{ExecutionStatus, Outcome, Status};
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

/// Writes and commits: one statement for each kind of outcome, sent together.
pub(super) async fn write(hot: &mut Hot, runs: &HashMap<Uuid, Run<'_>>) -> failure::Result<()> {
    let mut touched: Vec<&Run<'_>> = runs.values().filter(|run| run.noted).collect();
    // In one order for everybody.
    touched.sort_unstable_by_key(|run| run.id);
    let mut moves = Moves::default();
    for run in &touched {
        moves.moved(run.queue, Some(run.was), Some(run.status()), 1);
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

/// What all kinds of outcome say of a run.
struct Common<'r> {
    started_ats: Vec<Option<i64>>,
    workers: Vec<Option<&'r str>>,
    owners: Vec<Option<&'r str>>,
    percents: Vec<Option<i16>>,
    messages: Vec<Option<&'r str>>,
    by_channel: Vec<bool>,
    log_seqs: Vec<i64>,
}

impl<'r> Common<'r> {
    fn of(runs: &[&'r Run<'r>]) -> Self {
        Common {
            started_ats: instants(runs, |run| run.started_at),
            workers: each(runs, |run| run.worker.as_ref().map(WorkerId::as_str)),
            owners: each(runs, |run| run.owner.as_ref().map(NodeId::as_str)),
            percents: each(runs, |run| run.progress.as_ref().map(|progress| progress.percent.into())),
            messages: each(runs, |run| run.progress.as_ref().and_then(|progress| progress.message.as_deref())),
            by_channel: each(runs, |run| run.by_channel),
            log_seqs: each(runs, |run| run.log_seq),
        }
    }
}

struct Notes<'r> {
    ids: Vec<Uuid>,
    executions: Vec<Uuid>,
    ownerships: Vec<i16>,
    deadlines: Vec<Option<i64>>,
    /// How far each run's log is recorded.
    log_nexts: Vec<i64>,
    log_kepts: Vec<i64>,
    common: Common<'r>,
}

impl<'r> Notes<'r> {
    fn of(touched: &[&'r Run<'r>]) -> Self {
        let runs: Vec<&Run<'_>> = touched.iter().copied().filter(|run| run.end.is_none()).collect();
        Notes {
            ids: each(&runs, |run| run.id),
            executions: each(&runs, |run| run.execution.0),
            ownerships: each(&runs, |run| run.ownership.code().into()),
            deadlines: instants(&runs, |run| run.deadline),
            log_nexts: each(&runs, |run| i64::try_from(run.log.next).unwrap_or(i64::MAX)),
            log_kepts: each(&runs, |run| i64::try_from(run.log.kept).unwrap_or(i64::MAX)),
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
            &common.by_channel,
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
            for (seq, taken, line) in &run.logs {
                let (level, message) = taken.text(line);
                lines.jobs.push(run.seq);
                lines.seqs.push(*seq);
                lines.ats.push(micros(line.at));
                lines.levels.push(level.code().into());
                lines.executions.push(run.execution.0);
                lines.messages.push(message);
            }
        }
        lines
    }

    fn params(&self) -> Vec<Param<'_>> {
        vec![&self.jobs, &self.seqs, &self.ats, &self.levels, &self.executions, &self.messages]
    }
}

/// How a run ended, for those that did.
fn ends<'r, T>(runs: &[&'r Run<'r>], get: impl Fn(&'r RunEnd) -> T) -> Vec<T> {
    runs.iter().filter_map(|run| run.end.map(|(end, _)| get(end))).collect()
}

struct Finals<'r> {
    ids: Vec<Uuid>,
    executions: Vec<Uuid>,
    states: Vec<i16>,
    ats: Vec<i64>,
    errors: Vec<Option<&'r str>>,
    results: Vec<Option<&'r str>>,
    run_ends: Vec<Option<i16>>,
    common: Common<'r>,
}

impl<'r> Finals<'r> {
    fn of(touched: &[&'r Run<'r>]) -> Self {
        let is_final = |run: &&&Run<'_>| matches!(run.end, Some((_, Next::Final(_))));
        let runs: Vec<&Run<'_>> = touched.iter().filter(is_final).copied().collect();
        Finals {
            ids: each(&runs, |run| run.id),
            executions: each(&runs, |run| run.execution.0),
            states: each(&runs, |run| run.status().code().into()),
            ats: ends(&runs, |end| micros(end.at)),
            errors: ends(&runs, |end| end.outcome.error()),
            results: ends(&runs, |end| match &end.outcome {
                Outcome::Completed { result } => result.as_ref().map(Json::as_str),
                _ => None,
            }),
            run_ends: each(&runs, run_end),
            common: Common::of(&runs),
        }
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
            &common.by_channel,
            &common.log_seqs,
        ]
    }
}

/// How the run ended, where the job's state does not say.
fn run_end(run: &Run<'_>) -> Option<i16> {
    let by_state = match run.status() {
        Status::Completed => ExecutionStatus::Completed,
        Status::Failed => ExecutionStatus::Failed,
        Status::TimedOut => ExecutionStatus::TimedOut,
        _ => ExecutionStatus::Cancelled,
    };
    let ended = run.end.map(|(end, _)| end.outcome.ended_as());
    ended.filter(|ended| *ended != by_state).map(|ended| ended.code().into())
}

struct Retries<'r> {
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
        let mut runs = Vec::new();
        let (mut due_ats, mut attempts) = (Vec::new(), Vec::new());
        for run in touched {
            if let Some((_, Next::Again { due_at, counted })) = run.end {
                let attempt = if counted { run.attempt } else { run.attempt.saturating_sub(1) };
                runs.push(*run);
                due_ats.push(micros(due_at));
                attempts.push(i32::try_from(attempt).unwrap_or(i32::MAX));
            }
        }
        Retries {
            ids: each(&runs, |run| run.id),
            executions: each(&runs, |run| run.execution.0),
            states: each(&runs, |run| run.status().code().into()),
            due_ats,
            attempts,
            errors: ends(&runs, |end| end.outcome.error()),
            ended_as: ends(&runs, |end| end.outcome.ended_as().code().into()),
            ended_ats: ends(&runs, |end| micros(end.at)),
            common: Common::of(&runs),
        }
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
