//! Work that goes on whatever happens: clients that enqueue and cancel by any node, and what their jobs are like.
//!
//! A client behaves as it must: a request without a response is sent again, with the same ids, to the next node. So every job that
//! exists was acknowledged in the end. Clients do not run far ahead of the workers, so that the end is drained in seconds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use convoke_testkit::invariants::{Entries, Observations};
use convoke_testkit::process::{Handling, Http, HttpResponse, Plan, RunEvent};
use convoke_testkit::scale::Scaled;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use uuid::Uuid;

pub const QUEUE: &str = "work";
/// As many in one scenario at the least: nine scenarios of a full run make five thousand.
const JOBS_MIN: Scaled<usize> = Scaled { quick: 160, full: 560 };
const CLIENTS: usize = 3;
const BATCH: usize = 5;
/// How many jobs may be under way before clients wait.
const OPEN_MAX: u64 = 60;
const READ_PAUSE: Duration = Duration::from_millis(50);
const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// A paused node refuses no connection: after this a client tries the next.
const RESPONSE_WAIT: Duration = Duration::from_secs(3);

/// The behaviour of a job, by its type, and how it may end. A run can be lost by any fault, which counts as an attempt: with
/// no retries left that is a failure.
pub const KINDS: [Kind; 7] = [
    Kind { name: "plain", share: 10, retries: 20, timeout: None, ends: &["completed"] },
    Kind { name: "slow", share: 3, retries: 20, timeout: None, ends: &["completed"] },
    Kind { name: "flaky", share: 2, retries: 20, timeout: None, ends: &["completed"] },
    Kind { name: "chatty", share: 2, retries: 20, timeout: None, ends: &["completed"] },
    Kind { name: "doomed", share: 1, retries: 2, timeout: None, ends: &["failed"] },
    Kind { name: "stuck", share: 1, retries: 0, timeout: Some("500ms"), ends: &["timedOut", "failed"] },
    Kind { name: "unwanted", share: 1, retries: 20, timeout: None, ends: &["cancelled"] },
];

#[derive(Debug)]
pub struct Kind {
    pub name: &'static str,
    /// Out of twenty.
    share: usize,
    retries: u32,
    timeout: Option<&'static str>,
    pub ends: &'static [&'static str],
}

impl Kind {
    /// Dealt out in turn, so that every scenario has all of them.
    fn of(number: usize) -> &'static Kind {
        let mut place = number % KINDS.iter().map(|kind| kind.share).sum::<usize>();
        for kind in &KINDS {
            if place < kind.share {
                return kind;
            }
            place -= kind.share;
        }
        unreachable!("the shares add up")
    }
}

/// A worker that handles each job by its type.
pub fn plan(id: &str) -> Plan {
    Plan::new(id, QUEUE, |job| {
        let first = job["attempt"] == 1;
        match job["type"].as_str().unwrap_or_default() {
            "slow" => Handling::CompleteAfter(Duration::from_millis(60), json!({ "slow": true })),
            "flaky" if first => Handling::Fail("as planned".into()),
            "chatty" => {
                let events = vec![RunEvent::Log("half way".into()), RunEvent::Progress(50)];
                Handling::Report(events, Box::new(Handling::CompleteAfter(Duration::from_millis(20), json!("logged"))))
            }
            "doomed" if first => Handling::Fail("as planned".into()),
            "doomed" => Handling::FailForGood("for good, as planned".into()),
            "stuck" | "unwanted" => Handling::Hold,
            _ => Handling::Complete(json!({ "done": job["jobId"] })),
        }
    })
    .concurrency(16)
}

pub struct Traffic {
    observations: Observations,
    stop: Arc<AtomicBool>,
    tasks: JoinSet<()>,
}

/// One client: its nodes, the one it stays with first.
#[derive(Clone)]
struct Client {
    homes: Vec<Http>,
    observations: Observations,
    open: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Traffic {
    /// `homes` are the nodes' addresses; clients begin with different ones.
    pub fn start(homes: &[Http], observations: &Observations) -> Traffic {
        let (stop, open) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let mut tasks = JoinSet::new();
        for number in 0..CLIENTS {
            let mut homes = homes.to_vec();
            let count = homes.len();
            homes.rotate_left(number % count);
            let client = Client { homes, observations: observations.clone(), open: open.clone(), stop: stop.clone() };
            if number == 0 {
                tasks.spawn(client.clone().watch());
            }
            tasks.spawn(client.enqueue(number));
        }
        Traffic { observations: observations.clone(), stop, tasks }
    }

    /// Waits until so many more jobs were enqueued and so many more completed: the cluster works, now.
    pub async fn flows(&self, more: usize) {
        let before = self.observations.entries();
        let (acknowledged, done) = (before.acknowledged.len(), completed(&before));
        self.observations
            .until(|now| now.acknowledged.len() >= acknowledged + more && completed(now) >= done + more)
            .await;
    }

    /// Enqueues what is left of the scenario's jobs, then no more.
    pub async fn end(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        while let Some(ended) = self.tasks.join_next().await {
            ended.expect("a client ends");
        }
    }
}

fn completed(entries: &Entries) -> usize {
    entries.reports.iter().filter(|it| it.accepted && it.kind == "completed").count()
}

impl Client {
    fn over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) && self.observations.entries().acknowledged.len() >= JOBS_MIN.get()
    }

    /// Counts the open jobs.
    async fn watch(self) {
        while !self.over() {
            let counts = self.ask("GET", &format!("/v1/queues/{QUEUE}"), None).await.json()["counts"].take();
            let open =
                ["pending", "scheduled", "dispatched", "running"].map(|status| counts[status].as_u64().unwrap_or(0));
            self.open.store(open.iter().sum(), Ordering::Relaxed);
            tokio::time::sleep(READ_PAUSE).await;
        }
        self.open.store(0, Ordering::Relaxed);
    }

    async fn enqueue(self, first: usize) {
        let mut cancelling = JoinSet::new();
        let mut number = first;
        while !self.over() {
            if self.open.load(Ordering::Relaxed) > OPEN_MAX {
                tokio::time::sleep(READ_PAUSE).await;
                continue;
            }
            let jobs: Vec<(String, &Kind)> = (0..BATCH)
                .map(|_| {
                    number += CLIENTS;
                    (Uuid::now_v7().to_string(), Kind::of(number))
                })
                .collect();
            let specs: Vec<Value> = jobs.iter().map(|(id, kind)| spec(id, kind)).collect();
            self.ask("POST", "/v1/jobs/batch", Some(json!({ "jobs": specs }))).await.expect(201);
            for (id, kind) in jobs {
                self.observations.acknowledged(&id, kind.name, QUEUE);
                if kind.name == "unwanted" {
                    let client = self.clone();
                    cancelling.spawn(async move {
                        let reason = json!({ "reason": "as planned" });
                        client.ask("POST", &format!("/v1/jobs/{id}/cancel"), Some(reason)).await.expect(200);
                    });
                }
            }
            // So that the open jobs are counted before there are many more.
            tokio::time::sleep(RETRY_PAUSE).await;
        }
        while let Some(cancelled) = cancelling.join_next().await {
            cancelled.expect("a cancellation returns");
        }
    }

    /// Sends the request to one node after the other until one responds.
    async fn ask(&self, method: &str, path: &str, body: Option<Value>) -> HttpResponse {
        loop {
            for home in &self.homes {
                let asked = tokio::time::timeout(RESPONSE_WAIT, home.send(method, path, body.clone())).await;
                match asked {
                    // The queue is not there before its first job.
                    Ok(Ok(response)) if response.status != 503 => return response,
                    _ => tokio::time::sleep(RETRY_PAUSE).await,
                }
            }
        }
    }
}

fn spec(id: &str, kind: &Kind) -> Value {
    let mut spec = json!({ "id": id, "type": kind.name, "queue": QUEUE, "maxRetries": kind.retries });
    if let Some(timeout) = kind.timeout {
        spec["timeout"] = timeout.into();
    }
    spec
}
