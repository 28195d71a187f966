//! The endpoints that only a test server has: `/v1/test/…`.

use std::sync::Arc;
use std::time::Duration;

use axum::body::to_bytes;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use convoke_core::{Error, Invalid, WorkerId, duration};
use convoke_http::ApiError;
use convoke_http::response::{from_slice, ok};
use http::{Method, StatusCode};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::shared::Shared;
use super::timeline::{Advanced, Target};
use super::{PATIENCE, bridge};

const BODY_BYTES_MAX: usize = 64 << 10;

/// Returns the response to any request to a test server.
pub(super) async fn respond(shared: Arc<Shared>, request: Request) -> Response {
    let Some(name) = request.uri().path().strip_prefix("/v1/test/").map(str::to_owned) else {
        return bridge::pass_on(&shared, request).await;
    };
    match serve(&shared, &name, request).await {
        Ok(response) => response,
        Err(error) => error.into_response(),
    }
}

async fn serve(shared: &Arc<Shared>, name: &str, request: Request) -> Result<Response, ApiError> {
    shared.policy.access.check(&request)?;
    let method = request.method().clone();
    let known = match name {
        "clock" => [Method::GET, Method::POST].as_slice(),
        "run-until-idle" => &[Method::POST],
        "faults" => &[Method::GET, Method::POST, Method::DELETE],
        _ => {
            let message = format!("there is no route /v1/test/{name}: expected clock, run-until-idle or faults");
            return Err(ApiError::not_found(message));
        }
    };
    if !known.contains(&method) {
        let message = format!("/v1/test/{name} does not support {method}");
        return Err(ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message));
    }
    let body = to_bytes(request.into_body(), BODY_BYTES_MAX).await;
    let body = body.map_err(|error| ApiError::invalid("body", format!("the body cannot be read: {error}")))?;
    match (name, method) {
        ("clock", Method::GET) => Ok(ok(&Clock::of(shared))),
        ("clock", _) => advance(shared, from_slice(&body)?).await,
        ("run-until-idle", _) => run_until_idle(shared, or_default(&body)?).await,
        ("faults", Method::POST) => inject(shared, from_slice(&body)?).await,
        ("faults", Method::DELETE) => {
            shared.faults.change(|faults| *faults = Default::default());
            Ok(ok(&shared.faults.state()))
        }
        _ => Ok(ok(&shared.faults.state())),
    }
}

fn or_default<T: Default + serde::de::DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    if body.trim_ascii().is_empty() { Ok(T::default()) } else { from_slice(body) }
}

/// The clock of a test server.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Clock {
    now: Timestamp,
    started_at: Timestamp,
    seed: u64,
}

impl Clock {
    fn of(shared: &Shared) -> Self {
        Clock { now: shared.now(), started_at: shared.started_at, seed: shared.seed }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object")]
struct Advance {
    #[serde(default, with = "duration::option")]
    advance: Option<Duration>,
    #[serde(default, with = "convoke_core::instant::option")]
    to: Option<Timestamp>,
    /// How long, in real time, each run that begins meanwhile may take before time goes on.
    #[serde(default, with = "duration::option")]
    wait_for_runs: Option<Duration>,
}

/// The result of a move of time.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Moved {
    now: Timestamp,
    running: usize,
}

async fn advance(shared: &Arc<Shared>, request: Advance) -> Result<Response, ApiError> {
    let target = match (request.advance, request.to) {
        (Some(time), None) => Target::By(time),
        (None, Some(at)) => Target::To(at),
        _ => return Err(ApiError::invalid("advance", "expected either \"advance\", a duration, or \"to\", a time")),
    };
    let patience = request.wait_for_runs.unwrap_or(PATIENCE);
    let Advanced { now, running } = shared.advance(target, patience).await?;
    Ok(ok(&Moved { now, running }))
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object")]
struct RunUntilIdle {
    /// In real time.
    #[serde(default, with = "duration::option")]
    timeout: Option<Duration>,
}

async fn run_until_idle(shared: &Arc<Shared>, request: RunUntilIdle) -> Result<Response, ApiError> {
    match shared.run_until_idle(request.timeout.unwrap_or(PATIENCE)).await {
        Ok(now) => Ok(ok(&Moved { now, running: 0 })),
        Err(Error::Conflict(message)) => Err(ApiError::new(StatusCode::CONFLICT, "not_idle", message)),
        Err(error) => Err(error.into()),
    }
}

/// Faults to add; those that are absent stay as they are.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object")]
struct Inject {
    #[serde(default)]
    fail_reports: Option<u32>,
    #[serde(default)]
    lose_replies: Option<u32>,
    #[serde(default)]
    drop_heartbeats: Option<DropHeartbeats>,
    #[serde(default)]
    cut_off: Option<WorkerId>,
    #[serde(default)]
    reconnect: Option<WorkerId>,
    #[serde(default)]
    kill_leader: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, expecting = "an object")]
struct DropHeartbeats {
    worker: WorkerId,
    #[serde(default = "one")]
    count: u32,
}

fn one() -> u32 {
    1
}

async fn inject(shared: &Arc<Shared>, request: Inject) -> Result<Response, ApiError> {
    let Inject { fail_reports, lose_replies, drop_heartbeats, cut_off, reconnect, kill_leader } = request;
    if drop_heartbeats.as_ref().is_some_and(|drop| drop.count == 0) {
        return Err(Invalid::new("dropHeartbeats.count", "expected at least 1, got 0").into());
    }
    shared.faults.change(|faults| {
        faults.fail_reports = fail_reports.unwrap_or(faults.fail_reports);
        faults.lose_replies = lose_replies.unwrap_or(faults.lose_replies);
        if let Some(DropHeartbeats { worker, count }) = drop_heartbeats {
            faults.drop_heartbeats.insert(worker, count);
        }
        faults.cut_off.extend(cut_off);
        if let Some(worker) = reconnect {
            faults.cut_off.remove(&worker);
        }
    });
    if kill_leader {
        shared.kill_leader().await?;
    }
    Ok(ok(&shared.faults.state()))
}
