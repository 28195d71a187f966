//! Clients that enqueue whatever happens, and record what was acknowledged.
//!
//! A client behaves as it must: it sends a request whose response is missing again, with the same id. So every job that exists
//! was acknowledged in the end. Some jobs are cancelled, and a schedule ticks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use convoke::Http;
use convoke::history::Recorder;
use convoke_core::decisions::{Decision, Outcome, What};
use convoke_core::{JobId, JobType, QueueName};
use http::{Method, StatusCode};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// The queues of the jobs.
pub const QUEUES: [&str; 3] = ["mail", "reports", "ticks"];
const PRODUCERS: u64 = 4;
/// The pause of a producer between two jobs, at most.
const PAUSE_MAX: Duration = Duration::from_millis(40);
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// The pause between two reads of the counts.
const READ_PAUSE: Duration = Duration::from_millis(300);
/// A paused node refuses no connection: after this the request is sent to another.
const RESPONSE_WAIT: Duration = Duration::from_secs(3);
/// How many jobs may be under way before producers wait.
const OPEN_MAX: u64 = 400;
/// One of so many jobs is cancelled.
const CANCELLED_OF: u32 = 20;
const SCHEDULE: &str = "/v1/schedules/chaos";

pub struct Producers {
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU64>,
    tasks: JoinSet<Result<()>>,
    http: Http,
}

impl Producers {
    pub fn start(urls: &[String], recorder: Arc<Recorder>, seed: u64) -> Result<Producers> {
        let (stop, acknowledged) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let mut tasks = JoinSet::new();
        for number in 0..PRODUCERS {
            let mut urls = urls.to_vec();
            let places = urls.len();
            urls.rotate_left(number as usize % places);
            let producer = Producer {
                http: Http::connect(&urls.join(","), None)?,
                recorder: recorder.clone(),
                stop: stop.clone(),
                acknowledged: acknowledged.clone(),
                random: StdRng::seed_from_u64(seed.wrapping_add(number)),
            };
            tasks.spawn(producer.run(number == 0));
        }
        Ok(Producers { stop, acknowledged, tasks, http: Http::connect(&urls.join(","), None)? })
    }

    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    /// Stops once what was begun is acknowledged. Returns how many jobs were.
    pub async fn end(mut self) -> Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        while let Some(ended) = self.tasks.join_next().await {
            ended??;
        }
        until(&self.http, Method::POST, &format!("{SCHEDULE}/pause"), &json!({})).await?;
        Ok(self.acknowledged())
    }
}

/// Sends a request until it succeeds. Returns the status and the response.
async fn until(http: &Http, method: Method, path: &str, body: &Value) -> Result<(StatusCode, Value)> {
    loop {
        let sent = http.json_within(RESPONSE_WAIT, method.clone(), path, Some(body)).await;
        match sent {
            Ok(response) => return Ok(response),
            Err(error) if error.is_transient() => tokio::time::sleep(RETRY_PAUSE).await,
            Err(error) => return Err(error).with_context(|| format!("{method} {path}")),
        }
    }
}

struct Producer {
    http: Http,
    recorder: Arc<Recorder>,
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU64>,
    random: StdRng,
}

impl Producer {
    async fn run(mut self, with_schedule: bool) -> Result<()> {
        if with_schedule {
            let schedule =
                json!({ "type": "tick", "queue": QUEUES[2], "every": "500ms", "missed": "all", "overlap": "allow" });
            until(&self.http, Method::PUT, SCHEDULE, &schedule).await?;
        }
        let mut since_check = Instant::now();
        while !self.stop.load(Ordering::Relaxed) {
            self.enqueue().await?;
            tokio::time::sleep(PAUSE_MAX.mul_f64(self.random.random::<f64>())).await;
            if since_check.elapsed() > Duration::from_secs(1) {
                // While workers cannot keep up.
                while !self.stop.load(Ordering::Relaxed) && open(&self.http).await.is_ok_and(|open| open > OPEN_MAX) {
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
                since_check = Instant::now();
            }
        }
        Ok(())
    }

    async fn enqueue(&mut self) -> Result<()> {
        let id = self.id()?;
        let queue = QUEUES[self.random.random_range(0..2)];
        let spec = json!({ "id": id, "type": "chaos", "queue": queue, "args": { "n": self.random.random::<u16>() } });
        let since = self.recorder.since();
        until(&self.http, Method::POST, "/v1/jobs", &spec).await?;
        self.recorder.record_one(
            since,
            Decision {
                job: Some(id),
                job_type: Some(JobType::new("chaos")?),
                queue: Some(QueueName::new(queue)?),
                ..Decision::of(What::ClientEnqueued, Outcome::Accepted)
            },
        );
        self.acknowledged.fetch_add(1, Ordering::Relaxed);
        if self.random.random_ratio(1, CANCELLED_OF) {
            let path = format!("/v1/jobs/{id}/cancel");
            // A job that has ended already is a conflict.
            let _ = self.http.json_within::<Value>(RESPONSE_WAIT, Method::POST, &path, Some(&json!({}))).await;
        }
        Ok(())
    }

    /// Returns a new id of version 7.
    fn id(&mut self) -> Result<JobId> {
        let ms = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?.as_millis();
        let (a, b) = (self.random.random::<u64>(), self.random.random::<u64>());
        let number =
            (ms & 0xffff_ffff_ffff) << 80 | 0x7 << 76 | u128::from(a & 0xfff) << 64 | u128::from(b >> 2 | 1 << 63);
        let hex = format!("{number:032x}");
        let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
        Ok(parts.join("-").parse()?)
    }
}

/// Returns how many jobs have not ended.
async fn open(http: &Http) -> Result<u64> {
    #[derive(Deserialize)]
    struct Queues {
        queues: Vec<Queue>,
    }
    #[derive(Deserialize)]
    struct Queue {
        counts: Value,
    }
    let (_, queues): (_, Queues) = http.json_within(RESPONSE_WAIT, Method::GET, "/v1/queues", None::<&()>).await?;
    let live = ["pending", "scheduled", "dispatched", "running"];
    let of = |queue: &Queue| live.iter().filter_map(|status| queue.counts[*status].as_u64()).sum::<u64>();
    Ok(queues.queues.iter().map(of).sum())
}

/// Waits until all jobs have ended, for at most so long. Returns how many have not. Counts may be a moment old, so that they
/// are read twice.
pub async fn wait_until_drained(http: &Http, longest: Duration) -> Result<u64> {
    let began = Instant::now();
    let mut was_drained = false;
    loop {
        let left = open(http).await;
        match left {
            Ok(0) if was_drained => return Ok(0),
            Ok(left) if began.elapsed() > longest => return Ok(left),
            Err(error) if began.elapsed() > longest => return Err(error),
            left => was_drained = matches!(left, Ok(0)),
        }
        tokio::time::sleep(READ_PAUSE).await;
    }
}
