//! The worker: takes jobs from queues and runs their handlers.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use convoke_core::jobs::link::WorkerLink;
use convoke_core::ports::Clock;
use convoke_core::{JobType, Json, QueueName, WorkerId};
use convoke_runtime::jobs::worker::{self, Failure, HandlerFuture, Settings, Shutdown};
use convoke_runtime::outage::Outages;
use serde::Serialize;
use tower_layer::Layer;
use tower_service::Service;

use crate::connect;
use crate::context::Context;
use crate::error::{Error, Result, failure};
use crate::extract::Args;
use crate::handler::{Arguments, Handler, NamedArguments, OneJob};
use crate::job::Job;
use crate::layer::RunService;
use crate::run::{Call, Run, Target};
use crate::signals;
use crate::state::StateMap;

/// The time between two attempts to connect to a bus that is unreachable when the worker starts.
const REACH_AGAIN: Duration = Duration::from_secs(1);

/// Returns why a handler cannot be called by a worker with this state.
type Check = fn(&StateMap) -> Result<()>;
/// The job among the arguments of a handler.
type JobOf<A, Via> = <<A as Arguments<Via>>::Jobs as OneJob>::Job;

/// Takes jobs from queues and runs the handler of their type. Set options first, then call [`run`](Self::run).
#[must_use = "a worker does nothing until it is run"]
pub struct Worker {
    url: String,
    token: Option<String>,
    bus_prefix: String,
    link: Option<Arc<dyn WorkerLink>>,
    clock: Arc<dyn Clock>,
    settings: Settings,
    /// By the type of their jobs; in its order, so that the first of two mistakes is always the same.
    handlers: BTreeMap<JobType, (Call, Check)>,
    state: StateMap,
    /// The layers around every handler.
    service: RunService,
    /// The first invalid option. Returned when the worker is run, so that options can be chained.
    problem: Option<Error>,
}

impl Worker {
    /// Checks the address. The worker registers when it is run, and waits for a coordinator that is not up yet. Several
    /// addresses, separated by commas, are nodes of one cluster: the worker moves to another node if one fails. With
    /// the address of a bus (`redis://…`) it does not connect to nodes.
    pub async fn connect(url: &str) -> Result<Worker> {
        match connect::is_bus(url) {
            true => connect::check_way(url)?,
            false => drop(connect::worker_link(url, None)?),
        }
        Ok(Worker::to(url.to_owned(), None))
    }

    /// Returns a worker on the given link to a coordinator.
    pub fn over(link: Arc<dyn WorkerLink>) -> Worker {
        Worker::to(String::new(), Some(link))
    }

    fn to(url: String, link: Option<Arc<dyn WorkerLink>>) -> Worker {
        let (settings, handlers) = (Settings::default(), BTreeMap::new());
        let (state, service) = (StateMap::default(), RunService::default());
        let bus_prefix = connect::BUS_PREFIX.to_owned();
        let clock = connect::clock();
        Worker { url, token: None, bus_prefix, link, clock, settings, handlers, state, service, problem: None }
    }

    /// Sets the clock by which the worker reports when a run started and ended.
    #[cfg(feature = "testing")]
    pub(crate) fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
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

    /// Registers a handler: an async function or closure of up to eight arguments, in any order. One of them is the job,
    /// and its type is that of the jobs that the handler receives; the others are extractors.
    ///
    /// | argument | value |
    /// | --- | --- |
    /// | `job: SendEmail` or `Args(job): Args<SendEmail>`, of a type that implements [`Job`] | the job |
    /// | [`Context`] | the run: its ids, log, progress, cancellation |
    /// | [`State(db): State<Db>`](crate::State) | a clone of what [`state`](Self::state) was given |
    /// | [`Epoch`](crate::Epoch), [`JobId`](crate::JobId), [`ExecutionId`](crate::ExecutionId) | of the run |
    /// | a type that implements [`FromRun`](crate::FromRun) | your own |
    ///
    /// It returns a `Result` of the job's [`Output`](Job::Output). The error may be any type that implements `Display`;
    /// [`Error::permanent`] prevents a retry. The last handler of a type replaces the others.
    ///
    /// ```
    /// use convoke::{Context, Job, State, Worker};
    /// # #[derive(serde::Serialize, serde::Deserialize)]
    /// # struct SendEmail { to: String }
    /// # impl Job for SendEmail { const TYPE: &'static str = "email.send"; type Output = (); }
    /// # #[derive(Clone)]
    /// # struct Mailer;
    /// # impl Mailer { async fn send(&self, _: &str) -> convoke::Result<()> { Ok(()) } }
    ///
    /// async fn send(State(mailer): State<Mailer>, cx: Context, job: SendEmail) -> convoke::Result<()> {
    ///     mailer.send(&job.to).await?;
    ///     cx.log(format!("sent to {}", job.to)).await
    /// }
    ///
    /// # async fn start() -> convoke::Result<()> {
    /// let worker = Worker::connect("http://127.0.0.1:3000").await?.queues(["mail"]).state(Mailer).handle(send);
    /// # Ok(())
    /// # }
    /// ```
    pub fn handle<H, A, Via, E>(self, handler: H) -> Self
    where
        H: Handler<A>,
        A: Arguments<Via> + 'static,
        A::Jobs: OneJob,
        H::Future: Future<Output = Result<<JobOf<A, Via> as Job>::Output, E>> + Send + 'static,
        E: Display + 'static,
    {
        let call = move |run: &Run| match A::read(run) {
            Ok(arguments) => into_handler_future(handler.call(arguments)),
            Err(error) => failed(error),
        };
        self.add(JobOf::<A, Via>::TYPE, Box::new(call), A::check)
    }

    /// Registers the handler of a job type that has no [`Job`] in this program: like [`handle`](Self::handle), but the
    /// type is named, the arguments are [`Args<T>`](crate::Args) of any `T` that implements `Deserialize`, and the result
    /// may be of any type that implements `Serialize`.
    ///
    /// ```
    /// # use convoke::{Args, Context, Worker};
    /// # async fn start(worker: Worker) {
    /// let worker = worker.handle_named("image.resize", async |cx: Context, Args(path): Args<String>| {
    ///     cx.log(path).await
    /// });
    /// # }
    /// ```
    pub fn handle_named<H, A, Via, R, E>(self, job_type: &str, handler: H) -> Self
    where
        H: Handler<A>,
        A: NamedArguments<Via> + 'static,
        H::Future: Future<Output = Result<R, E>> + Send + 'static,
        R: Serialize + 'static,
        E: Display + 'static,
    {
        let call = move |run: &Run| match A::read(run) {
            Ok(arguments) => into_handler_future(handler.call(arguments)),
            Err(error) => failed(error),
        };
        self.add(job_type, Box::new(call), A::check)
    }

    /// Registers the handler of a job type that has no Rust type in this program, with its arguments as a JSON value.
    pub fn handle_raw<F, Fut, R, E>(self, job_type: &str, handler: F) -> Self
    where
        F: Fn(Context, serde_json::Value) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, E>> + Send + 'static,
        R: Serialize + 'static,
        E: Display + 'static,
    {
        let call = move |run: &Run| match Args::read(run) {
            Ok(Args(args)) => into_handler_future(handler(run.context().clone(), args)),
            Err(error) => failed(error),
        };
        self.add(job_type, Box::new(call), |_| Ok(()))
    }

    /// Adds a value that handlers take as [`State<T>`](crate::State), whether they are registered before or after. A second
    /// value of the same type replaces the first.
    ///
    /// A worker whose handlers take a type that was not added does not start: [`run`](Self::run) returns
    /// [`Error::Handler`].
    pub fn state<T: Clone + Send + Sync + 'static>(mut self, value: T) -> Self {
        self.state.insert(value);
        self
    }

    /// Adds a layer of [`tower`](https://docs.rs/tower) around the handlers, whether they are registered before or after.
    /// The last one added is the outermost.
    ///
    /// The layer wraps a [`RunService`], a `tower` service whose request is a [`Run`] and whose response is the result of
    /// the job. An error of a layer fails the run with its text and its causes, and the job is retried as usual;
    /// [`Error::permanent`] prevents that. All copies that the layer makes of the service share what the service shares,
    /// so a `ConcurrencyLimitLayer` limits all handlers of the worker together.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tower::timeout::TimeoutLayer;
    /// # fn with_timeout(worker: convoke::Worker) -> convoke::Worker {
    /// worker.layer(TimeoutLayer::new(Duration::from_secs(30)))
    /// # }
    /// ```
    pub fn layer<L>(mut self, layer: L) -> Self
    where
        L: Layer<RunService>,
        L::Service: Service<Run, Response = Option<Json>> + Clone + Send + Sync + 'static,
        <L::Service as Service<Run>>::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
        <L::Service as Service<Run>>::Future: Send + 'static,
    {
        self.service = self.service.layer(&layer);
        self
    }

    fn add(mut self, job_type: &str, call: Call, check: Check) -> Self {
        match JobType::new(job_type) {
            Ok(job_type) => drop(self.handlers.insert(job_type, (call, check))),
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
        let handlers = handlers(self.handlers, self.state, self.service)?;
        let link = match self.link {
            Some(link) => link,
            None => tokio::select! {
                link = reach(&self.url, self.token, &self.bus_prefix) => link?,
                () = shutdown.drain.cancelled() => return Ok(()),
            },
        };
        worker::Worker::new(link, self.clock, self.settings, handlers).run(shutdown).await?;
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

/// Checks that every handler can be called, and prepares them for the runtime.
fn handlers(
    registered: BTreeMap<JobType, (Call, Check)>,
    state: StateMap,
    service: RunService,
) -> Result<worker::Handlers> {
    let state = Arc::new(state);
    let mut handlers = worker::Handlers::default();
    for (job_type, (call, check)) in registered {
        check(&state).map_err(|error| Error::Handler { job_type: job_type.to_string(), source: Box::new(error) })?;
        let (target, service) = (Arc::new(Target { call, state: state.clone() }), service.clone());
        handlers.add(job_type, move |cx, args| service.run(Run::new(Context::new(cx), args, target.clone())));
    }
    Ok(handlers)
}

/// Returns the future of a handler that was not called.
fn failed(error: Error) -> HandlerFuture {
    Box::pin(std::future::ready(Err(failure(error))))
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
