//! A job that was enqueued.

use std::marker::PhantomData;

use convoke_core::JobId;
use convoke_core::jobs::link::Enqueued;
use convoke_core::jobs::{Job as JobView, Status};
use convoke_runtime::jobs::client;
use serde::de::DeserializeOwned;

use crate::error::{Error, Result};

/// `O` is what the job results in.
pub struct Handle<O> {
    client: client::Client,
    enqueued: Enqueued,
    output: PhantomData<fn() -> O>,
}

impl<O: DeserializeOwned> Handle<O> {
    pub(crate) fn new(client: client::Client, enqueued: Enqueued) -> Self {
        Handle { client, enqueued, output: PhantomData }
    }

    pub fn id(&self) -> JobId {
        self.enqueued.id
    }

    /// False where a job with the same unique key was there already: this is the handle of that one.
    pub fn created(&self) -> bool {
        self.enqueued.created
    }

    /// The job as it is now.
    pub async fn job(&self) -> Result<JobView> {
        Ok(self.client.job(self.id()).await?)
    }

    pub async fn status(&self) -> Result<Status> {
        Ok(self.job().await?.status)
    }

    /// Cancels it, whatever it is doing.
    pub async fn cancel(&self) -> Result<JobView> {
        Ok(self.client.cancel(self.id(), None).await?)
    }

    pub async fn cancel_because(&self, reason: impl Into<String>) -> Result<JobView> {
        Ok(self.client.cancel(self.id(), Some(reason.into())).await?)
    }

    /// What the job resulted in, once it has completed; [`Error::NotCompleted`] where it ended otherwise. Waits through all
    /// its attempts, without a limit of its own.
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
