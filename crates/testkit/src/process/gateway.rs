//! A worker that implements the gateway's protocol by hand and records every response.
//!
//! It behaves as a correct worker must: it registers again if it is unknown, sends heartbeats, and repeats a report until
//! it gets a response. Of several nodes it stays with one for as long as that responds, and keeps its runs when it moves to
//! the next. The test decides what its handler does with a job. Dropping it kills it without a drain.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

use super::http::{Http, HttpResponse};
use crate::invariants::Observations;

/// How the worker handles a run.
#[derive(Debug, Clone)]
pub enum Handling {
    Complete(Value),
    /// The same, after a while.
    CompleteAfter(Duration, Value),
    /// The same, once the test sets the flag.
    CompleteOnce(Arc<AtomicBool>, Value),
    Fail(String),
    FailForGood(String),
    /// Runs until it is cancelled or the worker dies.
    Hold,
    /// Reports all of these, then continues.
    Report(Vec<RunEvent>, Box<Handling>),
}

/// An event that a run reports before it ends.
#[derive(Debug, Clone)]
pub enum RunEvent {
    Log(String),
    Progress(u8),
}

/// A worker's id, queues and behaviour.
#[derive(Clone)]
pub struct Plan {
    pub id: String,
    pub queues: Vec<String>,
    pub concurrency: u32,
    pub handler: Arc<dyn Fn(&Value) -> Handling + Send + Sync>,
}

impl Plan {
    pub fn new(id: &str, queue: &str, handler: impl Fn(&Value) -> Handling + Send + Sync + 'static) -> Self {
        Plan { id: id.into(), queues: vec![queue.into()], concurrency: 10, handler: Arc::new(handler) }
    }

    pub fn concurrency(self, concurrency: u32) -> Self {
        Plan { concurrency, ..self }
    }
}

/// How long a poll waits. Short, so that a worker notices soon when its server was restarted.
const POLL_WAIT: &str = "500ms";
const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(150);
const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// If there is another node, one that has not responded for so long is considered dead: it may be paused, and a
/// paused process refuses no connection.
const RESPONSE_WAIT: Duration = Duration::from_secs(3);

pub struct GatewayWorker {
    inner: Arc<Inner>,
    tasks: Vec<AbortHandle>,
}

struct Inner {
    plan: Plan,
    /// The nodes that it may connect to.
    homes: Vec<Http>,
    /// The index of the one that it uses, modulo their number; it only grows.
    home: AtomicUsize,
    observations: Observations,
    /// Execution to job, of what runs now.
    running: Mutex<BTreeMap<String, String>>,
}

impl GatewayWorker {
    /// Registers, then works until it is dropped or leaves.
    pub async fn start(http: &Http, observations: &Observations, plan: Plan) -> Self {
        Self::start_among(std::slice::from_ref(http), observations, plan).await
    }

    /// The same with several nodes to choose from, of which it tries the first one first.
    pub async fn start_among(homes: &[Http], observations: &Observations, plan: Plan) -> Self {
        assert!(!homes.is_empty(), "a worker needs a node");
        let (homes, observations) = (homes.to_vec(), observations.clone());
        let inner = Arc::new(Inner { plan, homes, home: AtomicUsize::new(0), observations, running: Mutex::default() });
        inner.register().await;
        let polls = tokio::spawn(inner.clone().poll());
        let heartbeats = tokio::spawn(inner.clone().heartbeat());
        GatewayWorker { inner, tasks: vec![polls.abort_handle(), heartbeats.abort_handle()] }
    }

    /// Returns its current runs: execution to job.
    pub fn running(&self) -> BTreeMap<String, String> {
        self.inner.running.lock().clone()
    }

    /// Leaves, as a worker that drains does.
    pub async fn leave(self) -> HttpResponse {
        for task in &self.tasks {
            task.abort();
        }
        self.inner.ask("/v1/worker/leave", json!({ "workerId": self.inner.plan.id })).await
    }
}

impl Drop for GatewayWorker {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Inner {
    /// Sends the request until a node responds: one or all of them may be unavailable for a while.
    async fn ask(&self, path: &str, body: Value) -> HttpResponse {
        loop {
            let home = self.home.load(Ordering::Relaxed);
            let asked = self.homes[home % self.homes.len()].post(path, body.clone());
            let response = match self.homes.len() {
                1 => asked.await.ok(),
                _ => tokio::time::timeout(RESPONSE_WAIT, asked).await.ok().and_then(Result::ok),
            };
            match response {
                Some(response) if response.status != 503 => return response,
                // Another task that got no response may have moved on already.
                _ => drop(self.home.compare_exchange(home, home + 1, Ordering::Relaxed, Ordering::Relaxed)),
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    async fn register(&self) {
        let Plan { id, queues, concurrency, .. } = &self.plan;
        let body = json!({ "workerId": id, "name": id, "queues": queues, "concurrency": concurrency });
        self.ask("/v1/worker/register", body).await.expect(200);
    }

    async fn poll(self: Arc<Self>) {
        let mut slow = JoinSet::new();
        loop {
            while slow.try_join_next().is_some() {}
            let free = (self.plan.concurrency as usize).saturating_sub(self.running.lock().len());
            if free == 0 {
                slow.join_next().await;
                tokio::time::sleep(RETRY_PAUSE).await;
                continue;
            }
            let body = json!({ "workerId": self.plan.id, "max": free, "wait": POLL_WAIT });
            let response = self.ask("/v1/worker/poll", body).await;
            match response.status {
                200 => {}
                404 => {
                    self.register().await;
                    continue;
                }
                _ => panic!("{}: poll was refused: {} {}", self.plan.id, response.status, response.text()),
            }
            let polled = response.json();
            self.cancel(&polled["cancel"]).await;
            let jobs = polled["jobs"].as_array().expect("a poll returns jobs").clone();
            let (reported, received) = watch::channel(false);
            let events: Vec<Value> = jobs.iter().flat_map(|job| self.clone().take(job, &received, &mut slow)).collect();
            self.report(events).await;
            reported.send_replace(true);
        }
    }

    /// Starts a run. A run that ends at once is in one report with the others; one that takes time has a task, which reports not
    /// before the start was `received`: an end that overtakes the start makes the start stale.
    fn take(self: Arc<Self>, job: &Value, received: &watch::Receiver<bool>, slow: &mut JoinSet<()>) -> Vec<Value> {
        let text = |field: &str| job[field].as_str().unwrap_or_else(|| panic!("{job} has no {field}")).to_owned();
        let (execution, id) = (text("executionId"), text("jobId"));
        let attempt = job["attempt"].as_u64().expect("a run has an attempt");
        self.observations.ran(&id, &execution, attempt, &self.plan.id);
        self.running.lock().insert(execution.clone(), id.clone());
        let run = json!({ "executionId": execution, "jobId": id });
        let mut events = vec![event(&run, json!({ "kind": "started" }))];
        let mut handling = (self.plan.handler)(job);
        // A report may be repeated: its lines are numbered, so that each is recorded once.
        let mut seq = 0;
        while let Handling::Report(all, then) = handling {
            events.extend(all.iter().map(|reported| match reported {
                RunEvent::Log(message) => {
                    seq += 1;
                    event(&run, json!({ "kind": "log", "level": "info", "message": message, "seq": seq }))
                }
                RunEvent::Progress(percent) => event(&run, json!({ "kind": "progress", "percent": percent })),
            }));
            handling = *then;
        }
        events.extend(self.end(&run, handling, received.clone(), slow));
        events
    }

    /// Returns the event of the run's end, if it ends at once.
    fn end(
        self: Arc<Self>,
        run: &Value,
        handling: Handling,
        mut received: watch::Receiver<bool>,
        slow: &mut JoinSet<()>,
    ) -> Option<Value> {
        let completed = |result: Value| event(run, json!({ "kind": "completed", "result": result }));
        match handling {
            Handling::Complete(result) => Some(completed(result)),
            Handling::Fail(error) => Some(event(run, json!({ "kind": "failed", "error": error }))),
            Handling::FailForGood(error) => {
                Some(event(run, json!({ "kind": "failed", "error": error, "retry": false })))
            }
            Handling::CompleteAfter(wait, result) => {
                let completed = completed(result);
                slow.spawn(async move {
                    tokio::time::sleep(wait).await;
                    let _ = received.wait_for(|received| *received).await;
                    self.report(vec![completed]).await;
                });
                None
            }
            Handling::CompleteOnce(is_set, result) => {
                let completed = completed(result);
                slow.spawn(async move {
                    while !is_set.load(Ordering::Relaxed) {
                        tokio::time::sleep(RETRY_PAUSE).await;
                    }
                    let _ = received.wait_for(|received| *received).await;
                    self.report(vec![completed]).await;
                });
                None
            }
            Handling::Hold | Handling::Report(..) => None,
        }
    }

    /// Repeats the report until it gets a response, and records which events were accepted.
    async fn report(&self, events: Vec<Value>) {
        if events.is_empty() {
            return;
        }
        let body = json!({ "workerId": self.plan.id, "events": events });
        let response = loop {
            let response = self.ask("/v1/worker/report", body.clone()).await;
            if response.status != 404 {
                break response;
            }
            self.register().await;
        };
        let response = response.expect(200);
        let rejected = response["rejected"].as_array().cloned().unwrap_or_default();
        let mut running = self.running.lock();
        for event in &events {
            let (execution, kind) = (event["executionId"].as_str().unwrap_or_default(), event["kind"].as_str());
            let stale = rejected.iter().any(|it| it["executionId"] == execution);
            let kind = kind.unwrap_or_default();
            if stale || !matches!(kind, "started" | "progress" | "log") {
                running.remove(execution);
            }
            self.observations.reported(event["jobId"].as_str().unwrap_or_default(), execution, kind, !stale);
        }
    }

    async fn cancel(&self, executions: &Value) {
        let asked = executions.as_array().cloned().unwrap_or_default();
        let events: Vec<Value> = {
            let running = self.running.lock();
            let known = asked.iter().filter_map(|it| running.get_key_value(it.as_str()?));
            known.map(|(run, job)| json!({ "executionId": run, "jobId": job, "kind": "cancelled" })).collect()
        };
        self.report(events).await;
    }

    async fn heartbeat(self: Arc<Self>) {
        loop {
            tokio::time::sleep(HEARTBEAT_INTERVAL).await;
            let running: Vec<String> = self.running.lock().keys().cloned().collect();
            let response =
                self.ask("/v1/worker/heartbeat", json!({ "workerId": self.plan.id, "running": running })).await;
            match response.status {
                200 => self.cancel(&response.json()["cancel"]).await,
                404 => self.register().await,
                _ => panic!("{}: heartbeat was refused: {} {}", self.plan.id, response.status, response.text()),
            }
        }
    }
}

/// Returns an event of a run: the run's ids and the event's fields.
fn event(run: &Value, fields: Value) -> Value {
    let fields = [run, &fields].into_iter().filter_map(Value::as_object).flatten();
    Value::Object(fields.map(|(key, value)| (key.clone(), value.clone())).collect())
}
