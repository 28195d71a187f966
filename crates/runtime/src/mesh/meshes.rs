//! The meshes at one address, for people who look at them: their instances, and calls from here.
//!
//! A mesh is connected to when it is first asked for. Nothing is joined to list its instances; a call joins for its own
//! duration, under a number of its own. The connections of few meshes are kept, those that were asked for last.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use convoke_core::error::Invalid;
use convoke_core::limits::NAME_BYTES_MAX;
use convoke_core::mesh::{InstanceId, MeshError, MeshNode};
use convoke_core::ports::MeshLink;
use convoke_core::{Error, Json, Result};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::calling::unavailable;
use super::{CallOptions, Instance, Settings, check_type};

/// Meshes whose connections are kept.
const LINKS_MAX: usize = 8;
/// Calls at once. Further ones are rejected.
const CALLS_MAX: usize = 16;

/// The connection to a mesh that is being opened.
pub type OpeningMesh = Pin<Box<dyn Future<Output = Result<Arc<dyn MeshLink>>> + Send>>;
/// Connects to the mesh of a name.
pub type OpenMesh = dyn Fn(String) -> OpeningMesh + Send + Sync;

/// The meshes at one address. Clones share their connections.
#[derive(Clone)]
pub struct Meshes(Arc<Inner>);

struct Inner {
    address: String,
    names: Vec<String>,
    hostname: String,
    settings: Settings,
    open: Box<OpenMesh>,
    /// The mesh that was asked for last comes last.
    links: Mutex<Vec<(String, Arc<dyn MeshLink>)>>,
    calls: Semaphore,
}

impl Meshes {
    /// Returns the meshes at `address`, which is for display. `names` are those that are worth a link; any other can be
    /// asked for by its name.
    pub fn new(address: String, names: Vec<String>, hostname: String, settings: Settings, open: Box<OpenMesh>) -> Self {
        let (links, calls) = (Mutex::default(), Semaphore::new(CALLS_MAX));
        Meshes(Arc::new(Inner { address, names, hostname, settings, open, links, calls }))
    }

    /// Returns the address of the backend, without credentials.
    pub fn address(&self) -> &str {
        &self.0.address
    }

    /// Returns the configured names.
    pub fn names(&self) -> &[String] {
        &self.0.names
    }

    /// Lists the live instances of a mesh, by number.
    pub async fn nodes(&self, mesh: &str) -> Result<Vec<MeshNode>> {
        let link = self.link(mesh).await?;
        link.nodes(self.0.settings.node_ttl).await
    }

    /// Calls an instance, and returns the JSON text of its reply.
    pub async fn call(
        &self,
        mesh: &str,
        to: InstanceId,
        request_type: &str,
        data: &Json,
        timeout: Option<Duration>,
    ) -> Result<String, MeshError> {
        check_type(request_type)?;
        let Ok(_permit) = self.0.calls.try_acquire() else {
            let source = Error::unavailable("mesh", format!("{CALLS_MAX} calls are in flight from this node"));
            return Err(unavailable(to, request_type, source));
        };
        let link = self.link(mesh).await.map_err(|error| match error {
            Error::Invalid(invalid) => MeshError::Invalid(invalid),
            source => unavailable(to, request_type, source),
        })?;
        let instance = Instance::new(link, self.0.hostname.clone(), self.0.settings.clone());
        instance.start().await?;
        let options = CallOptions { timeout, epoch: None };
        let result = instance.call(to, request_type, data, options, Ok).await;
        instance.stop().await;
        result
    }

    async fn link(&self, mesh: &str) -> Result<Arc<dyn MeshLink>> {
        if mesh.is_empty() || mesh.len() > NAME_BYTES_MAX || mesh.chars().any(char::is_control) {
            let message = format!("expected a name of 1 to {NAME_BYTES_MAX} bytes without control characters");
            return Err(Invalid::new("mesh", message).into());
        }
        if let Some(known) = self.touch(mesh) {
            return Ok(known);
        }
        let link = (self.0.open)(mesh.to_owned()).await?;
        // Another request may have opened it meanwhile.
        if let Some(known) = self.touch(mesh) {
            return Ok(known);
        }
        let mut links = self.0.links.lock();
        if links.len() == LINKS_MAX {
            links.remove(0);
        }
        links.push((mesh.to_owned(), link.clone()));
        Ok(link)
    }

    /// Returns a known connection, and makes it the one that was asked for last.
    fn touch(&self, mesh: &str) -> Option<Arc<dyn MeshLink>> {
        let mut links = self.0.links.lock();
        let place = links.iter().position(|(name, _)| name == mesh)?;
        let entry = links.remove(place);
        let link = entry.1.clone();
        links.push(entry);
        Some(link)
    }
}
