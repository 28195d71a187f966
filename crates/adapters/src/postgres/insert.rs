//! New jobs.
//!
//! Those that nothing can be in the way of but their own id, of queues and types that are known, go by the fast lane: one
//! statement for all that wait. The rest (a unique key, a tick, a new queue) are looked at one by one, inside the database,
//! by the same function that serves applications' own transactions.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use convoke_core::jobs::NewJob;
use convoke_core::jobs::link::Enqueued;
use convoke_core::{Error, JobId, JobType, QueueName, Result};
use parking_lot::Mutex;
use tokio_postgres::Row;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::failure::{self, Failure};
use super::lane::{Apart, BYTES_PER_WEIGHT, Work};
use super::names::{Named, Names};
use super::rows::{check_exact, duration_micros, get, jitter_code, job_id, micros};
use super::server::{Hot, Ways, lent};

/// A job for the fast lane, with the ids of its names.
pub(super) struct Plain {
    job: NewJob,
    queue: i32,
    job_type: i32,
}

pub(super) struct PlainInsert;

/// An insert waits for another transaction's commit, but not for one that an application keeps open.
const LOCK_TIMEOUT: &str = "lock_timeout=250";

#[async_trait]
impl Work for PlainInsert {
    type Item = Plain;
    type Answer = Enqueued;
    const LOCK_TIMEOUT: &'static str = LOCK_TIMEOUT;

    fn weight(item: &Plain) -> usize {
        1 + item.job.definition.args.as_str().len() / BYTES_PER_WEIGHT
    }

    async fn run(&self, hot: &mut Hot, items: &[Plain]) -> failure::Result<Vec<Enqueued>> {
        let statement = hot.prepared(include_str!("sql/insert.sql")).await?;
        let slot = hot.slot;
        let column = |get: fn(&Plain) -> i64| items.iter().map(get).collect::<Vec<i64>>();
        let small = |get: fn(&Plain) -> i16| items.iter().map(get).collect::<Vec<i16>>();
        let ids: Vec<Uuid> = items.iter().map(|item| item.job.id.0).collect();
        let queues: Vec<i32> = items.iter().map(|item| item.queue).collect();
        let types: Vec<i32> = items.iter().map(|item| item.job_type).collect();
        let states = small(|item| item.job.status().code().into());
        let priorities = small(|item| item.job.definition.priority.code().into());
        let due_ats = column(|item| micros(item.job.due_at()));
        let created_ats = column(|item| micros(item.job.created_at));
        let scheduled_ats: Vec<Option<i64>> = items.iter().map(|item| item.job.run_at.map(micros)).collect();
        let max_retries: Vec<i32> = items.iter().map(|item| retries(&item.job)).collect();
        let timeouts: Vec<Option<i64>> =
            items.iter().map(|item| item.job.definition.timeout.map(duration_micros)).collect();
        let initials = column(|item| duration_micros(item.job.definition.retry_policy.initial_delay));
        let multipliers: Vec<f64> = items.iter().map(|item| item.job.definition.retry_policy.multiplier).collect();
        let maxima = column(|item| duration_micros(item.job.definition.retry_policy.max_delay));
        let jitters = small(|item| jitter_code(item.job.definition.retry_policy.jitter));
        let correlations: Vec<Option<&str>> =
            items.iter().map(|item| item.job.definition.correlation_id.as_deref()).collect();
        let args: Vec<&str> = items.iter().map(|item| item.job.definition.args.as_str()).collect();
        let params: [&(dyn ToSql + Sync); 17] = [
            &ids,
            &queues,
            &types,
            &states,
            &priorities,
            &due_ats,
            &created_ats,
            &scheduled_ats,
            &max_retries,
            &timeouts,
            &initials,
            &multipliers,
            &maxima,
            &jitters,
            &correlations,
            &args,
            &slot,
        ];
        match hot.client.execute(&statement, &params).await {
            Ok(_) => return Ok(ids.iter().map(|id| Enqueued { id: JobId(*id), created: true }).collect()),
            Err(error) if error.code() == Some(&SqlState::UNIQUE_VIOLATION) => {}
            Err(error) => return Err(Failure::of_commit(error)),
        }
        // One of them is known, which is rare: to look out for it costs a third more.
        let statement = hot.prepared(include_str!("sql/insert_known.sql")).await?;
        let rows = hot.client.query(&statement, &params).await.map_err(Failure::of_commit)?;
        // An id twice in one group: the first made the job.
        let mut created = rows.iter().map(|row| get(row, 0)).collect::<failure::Result<HashSet<Uuid>>>()?;
        Ok(ids.iter().map(|id| Enqueued { id: JobId(*id), created: created.remove(id) }).collect())
    }

    async fn run_apart(&self, hot: &mut Hot, items: &[Plain], calls: &[Range<usize>]) -> Option<Apart<Enqueued>> {
        let jobs: Vec<&NewJob> = items.iter().map(|item| &item.job).collect();
        Some(store_calls(hot, &jobs, calls).await)
    }
}

fn retries(job: &NewJob) -> i32 {
    i32::try_from(job.definition.max_retries).unwrap_or(i32::MAX)
}

pub(super) struct CarefulInsert {
    pub(super) locked: Arc<LockedKeys>,
}

#[async_trait]
impl Work for CarefulInsert {
    type Item = NewJob;
    type Answer = Enqueued;
    const LOCK_TIMEOUT: &'static str = LOCK_TIMEOUT;

    fn weight(item: &NewJob) -> usize {
        // Each is a dozen statements.
        8 + item.definition.args.as_str().len() / BYTES_PER_WEIGHT
    }

    async fn run(&self, hot: &mut Hot, jobs: &[NewJob]) -> failure::Result<Vec<Enqueued>> {
        let statement = hot.prepared(STORE_JOBS).await?;
        let jobs: Vec<&NewJob> = jobs.iter().collect();
        let columns = Columns::of(&jobs);
        let rows = hot.client.query(&statement, &columns.params()).await.map_err(Failure::of_commit)?;
        enqueued(&rows)
    }

    async fn run_apart(&self, hot: &mut Hot, jobs: &[NewJob], calls: &[Range<usize>]) -> Option<Apart<Enqueued>> {
        let jobs: Vec<&NewJob> = jobs.iter().collect();
        Some(store_calls(hot, &jobs, calls).await)
    }

    fn found_locked(&self, jobs: &[NewJob]) {
        self.locked.remember(jobs);
    }
}

/// Stores the jobs of several calls in one statement, which commits those that nothing is in the way of.
async fn store_calls(hot: &mut Hot, jobs: &[&NewJob], calls: &[Range<usize>]) -> Apart<Enqueued> {
    let statement = hot.prepared(include_str!("sql/store_calls.sql")).await?;
    let columns = Columns::of(jobs);
    let numbers: Vec<i32> = (0..).zip(calls).flat_map(|(number, call)| call.clone().map(move |_| number)).collect();
    let mut params = columns.params().to_vec();
    params.push(&numbers);
    let rows = hot.client.query(&statement, &params).await.map_err(Failure::of_commit)?;
    let mut answers: Vec<failure::Result<Vec<Enqueued>>> = calls.iter().map(|_| Ok(Vec::new())).collect();
    for row in &rows {
        let number: i32 = get(row, 0)?;
        let answer = usize::try_from(number).ok().and_then(|number| answers.get_mut(number));
        let answer = answer.ok_or_else(|| Failure::Unreadable(format!("a call is missing: {number}")))?;
        if let Some(code) = get::<Option<String>>(row, 3)? {
            *answer = Err(Failure::Undone(code, get(row, 4)?));
        } else if let Ok(stored) = answer {
            stored.push(Enqueued { id: job_id(row, 1)?, created: get(row, 2)? });
        }
    }
    Ok(answers)
}

/// Unique keys that were found locked a moment ago. A call for one of them is rejected at once, so that retries of many clients
/// do not make the calls beside them wait again and again.
#[derive(Debug, Default)]
pub(super) struct LockedKeys(Mutex<HashMap<String, Instant>>);

impl LockedKeys {
    /// No longer than clients are told to wait before they retry.
    const REMEMBERED_FOR: Duration = Duration::from_secs(1);
    const REMEMBERED_MAX: usize = 10_000;

    /// Remembers the key of a call that has only one: of several it is not known which is locked.
    fn remember(&self, jobs: &[NewJob]) {
        let mut keys = jobs.iter().filter_map(|job| job.definition.unique_key.as_ref());
        let (Some(key), None) = (keys.next(), keys.next()) else { return };
        let mut locked = self.0.lock();
        if locked.len() >= Self::REMEMBERED_MAX {
            locked.retain(|_, at| at.elapsed() < Self::REMEMBERED_FOR);
        }
        if locked.len() < Self::REMEMBERED_MAX {
            locked.insert(key.clone(), Instant::now());
        }
    }

    /// `Unavailable` if one of the keys was found locked lately.
    pub(super) fn check(&self, jobs: &[NewJob]) -> Result<()> {
        let mut locked = self.0.lock();
        if locked.is_empty() {
            return Ok(());
        }
        for key in jobs.iter().filter_map(|job| job.definition.unique_key.as_ref()) {
            match locked.get(key) {
                Some(at) if at.elapsed() < Self::REMEMBERED_FOR => {
                    return Err(Error::locked());
                }
                Some(_) => drop(locked.remove(key)),
                None => {}
            }
        }
        Ok(())
    }
}

pub(super) const STORE_JOBS: &str = include_str!("sql/store_jobs.sql");

/// What `sql/store_jobs.sql` answers.
pub(super) fn enqueued(rows: &[Row]) -> failure::Result<Vec<Enqueued>> {
    rows.iter().map(|row| Ok(Enqueued { id: job_id(row, 0)?, created: get(row, 1)? })).collect()
}

/// The arrays of `sql/store_jobs.sql`.
pub(super) struct Columns<'j> {
    ids: Vec<Uuid>,
    texts: [Vec<&'j str>; 3],
    priorities: Vec<i16>,
    max_retries: Vec<i32>,
    initials: Vec<i64>,
    multipliers: Vec<f64>,
    maxima: Vec<i64>,
    jitters: Vec<i16>,
    timeouts: Vec<Option<i64>>,
    correlations: Vec<Option<&'j str>>,
    keys: Vec<Option<&'j str>>,
    key_untils: Vec<Option<i64>>,
    created_ats: Vec<i64>,
    run_ats: Vec<Option<i64>>,
    schedules: Vec<Option<&'j str>>,
}

impl<'j> Columns<'j> {
    pub(super) fn of(jobs: &[&'j NewJob]) -> Self {
        fn each<'j, T>(jobs: &[&'j NewJob], get: impl Fn(&'j NewJob) -> T) -> Vec<T> {
            jobs.iter().map(|job| get(job)).collect()
        }
        Columns {
            ids: each(jobs, |job| job.id.0),
            texts: [
                each(jobs, |job| job.definition.job_type.as_str()),
                each(jobs, |job| job.definition.queue.as_str()),
                each(jobs, |job| job.definition.args.as_str()),
            ],
            priorities: each(jobs, |job| job.definition.priority.code().into()),
            max_retries: each(jobs, retries),
            initials: each(jobs, |job| duration_micros(job.definition.retry_policy.initial_delay)),
            multipliers: each(jobs, |job| job.definition.retry_policy.multiplier),
            maxima: each(jobs, |job| duration_micros(job.definition.retry_policy.max_delay)),
            jitters: each(jobs, |job| jitter_code(job.definition.retry_policy.jitter)),
            timeouts: each(jobs, |job| job.definition.timeout.map(duration_micros)),
            correlations: each(jobs, |job| job.definition.correlation_id.as_deref()),
            keys: each(jobs, |job| job.definition.unique_key.as_deref()),
            key_untils: each(jobs, |job| job.unique_until.map(micros)),
            created_ats: each(jobs, |job| micros(job.created_at)),
            run_ats: each(jobs, |job| job.run_at.map(micros)),
            schedules: each(jobs, |job| job.schedule.as_ref().map(AsRef::as_ref)),
        }
    }

    pub(super) fn params(&self) -> [&(dyn ToSql + Sync); 17] {
        [
            &self.ids,
            &self.texts[0],
            &self.texts[1],
            &self.texts[2],
            &self.priorities,
            &self.max_retries,
            &self.initials,
            &self.multipliers,
            &self.maxima,
            &self.jitters,
            &self.timeouts,
            &self.correlations,
            &self.keys,
            &self.key_untils,
            &self.created_ats,
            &self.run_ats,
            &self.schedules,
        ]
    }
}

/// Refuses what cannot be kept, before anything is sent: it would fail its neighbours.
pub(super) fn check(jobs: &[NewJob]) -> Result<(), convoke_core::Invalid> {
    for job in jobs {
        check_exact("correlationId", job.definition.correlation_id.as_deref())?;
        check_exact("uniqueKey", job.definition.unique_key.as_deref())?;
    }
    Ok(())
}

/// Which way a batch goes.
pub(super) enum Way {
    Fast(Vec<Plain>),
    Careful(Vec<NewJob>),
}

pub(super) async fn way(ways: &Ways, names: &Names, jobs: Vec<NewJob>) -> Result<Way> {
    if jobs.iter().any(|job| job.definition.unique_key.is_some() || job.schedule.is_some()) {
        return Ok(Way::Careful(jobs));
    }
    let known =
        |job: &NewJob| Some((names.queues.id(&job.definition.queue)?, names.types.id(&job.definition.job_type)?));
    if !jobs.iter().all(|job| known(job).is_some()) {
        lent!(Read, ways, |db| learn(db, names, &jobs))?;
    }
    let Some(ids) = jobs.iter().map(known).collect::<Option<Vec<_>>>() else { return Ok(Way::Careful(jobs)) };
    let plain = jobs.into_iter().zip(ids).map(|(job, (queue, job_type))| Plain { job, queue, job_type });
    Ok(Way::Fast(plain.collect()))
}

async fn learn(db: &tokio_postgres::Client, names: &Names, jobs: &[NewJob]) -> failure::Result<()> {
    names.queues.learn(db, QueueName::BY_NAME, jobs.iter().map(|job| job.definition.queue.clone())).await?;
    names.types.learn(db, JobType::BY_NAME, jobs.iter().map(|job| job.definition.job_type.clone())).await
}
