//! Requests to enqueue jobs: set options, then `.await`.

use std::marker::PhantomData;
use std::pin::Pin;
use std::time::Duration;

use convoke_core::jobs::{JobSpec, JobTemplate};
use convoke_core::{JobType, Json};
use convoke_runtime::jobs::client;
use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, Result};
use crate::handle::Handle;

/// A request to enqueue one job. Nothing is sent until it is awaited.
#[must_use = "nothing is enqueued until it is awaited"]
pub struct Enqueue<O> {
    client: client::Client,
    spec: Result<JobSpec>,
    output: PhantomData<fn() -> O>,
}

/// A request to enqueue many jobs with the same options. Nothing is sent until it is awaited.
#[must_use = "nothing is enqueued until it is awaited"]
pub struct EnqueueAll<O> {
    client: client::Client,
    specs: Result<Vec<JobSpec>>,
    output: PhantomData<fn() -> O>,
}

/// The options of the job itself, for all requests that have a template. An invalid option is returned as an error when the
/// request is sent, so that options can be chained.
macro_rules! template_options {
    () => {
        /// Sets the queue. Default: `default`.
        pub fn queue(self, queue: impl AsRef<str>) -> Self {
            match convoke_core::QueueName::new(queue) {
                Ok(queue) => self.each(|template| template.queue = Some(queue.clone())),
                Err(invalid) => self.fail(invalid.into()),
            }
        }

        /// Sets the priority, which decides the order of dispatch within the queue.
        pub fn priority(self, priority: convoke_core::jobs::Priority) -> Self {
            self.each(|template| template.priority = Some(priority))
        }

        /// Sets how many attempts may follow the first.
        pub fn max_retries(self, retries: u32) -> Self {
            self.each(|template| template.max_retries = Some(retries))
        }

        /// Sets the backoff between attempts.
        pub fn retry_policy(self, policy: convoke_core::jobs::RetryPolicy) -> Self {
            self.each(|template| template.retry_policy = Some(policy))
        }

        /// Sets how long one attempt may take.
        pub fn timeout(self, timeout: std::time::Duration) -> Self {
            self.each(|template| template.timeout = Some(timeout))
        }

        /// Sets an id that is shown with the job and by which lists can be filtered.
        pub fn correlation_id(self, id: impl Into<String>) -> Self {
            let id = id.into();
            self.each(|template| template.correlation_id = Some(id.clone()))
        }

        /// Adds a tag, by which the job can be found.
        pub fn tag(self, tag: impl Into<String>) -> Self {
            let tag = tag.into();
            self.each(|template| template.tags.get_or_insert_default().push(tag.clone()))
        }
    };
}
pub(crate) use template_options;

/// When the job may run.
macro_rules! time_options {
    () => {
        /// Delays the job: it is not dispatched before this time has passed.
        pub fn delay(self, delay: Duration) -> Self {
            self.each_spec(|spec| spec.delay = Some(delay))
        }

        /// Delays the job: it is not dispatched before this instant.
        pub fn run_at(self, at: Timestamp) -> Self {
            self.each_spec(|spec| spec.run_at = Some(at))
        }
    };
}

impl<O> Enqueue<O> {
    pub(crate) fn new(client: client::Client, job_type: &str, args: &impl Serialize) -> Self {
        Enqueue { client, spec: spec(job_type, args), output: PhantomData }
    }

    template_options!();
    time_options!();

    /// Sets a unique key: while a job with this key is live, no second one is created, and the handle is that of the
    /// first.
    pub fn unique_key(self, key: impl Into<String>) -> Self {
        let key = key.into();
        self.each(|template| template.unique_key = Some(key.clone()))
    }

    /// Keeps the unique key reserved for this long, even if the job ends sooner.
    pub fn unique_for(self, duration: Duration) -> Self {
        self.each(|template| template.unique_for = Some(duration))
    }

    pub(crate) fn into_spec(self) -> Result<JobSpec> {
        self.spec
    }

    fn each(self, change: impl Fn(&mut JobTemplate)) -> Self {
        self.each_spec(|spec| change(&mut spec.template))
    }

    fn each_spec(mut self, change: impl Fn(&mut JobSpec)) -> Self {
        self.spec.iter_mut().for_each(change);
        self
    }

    fn fail(mut self, error: Error) -> Self {
        self.spec = self.spec.and(Err(error));
        self
    }
}

impl<O> EnqueueAll<O> {
    pub(crate) fn new<A: Serialize>(client: client::Client, job_type: &str, args: impl Iterator<Item = A>) -> Self {
        let specs = args.map(|args| spec(job_type, &args)).collect();
        EnqueueAll { client, specs, output: PhantomData }
    }

    template_options!();
    time_options!();

    fn each(self, change: impl Fn(&mut JobTemplate)) -> Self {
        self.each_spec(|spec| change(&mut spec.template))
    }

    fn each_spec(mut self, change: impl Fn(&mut JobSpec)) -> Self {
        self.specs.iter_mut().flatten().for_each(change);
        self
    }

    fn fail(mut self, error: Error) -> Self {
        self.specs = self.specs.and(Err(error));
        self
    }
}

pub(crate) fn spec(job_type: &str, args: &impl Serialize) -> Result<JobSpec> {
    let args = Json::of(args).map_err(|source| Error::Json { what: "the arguments cannot be written", source })?;
    Ok(JobSpec::new(JobType::new(job_type)?).with(|job| job.args = Some(args)))
}

type Sending<T> = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

impl<O: DeserializeOwned + 'static> IntoFuture for Enqueue<O> {
    type Output = Result<Handle<O>>;
    type IntoFuture = Sending<Handle<O>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let enqueued = self.client.enqueue(vec![self.spec?]).await?.pop();
            let enqueued = enqueued.ok_or_else(|| Error::failed("the coordinator returned no job for this request"))?;
            Ok(Handle::new(self.client, enqueued))
        })
    }
}

impl<O: DeserializeOwned + 'static> IntoFuture for EnqueueAll<O> {
    type Output = Result<Vec<Handle<O>>>;
    type IntoFuture = Sending<Vec<Handle<O>>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let enqueued = self.client.enqueue(self.specs?).await?;
            Ok(enqueued.into_iter().map(|enqueued| Handle::new(self.client.clone(), enqueued)).collect())
        })
    }
}
