//! Any input: never a 500, never a panic, always a response in the one form.

use axum::extract::Request;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

use super::World;

const METHODS: &[&str] = &["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"];

const PATHS: &[&str] = &[
    "/",
    "/health",
    "/metrics",
    "/docs",
    "/openapi.json",
    "/v1/jobs",
    "/v1/jobs/batch",
    "/v1/jobs/{}",
    "/v1/jobs/{}/history",
    "/v1/jobs/{}/logs",
    "/v1/jobs/{}/logs/stream",
    "/v1/jobs/{}/cancel",
    "/v1/jobs/{}/retry",
    "/v1/schedules",
    "/v1/schedules/{}",
    "/v1/schedules/{}/pause",
    "/v1/schedules/{}/resume",
    "/v1/schedules/{}/trigger",
    "/v1/schedules/{}/ticks",
    "/v1/queues",
    "/v1/queues/{}",
    "/v1/dead-letters",
    "/v1/dead-letters/groups",
    "/v1/dead-letters/retry",
    "/v1/dead-letters/purge",
    "/v1/workers",
    "/v1/workers/{}",
    "/v1/nodes",
    "/v1/nodes/{}",
    "/v1/nodes/{}/drain",
    "/v1/nodes/{}/jobs",
    "/v1/cluster",
    "/v1/jobs/bulk",
    "/v1/elections",
    "/v1/elections/{}",
    "/v1/mesh",
    "/v1/mesh/{}",
    "/v1/mesh/{}/call",
    "/v1/timeseries",
    "/v1/cluster/terms",
    "/v1/cluster/refusals",
    "/v1/cluster/handoffs",
    "/v1/shards/{}/history",
    "/v1/events",
    "/v1/worker/register",
    "/v1/worker/poll",
    "/v1/worker/report",
    "/v1/worker/heartbeat",
    "/v1/worker/leave",
];

const KEYS: &[&str] = &[
    "id",
    "type",
    "queue",
    "args",
    "priority",
    "delay",
    "runAt",
    "maxRetries",
    "retryPolicy",
    "timeout",
    "correlationId",
    "uniqueKey",
    "uniqueFor",
    "jobs",
    "cron",
    "every",
    "tz",
    "missed",
    "overlap",
    "paused",
    "rateLimit",
    "limit",
    "per",
    "concurrency",
    "ids",
    "all",
    "reason",
    "workerId",
    "name",
    "queues",
    "max",
    "wait",
    "events",
    "executionId",
    "jobId",
    "kind",
    "at",
    "percent",
    "message",
    "level",
    "result",
    "error",
    "retry",
    "running",
    "initialDelay",
    "multiplier",
    "maxDelay",
    "jitter",
    "status",
    "cursor",
    "after",
    "types",
    "nonsense",
    "",
];

const TEXTS: &[&str] = &[
    "t",
    "default",
    "w-1",
    "",
    "\u{0}",
    "é",
    "\u{202e}",
    "0198c0de-0000-7000-8000-000000000000",
    "1s",
    "0s",
    "100ms",
    "-1s",
    "18446744073709551615d",
    "36500d",
    "2030-01-01T00:00:00Z",
    "-009999-01-01T00:00:00Z",
    "9999-12-30T22:00:00Z",
    "0001-01-01T00:00:00Z",
    "* * * * *",
    "0 0 31 2 *",
    "0 0 29 2 *",
    "*/0 * * * *",
    "@reboot",
    "@hourly",
    "99999999999 * * * *",
    "* * * * * * *",
    "Europe/Berlin",
    "../../etc/passwd",
    "high",
    "full",
    "skip",
    "latest",
    "pending",
    "completed",
    "log",
    "started",
    "progress",
    "failed",
    "released",
    "timedOut",
    "job",
    "leader:changed",
    "null",
    "1e400",
    "%",
    "a/b",
];

struct Gibberish(StdRng);

impl Gibberish {
    fn pick(&mut self, from: &[&'static str]) -> &'static str {
        from.choose(&mut self.0).copied().expect("not empty")
    }

    fn value(&mut self, depth: u32) -> Value {
        match self.0.random_range(0..if depth == 0 { 7 } else { 10 }) {
            0 => Value::Null,
            1 => json!(self.0.random::<bool>()),
            2 => json!(self.0.random::<i64>()),
            3 => json!(self.0.random_range(-2..102)),
            4 => json!(self.0.random::<f64>() * 1e300),
            5 | 6 => json!(self.pick(TEXTS)),
            7 => (0..self.0.random_range(0..4)).map(|_| self.value(depth - 1)).collect(),
            _ => self.object(depth - 1),
        }
    }

    fn object(&mut self, depth: u32) -> Value {
        let count = self.0.random_range(0..6);
        Value::Object((0..count).map(|_| (self.pick(KEYS).to_owned(), self.value(depth))).collect())
    }

    fn body(&mut self) -> Vec<u8> {
        let mut text = match self.0.random_range(0..10) {
            0 => (0..self.0.random_range(0..200)).map(|_| self.0.random()).collect(),
            1 => "[".repeat(self.0.random_range(0..20_000)).into_bytes(),
            2 => r#"{"args":"#.repeat(self.0.random_range(0..5_000)).into_bytes(),
            _ => self.object(4).to_string().into_bytes(),
        };
        if !text.is_empty() && self.0.random_bool(0.1) {
            let at = self.0.random_range(0..text.len());
            text[at] = self.0.random();
        }
        text
    }

    fn path(&mut self) -> String {
        let mut path = self.pick(PATHS).to_owned();
        if path.contains("{}") {
            let text = if self.0.random() {
                self.pick(TEXTS).to_owned()
            } else {
                "0198c0de-0000-7000-8000-000000000000".into()
            };
            path = path.replace("{}", &encoded(text.as_bytes()));
        }
        if self.0.random_bool(0.05) {
            path.push_str("/%FF%00");
        }
        if self.0.random_bool(0.4) {
            let pair = |this: &mut Self| {
                format!("{}={}", encoded(this.pick(KEYS).as_bytes()), encoded(this.pick(TEXTS).as_bytes()))
            };
            path = format!("{path}?{}&{}", pair(self), pair(self));
        }
        path
    }

    fn request(&mut self) -> Request {
        let mut builder = Request::builder().method(self.pick(METHODS)).uri(self.path());
        for name in ["content-type", "last-event-id", "authorization", "host", "origin", "content-length"] {
            if self.0.random_bool(0.05) {
                let value: Vec<u8> = (0..self.0.random_range(0..20)).map(|_| self.0.random_range(0x20..0x7f)).collect();
                builder = builder.header(name, value);
            }
        }
        builder.body(self.body().into()).expect("a request")
    }
}

fn encoded(text: &[u8]) -> String {
    text.iter().map(|byte| format!("%{byte:02X}")).collect()
}

/// Time is paused, so that a request that waits does not make the test wait.
#[tokio::test(start_paused = true)]
async fn garbage_is_answered_never_swallowed() {
    let world = World::new().await;
    world.register("w-1", &["default"]).await;
    world.enqueue(json!({"type": "t", "id": super::NO_ID})).await;
    let (mut refused, mut done) = (0, 0);
    for seed in 0..20_000 {
        let request = Gibberish(StdRng::seed_from_u64(seed)).request();
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let response = world.respond(request).await;
        let status = response.status();
        assert!(!status.is_server_error(), "seed {seed}: {method} {uri} returned {status}");
        if status.is_client_error() {
            assert_eq!(response.headers()["content-type"], "application/json", "seed {seed}: {method} {uri}");
            refused += 1;
        } else {
            done += 1;
        }
    }
    assert!(refused > 1_000 && done > 1_000, "both ways are taken: {refused} refused, {done} done");
}
