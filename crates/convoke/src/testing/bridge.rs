//! Passes HTTP requests from connections, which live in real time, to the node, which lives in virtual time.
//!
//! A request that waits, for runs or for the end of a job, waits for so long in real time: its client would hang
//! otherwise while time stands still.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use convoke_core::jobs::Status;
use convoke_core::{Error, WorkerId, duration};
use convoke_http::ApiError;
use futures_util::StreamExt;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::request::Parts;
use http::{Method, StatusCode, Uri};
use serde::Deserialize;
use serde::de::IgnoredAny;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::faults::{ReportFault, reply_lost};
use super::shared::Shared;

/// More than any request may have.
const BODY_BYTES_MAX: usize = 64 << 20;
/// How long a body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a poll waits if it names no time, and at most; as on any node.
const POLL_WAIT: Duration = Duration::from_secs(20);
const POLL_WAIT_MAX: Duration = Duration::from_secs(60);
/// How many pieces of a stream may wait for its reader.
const STREAM_ITEMS_MAX: usize = 16;

/// Returns the response to a request for the node's own API.
pub(super) async fn pass_on(shared: &Arc<Shared>, request: Request) -> Response {
    match forward(shared, request).await {
        Ok(response) => response,
        Err(error) => error.into_response(),
    }
}

async fn forward(shared: &Arc<Shared>, request: Request) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let body = tokio::time::timeout(BODY_TIMEOUT, to_bytes(body, BODY_BYTES_MAX)).await;
    let body = body.map_err(|_| ApiError::invalid("body", "the body did not arrive in time"))?;
    let body = body.map_err(|error| ApiError::invalid("body", format!("the body cannot be read: {error}")))?;
    match parts.uri.path().strip_prefix("/v1/worker/") {
        Some(verb) if parts.method == Method::POST => of_worker(shared, verb, &parts, &body).await,
        _ => match job_wait(&parts) {
            Some(wait) => wait_for_job(shared, parts, body, wait).await,
            None => finish(call(shared, parts, body)).await,
        },
    }
}

/// The fields of a worker's request that matter here.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct OfWorker {
    worker_id: Option<WorkerId>,
    wait: Option<String>,
}

async fn of_worker(shared: &Arc<Shared>, verb: &str, parts: &Parts, body: &Bytes) -> Result<Response, ApiError> {
    let OfWorker { worker_id, wait } = serde_json::from_slice(body).unwrap_or_default();
    let mut reply_is_lost = false;
    if let Some(worker) = &worker_id {
        shared.faults.on_request(worker)?;
        if verb == "heartbeat" {
            shared.faults.on_heartbeat(worker)?;
        }
    }
    if verb == "report" {
        reply_is_lost = shared.faults.on_report()? == ReportFault::ReplyLost;
    }
    let open = worker_id.clone().map(|worker| shared.presence.enter(worker));
    let response = match verb {
        "poll" => {
            let wait = wait.and_then(|wait| duration::parse(&wait).ok()).unwrap_or(POLL_WAIT).min(POLL_WAIT_MAX);
            poll(shared, parts, body, worker_id.as_ref(), wait).await?
        }
        _ => finish(call(shared, parts.clone(), body.clone())).await?,
    };
    if let Some(open) = open {
        open.done();
    }
    let response = match verb {
        "register" => entered(shared, response).await,
        "leave" if response.status().is_success() => {
            worker_id.iter().for_each(|worker| shared.presence.leave(worker));
            response
        }
        _ => response,
    };
    shared.activity.notify_waiters();
    if reply_is_lost { Err(reply_lost().into()) } else { Ok(response) }
}

/// Records a worker that registered; the node may have chosen its id.
async fn entered(shared: &Arc<Shared>, response: Response) -> Response {
    let (parts, body) = response.into_parts();
    let Ok(body) = to_bytes(body, BODY_BYTES_MAX).await else { return parts.status.into_response() };
    if parts.status.is_success()
        && let Ok(OfWorker { worker_id: Some(worker), .. }) = serde_json::from_slice(&body)
    {
        shared.presence.enter(worker).done();
    }
    Response::from_parts(parts, Body::from(body))
}

/// Polls until there is something for the worker, or until it has waited for so long in real time.
async fn poll(
    shared: &Arc<Shared>,
    parts: &Parts,
    body: &Bytes,
    worker: Option<&WorkerId>,
    wait: Duration,
) -> Result<Response, ApiError> {
    if wait.is_zero() {
        return finish(call(shared, parts.clone(), body.clone())).await;
    }
    let deadline = Instant::now() + wait;
    loop {
        let mut polling = call(shared, parts.clone(), body.clone());
        let left = deadline.saturating_duration_since(Instant::now());
        let Ok(polled) = tokio::time::timeout(left, &mut polling).await else {
            polling.abort();
            // It may have received runs in this moment.
            return match polling.await {
                Ok(polled) => unpack(polled),
                Err(_) => Ok(nothing()),
            };
        };
        let polled = unpack(polled.map_err(ended)?)?;
        let (parts, body) = polled.into_parts();
        let body = to_bytes(body, BODY_BYTES_MAX).await.map_err(|error| Error::unavailable("test server", error))?;
        // The wait was over in virtual time.
        let is_empty =
            parts.status.is_success() && serde_json::from_slice(&body).is_ok_and(|polled: Polled| polled.is_empty());
        if !is_empty || Instant::now() >= deadline {
            return Ok(Response::from_parts(parts, Body::from(body)));
        }
        if let Some(worker) = worker {
            shared.until_not_silenced(worker, deadline).await;
        }
    }
}

#[derive(Deserialize)]
struct Polled {
    jobs: Vec<IgnoredAny>,
    cancel: Vec<IgnoredAny>,
    drain: bool,
}

impl Polled {
    fn is_empty(&self) -> bool {
        self.jobs.is_empty() && self.cancel.is_empty() && !self.drain
    }
}

fn nothing() -> Response {
    convoke_http::response::ok(&convoke_core::jobs::link::Polled::default())
}

/// Returns how long a request waits for the end of a job.
fn job_wait(parts: &Parts) -> Option<Duration> {
    if parts.method != Method::GET || !parts.uri.path().starts_with("/v1/jobs/") {
        return None;
    }
    let wait = parts.uri.query()?.split('&').find_map(|pair| pair.strip_prefix("wait="))?;
    duration::parse(wait).ok().filter(|wait| !wait.is_zero())
}

/// The field of a job that matters to a wait.
#[derive(Deserialize)]
struct Waited {
    status: Status,
}

async fn wait_for_job(
    shared: &Arc<Shared>,
    mut parts: Parts,
    body: Bytes,
    wait: Duration,
) -> Result<Response, ApiError> {
    let deadline = Instant::now() + wait;
    loop {
        let mut waiting = call(shared, parts.clone(), body.clone());
        let left = deadline.saturating_duration_since(Instant::now());
        let Ok(job) = tokio::time::timeout(left, &mut waiting).await else { break };
        let (head, body) = unpack(job.map_err(ended)?)?.into_parts();
        let body = to_bytes(body, BODY_BYTES_MAX).await.map_err(|error| Error::unavailable("test server", error))?;
        let is_live = |job: Waited| job.status.is_live();
        // The wait was over in virtual time.
        if !head.status.is_success() || !serde_json::from_slice(&body).is_ok_and(is_live) {
            return Ok(Response::from_parts(head, Body::from(body)));
        }
    }
    // The job as it is.
    let query = parts.uri.query().unwrap_or_default().split('&').filter(|pair| !pair.starts_with("wait="));
    let (path, query) = (parts.uri.path(), query.collect::<Vec<_>>().join("&"));
    let uri = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
    parts.uri = uri.parse::<Uri>().map_err(|error| ApiError::invalid("wait", error.to_string()))?;
    finish(call(shared, parts, body)).await
}

type Calling = AbortOnDropHandle<convoke_core::Result<Response>>;

/// Starts a request on the node.
fn call(shared: &Arc<Shared>, parts: Parts, body: Bytes) -> Calling {
    shared.call(|node| async move {
        let request = Request::from_parts(parts, Body::from(body));
        Ok(collect(node.api.respond(request).await).await)
    })
}

async fn finish(calling: Calling) -> Result<Response, ApiError> {
    unpack(calling.await.map_err(ended)?)
}

fn unpack(answered: convoke_core::Result<Response>) -> Result<Response, ApiError> {
    answered.map_err(ApiError::from)
}

fn ended(_: tokio::task::JoinError) -> ApiError {
    Error::unavailable("test server", "it is stopping").into()
}

/// Reads the body in virtual time, where its timers belong. A stream is passed on piece by piece.
async fn collect(response: Response) -> Response {
    let (mut parts, body) = response.into_parts();
    let is_stream =
        parts.headers.get(CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(b"text/event-stream"));
    if !is_stream {
        return match to_bytes(body, usize::MAX).await {
            Ok(body) => {
                parts.headers.insert(CONTENT_LENGTH, body.len().into());
                Response::from_parts(parts, Body::from(body))
            }
            Err(error) => {
                let message = format!("the response could not be read: {error}");
                ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message).into_response()
            }
        };
    }
    let (items, mut received) = mpsc::channel(STREAM_ITEMS_MAX);
    tokio::spawn(async move {
        let mut body = body.into_data_stream();
        let passing = async {
            while let Some(item) = body.next().await {
                if items.send(item).await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            () = passing => {}
            () = items.closed() => {}
        }
    });
    let stream = futures_util::stream::poll_fn(move |context| received.poll_recv(context));
    Response::from_parts(parts, Body::from_stream(stream))
}
