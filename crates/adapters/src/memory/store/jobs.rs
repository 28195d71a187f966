//! The verbs of clients.

use async_trait::async_trait;
use convoke_core::jobs::link::Enqueued;
use convoke_core::jobs::listing::{Cursor, ROWS_READ_MAX, first_created, matches};
use convoke_core::jobs::{Job, LogLine, NewJob, Status};
use convoke_core::limits::{LOG_PAGE_BYTES_MAX, PAGE_BYTES_MAX, PAGE_MAX};
use convoke_core::ports::store::{Cancelled, HistoryPage, JobCount, JobPage, JobQuery, JobStore, Redriven};
use convoke_core::{ByteBudget, JobId, Result};
use jiff::Timestamp;

use super::MemoryStore;
use super::row::Row;
use super::state::{State, UniqueKey};

#[async_trait]
impl JobStore for MemoryStore {
    async fn insert(&self, jobs: Vec<NewJob>) -> Result<Vec<Enqueued>> {
        self.state().insert(jobs)
    }

    async fn get(&self, ids: &[JobId]) -> Result<Vec<Option<Job>>> {
        let state = self.state();
        Ok(ids.iter().map(|id| state.row(*id).map(|row| row.job.clone())).collect())
    }

    async fn list(&self, query: JobQuery) -> Result<JobPage> {
        let before = Cursor::of(&query)?;
        Ok(self.state().list(&query, before))
    }

    async fn count(&self, query: JobQuery) -> Result<JobCount> {
        let before = Cursor::of(&query)?;
        Ok(self.state().count(&query, before))
    }

    async fn history(&self, id: JobId, after: u64, limit: usize) -> Result<HistoryPage> {
        let state = self.state();
        let Some(row) = state.row(id) else { return Ok(HistoryPage::default()) };
        let skipped = usize::try_from(after).unwrap_or(usize::MAX);
        let runs = row.history.iter().cloned().chain(row.present_run()).skip(skipped);
        HistoryPage::of(after, limit, runs.map(Ok))
    }

    async fn logs(&self, id: JobId, after: u64, limit: usize) -> Result<Vec<LogLine>> {
        let state = self.state();
        let lines = state.row(id).map_or(&[][..], |row| &row.logs);
        let mut budget = ByteBudget::new(LOG_PAGE_BYTES_MAX);
        // Lines are numbered from 1 without gaps.
        let lines = lines.iter().skip(usize::try_from(after).unwrap_or(usize::MAX)).take(limit);
        Ok(lines.take_while(|line| budget.admits(line.message.len())).cloned().collect())
    }

    async fn cancel(&self, ids: &[JobId], reason: Option<&str>, now: Timestamp) -> Result<Vec<Cancelled>> {
        let mut state = self.state();
        Ok(ids.iter().map(|id| state.cancel(*id, reason, now)).collect())
    }

    async fn redrive(&self, ids: &[JobId], now: Timestamp) -> Result<Vec<Redriven>> {
        let mut state = self.state();
        Ok(ids.iter().map(|id| state.redrive(*id, now)).collect())
    }

    async fn purge(&self, ids: &[JobId], statuses: &[Status]) -> Result<u64> {
        let mut state = self.state();
        let mut purged = 0;
        for id in ids {
            let is_meant = |row: &&Row| !row.job.status.is_live() && statuses.contains(&row.job.status);
            let found = state.row(*id).filter(is_meant).map(|row| row.seq);
            if let Some(seq) = found {
                state.delete(seq);
                purged += 1;
            }
        }
        Ok(purged)
    }
}

impl State {
    /// Returns the rows among which the jobs of the query are, the newest first.
    fn candidates(&self, query: &JobQuery, before: Cursor) -> Box<dyn Iterator<Item = (u64, &Row)> + '_> {
        let (from, until) = query.times_read();
        let before =
            u64::try_from(before.0).unwrap_or_default().min(until.map_or(u64::MAX, |at| self.first_created(at)));
        let floor = from.map_or(0, |at| self.first_created(at)).min(before);
        match query.search_keys().into_iter().next() {
            Some(key) => {
                let seqs = self.indexes.of_key(key, before).take_while(move |seq| *seq >= floor);
                Box::new(seqs.filter_map(|seq| Some((seq, self.rows.get(&seq)?))))
            }
            None => Box::new(self.rows.range(floor..before).rev().map(|(seq, row)| (*seq, row))),
        }
    }

    fn count(&self, query: &JobQuery, before: Cursor) -> JobCount {
        let limit = query.limit.clamp(1, ROWS_READ_MAX) as u64;
        let mut rows = self.candidates(query, before);
        let (mut jobs, mut last) = (0, None);
        for (seq, row) in rows.by_ref().take(ROWS_READ_MAX) {
            jobs += u64::from(matches(query, &row.job));
            last = i64::try_from(seq).ok().map(|seq| Cursor(seq).to_string());
            if jobs == limit {
                break;
            }
        }
        JobCount { jobs, next_cursor: last.filter(|_| rows.next().is_some()) }
    }

    fn list(&self, query: &JobQuery, before: Cursor) -> JobPage {
        let limit = query.limit.clamp(1, PAGE_MAX);
        let mut rows = self.candidates(query, before);
        let mut page = JobPage::default();
        let mut budget = ByteBudget::new(PAGE_BYTES_MAX);
        let mut last = None;
        for (seq, row) in rows.by_ref().take(ROWS_READ_MAX) {
            if matches(query, &row.job) {
                if !budget.admits(row.job.payload_bytes()) {
                    page.next_cursor = last;
                    return page;
                }
                page.jobs.push(row.job.clone());
            }
            last = i64::try_from(seq).ok().map(|seq| Cursor(seq).to_string());
            if page.jobs.len() == limit {
                break;
            }
        }
        page.next_cursor = last.filter(|_| rows.next().is_some());
        page
    }

    /// Returns the number of the first job that was created then or later.
    fn first_created(&self, at: Timestamp) -> u64 {
        let end = self.rows.last_key_value().map_or(0, |(seq, _)| *seq + 1);
        let number = |seq: i64| u64::try_from(seq).unwrap_or_default();
        let next = |from: i64, below: i64| {
            let first = self.rows.range(number(from)..number(below)).next();
            Ok::<_, std::convert::Infallible>(first.map(|(seq, row)| (*seq as i64, row.job.created_at)))
        };
        match first_created(0, i64::try_from(end).unwrap_or(i64::MAX), at, next) {
            Ok(seq) => number(seq),
        }
    }

    fn cancel(&mut self, id: JobId, reason: Option<&str>, now: Timestamp) -> Cancelled {
        let Some(row) = self.row(id) else { return Cancelled::Unknown };
        if !row.job.status.is_live() {
            return Cancelled::Before(row.job.clone());
        }
        let run = row.job.execution_id;
        let job = self.change(row.seq, |row| {
            row.cancel(reason, now);
            row.job.clone()
        });
        Cancelled::Now { job, run }
    }

    fn redrive(&mut self, id: JobId, now: Timestamp) -> Redriven {
        let Some(row) = self.row(id) else { return Redriven::Unknown };
        let key = row.job.definition.unique_key.clone();
        let key_taken = key.as_deref().is_some_and(|key| self.key_holder(key, now).is_some_and(|holder| holder != id));
        if row.job.status.is_live() || row.job.status.to(Status::Pending).is_err() || key_taken {
            return Redriven::Refused(row.job.clone());
        }
        let (seq, until) = (row.seq, row.unique_until);
        if let Some(key) = key {
            self.hold_key(key, UniqueKey { job: id, until });
        }
        Redriven::Pending(self.change(seq, |row| {
            row.redrive(now);
            row.job.clone()
        }))
    }
}
