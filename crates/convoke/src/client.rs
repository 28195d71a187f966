//! The client: enqueues jobs and waits for them.

use std::sync::Arc;

use convoke_core::JobId;
use convoke_core::jobs::Job as JobView;
use convoke_core::jobs::link::{ClientLink, Enqueued, ScheduleCall};
use convoke_runtime::jobs::client;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::connect;
use crate::enqueue::{Enqueue, EnqueueAll};
use crate::error::Result;
use crate::handle::Handle;
use crate::job::Job;
use crate::schedule::{self, PutSchedule, Schedule};

/// Enqueues and reads jobs. Cheap to clone; clones share their connections. Calls are retried for some seconds while
/// the coordinator is unreachable, and never create a job twice.
#[derive(Debug, Clone)]
pub struct Client {
    inner: client::Client,
}

impl Client {
    /// Checks the address; the first call opens a connection. Several addresses, separated by commas, are nodes of one
    /// cluster: calls go to any of them.
    ///
    /// With the address of a bus (`redis://…`) a client can only enqueue, and a job is acknowledged when the bus has
    /// stored it. Reading jobs, waiting for them and changing them needs an `http://` address.
    pub async fn connect(url: &str) -> Result<Client> {
        Ok(Client::over(connect::client_way(url, None, connect::BUS_PREFIX).await?))
    }

    /// Like [`connect`](Self::connect) with the address of a bus, with another prefix of the coordinators' channels
    /// than `convoke`.
    pub async fn connect_with_prefix(url: &str, bus_prefix: &str) -> Result<Client> {
        Ok(Client::over(connect::client_way(url, None, bus_prefix).await?))
    }

    /// Like [`connect`](Self::connect), with a token of the role `enqueue`.
    pub async fn connect_with(url: &str, token: impl Into<String>) -> Result<Client> {
        Ok(Client::over(connect::client_link(url, Some(token.into()))?))
    }

    /// Returns a client on the given link to a coordinator.
    pub fn over(link: Arc<dyn ClientLink>) -> Client {
        Client { inner: client::Client::new(link) }
    }

    /// Returns a request to enqueue a job. It is sent when it is awaited.
    pub fn enqueue<T: Job>(&self, job: T) -> Enqueue<T::Output> {
        Enqueue::new(self.inner.clone(), T::TYPE, &job)
    }

    /// Returns a request to enqueue many jobs. Up to 10,000 jobs are enqueued all or none; more are sent in several
    /// requests.
    pub fn enqueue_all<T: Job>(&self, jobs: impl IntoIterator<Item = T>) -> EnqueueAll<T::Output> {
        EnqueueAll::new(self.inner.clone(), T::TYPE, jobs.into_iter())
    }

    /// Like [`enqueue`](Self::enqueue), for a job type that has no Rust type in this program.
    pub fn enqueue_raw(&self, job_type: &str, args: impl Serialize) -> Enqueue<serde_json::Value> {
        Enqueue::new(self.inner.clone(), job_type, &args)
    }

    /// Enqueues requests together, each with options of its own. Up to 10,000 are enqueued all or none; more are sent in
    /// several requests.
    pub async fn enqueue_batch<O: DeserializeOwned>(
        &self,
        requests: impl IntoIterator<Item = Enqueue<O>>,
    ) -> Result<Vec<Handle<O>>> {
        let specs = requests.into_iter().map(Enqueue::into_spec).collect::<Result<_>>()?;
        let enqueued = self.inner.enqueue(specs).await?;
        Ok(enqueued.into_iter().map(|enqueued| Handle::new(self.inner.clone(), enqueued)).collect())
    }

    /// Returns the handle of a job that was enqueued before, or by another program. Nothing is sent.
    pub fn handle<O: DeserializeOwned>(&self, id: JobId) -> Handle<O> {
        Handle::new(self.inner.clone(), Enqueued { id, created: false })
    }

    /// Reads a job.
    pub async fn job(&self, id: JobId) -> Result<JobView> {
        Ok(self.inner.job(id).await?)
    }

    /// Cancels a job, whether it waits or runs.
    pub async fn cancel(&self, id: JobId) -> Result<JobView> {
        Ok(self.inner.cancel(id, None).await?)
    }

    /// Makes a failed, timed-out or cancelled job pending again, with all its retries.
    pub async fn retry(&self, id: JobId) -> Result<JobView> {
        Ok(self.inner.retry(id).await?)
    }

    /// Returns a request to make a schedule whose ticks enqueue this job, or to replace the schedule of this name. It is sent
    /// when it is awaited. Changing schedules needs a token of the role `admin`.
    ///
    /// ```no_run
    /// # use convoke::{Client, Job};
    /// # #[derive(serde::Serialize, serde::Deserialize)]
    /// # struct Report;
    /// # impl Job for Report {
    /// #     const TYPE: &'static str = "report.build";
    /// #     type Output = ();
    /// # }
    /// # async fn make(client: Client) -> convoke::Result<()> {
    /// let nightly = client.schedule("nightly", Report).cron("0 3 * * *").tz("Europe/Berlin").queue("reports").await?;
    /// println!("next at {:?}", nightly.next_run_at);
    /// # Ok(())
    /// # }
    /// ```
    pub fn schedule<T: Job>(&self, name: &str, job: T) -> PutSchedule {
        PutSchedule::new(self.inner.clone(), name, T::TYPE, &job)
    }

    /// Like [`schedule`](Self::schedule), for a job type that has no Rust type in this program.
    pub fn schedule_raw(&self, name: &str, job_type: &str, args: impl Serialize) -> PutSchedule {
        PutSchedule::new(self.inner.clone(), name, job_type, &args)
    }

    /// Reads all schedules, by name.
    pub async fn schedules(&self) -> Result<Vec<Schedule>> {
        #[derive(serde::Deserialize)]
        struct All {
            schedules: Vec<Schedule>,
        }
        let All { schedules } = schedule::read(&self.inner.schedule(ScheduleCall::List).await?)?;
        Ok(schedules)
    }

    /// Reads a schedule.
    pub async fn read_schedule(&self, name: &str) -> Result<Schedule> {
        schedule::read(&self.inner.schedule(ScheduleCall::Get(schedule::name_of(name)?)).await?)
    }

    /// Pauses a schedule: it makes no jobs until it is resumed.
    pub async fn pause_schedule(&self, name: &str) -> Result<Schedule> {
        schedule::read(&self.inner.schedule(ScheduleCall::Pause(schedule::name_of(name)?)).await?)
    }

    /// Resumes a schedule that was paused.
    pub async fn resume_schedule(&self, name: &str) -> Result<Schedule> {
        schedule::read(&self.inner.schedule(ScheduleCall::Resume(schedule::name_of(name)?)).await?)
    }

    /// Enqueues the job of a schedule now, beside its ticks.
    pub async fn trigger_schedule(&self, name: &str) -> Result<JobView> {
        schedule::read(&self.inner.schedule(ScheduleCall::Trigger(schedule::name_of(name)?)).await?)
    }

    /// Deletes a schedule. The jobs that it has made stay.
    pub async fn remove_schedule(&self, name: &str) -> Result<()> {
        self.inner.schedule(ScheduleCall::Remove(schedule::name_of(name)?)).await?;
        Ok(())
    }
}
