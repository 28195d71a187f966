//! The client: enqueues, waits, cancels.
//!
//! Jobs get their ids here, before the first try, so that an enqueue whose reply was lost can be sent again: the
//! coordinator finds the first. Calls are retried while the coordinator is unavailable, for as long as `PATIENCE`; then
//! the caller gets the error and decides.

use std::sync::Arc;
use std::time::Duration;

use convoke_core::jobs::link::{ClientLink, Enqueued, ScheduleCall};
use convoke_core::jobs::{Job, JobSpec};
use convoke_core::limits::{BATCH_BYTES_MAX, BATCH_JOBS_MAX};
use convoke_core::{JobId, Json, Result};
use tokio::time::Instant;

use crate::machine;

const PATIENCE: Duration = Duration::from_secs(10);
const FIRST_DELAY: Duration = Duration::from_millis(50);
const DELAY_MAX: Duration = Duration::from_secs(2);
/// How long the coordinator may hold a request until a job has ended.
const WAIT: Duration = Duration::from_secs(20);
/// The size of a job in a request beside its arguments: a rough upper bound.
const SPEC_BYTES: usize = 1 << 10;

/// A client of the coordinator that retries calls while the coordinator is unavailable.
#[derive(Clone)]
pub struct Client {
    link: Arc<dyn ClientLink>,
}

impl Client {
    /// Creates a client that sends its calls over `link`.
    pub fn new(link: Arc<dyn ClientLink>) -> Self {
        Client { link }
    }

    /// Enqueues jobs: all or none of those that fit into one request. More are sent in several requests, in order.
    pub async fn enqueue(&self, mut jobs: Vec<JobSpec>) -> Result<Vec<Enqueued>> {
        for job in &mut jobs {
            job.id.get_or_insert_with(|| JobId(machine::id()));
        }
        let mut enqueued = Vec::with_capacity(jobs.len());
        let mut rest = jobs.as_slice();
        while !rest.is_empty() {
            let (batch, after) = rest.split_at(batch_len(rest));
            enqueued.extend(patiently(|| self.link.enqueue(batch.to_vec())).await?);
            rest = after;
        }
        Ok(enqueued)
    }

    /// Returns the job as it is now, without waiting.
    pub async fn job(&self, id: JobId) -> Result<Job> {
        patiently(|| self.link.job(id, None)).await
    }

    /// Returns the job once it has ended, however long that takes.
    pub async fn ended(&self, id: JobId) -> Result<Job> {
        loop {
            let job = patiently(|| self.link.job(id, Some(WAIT))).await?;
            if !job.status.is_live() {
                return Ok(job);
            }
        }
    }

    /// Cancels a live job. `reason` is recorded with it.
    pub async fn cancel(&self, id: JobId, reason: Option<String>) -> Result<Job> {
        patiently(|| self.link.cancel(id, reason.clone())).await
    }

    /// Runs an ended job again. Not retried if the reply was lost: a second call could redrive it twice.
    pub async fn retry(&self, id: JobId) -> Result<Job> {
        self.link.retry(id).await
    }

    /// Makes, reads or changes a schedule. A trigger is not sent again if its reply was lost: it could make two jobs.
    pub async fn schedule(&self, call: ScheduleCall) -> Result<Json> {
        match call {
            ScheduleCall::Trigger(_) => self.link.schedule(call).await,
            call => patiently(|| self.link.schedule(call.clone())).await,
        }
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

/// Returns how many of these fit into one request: at least one.
fn batch_len(jobs: &[JobSpec]) -> usize {
    let mut bytes = 0;
    let fits = jobs.iter().take(BATCH_JOBS_MAX).take_while(|job| {
        bytes += SPEC_BYTES + job.template.args.as_ref().map_or(0, |args| args.as_str().len());
        bytes <= BATCH_BYTES_MAX
    });
    fits.count().max(1)
}

/// Retries an idempotent call while the coordinator is unavailable.
async fn patiently<T, F: Future<Output = Result<T>>>(mut call: impl FnMut() -> F) -> Result<T> {
    let (since, mut delay) = (Instant::now(), FIRST_DELAY);
    loop {
        match call().await {
            Err(error) if error.is_transient() && since.elapsed() + delay < PATIENCE => {
                tracing::debug!(%error, retry_in_ms = delay.as_millis() as u64, "call to the coordinator failed");
                tokio::time::sleep(delay.mul_f64(0.5 + machine::fraction() / 2.0)).await;
                delay = (delay * 2).min(DELAY_MAX);
            }
            answered => return answered,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use async_trait::async_trait;
    use convoke_core::jobs::{RetrySettings, Status};
    use convoke_core::{Error, JobType};
    use jiff::Timestamp;
    use parking_lot::Mutex;

    use super::*;

    /// Fails as often as it is set to, then succeeds.
    #[derive(Default)]
    struct Fake {
        failures: Mutex<VecDeque<Error>>,
        batches: Mutex<Vec<Vec<JobId>>>,
        looks: Mutex<Vec<Option<Duration>>>,
    }

    impl Fake {
        fn failing(errors: impl IntoIterator<Item = Error>) -> Arc<Self> {
            Arc::new(Fake { failures: Mutex::new(errors.into_iter().collect()), ..Fake::default() })
        }

        fn answer(&self) -> Result<()> {
            self.failures.lock().pop_front().map_or(Ok(()), Err)
        }
    }

    #[async_trait]
    impl ClientLink for Fake {
        async fn enqueue(&self, jobs: Vec<JobSpec>) -> Result<Vec<Enqueued>> {
            let ids: Vec<_> = jobs.iter().map(|job| job.id.expect("the client makes ids")).collect();
            self.batches.lock().push(ids.clone());
            self.answer()?;
            Ok(ids.into_iter().map(|id| Enqueued { id, created: true }).collect())
        }

        async fn job(&self, id: JobId, wait: Option<Duration>) -> Result<Job> {
            self.looks.lock().push(wait);
            self.answer()?;
            let new = spec(0).into_job(id, Timestamp::UNIX_EPOCH, &RetrySettings::default())?;
            let status = if self.looks.lock().len() < 4 { Status::Running } else { Status::Completed };
            Ok(Job { status, ..new.into_stored() })
        }

        async fn cancel(&self, id: JobId, _: Option<String>) -> Result<Job> {
            self.job(id, None).await
        }

        async fn retry(&self, id: JobId) -> Result<Job> {
            self.job(id, None).await
        }

        async fn schedule(&self, _: ScheduleCall) -> Result<Json> {
            self.looks.lock().push(None);
            self.answer()?;
            Ok(Json::null())
        }
    }

    fn spec(args_bytes: usize) -> JobSpec {
        let args = Json::of(&"x".repeat(args_bytes)).ok();
        JobSpec::new(JobType::new("a").expect("a name")).with(|job| job.args = args)
    }

    fn lost() -> Error {
        Error::unknown("the coordinator", "cut")
    }

    #[tokio::test(start_paused = true)]
    async fn an_enqueue_whose_answer_was_lost_is_sent_again_with_the_same_ids() {
        let fake = Fake::failing([lost(), Error::unavailable("the coordinator", "away")]);
        let enqueued = Client::new(fake.clone()).enqueue(vec![spec(1), spec(1)]).await.expect("made");
        let batches = fake.batches.lock();
        assert_eq!(batches.len(), 3);
        assert!(batches.iter().all(|ids| *ids == enqueued.iter().map(|job| job.id).collect::<Vec<_>>()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_coordinator_that_stays_away_is_an_error_in_the_end() {
        let fake = Fake::failing((0..1_000).map(|_| lost()));
        let error = Client::new(fake).enqueue(vec![spec(1)]).await.expect_err("away");
        assert!(matches!(error, Error::Unknown { .. }));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_refused_is_not_sent_again() {
        let fake = Fake::failing([Error::denied("no")]);
        assert!(Client::new(fake.clone()).enqueue(vec![spec(1)]).await.is_err_and(|error| error.is_denied()));
        assert_eq!(fake.batches.lock().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn more_jobs_than_a_request_takes_are_sent_in_several() {
        let fake = Fake::failing([]);
        let client = Client::new(fake.clone());
        let many = client.enqueue((0..BATCH_JOBS_MAX + 1).map(|_| spec(1)).collect()).await.expect("made");
        assert_eq!(many.len(), BATCH_JOBS_MAX + 1);
        client.enqueue((0..40).map(|_| spec(1 << 20)).collect()).await.expect("made");
        let sizes: Vec<_> = fake.batches.lock().iter().map(Vec::len).collect();
        assert_eq!(sizes, [BATCH_JOBS_MAX, 1, 31, 9]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_schedule_is_put_again_after_a_lost_reply_and_not_triggered_again() {
        let name = || convoke_core::ScheduleName::new("s").expect("a name");
        let fake = Fake::failing([lost()]);
        Client::new(fake.clone()).schedule(ScheduleCall::Put(name(), Json::null())).await.expect("put");
        assert_eq!(fake.looks.lock().len(), 2);
        let fake = Fake::failing([lost()]);
        assert!(Client::new(fake.clone()).schedule(ScheduleCall::Trigger(name())).await.is_err());
        assert_eq!(fake.looks.lock().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_asks_until_the_job_has_ended() {
        let fake = Fake::failing([]);
        let job = Client::new(fake.clone()).ended(JobId(uuid::Uuid::nil())).await.expect("ended");
        assert_eq!(job.status, Status::Completed);
        assert_eq!(*fake.looks.lock(), [Some(WAIT); 4]);
    }
}
