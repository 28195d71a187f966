//! The test server as a value.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use convoke_core::{Invalid, WorkerId};
use convoke_http::{Access, AccessOptions, GuardedListener, recorder};
use convoke_runtime::jobs::Settings;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::AbortOnDropHandle;

use super::clock::{Hold, Idle, VirtualClock};
use super::faults::{FaultState, Faults};
use super::link::TestLink;
use super::shared::{Shared, check_time};
use super::timeline::{LEAP_MAX, Target, Timeline};
use super::{PATIENCE, routes, timeline};
use crate::client::Client;
use crate::connect;
use crate::error::{Error, Result};
use crate::worker::Worker;

/// The virtual time at which a test server starts if none is set: always the same, so that a test can be repeated.
const START: &str = "2030-01-01T00:00:00Z";
/// How often a connected worker sends a heartbeat, in real time.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);
/// How many requests to the timeline may wait.
const COMMANDS_MAX: usize = 16;

/// Options of a test server that has not started. [`start`](Self::start) starts it.
#[must_use = "a test server does nothing until it is started"]
#[derive(Clone)]
pub struct ServerBuilder {
    seed: u64,
    start_at: Option<Timestamp>,
    http: Option<String>,
    insecure: bool,
    settings: Settings,
}

impl Default for ServerBuilder {
    fn default() -> Self {
        let mut settings = Settings::default();
        settings.worker.heartbeat_interval = HEARTBEAT_INTERVAL;
        // Longer than any leap of the clock.
        settings.cluster.lease_duration = LEAP_MAX * 3;
        // Caches follow real time.
        let cache = &mut settings.cache;
        (cache.job_ttl, cache.worker_ttl, cache.node_ttl) = Default::default();
        ServerBuilder { seed: 0, start_at: None, http: None, insecure: false, settings }
    }
}

impl ServerBuilder {
    /// Sets the seed of every random number and id. Default: 0.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sets the virtual time at which the server starts. Default: 2030-01-01T00:00:00Z.
    pub fn start_at(mut self, at: Timestamp) -> Self {
        self.start_at = Some(at);
        self
    }

    /// Serves the HTTP API too, as `host:port`; with port 0 the system chooses a free port. Default: none.
    pub fn http(mut self, bind: impl Into<String>) -> Self {
        self.http = Some(bind.into());
        self
    }

    /// Sets whether the server may listen beyond loopback.
    pub fn insecure(mut self, insecure: bool) -> Self {
        self.insecure = insecure;
        self
    }

    /// Changes the settings of the node, such as retentions and the retry policy.
    pub fn settings(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        change(&mut self.settings);
        self
    }

    /// Starts the server: it is ready when this returns.
    pub async fn start(self) -> Result<Server> {
        let start_at = self.start_at.unwrap_or_else(|| START.parse().unwrap_or(Timestamp::UNIX_EPOCH));
        // Milliseconds: the clock of the runtime has no finer steps.
        let start_at = Timestamp::from_millisecond(start_at.as_millisecond()).unwrap_or(start_at);
        check_time("start", start_at)?;
        self.settings.check()?;
        let stop = CancellationToken::new();
        let idle = Arc::new(Idle::default());
        let parked = idle.clone();
        let mut virtual_time = Builder::new_current_thread();
        let virtual_time =
            virtual_time.enable_time().start_paused(true).on_thread_park(move || parked.on_park()).build()?;
        let real_time = Builder::new_current_thread().enable_all().build()?;
        let (handle, real_handle) = (virtual_time.handle().clone(), real_time.handle().clone());
        let stop_real = stop.clone();
        run("convoke-test-io", real_time, async move { stop_real.cancelled().await })?;

        let access = AccessOptions { insecure: self.insecure, ..AccessOptions::default() };
        let guarded = match self.http {
            Some(bind) => {
                let binding = async move { GuardedListener::bind(&bind, &access).await };
                Some(real_handle.spawn(binding).await.map_err(Error::other)??)
            }
            None => None,
        };
        let policy = guarded.as_ref().map_or_else(|| Access::Loopback.into(), |guarded| guarded.policy.clone());
        let address = guarded.as_ref().map(|guarded| guarded.listener.local_addr()).transpose()?;
        let clock = Arc::new(VirtualClock::new(handle.clone(), start_at));
        let (commands, received) = mpsc::channel(COMMANDS_MAX);
        let shared = Arc::new(Shared {
            virtual_time: handle,
            real_time: real_handle.clone(),
            seed: self.seed,
            started_at: start_at,
            engines: connect::in_memory(clock.clone(), self.seed),
            clock,
            idle,
            settings: self.settings,
            policy,
            presence: Arc::default(),
            faults: Faults::default(),
            activity: Notify::new(),
            commands,
            node: Default::default(),
        });
        recorder::shared();
        let (ready, started) = oneshot::channel();
        let (world, stopped) = (shared.clone(), stop.clone());
        run("convoke-test-time", virtual_time, async move {
            let begun = world.start_node().await;
            // In the same moment, so that no time passes.
            let hold = Hold::new();
            let is_begun = begun.is_ok();
            let _ = ready.send(begun);
            if is_begun {
                stopped.run_until_cancelled(Timeline::new(world, hold).run(received)).await;
            }
        })?;
        let guard = stop.clone().drop_guard();
        started.await.map_err(Error::other)??;
        if let Some(GuardedListener { listener, .. }) = guarded {
            let serving = shared.clone();
            let respond = move |request| routes::respond(serving.clone(), request);
            let stopped = stop.clone();
            real_handle.spawn(async move {
                convoke_http::serve_requests(listener, respond, recorder::shared(), stopped.cancelled_owned()).await;
            });
        }
        Ok(Server { shared, address, inline: Mutex::default(), _stop: guard })
    }
}

/// Runs a runtime on a thread of its own until `main` completes.
fn run(name: &str, runtime: Runtime, main: impl Future<Output = ()> + Send + 'static) -> Result<()> {
    let work = move || {
        runtime.block_on(main);
        runtime.shutdown_background();
    };
    thread::Builder::new().name(name.into()).spawn(work)?;
    Ok(())
}

/// A test server in this process. It stops when it is dropped.
pub struct Server {
    shared: Arc<Shared>,
    address: Option<SocketAddr>,
    inline: Mutex<bool>,
    _stop: DropGuard,
}

/// The result of a move of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Advanced {
    /// The virtual time now.
    pub now: Timestamp,
    /// How many runs of connected workers are in progress: those that were before, and those that took too long.
    pub running: usize,
}

impl From<timeline::Advanced> for Advanced {
    fn from(timeline::Advanced { now, running }: timeline::Advanced) -> Self {
        Advanced { now, running }
    }
}

impl Server {
    /// Starts a server with the default options, without HTTP.
    pub async fn start() -> Result<Server> {
        Server::builder().start().await
    }

    /// Returns the options of a server.
    pub fn builder() -> ServerBuilder {
        ServerBuilder::default()
    }

    /// Returns the address of the HTTP API, such as `http://127.0.0.1:41234`; `None` if it is not served.
    pub fn url(&self) -> Option<String> {
        self.address.map(|address| format!("http://{address}"))
    }

    /// Returns the virtual time.
    pub fn now(&self) -> Timestamp {
        self.shared.now()
    }

    fn link(&self) -> Arc<TestLink> {
        Arc::new(TestLink { shared: self.shared.clone(), is_inline: *self.inline.lock() })
    }

    /// Returns a client of this server. If handlers run [inline](Self::run_inline), its jobs have run when an enqueue
    /// returns.
    pub fn client(&self) -> Client {
        Client::over(self.link())
    }

    /// Returns a worker of this server. Set its handlers, and run it.
    pub fn worker(&self) -> Worker {
        Worker::over(self.link()).clock(self.shared.clock.clone())
    }

    /// Runs a worker in the background until the result is dropped. It is registered when this returns.
    pub async fn work(&self, options: impl FnOnce(Worker) -> Worker) -> Result<WorkerGuard> {
        let id = self.shared.free_worker_id().await?;
        let worker = options(self.worker().id(&id));
        let stop = CancellationToken::new();
        let working = tokio::spawn(worker.run_until(stop.clone().cancelled_owned()));
        let mut working = AbortOnDropHandle::new(working);
        loop {
            let mut activity = pin!(self.shared.activity.notified());
            activity.as_mut().enable();
            if self.shared.presence.is_known(&id) {
                return Ok(WorkerGuard { _stop: stop.drop_guard(), _working: working });
            }
            tokio::select! {
                ended = &mut working => {
                    ended.map_err(Error::other)??;
                    return Err(Error::failed("the worker ended before it was registered"));
                }
                () = activity => {}
            }
        }
    }

    /// Runs handlers inline: from now on an enqueue by a [`client`](Self::client) of this server returns when the job, and
    /// all that it enqueued, has run or waits for its time. Handlers run in the test's runtime, one at a time.
    pub async fn run_inline(&self, options: impl FnOnce(Worker) -> Worker) -> Result<WorkerGuard> {
        *self.inline.lock() = true;
        self.work(|worker| options(worker).concurrency(1)).await
    }

    /// Moves time forward, and lets everything happen that is due until then, in order: schedules, retries, timeouts,
    /// the deaths of workers, retention. Runs of connected workers that begin meanwhile end before time goes on.
    pub async fn advance(&self, time: Duration) -> Result<Advanced> {
        Ok(self.shared.advance(Target::By(time), PATIENCE).await?.into())
    }

    /// Like [`advance`](Self::advance), to a point in time that is not before [`now`](Self::now).
    pub async fn advance_to(&self, at: Timestamp) -> Result<Advanced> {
        Ok(self.shared.advance(Target::To(at), PATIENCE).await?.into())
    }

    /// Like [`advance`](Self::advance), but each run may take so long, in real time, before time goes on without its
    /// end. Default: 10 s.
    pub async fn advance_within(&self, time: Duration, patience: Duration) -> Result<Advanced> {
        Ok(self.shared.advance(Target::By(time), patience).await?.into())
    }

    /// Waits until connected workers have nothing to do at the present time: no run of theirs is dispatched or in
    /// progress. Fails with the names of the runs after 10 s of real time.
    pub async fn run_until_idle(&self) -> Result<()> {
        self.run_until_idle_within(PATIENCE).await
    }

    /// Like [`run_until_idle`](Self::run_until_idle), with another limit of real time.
    pub async fn run_until_idle_within(&self, patience: Duration) -> Result<()> {
        self.shared.run_until_idle(patience).await?;
        Ok(())
    }

    /// Rejects so many of the next reports of workers: nothing of them is recorded.
    pub fn fail_reports(&self, count: u32) {
        self.shared.faults.change(|faults| faults.fail_reports = count);
    }

    /// Records so many of the next reports, and loses the replies.
    pub fn lose_replies(&self, count: u32) {
        self.shared.faults.change(|faults| faults.lose_replies = count);
    }

    /// Loses so many of the next heartbeats of a worker. Until one arrives, the worker is silent: it is declared dead
    /// when time has moved for `worker.stale_after`.
    pub fn drop_heartbeats(&self, worker: impl AsRef<str>, count: u32) -> Result<()> {
        let worker = WorkerId::new(worker)?;
        if count == 0 {
            return Err(Invalid::new("count", "expected at least 1, got 0").into());
        }
        self.shared.faults.change(|faults| faults.drop_heartbeats.extend([(worker, count)]));
        Ok(())
    }

    /// Cuts a worker off: none of its requests arrives until it is [reconnected](Self::reconnect).
    pub fn cut_off(&self, worker: impl AsRef<str>) -> Result<()> {
        let worker = WorkerId::new(worker)?;
        self.shared.faults.change(|faults| faults.cut_off.extend([worker]));
        Ok(())
    }

    /// Ends [`cut_off`](Self::cut_off).
    pub fn reconnect(&self, worker: impl AsRef<str>) -> Result<()> {
        let worker = WorkerId::new(worker)?;
        self.shared.faults.change(|faults| faults.cut_off.retain(|other| *other != worker));
        Ok(())
    }

    /// Returns the faults that are set and have not happened yet.
    pub fn faults(&self) -> FaultState {
        self.shared.faults.state()
    }

    /// Kills the node that leads. Another takes its place at once, for another term, and reads the state from the store.
    pub async fn kill_leader(&self) -> Result<()> {
        Ok(self.shared.kill_leader().await?)
    }
}

/// A worker that runs in the background. It stops when this is dropped.
pub struct WorkerGuard {
    _stop: DropGuard,
    _working: AbortOnDropHandle<Result<()>>,
}
