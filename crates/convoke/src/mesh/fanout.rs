//! Calls to all instances, or to any one.

use std::sync::atomic::{AtomicUsize, Ordering};

use convoke_core::mesh::{InstanceId, MeshError};
use futures_util::future::join_all;

use super::{CallOptions, Mesh, Request, encode};

/// The reply or error of each instance, in order of their numbers.
pub type Replies<R> = Vec<(InstanceId, Result<R, MeshError>)>;

/// The instance at which the next call to any instance begins.
#[derive(Default)]
pub(super) struct Turns(AtomicUsize);

impl Turns {
    fn next(&self, count: usize) -> usize {
        self.0.fetch_add(1, Ordering::Relaxed) % count.max(1)
    }
}

impl Mesh {
    /// Calls every live instance at once, this one included, and waits for all. Results are in order of the numbers; a
    /// failed call does not affect the others.
    pub async fn invoke_all<Q: Request>(&self, request: Q) -> Result<Replies<Q::Response>, MeshError> {
        self.invoke_all_with(request, CallOptions::default()).await
    }

    /// Like [`invoke_all`](Self::invoke_all), with an epoch and a timeout for each call.
    pub async fn invoke_all_with<Q: Request>(
        &self,
        request: Q,
        options: CallOptions,
    ) -> Result<Replies<Q::Response>, MeshError> {
        let data = encode(&request)?;
        // All in this task: in another they would not be part of its trace.
        let calls = self.nodes().await?.into_iter().map(async |node| {
            let id = node.instance_id;
            (id, self.call(id, Q::TYPE, &data, options).await)
        });
        Ok(join_all(calls).await)
    }

    /// Calls live instances one after the other until one succeeds. Returns the error of the last one if none does.
    ///
    /// Each call begins with another instance, in order of their numbers and this one included, so that work is spread.
    /// The next one is called after any failure, including a handler's error and a timeout: the request may then have
    /// run more than once, each time on another instance.
    pub async fn invoke_any<Q: Request>(&self, request: Q) -> Result<(InstanceId, Q::Response), MeshError> {
        self.invoke_any_with(request, CallOptions::default()).await
    }

    /// Like [`invoke_any`](Self::invoke_any), with an epoch and a timeout for each call.
    pub async fn invoke_any_with<Q: Request>(
        &self,
        request: Q,
        options: CallOptions,
    ) -> Result<(InstanceId, Q::Response), MeshError> {
        let data = encode(&request)?;
        let mut nodes = self.nodes().await?;
        let first = self.turns.next(nodes.len());
        nodes.rotate_left(first);
        let mut last = MeshError::NoNode { instance: InstanceId::NOBODY, request_type: Q::TYPE.to_owned() };
        for node in nodes {
            match self.call(node.instance_id, Q::TYPE, &data, options).await {
                Ok(response) => return Ok((node.instance_id, response)),
                // No other instance can be called by a mesh that does not run.
                Err(error @ MeshError::Stopped { .. }) if self.instance_id() == InstanceId::NOBODY => {
                    return Err(error);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}
