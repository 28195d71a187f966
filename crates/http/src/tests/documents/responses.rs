//! Every operation of the document is called, and its response compared with the schema.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use convoke_adapters::memory::MemoryRouting;
use convoke_core::NodeId;
use convoke_core::jobs::{RateLimit, wire};
use convoke_core::ports::store::{Handover, Reassign};
use convoke_core::shards::coordinator::Settings as ShardSettings;
use convoke_runtime::jobs::{Coordinator, Ports, RateLimitSettings, Settings};
use convoke_runtime::shards::{ShardWorker, ShardsDuty, ShardsRelay, WorkerOptions};
use serde_json::{Value, json};

use super::super::history::records_of_another_node;
use super::super::{NO_ID, World, in_time, ports, request};
use super::schema::Schemas;
use super::{document, keys};
use crate::{Access, Shards};

const SHARDS: &str = "memory://shards";
/// Responses that have no schema of their own: text, streams of events, and the document itself.
const WITHOUT_SCHEMA: [&str; 4] = ["/metrics", "/openapi.json", "/v1/events", "/v1/jobs/{id}/logs/stream"];
/// Properties that need a backend that fails.
const NOT_SEEN: [&str; 1] = ["Backend.detail"];

/// A client that compares each response with the document.
struct Client {
    world: World,
    ports: Ports,
    network: MemoryRouting,
    document: Value,
    schemas: Schemas,
    called: BTreeSet<(String, String)>,
    problems: Vec<String>,
}

impl Client {
    async fn new() -> Self {
        let (ports, network) = (ports(), MemoryRouting::default());
        let id = NodeId::new("node-1").expect("a name");
        let binding = Arc::new(network.binding(SHARDS));
        let duty = Arc::new(ShardsDuty::new(binding, ShardSettings::default(), false, ports.clock.clone()));
        let relay = Arc::new(ShardsRelay::new(id.clone(), ports.bus.clone(), "convoke", duty.view()));
        let shards = Shards { view: duty.view(), relay, is_wanted: true };
        let limit = Some(RateLimit { limit: RateLimit::LIMIT_MAX, per: Duration::from_secs(1) });
        let rate_limit = RateLimitSettings { global: limit, default: limit };
        let settings = Settings { rate_limit, ..Settings::default() };
        let coordinator = Coordinator::start_with(id, ports.clone(), settings, vec![duty.into()])
            .await
            .expect("the coordinator starts");
        let world = World::of(coordinator, Some(shards), Access::Insecure).await;
        let document = document(&world).await;
        let schemas = Schemas::new(document.clone());
        Client { world, ports, network, document, schemas, called: BTreeSet::new(), problems: Vec::new() }
    }

    /// Sends a request, compares the response with the schema of its status and returns its body.
    async fn call(&mut self, method: &str, path: &str, body: Value, status: u16) -> Value {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let response = self.world.answer(request(method, path, body)).await;
        assert_eq!(response.status.as_u16(), status, "{method} {path}: {}", response.body);
        let (template, method) = (self.template(path), method.to_lowercase());
        let documented = &self.document["paths"][&template][&method]["responses"][status.to_string()];
        assert!(documented.is_object(), "{method} {template}: {status} is not documented");
        let problems = match documented["content"].get("application/json") {
            Some(content) => self.schemas.check(&content["schema"], &response.body),
            None if response.body == "" => Vec::new(),
            None => vec![format!("{} was sent, and no body is documented", response.body)],
        };
        self.problems.extend(problems.into_iter().map(|problem| format!("{method} {template} {status} {problem}")));
        self.called.insert((method, template));
        response.body
    }

    async fn get(&mut self, path: &str) -> Value {
        self.call("GET", path, Value::Null, 200).await
    }

    async fn post(&mut self, path: &str, body: Value) -> Value {
        self.call("POST", path, body, 200).await
    }

    async fn enqueue(&mut self, spec: Value) -> String {
        let job = self.call("POST", "/v1/jobs", spec, 201).await;
        job["id"].as_str().expect("an id").to_owned()
    }

    /// Polls until the worker gets a run.
    async fn take(&mut self) -> Value {
        let polls = async {
            loop {
                let polled = self.post("/v1/worker/poll", json!({"workerId": "w-1", "max": 1, "wait": "20s"})).await;
                if let Some(run) = polled["jobs"].get(0) {
                    return run.clone();
                }
            }
        };
        in_time("a run", polls).await
    }

    async fn report(&mut self, run: &Value, more: Value) -> Value {
        let mut event = json!({"jobId": run["jobId"], "executionId": run["executionId"]});
        event.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        self.post("/v1/worker/report", json!({"workerId": "w-1", "events": [event]})).await
    }

    /// Requests `path` until its response is as expected.
    async fn until(&mut self, path: &str, is: impl Fn(&Value) -> bool) -> Value {
        let requests = async {
            loop {
                let body = self.get(path).await;
                if is(&body) {
                    return body;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        in_time(path, requests).await
    }

    /// The path of the document that describes `path`.
    fn template(&self, path: &str) -> String {
        let path = path.split('?').next().unwrap_or_default();
        let matches = |template: &str| {
            let (one, other) = (template.split('/'), path.split('/'));
            one.clone().count() == other.clone().count()
                && one.zip(other).all(|(part, segment)| part == segment || part.starts_with('{'))
        };
        let found = keys(&self.document["paths"]).into_iter().filter(|template| matches(template));
        found.min_by_key(|template| template.matches('{').count()).expect("a documented path").to_owned()
    }

    async fn jobs(&mut self) {
        let limits = json!({"paused": true, "rateLimit": {"limit": 100, "per": "1s"}, "concurrency": 5});
        self.call("PATCH", "/v1/queues/later", limits, 200).await;
        let full = json!({"id": "0198c0de-0000-7000-8000-00000000aaaa", "type": "t", "queue": "later", "args": {"a": [1]},
            "priority": "high", "maxRetries": 2, "timeout": "1m", "correlationId": "c", "tags": ["a"], "uniqueKey": "k", "uniqueFor": "1h",
            "retryPolicy": {"initialDelay": "1s", "multiplier": 3, "maxDelay": "1m", "jitter": "none"}});
        self.enqueue(full.clone()).await;
        self.post("/v1/jobs", full).await;
        self.enqueue(json!({"type": "t", "delay": "1h"})).await;
        self.until("/v1/queues/later", |queue| queue["oldestPendingAge"].is_string()).await;
        self.get("/v1/queues").await;
        self.get("/v1/jobs?limit=1").await;
        self.get("/v1/jobs?status=scheduled").await;
    }

    async fn runs(&mut self) -> Value {
        let worker = json!({"workerId": "w-1", "name": "first", "queues": ["default"], "concurrency": 10});
        self.post("/v1/worker/register", worker).await;
        let spec = json!({"type": "t", "args": [1], "timeout": "1h", "correlationId": "c", "tags": ["a"]});
        self.call("POST", "/v1/jobs/batch", json!({"jobs": [spec, spec, spec, spec]}), 201).await;
        let (running, done) = (self.take().await, self.take().await);
        let (failed, dead) = (self.take().await, self.take().await);
        self.report(&running, json!({"kind": "started"})).await;
        self.report(&running, json!({"kind": "progress", "percent": 40, "message": "m"})).await;
        self.report(&running, json!({"kind": "log", "level": "warn", "message": "m", "seq": 1})).await;
        for run in [&failed, &dead] {
            self.report(run, json!({"kind": "failed", "error": "e", "retry": false})).await;
        }
        self.report(&done, json!({"kind": "completed", "result": [1, {}]})).await;
        let stale = json!({"jobId": running["jobId"], "executionId": NO_ID});
        let stale = self.report(&stale, json!({"kind": "completed"})).await;
        assert_eq!(stale["rejected"].as_array().map(Vec::len), Some(1));
        for run in [&running, &failed, &done] {
            let path = format!("/v1/jobs/{}", run["jobId"].as_str().expect("an id"));
            for more in ["", "?wait=1ms", "/history", "/logs"] {
                self.get(&format!("{path}{more}")).await;
            }
        }
        self.get("/v1/jobs").await;
        self.get("/v1/dead-letters?limit=1").await;
        self.get("/v1/dead-letters/groups?limit=1").await;
        self.post("/v1/dead-letters/retry", json!({"ids": [failed["jobId"]]})).await;
        let again = self.take().await;
        self.report(&again, json!({"kind": "failed", "error": "e", "retry": false})).await;
        let path = format!("/v1/jobs/{}", again["jobId"].as_str().expect("an id"));
        self.get(&format!("{path}/history?limit=1")).await;
        self.post(&format!("{path}/retry"), Value::Null).await;
        let again = self.take().await;
        self.report(&again, json!({"kind": "failed", "error": "e", "retry": false})).await;
        self.post("/v1/dead-letters/purge", json!({"all": true})).await;
        running
    }

    async fn cancellations(&mut self) {
        for way in ["heartbeat", "poll"] {
            self.enqueue(json!({"type": "t"})).await;
            let run = self.take().await;
            let cancel = format!("/v1/jobs/{}/cancel", run["jobId"].as_str().expect("an id"));
            self.post(&cancel, json!({"reason": "r"})).await;
            let execution = run["executionId"].clone();
            let reported = async {
                loop {
                    let body = match way {
                        "poll" => json!({"workerId": "w-1", "max": 1, "wait": "10ms"}),
                        _ => json!({"workerId": "w-1", "running": [execution]}),
                    };
                    let reported = self.post(&format!("/v1/worker/{way}"), body).await;
                    if reported["cancel"].as_array().is_some_and(|runs| runs.contains(&execution)) {
                        return;
                    }
                }
            };
            in_time("the worker receives the order to stop", reported).await;
            self.report(&run, json!({"kind": "cancelled"})).await;
        }
    }

    async fn schedules(&mut self) {
        let cron = json!({"type": "t", "cron": "0 0 13 * FRI", "tz": "Europe/Berlin", "queue": "later", "args": 7,
            "missed": "all", "overlap": "allow", "priority": "low", "maxRetries": 1, "timeout": "1m", "retryPolicy": {},
            "correlationId": "c", "tags": ["a"], "uniqueKey": "cron", "uniqueFor": "1m"});
        self.call("PUT", "/v1/schedules/cron", cron.clone(), 201).await;
        self.call("PUT", "/v1/schedules/cron", cron, 200).await;
        self.get("/v1/schedules/cron").await;
        self.post("/v1/schedules/cron/pause", Value::Null).await;
        self.post("/v1/schedules/cron/resume", Value::Null).await;
        self.call("POST", "/v1/schedules/cron/trigger", Value::Null, 201).await;
        self.get("/v1/schedules/cron/ticks").await;
        let often = json!({"type": "t", "every": "100ms", "queue": "later"});
        self.call("PUT", "/v1/schedules/often", often.clone(), 201).await;
        self.until("/v1/schedules/often", |schedule| schedule["lastRunAt"].is_string()).await;
        self.call("PUT", "/v1/schedules/often", often, 200).await;
        self.get("/v1/schedules").await;
        self.get("/v1/jobs?queue=later").await;
        for name in ["cron", "often"] {
            self.call("DELETE", &format!("/v1/schedules/{name}"), Value::Null, 204).await;
        }
    }

    async fn bulk(&mut self) {
        self.enqueue(json!({"type": "bulk", "queue": "bulk"})).await;
        let body = |dry_run: bool| json!({"action": "cancel", "filter": {"queue": "bulk"}, "dryRun": dry_run});
        let counted = self.post("/v1/jobs/bulk", body(true)).await;
        assert_eq!(counted["count"], 1);
        assert_eq!(self.post("/v1/jobs/bulk", body(false)).await["done"], 1);
        for number in 0..501 {
            self.enqueue(json!({"type": "bulk", "queue": format!("bulk-{}", number % 2), "delay": "1h"})).await;
        }
        let slice = self.post("/v1/jobs/bulk", json!({"action": "cancel", "filter": {"type": "bulk"}})).await;
        assert_eq!((&slice["done"], slice["nextCursor"].is_string()), (&json!(500), true));
    }

    async fn cluster(&mut self, running: &Value) {
        for path in ["/v1/workers", "/v1/workers/w-1", "/v1/nodes", "/v1/nodes/node-1", "/v1/cluster"] {
            self.get(path).await;
        }
        self.until("/v1/nodes/node-1/jobs", |owned| owned["jobs"][0].is_object()).await;
        let parse = |key: &str| running[key].as_str().expect("an id");
        let (job, execution) = (parse("jobId").parse().expect("an id"), parse("executionId").parse().expect("an id"));
        let from = NodeId::new("node-1").expect("a name");
        let offer = Reassign { job, execution, from, to: Handover::Offer };
        self.ports.store.reassign(vec![offer]).await.expect("the run is offered");
        self.until("/v1/cluster", |cluster| cluster["handoffsTotal"] == 1).await;
    }

    async fn shards(&mut self) {
        let join = async |name: &str, network: &MemoryRouting| {
            let options = WorkerOptions { handoff: true, ..WorkerOptions::new("s", name, 4) };
            ShardWorker::connect(Arc::new(network.clone()), vec![SHARDS.into()], options).await.expect("it connects")
        };
        let first = join("a", &self.network).await;
        let mut changes = first.changes();
        in_time("the shards of the first", changes.next()).await.expect("a change");
        changes.done();
        let _second = join("b", &self.network).await;
        in_time("a revocation", changes.next()).await.expect("a change");
        self.until("/v1/shards/s", |service| service["workers"][0]["revoking"].is_array()).await;
        self.get("/v1/shards").await;
    }

    /// Records of another node have every property.
    async fn history(&mut self) {
        let message = wire::encode(&records_of_another_node(self.ports.clock.now()));
        self.ports.bus.publish("convoke.history", message).await.expect("published");
        self.until("/v1/cluster/terms", |terms| terms["terms"][0]["slowRenewals"][0].is_object()).await;
        self.until("/v1/cluster/refusals", |refusals| refusals["refusals"][0]["against"].is_string()).await;
        self.get("/v1/cluster/handoffs").await;
        self.get("/v1/elections").await;
        self.get("/v1/elections/coordinator").await;
        self.ports.leases.enroll("coordinator", "m", Duration::from_secs(60)).await.expect("enrolled");
        assert_eq!(self.get("/v1/elections/coordinator").await["members"][0], "m");
        self.get("/v1/shards/s/history").await;
        self.until("/v1/timeseries?window=1m", |series| series["queues"][0].is_object()).await;
    }

    async fn mesh(&mut self) {
        let _one = super::super::mesh::instance("m", "host-1").await;
        assert_eq!(self.get("/v1/mesh").await["meshes"][0], "m");
        self.until("/v1/mesh/m", |mesh| mesh["instances"][0]["figures"]["p50Us"].is_u64()).await;
        self.post("/v1/mesh/m/call", json!({"instanceId": 1, "type": "echo", "data": {"a": 1}})).await;
        self.call("POST", "/v1/mesh/m/call", json!({"instanceId": 1, "type": "fail"}), 502).await;
    }

    async fn errors(&mut self) {
        for (method, path, body, status) in [
            ("GET", "/v1/jobs/x", Value::Null, 400),
            ("GET", "/v1/schedules/none", Value::Null, 404),
            ("POST", "/v1/worker/poll", json!({"workerId": "nobody", "max": 1}), 404),
            ("DELETE", "/v1/queues/later", Value::Null, 409),
            ("POST", "/v1/jobs", json!({"type": "t", "args": "x".repeat((1 << 20) + 1)}), 413),
            ("POST", "/v1/jobs", json!({"type": "t", "delay": "1s", "runAt": "2030-01-31T09:00:00Z"}), 422),
        ] {
            self.call(method, path, body, status).await;
        }
    }

    /// The last requests: the node drains and stops.
    async fn end(&mut self) {
        self.call("PATCH", "/v1/queues/unused", json!({"paused": false}), 200).await;
        self.call("DELETE", "/v1/queues/unused", Value::Null, 204).await;
        self.call("DELETE", "/v1/sessions", Value::Null, 204).await;
        self.post("/v1/worker/leave", json!({"workerId": "w-1"})).await;
        for path in ["/livez", "/readyz", "/health", "/v1/audit?action=queue.limit", "/v1/audit?limit=2"] {
            self.get(path).await;
        }
        self.call("POST", "/v1/nodes/node-1/drain", Value::Null, 202).await;
        self.world.coordinator.stop().await;
        self.call("GET", "/health", Value::Null, 503).await;
        self.call("GET", "/readyz", Value::Null, 503).await;
    }

    /// Every operation that has a schema was called, and every property had a value in some response.
    fn conclude(self) {
        assert!(self.problems.is_empty(), "{:#?}", self.problems);
        let mut documented = BTreeSet::new();
        let mut expected = BTreeSet::new();
        for (template, item) in self.document["paths"].as_object().expect("paths") {
            for (method, operation) in item.as_object().expect("operations") {
                if !WITHOUT_SCHEMA.contains(&template.as_str()) {
                    documented.insert((method.clone(), template.clone()));
                    expected.extend(self.schemas.properties(&operation["responses"]));
                }
            }
        }
        assert_eq!(self.called, documented, "every operation is called");
        let unseen: Vec<_> = expected.difference(&self.schemas.seen).collect();
        assert_eq!(unseen, NOT_SEEN, "properties without a value in any response");
    }
}

#[tokio::test]
async fn every_response_matches_its_schema() {
    let mut client = Client::new().await;
    client.jobs().await;
    let running = client.runs().await;
    client.cancellations().await;
    client.schedules().await;
    client.bulk().await;
    client.cluster(&running).await;
    client.shards().await;
    client.history().await;
    client.mesh().await;
    client.errors().await;
    client.end().await;
    client.conclude();
}

/// Responses without a schema have the content type of the document.
#[tokio::test]
async fn what_is_not_json_is_documented_by_its_type() {
    let world = World::new().await;
    let document = document(&world).await;
    let id = world.enqueue(json!({"type": "t"})).await;
    for template in WITHOUT_SCHEMA {
        let response = world.respond(request("GET", &template.replace("{id}", &id), "")).await;
        let sent = response.headers()["content-type"].to_str().expect("text");
        let documented = &document["paths"][template]["get"]["responses"]["200"]["content"];
        assert_eq!(keys(documented), BTreeSet::from([sent.split(';').next().unwrap_or_default()]), "{template}");
    }
}
