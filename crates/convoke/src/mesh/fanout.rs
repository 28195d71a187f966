//! Calls to many, or to whichever answers.

use std::sync::atomic::{AtomicUsize, Ordering};

use convoke_core::mesh::{InstanceId, MeshError};
use futures_util::future::join_all;

use super::{CallOptions, Mesh, Request, encode};

/// What each instance said, by its number.
pub type Replies<R> = Vec<(InstanceId, Result<R, MeshError>)>;

/// Where the next call to any instance begins.
#[derive(Default)]
pub(super) struct Turns(AtomicUsize);

impl Turns {
    fn next(&self, count: usize) -> usize {
        self.0.fetch_add(1, Ordering::Relaxed) % count.max(1)
    }
}

impl Mesh {
    /// Calls every live instance at once, ourselves included, and waits for all. In order of their numbers; one that fails
    /// fails alone.
    pub async fn invoke_all<Q: Request>(&self, request: Q) -> Result<Replies<Q::Response>, MeshError> {
        self.invoke_all_with(request, CallOptions::default()).await
    }

    /// The same with a timeout, which each has to itself, and an epoch.
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

    /// Calls live instances one after the other until one answers well, and fails as the last of them did.
    ///
    /// Each call begins with another instance, in order of their numbers, so that work is spread; ourselves are one of them.
    /// The next is called after any failure, also after one of a handler and after a timeout: the request may then have run
    /// more than once, each time on another instance.
    pub async fn invoke_any<Q: Request>(&self, request: Q) -> Result<(InstanceId, Q::Response), MeshError> {
        self.invoke_any_with(request, CallOptions::default()).await
    }

    /// The same with a timeout, which each has to itself, and an epoch.
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
                // Nobody else can help a mesh that does not run.
                Err(error @ MeshError::Stopped { .. }) if self.instance_id() == InstanceId::NOBODY => {
                    return Err(error);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}
