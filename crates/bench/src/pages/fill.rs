//! Fills a store through the API: jobs in every status, in many queues and of many types, with tags and correlation ids,
//! dead letters with errors, logs, schedules that made jobs, and acts of an operator.
//!
//! Seven of ten jobs are completed. The pending ones are neither the oldest nor the newest, as in a queue that was
//! paused for a while.

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use super::super::jobs::wire::{Connection, Target};
use super::super::report::Report;

pub const QUEUES: u64 = 20;
pub const TYPES: u64 = 40;
pub const SCHEDULES: u64 = 10;
/// The job whose log and history are long.
pub const LOGGED_CORRELATION: &str = "logged";
/// Jobs of one request.
const BATCH: u64 = 1_000;
const SCHEDULED_JOBS: u64 = 100;
const LOG_LINES: usize = 1_000;

/// How the jobs of a part end.
#[derive(Clone, Copy, PartialEq)]
enum End {
    Completed,
    Failed,
    Cancelled,
    Pending,
    Scheduled,
}

/// The parts in the order of storing, in percent.
const PARTS: [(End, u64); 7] = [
    (End::Completed, 35),
    (End::Failed, 2),
    (End::Pending, 20),
    (End::Cancelled, 3),
    (End::Scheduled, 5),
    (End::Completed, 33),
    (End::Failed, 2),
];

pub async fn fill(target: &Target, jobs: u64, report: &Report) -> Result<()> {
    let mut filler = Filler { target, connection: target.connect().await? };
    for (part, (end, percent)) in PARTS.into_iter().enumerate() {
        let count = (jobs * percent / 100).max(1);
        report.phase(&format!("filling the store: {count} jobs of part {} of {}", part + 1, PARTS.len()));
        filler.part(end, count).await?;
    }
    report.phase("filling the store: the rest");
    filler.schedules().await?;
    filler.log().await
}

struct Filler<'a> {
    target: &'a Target,
    connection: Connection,
}

/// The prefix of the queues that a worker reads, and of those that nobody reads.
const READ: &str = "q";
const HELD: &str = "held";

impl Filler<'_> {
    async fn call(&mut self, method: &str, path: &str, body: &Value) -> Result<Value> {
        let request = self.target.request(method, path, &body.to_string());
        let response = self.connection.exchange(&request).await.with_context(|| format!("{method} {path}"))?;
        Ok(if response.is_empty() { Value::Null } else { serde_json::from_slice(response)? })
    }

    /// Registers the worker, again if it was silent for so long that it counts as dead.
    async fn register(&mut self) -> Result<()> {
        let queues: Vec<String> = (0..QUEUES).map(|n| format!("{READ}{n}")).collect();
        let body = json!({"workerId": "bench-pages", "queues": queues, "concurrency": 100_000});
        self.call("POST", "/v1/worker/register", &body).await?;
        Ok(())
    }

    async fn part(&mut self, end: End, count: u64) -> Result<()> {
        let mut left = count;
        while left > 0 {
            let batch = left.min(BATCH);
            let jobs: Vec<Value> = (0..batch).map(|n| job(end, left - n)).collect();
            self.call("POST", "/v1/jobs/batch", &json!({ "jobs": jobs })).await?;
            match end {
                End::Completed | End::Failed => self.end_all(end, batch).await?,
                End::Cancelled => self.cancel_all().await?,
                End::Pending | End::Scheduled => {}
            }
            left -= batch;
        }
        Ok(())
    }

    /// Ends runs until as many have ended.
    async fn end_all(&mut self, end: End, count: u64) -> Result<()> {
        self.register().await?;
        let mut left = count;
        while left > 0 {
            let poll = json!({"workerId": "bench-pages", "max": 5_000, "wait": "20s"});
            let received = self.call("POST", "/v1/worker/poll", &poll).await?;
            let runs = received["jobs"].as_array().cloned().unwrap_or_default();
            let events: Vec<Value> = runs.iter().enumerate().map(|(n, run)| ended(run, end, n)).collect();
            if events.is_empty() {
                bail!("no run within 20 s: {left} jobs of this server wait");
            }
            self.call("POST", "/v1/worker/report", &json!({"workerId": "bench-pages", "events": events})).await?;
            left = left.saturating_sub(events.len() as u64);
        }
        Ok(())
    }

    async fn cancel_all(&mut self) -> Result<()> {
        let mut cursor = Value::Null;
        loop {
            let body = json!({"action": "cancel", "filter": {"tag": "stopped"}, "reason": "by hand", "cursor": cursor});
            cursor = self.call("POST", "/v1/jobs/bulk", &body).await?["nextCursor"].clone();
            if cursor.is_null() {
                return Ok(());
            }
        }
    }

    /// Makes schedules and jobs of them. Each trigger is an act of an operator.
    async fn schedules(&mut self) -> Result<()> {
        for schedule in 0..SCHEDULES {
            let body = json!({"type": "bench.tick", "queue": format!("{HELD}0"), "cron": "0 3 * * *", "tz": "UTC"});
            self.call("PUT", &format!("/v1/schedules/s{schedule}"), &body).await?;
            for _ in 0..SCHEDULED_JOBS {
                self.call("POST", &format!("/v1/schedules/s{schedule}/trigger"), &json!({})).await?;
            }
        }
        Ok(())
    }

    /// Makes a run with a long log.
    async fn log(&mut self) -> Result<()> {
        self.register().await?;
        let body = json!({"type": "bench.log", "queue": format!("{READ}0"), "correlationId": LOGGED_CORRELATION});
        self.call("POST", "/v1/jobs", &body).await?;
        let poll = json!({"workerId": "bench-pages", "max": 1, "wait": "20s"});
        let run = self.call("POST", "/v1/worker/poll", &poll).await?["jobs"][0].clone();
        let mut events = vec![event(&run, json!({"kind": "started"}))];
        let line = |n| event(&run, json!({"kind": "log", "seq": n, "level": "info", "message": format!("line {n}")}));
        events.extend((1..=LOG_LINES).map(line));
        self.call("POST", "/v1/worker/report", &json!({"workerId": "bench-pages", "events": events})).await?;
        Ok(())
    }
}

/// Returns the definition of a job. `n` numbers the jobs of a part.
fn job(end: End, n: u64) -> Value {
    let queue = if matches!(end, End::Pending | End::Scheduled) { HELD } else { READ };
    let mut tags = vec![if n.is_multiple_of(2) { "eu" } else { "us" }];
    if n.is_multiple_of(1_009) {
        tags.push("rare");
    }
    let kind = if n.is_multiple_of(4_001) { "bench.rare".to_owned() } else { format!("bench.t{}", n % TYPES) };
    let mut job = json!({
        "type": kind, "queue": format!("{queue}{}", n % QUEUES), "correlationId": format!("order-{}", n / 3),
        "args": {"n": n, "fill": "x".repeat(70)}, "maxRetries": 0,
    });
    match end {
        End::Cancelled => {
            tags.push("stopped");
            job["delay"] = json!("1h");
        }
        End::Scheduled => job["delay"] = json!("10h"),
        _ => {}
    }
    job["tags"] = json!(tags);
    job
}

fn event(run: &Value, mut event: Value) -> Value {
    event["jobId"] = run["jobId"].clone();
    event["executionId"] = run["executionId"].clone();
    event
}

fn ended(run: &Value, end: End, n: usize) -> Value {
    match end {
        End::Failed => event(
            run,
            json!({"kind": "failed", "error": format!("timeout after {n} s at host-{} of kind {}", n % 50, n % 7)}),
        ),
        _ => event(run, json!({"kind": "completed", "result": {"n": n}})),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_are_the_whole() {
        assert_eq!(PARTS.iter().map(|(_, percent)| percent).sum::<u64>(), 100);
    }
}
