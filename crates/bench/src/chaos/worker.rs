//! A worker of the cluster, as a process of its own: it can be killed.
//!
//! It uses the worker gateway by hand, so that it knows of each report whether it was accepted: the worker that applications
//! use hides that. A report without a response is sent again; accepted means durable.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use convoke::Http;
use convoke::history::{self, DecisionFile, Recorder};
use convoke_core::decisions::{Decision, Outcome, What};
use convoke_core::jobs::ExecutionStatus;
use convoke_core::{Error, ExecutionId, JobId, WorkerId};
use http::Method;
use parking_lot::Mutex;
use rand::RngExt as _;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::Instant;

const CONCURRENCY: usize = 16;
const RUN_MAX: Duration = Duration::from_millis(60);
/// One of so many runs takes long, so that nodes that drain or die leave runs for others.
const LONG_OF: u32 = 10;
const LONG_RUN_MAX: Duration = Duration::from_secs(2);
/// One of so many runs fails.
const FAILED_OF: u32 = 25;
const HEARTBEAT: Duration = Duration::from_millis(250);
const RETRY_PAUSE: Duration = Duration::from_millis(50);
const RESPONSE_WAIT: Duration = Duration::from_secs(3);
/// How long a report is sent again before its run is given up: it is lost by then.
const REPORT_FOR: Duration = Duration::from_secs(30);

#[derive(Debug, Args)]
pub struct WorkerArgs {
    /// The id of the worker
    #[arg(long)]
    id: WorkerId,
    /// Addresses of the nodes, with commas between
    #[arg(long)]
    servers: String,
    /// The queues that it serves
    #[arg(long, value_delimiter = ',')]
    queues: Vec<String>,
    /// The file for the runs that it received and reported
    #[arg(long)]
    history: PathBuf,
}

#[derive(Deserialize)]
struct Polled {
    jobs: Vec<Assignment>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Assignment {
    job_id: JobId,
    execution_id: ExecutionId,
    attempt: u32,
}

#[derive(Deserialize)]
struct Reported {
    rejected: Vec<Value>,
}

struct Worker {
    http: Http,
    id: WorkerId,
    queues: Vec<String>,
    recorder: Arc<Recorder>,
    running: Mutex<Vec<ExecutionId>>,
}

/// Runs until SIGTERM.
pub async fn run(args: WorkerArgs) -> Result<()> {
    let mut stop = signal(SignalKind::terminate())?;
    let recorder = history::recorder(args.id.as_str(), Arc::new(DecisionFile::open(&args.history)?))?;
    let worker = Arc::new(Worker {
        http: Http::connect(&args.servers, None)?,
        id: args.id,
        queues: args.queues,
        recorder: recorder.clone(),
        running: Mutex::default(),
    });
    println!("ready");
    let heartbeats = worker.clone();
    let mut runs = JoinSet::new();
    tokio::select! {
        () = worker.clone().work(&mut runs) => {}
        () = async move { heartbeats.send_heartbeats().await } => {}
        _ = stop.recv() => {}
    }
    // What was begun is reported.
    while runs.join_next().await.is_some() {}
    recorder.end().await;
    Ok(())
}

impl Worker {
    async fn post<T: serde::de::DeserializeOwned>(&self, verb: &str, body: &Value) -> Result<T, Error> {
        let path = format!("/v1/worker/{verb}");
        self.http.json_within(RESPONSE_WAIT, Method::POST, &path, Some(body)).await.map(|(_, response)| response)
    }

    /// Registers again if the server does not know the worker, and waits otherwise.
    async fn recover(&self, error: &Error) {
        if !error.is_transient() {
            let body =
                json!({ "workerId": self.id, "name": "chaos", "queues": self.queues, "concurrency": CONCURRENCY });
            // Tried again after the next failure.
            let _ = self.post::<Value>("register", &body).await;
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }

    async fn work(self: Arc<Self>, runs: &mut JoinSet<()>) {
        loop {
            while runs.try_join_next().is_some() {}
            let free = CONCURRENCY.saturating_sub(runs.len());
            if free == 0 {
                runs.join_next().await;
                continue;
            }
            let polled: Result<Polled, Error> =
                self.post("poll", &json!({ "workerId": self.id, "max": free, "wait": "500ms" })).await;
            match polled {
                Ok(polled) => {
                    for run in polled.jobs {
                        self.running.lock().push(run.execution_id);
                        runs.spawn(self.clone().execute(run));
                    }
                }
                Err(error) => self.recover(&error).await,
            }
        }
    }

    async fn send_heartbeats(&self) {
        loop {
            tokio::time::sleep(HEARTBEAT).await;
            let running = self.running.lock().clone();
            let sent = self.post::<Value>("heartbeat", &json!({ "workerId": self.id, "running": running })).await;
            if let Err(error) = sent {
                self.recover(&error).await;
            }
        }
    }

    fn record(&self, since: u64, what: What, outcome: Outcome, run: Assignment, end: Option<ExecutionStatus>) {
        let decision = Decision {
            job: Some(run.job_id),
            run: Some(run.execution_id),
            attempt: Some(run.attempt),
            worker: Some(self.id.clone()),
            end,
            ..Decision::of(what, outcome)
        };
        self.recorder.record_one(since, decision);
    }

    async fn execute(self: Arc<Self>, run: Assignment) {
        self.record(self.recorder.since(), What::ClientRan, Outcome::Accepted, run, None);
        let (time, fails) = {
            let mut random = rand::rng();
            let longest = if random.random_ratio(1, LONG_OF) { LONG_RUN_MAX } else { RUN_MAX };
            (longest.mul_f64(random.random::<f64>()), random.random_ratio(1, FAILED_OF))
        };
        tokio::time::sleep(time).await;
        let (kind, end) =
            if fails { ("failed", ExecutionStatus::Failed) } else { ("completed", ExecutionStatus::Completed) };
        let mut event = json!({ "executionId": run.execution_id, "jobId": run.job_id, "kind": kind });
        if fails {
            event["error"] = "as planned".into();
        }
        let report = json!({ "workerId": self.id, "events": [event] });
        let (since, began) = (self.recorder.since(), Instant::now());
        let outcome = loop {
            match self.post::<Reported>("report", &report).await {
                Ok(reported) if reported.rejected.is_empty() => break Outcome::Accepted,
                Ok(_) => break Outcome::Stale,
                Err(_) if began.elapsed() > REPORT_FOR => break Outcome::Unknown,
                Err(error) => self.recover(&error).await,
            }
        };
        self.record(since, What::ClientReported, outcome, run, Some(end));
        self.running.lock().retain(|it| *it != run.execution_id);
    }
}
