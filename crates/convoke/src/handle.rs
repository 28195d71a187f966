//! Handles of enqueued jobs.

use std::marker::PhantomData;

use convoke_core::JobId;
use convoke_core::jobs::link::Enqueued;
use convoke_core::jobs::{Job as JobView, Status};
use convoke_runtime::jobs::client;
use serde::de::DeserializeOwned;

use crate::error::{Error, Result};

/// A handle of an enqueued job. `O` is the type of the job's result.
pub struct Handle<O> {
    client: client::Client,
    enqueued: Enqueued,
    output: PhantomData<fn() -> O>,
}

impl<O: DeserializeOwned> Handle<O> {
    pub(crate) fn new(client: client::Client, enqueued: Enqueued) -> Self {
        Handle { client, enqueued, output: PhantomData }
    }

    /// Returns the job's id.
    pub fn id(&self) -> JobId {
        self.enqueued.id
    }

    /// Returns false if a job with the same unique key existed already. The handle is then that job's.
    pub fn created(&self) -> bool {
        self.enqueued.created
    }

    /// Reads the job's current state.
    pub async fn job(&self) -> Result<JobView> {
        Ok(self.client.job(self.id()).await?)
    }

    /// Reads the job's current status.
    pub async fn status(&self) -> Result<Status> {
        Ok(self.job().await?.status)
    }

    /// Cancels the job, whether it waits or runs.
    pub async fn cancel(&self) -> Result<JobView> {
        Ok(self.client.cancel(self.id(), None).await?)
    }

    /// Cancels the job, with a reason that is shown with it.
    pub async fn cancel_because(&self, reason: impl Into<String>) -> Result<JobView> {
        Ok(self.client.cancel(self.id(), Some(reason.into())).await?)
    }

    /// Waits until the job has ended and returns its result; [`Error::NotCompleted`] if it did not complete. Waits
    /// through all attempts, without a time limit.
    pub async fn wait(&self) -> Result<O> {
        let job = self.client.ended(self.id()).await?;
        if job.status != Status::Completed {
            return Err(Error::NotCompleted { id: job.id, status: job.status, error: job.error });
        }
        let result = job.result.unwrap_or_default();
        result.to().map_err(|source| Error::Json { what: "the result is not of the job's type", source })
    }
}

impl<O> std::fmt::Debug for Handle<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Handle").field(&self.enqueued.id).finish()
    }
}
