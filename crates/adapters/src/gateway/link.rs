//! The worker gateway and the job API over [`Http`].

use std::time::Duration;

use async_trait::async_trait;
use convoke_core::jobs::link::{
    ClientLink, Enqueued, Heartbeat, HeartbeatReply, Poll, Polled, Register, Registered, Report, Reported,
    ScheduleCall, WorkerLink,
};
use convoke_core::jobs::{Job, JobSpec};
use convoke_core::{JobId, Json, Result, ScheduleName, WorkerId, duration};
use http::{Method, StatusCode};
use serde::{Deserialize, Serialize};

use super::{Http, encode};

/// How much longer than the server a caller waits, so that the server's reply to a long poll has time to arrive.
const RESPONSE_MARGIN: Duration = Duration::from_secs(10);
/// Heartbeats are short and frequent: a hanging one must make room for the next.
const HEARTBEAT_TIMEOUT: Duration = Duration::from_secs(10);
const BATCH_TIMEOUT: Duration = Duration::from_secs(120);

#[derive(Debug, Clone)]
pub struct GatewayLink {
    http: Http,
}

impl GatewayLink {
    pub fn new(http: Http) -> Self {
        GatewayLink { http }
    }

    async fn post_within<T: serde::de::DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T> {
        self.http.json_within(HEARTBEAT_TIMEOUT, Method::POST, path, Some(body)).await.map(|(_, response)| response)
    }
}

#[async_trait]
impl WorkerLink for GatewayLink {
    fn address(&self) -> String {
        self.http.address()
    }

    async fn register(&self, worker: Register) -> Result<Registered> {
        self.post_within("/v1/worker/register", &worker).await
    }

    async fn poll(&self, poll: Poll) -> Result<Polled> {
        let limit = poll.wait + RESPONSE_MARGIN;
        let (_, polled) = self.http.json_within(limit, Method::POST, "/v1/worker/poll", Some(&poll)).await?;
        Ok(polled)
    }

    async fn report(&self, report: Report) -> Result<Reported> {
        self.http.json(Method::POST, "/v1/worker/report", Some(&report)).await
    }

    async fn heartbeat(&self, heartbeat: Heartbeat) -> Result<HeartbeatReply> {
        self.post_within("/v1/worker/heartbeat", &heartbeat).await
    }

    async fn leave(&self, worker_id: WorkerId) -> Result<()> {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Leave {
            worker_id: WorkerId,
        }
        let _: serde::de::IgnoredAny = self.post_within("/v1/worker/leave", &Leave { worker_id }).await?;
        Ok(())
    }
}

#[async_trait]
impl ClientLink for GatewayLink {
    /// One job is a request of its own, because its reply is shorter; several are one batch, all or nothing.
    async fn enqueue(&self, jobs: Vec<JobSpec>) -> Result<Vec<Enqueued>> {
        match jobs.as_slice() {
            [] => Ok(Vec::new()),
            [job] => {
                #[derive(Deserialize)]
                struct Made {
                    id: JobId,
                }
                let made = self.http.json_within::<Made>(HEARTBEAT_TIMEOUT, Method::POST, "/v1/jobs", Some(job)).await;
                made.map(|(status, made)| vec![Enqueued { id: made.id, created: status == StatusCode::CREATED }])
            }
            jobs => {
                #[derive(Serialize)]
                struct Batch<'a> {
                    jobs: &'a [JobSpec],
                }
                #[derive(Deserialize)]
                struct Made {
                    jobs: Vec<Enqueued>,
                }
                let batch = Some(&Batch { jobs });
                let made = self.http.json_within(BATCH_TIMEOUT, Method::POST, "/v1/jobs/batch", batch).await;
                made.map(|(_, made): (_, Made)| made.jobs)
            }
        }
    }

    async fn job(&self, id: JobId, wait: Option<Duration>) -> Result<Job> {
        let (path, limit) = match wait {
            Some(wait) => (format!("/v1/jobs/{id}?wait={}", duration::format(wait)), wait + RESPONSE_MARGIN),
            None => (format!("/v1/jobs/{id}"), HEARTBEAT_TIMEOUT),
        };
        let (_, job) = self.http.json_within(limit, Method::GET, &path, None::<&()>).await?;
        Ok(job)
    }

    async fn cancel(&self, id: JobId, reason: Option<String>) -> Result<Job> {
        #[derive(Serialize)]
        struct Cancel {
            #[serde(skip_serializing_if = "Option::is_none")]
            reason: Option<String>,
        }
        self.http.json(Method::POST, &format!("/v1/jobs/{id}/cancel"), Some(&Cancel { reason })).await
    }

    async fn retry(&self, id: JobId) -> Result<Job> {
        self.http.json(Method::POST, &format!("/v1/jobs/{id}/retry"), None::<&()>).await
    }

    async fn schedule(&self, call: ScheduleCall) -> Result<Json> {
        let path = |name: &ScheduleName, verb: &str| format!("/v1/schedules/{}{verb}", encode(name.as_str()));
        let (method, path, body) = match &call {
            ScheduleCall::Put(name, spec) => (Method::PUT, path(name, ""), Some(spec)),
            ScheduleCall::List => (Method::GET, "/v1/schedules".to_owned(), None),
            ScheduleCall::Get(name) => (Method::GET, path(name, ""), None),
            ScheduleCall::Pause(name) => (Method::POST, path(name, "/pause"), None),
            ScheduleCall::Resume(name) => (Method::POST, path(name, "/resume"), None),
            ScheduleCall::Trigger(name) => (Method::POST, path(name, "/trigger"), None),
            ScheduleCall::Remove(name) => (Method::DELETE, path(name, ""), None),
        };
        let reply: Option<Json> = self.http.json(method, &path, body).await?;
        Ok(reply.unwrap_or_default())
    }
}
