//! The worker: takes jobs from queues and runs their handlers.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use convoke_core::jobs::link::WorkerLink;
use convoke_core::{JobType, Json, QueueName, WorkerId};
use convoke_runtime::jobs::worker::{self, Failure, HandlerFuture, Handlers, Settings, Shutdown};
use convoke_runtime::outage::Outages;
use serde::Serialize;

use crate::connect;
use crate::context::Context;
use crate::error::{Error, Result, failure};
use crate::job::Job;
use crate::signals;

/// The time between two attempts to connect to a bus that is unreachable when the worker starts.
const REACH_AGAIN: Duration = Duration::from_secs(1);

/// Takes jobs from queues and runs the handler of their type. Set options first, then call [`run`](Self::run).
#[must_use = "a worker does nothing until it is run"]
pub struct Worker {
    url: String,
    token: Option<String>,
    bus_prefix: String,
    link: Option<Arc<dyn WorkerLink>>,
    settings: Settings,
    handlers: Handlers,
    /// The first invalid option. Returned when the worker is run, so that options can be chained.
    problem: Option<Error>,
}

impl Worker {
    /// Checks the address. The worker registers when it is run, and waits for a coordinator that is not up yet. Several
    /// addresses, separated by commas, are nodes of one cluster: the worker moves to another node if one fails. With
    /// the address of a bus (`redis://…`) it does not connect to nodes.
    pub async fn connect(url: &str) -> Result<Worker> {
        if !connect::is_bus(url) {
            connect::worker_link(url, None)?;
        }
        Ok(Worker::to(url.to_owned(), None))
    }

    /// Returns a worker on the given link to a coordinator.
    pub fn over(link: Arc<dyn WorkerLink>) -> Worker {
        Worker::to(String::new(), Some(link))
    }

    fn to(url: String, link: Option<Arc<dyn WorkerLink>>) -> Worker {
        let (settings, handlers) = (Settings::default(), Handlers::default());
        let bus_prefix = connect::BUS_PREFIX.to_owned();
        Worker { url, token: None, bus_prefix, link, settings, handlers, problem: None }
    }

    /// Sets the prefix of the coordinators' channels, if the address is that of a bus. Default: `convoke`.
    pub fn bus_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.bus_prefix = prefix.into();
        self
    }

    /// Sets a token of the role `worker`.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// Sets the queues to take jobs from.
    pub fn queues<Q: AsRef<str>>(mut self, queues: impl IntoIterator<Item = Q>) -> Self {
        match queues.into_iter().map(QueueName::new).collect::<Result<_, _>>() {
            Ok(queues) => self.settings.queues = queues,
            Err(invalid) => self.fail(invalid.into()),
        }
        self
    }

    /// Sets how many jobs run at once. Default: 10.
    pub fn concurrency(mut self, concurrency: u32) -> Self {
        self.settings.concurrency = concurrency;
        self
    }

    /// Sets the name that lists of workers show.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.settings.name = Some(name.into());
        self
    }

    /// Sets the worker's id, which must be unique among live workers. Default: a random one.
    pub fn id(mut self, id: impl AsRef<str>) -> Self {
        match WorkerId::new(id) {
            Ok(id) => self.settings.id = Some(id),
            Err(invalid) => self.fail(invalid.into()),
        }
        self
    }

    /// Sets how long runs may continue after the worker was asked to stop. Default: 25 s.
    pub fn shutdown_grace(mut self, grace: Duration) -> Self {
        self.settings.shutdown_grace = grace;
        self
    }

    /// Sets how long a handler may continue after its job was cancelled. Default: 5 s.
    pub fn cancel_grace(mut self, grace: Duration) -> Self {
        self.settings.cancel_grace = grace;
        self
    }

    /// Registers the handler of jobs of the type `T`. Its error may be any type that implements `Display`;
    /// [`Error::permanent`] prevents a retry.
    pub fn handle<T, F, Fut, E>(self, handler: F) -> Self
    where
        T: Job,
        F: Fn(Context, T) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<T::Output, E>> + Send + 'static,
        E: Display + 'static,
    {
        self.add(T::TYPE, move |cx, args| match args.to::<T>() {
            Ok(job) => into_handler_future(handler(Context::new(cx), job)),
            Err(error) => {
                let failure = Failure::new(format!("the arguments are not those of {:?}: {error}", T::TYPE));
                Box::pin(std::future::ready(Err(failure)))
            }
        })
    }

    /// Registers the handler of a job type that has no Rust type in this program.
    pub fn handle_raw<F, Fut, R, E>(self, job_type: &str, handler: F) -> Self
    where
        F: Fn(Context, serde_json::Value) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, E>> + Send + 'static,
        R: Serialize + 'static,
        E: Display + 'static,
    {
        self.add(job_type, move |cx, args| match args.to() {
            Ok(args) => into_handler_future(handler(Context::new(cx), args)),
            Err(error) => {
                Box::pin(std::future::ready(Err(Failure::new(format!("the arguments cannot be read: {error}")))))
            }
        })
    }

    fn add<F>(mut self, job_type: &str, handler: F) -> Self
    where
        F: Fn(worker::Context, Json) -> HandlerFuture + Send + Sync + 'static,
    {
        match JobType::new(job_type) {
            Ok(job_type) => self.handlers.add(job_type, handler),
            Err(invalid) => self.fail(invalid.into()),
        }
        self
    }

    fn fail(&mut self, error: Error) {
        self.problem.get_or_insert(error);
    }

    /// Works until SIGTERM or SIGINT, then drains: takes no more runs, finishes those it has within the grace period,
    /// releases the rest and leaves. A second signal ends the grace period.
    pub async fn run(self) -> Result<()> {
        let shutdown = Shutdown::default();
        let listen = async {
            signals::termination().await?;
            tracing::info!("stopping: runs may finish, a second signal releases them");
            shutdown.drain.cancel();
            signals::termination().await?;
            shutdown.hurry.cancel();
            std::future::pending::<Result<()>>().await
        };
        tokio::select! {
            ended = self.work(shutdown.clone()) => ended,
            failed = listen => failed,
        }
    }

    /// Works until `stop` completes, then drains. Does not handle signals.
    pub async fn run_until(self, stop: impl Future<Output = ()>) -> Result<()> {
        let shutdown = Shutdown::default();
        let work = self.work(shutdown.clone());
        tokio::pin!(work);
        tokio::select! {
            ended = &mut work => return ended,
            () = stop => shutdown.drain.cancel(),
        }
        work.await
    }

    async fn work(self, shutdown: Shutdown) -> Result<()> {
        if let Some(problem) = self.problem {
            return Err(problem);
        }
        let link = match self.link {
            Some(link) => link,
            None => tokio::select! {
                link = reach(&self.url, self.token, &self.bus_prefix) => link?,
                () = shutdown.drain.cancelled() => return Ok(()),
            },
        };
        worker::Worker::new(link, connect::clock(), self.settings, self.handlers).run(shutdown).await?;
        Ok(())
    }
}

/// Waits for a bus that is not up yet, as a worker waits for a coordinator.
async fn reach(url: &str, token: Option<String>, bus_prefix: &str) -> Result<Arc<dyn WorkerLink>> {
    let outages = Outages::new([("bus", String::new())]);
    loop {
        match connect::worker_way(url, token.clone(), bus_prefix).await {
            Err(error) if error.is_transient() => {
                outages.failed("connecting", &error);
                tokio::time::sleep(REACH_AGAIN).await;
            }
            reached => return Ok(reached?),
        }
    }
}

/// Converts a handler's future for the runtime.
fn into_handler_future<R, E, Fut>(handler: Fut) -> HandlerFuture
where
    R: Serialize + 'static,
    E: Display + 'static,
    Fut: Future<Output = Result<R, E>> + Send + 'static,
{
    Box::pin(async move {
        match handler.await {
            Ok(output) => {
                let result = Json::of(&output)
                    .map_err(|error| Failure::permanent(format!("the result cannot be written as JSON: {error}")))?;
                Ok((!result.is_null()).then_some(result))
            }
            Err(error) => Err(failure(error)),
        }
    })
}
