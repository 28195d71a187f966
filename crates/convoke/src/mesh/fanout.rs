//! Calls to many, or to whichever answers.

use std::sync::atomic::{AtomicUsize, Ordering};

use convoke_core::mesh::{InstanceId, MeshError};
use tokio::task::JoinSet;

use super::{CallOptions, Mesh, Request, encode};

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
    pub async fn invoke_all<Q: Request>(
        &self,
        request: Q,
    ) -> Result<Vec<(InstanceId, Result<Q::Response, MeshError>)>, MeshError> {
        let data = encode(&request)?;
        let mut calls = JoinSet::new();
        for node in self.nodes().await? {
            let (mesh, data, id) = (self.clone(), data.clone(), node.instance_id);
            calls.spawn(async move { (id, mesh.call(id, Q::TYPE, &data, CallOptions::default()).await) });
        }
        let mut answers = calls.join_all().await;
        answers.sort_unstable_by_key(|(id, _)| *id);
        Ok(answers)
    }

    /// Calls live instances one after the other until one answers well, and fails as the last of them did.
    ///
    /// Each call begins with another instance, in order of their numbers, so that work is spread; ourselves are one of them.
    /// The next is called after any failure, also after one of a handler and after a timeout: the request may then have run
    /// more than once, each time on another instance.
    pub async fn invoke_any<Q: Request>(&self, request: Q) -> Result<(InstanceId, Q::Response), MeshError> {
        let data = encode(&request)?;
        let mut nodes = self.nodes().await?;
        let first = self.turns.next(nodes.len());
        nodes.rotate_left(first);
        let mut last = MeshError::NoNode { instance: InstanceId::NOBODY, request_type: Q::TYPE.to_owned() };
        for node in nodes {
            match self.call(node.instance_id, Q::TYPE, &data, CallOptions::default()).await {
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
