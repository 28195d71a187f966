//! The API as a client sees it, over a real coordinator that keeps everything in memory.

mod access;
mod audit;
mod bad_input;
mod bulk;
mod cluster;
mod dashboard;
mod documents;
mod fleet;
mod garbage;
mod history;
mod jobs;
mod memory;
mod mesh;
mod mounted;
mod serving;
mod sessions;
mod streams;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use convoke_adapters::memory::{MemoryBus, MemoryLeases, MemoryMesh, MemoryStore, SystemChance, SystemClock};
use convoke_core::NodeId;
use convoke_core::ports::MeshLink;
use convoke_runtime::jobs::{Coordinator, Ports, Settings};
use convoke_runtime::mesh::{Meshes, OpeningMesh, Settings as MeshSettings};
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt;
use metrics_exporter_prometheus::PrometheusBuilder;
use serde_json::{Value, json};

use super::{Access, ApiService, AppState, Info, Policy, Shards, Site};

pub const NO_ID: &str = "0198c0de-0000-7000-8000-000000000000";

/// A coordinator and its API.
pub struct World {
    pub coordinator: Coordinator,
    pub state: AppState,
    pub api_service: ApiService,
}

pub struct TestResponse {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Value,
}

impl TestResponse {
    pub fn code(&self) -> &str {
        self.body["error"]["code"].as_str().unwrap_or_default()
    }

    pub fn field(&self) -> &str {
        self.body["error"]["field"].as_str().unwrap_or_default()
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

/// Returns new ports, all in memory.
pub fn ports() -> Ports {
    Ports {
        store: Arc::new(MemoryStore::default()),
        bus: Arc::new(MemoryBus::default()),
        leases: Arc::new(MemoryLeases::default()),
        cache: None,
        clock: Arc::new(SystemClock),
        chance: Arc::new(SystemChance),
    }
}

/// Returns the meshes of this process.
fn meshes() -> Meshes {
    let open = |mesh: String| -> OpeningMesh {
        Box::pin(async move { Ok(Arc::new(MemoryMesh::shared(&mesh)) as Arc<dyn MeshLink>) })
    };
    Meshes::new("memory:".into(), vec!["m".into()], "host".into(), MeshSettings::default(), Box::new(open))
}

impl World {
    pub async fn new() -> Self {
        World::with(Access::Insecure).await
    }

    pub async fn with(access: impl Into<Policy>) -> Self {
        World::node("node-1", ports(), access).await
    }

    /// Starts a node of the cluster that shares `ports`.
    pub async fn node(id: &str, ports: Ports, access: impl Into<Policy>) -> Self {
        let id = NodeId::new(id).expect("a name");
        let coordinator = Coordinator::start(id, ports, Settings::default()).await.expect("it starts");
        World::of(coordinator, None, access).await
    }

    /// Starts the API of a coordinator.
    pub async fn of(coordinator: Coordinator, shards: Option<Shards>, access: impl Into<Policy>) -> Self {
        World::at(Site::default(), coordinator, shards, access).await
    }

    /// The same, reached at `site`.
    pub async fn at(site: Site, coordinator: Coordinator, shards: Option<Shards>, access: impl Into<Policy>) -> Self {
        coordinator.ready().await;
        let info = Info {
            version: "0.0.0-test".into(),
            store: "memory:".into(),
            bus: "memory:".into(),
            leases: "memory:".into(),
        };
        let metrics = PrometheusBuilder::new().build_recorder().handle();
        let state = AppState::with_meshes(coordinator.clone(), shards, Some(meshes()), access, info, site, metrics);
        World { coordinator, api_service: ApiService::new(state.clone()), state }
    }

    pub async fn respond(&self, request: Request) -> Response {
        self.api_service.respond(request).await
    }

    pub async fn answer(&self, request: Request) -> TestResponse {
        let response = self.respond(request).await;
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.expect("a whole body").to_bytes();
        let body = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
        TestResponse { status: parts.status, headers: parts.headers, body }
    }

    pub async fn get(&self, path: &str) -> TestResponse {
        self.answer(request("GET", path, "")).await
    }

    pub async fn post(&self, path: &str, body: Value) -> TestResponse {
        self.answer(request("POST", path, body.to_string())).await
    }

    pub async fn send(&self, method: &str, path: &str, body: Value) -> TestResponse {
        self.answer(request(method, path, body.to_string())).await
    }

    /// Enqueues a job and returns its id.
    pub async fn enqueue(&self, spec: Value) -> String {
        let response = self.post("/v1/jobs", spec).await;
        assert_eq!(response.status, StatusCode::CREATED, "{}", response.body);
        response.body["id"].as_str().expect("an id").to_owned()
    }

    pub async fn register(&self, worker: &str, queues: &[&str]) {
        let body = json!({"workerId": worker, "queues": queues, "concurrency": 10});
        let response = self.post("/v1/worker/register", body).await;
        assert_eq!(response.status, StatusCode::OK, "{}", response.body);
    }

    /// Polls until the worker gets a run.
    pub async fn take(&self, worker: &str) -> Value {
        for _ in 0..10 {
            let response = self.post("/v1/worker/poll", json!({"workerId": worker, "max": 1, "wait": "20s"})).await;
            assert_eq!(response.status, StatusCode::OK, "{}", response.body);
            if let Some(run) = response.body["jobs"].get(0) {
                return run.clone();
            }
        }
        panic!("no run in ten polls");
    }

    /// Reports one event of a run; `more` has its kind and fields.
    pub async fn report(&self, worker: &str, run: &Value, more: Value) -> TestResponse {
        let mut event = json!({"jobId": run["jobId"], "executionId": run["executionId"]});
        let fields = event.as_object_mut().expect("an object");
        fields.extend(more.as_object().expect("an object").clone());
        self.post("/v1/worker/report", json!({"workerId": worker, "events": [event]})).await
    }
}

pub fn request(method: &str, path: &str, body: impl Into<Body>) -> Request {
    let builder = Request::builder().method(method).uri(path).header("host", "127.0.0.1:3000");
    builder.body(body.into()).expect("a request")
}

/// Waits for a result; on a timeout the panic names `what`.
pub async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future).await.unwrap_or_else(|_| panic!("{what} did not happen"))
}
