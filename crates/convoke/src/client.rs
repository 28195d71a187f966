//! Enqueues jobs and waits for them.

use std::sync::Arc;

use convoke_core::JobId;
use convoke_core::jobs::Job as JobView;
use convoke_core::jobs::link::ClientLink;
use convoke_runtime::jobs::client;
use serde::Serialize;

use crate::connect;
use crate::enqueue::{Enqueue, EnqueueAll};
use crate::error::Result;
use crate::job::Job;

/// Cheap to clone; clones share their connections. Calls are repeated for some seconds while the coordinator is away, and
/// never make a job twice.
#[derive(Debug, Clone)]
pub struct Client {
    inner: client::Client,
}

impl Client {
    /// Checks the address; a connection is made when the first call needs one. Several addresses, with commas between, are
    /// nodes of one cluster: any of them will do.
    ///
    /// By the address of a bus (`redis://…`) a client can enqueue and no more: a job is then acknowledged when the bus has
    /// it. To look at jobs, to wait for them or to change them needs an `http://` address.
    pub async fn connect(url: &str) -> Result<Client> {
        Ok(Client::over(connect::client_way(url, None, connect::BUS_PREFIX).await?))
    }

    /// As [`connect`](Self::connect) by the address of a bus on which coordinators have another prefix than `convoke`.
    pub async fn connect_with_prefix(url: &str, bus_prefix: &str) -> Result<Client> {
        Ok(Client::over(connect::client_way(url, None, bus_prefix).await?))
    }

    /// As [`connect`](Self::connect), with a token of the role `enqueue`.
    pub async fn connect_with(url: &str, token: impl Into<String>) -> Result<Client> {
        Ok(Client::over(connect::client_link(url, Some(token.into()))?))
    }

    /// A client of whatever speaks for a coordinator.
    pub fn over(link: Arc<dyn ClientLink>) -> Client {
        Client { inner: client::Client::new(link) }
    }

    pub fn enqueue<T: Job>(&self, job: T) -> Enqueue<T::Output> {
        Enqueue::new(self.inner.clone(), T::TYPE, &job)
    }

    /// All or nothing for up to 10,000 jobs; more are sent in several requests.
    pub fn enqueue_all<T: Job>(&self, jobs: impl IntoIterator<Item = T>) -> EnqueueAll<T::Output> {
        EnqueueAll::new(self.inner.clone(), T::TYPE, jobs.into_iter())
    }

    /// A job of a type that this program has no Rust type for.
    pub fn enqueue_raw(&self, job_type: &str, args: impl Serialize) -> Enqueue<serde_json::Value> {
        Enqueue::new(self.inner.clone(), job_type, &args)
    }

    pub async fn job(&self, id: JobId) -> Result<JobView> {
        Ok(self.inner.job(id).await?)
    }

    pub async fn cancel(&self, id: JobId) -> Result<JobView> {
        Ok(self.inner.cancel(id, None).await?)
    }

    /// Runs an ended job again, with a fresh budget of retries.
    pub async fn retry(&self, id: JobId) -> Result<JobView> {
        Ok(self.inner.retry(id).await?)
    }
}
