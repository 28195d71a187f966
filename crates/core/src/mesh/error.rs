//! How a call can end otherwise than well, always with the instance and the type it was meant for.

use std::time::Duration;

use super::fault::Fault;
use super::instance::InstanceId;
use crate::error::{Error, Invalid};
use crate::ids::Epoch;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeshError {
    /// No sign of life for as long as the call's timeout. The handler may have run.
    #[error("{request_type} on instance {instance}: no reply and no heartbeat within {timeout:?}")]
    RequestTimeout { instance: InstanceId, request_type: String, timeout: Duration },
    /// Nobody listens under that number. Nothing ran.
    #[error("{request_type} on instance {instance}: there is no such instance")]
    NoNode { instance: InstanceId, request_type: String },
    /// The handler failed, with its own words.
    #[error("{request_type} on instance {instance} failed: {message}")]
    Handler { instance: InstanceId, request_type: String, message: String },
    /// The instance has no handler for the type. Nothing ran.
    #[error("{request_type} on instance {instance}: it has no handler for this type")]
    NoHandler { instance: InstanceId, request_type: String },
    /// The instance runs as many handlers as it may. Nothing ran.
    #[error("{request_type} on instance {instance}: it is busy")]
    Busy { instance: InstanceId, request_type: String },
    /// The handler demands an epoch, and the caller's is over or missing. Nothing ran.
    #[error("{request_type} on instance {instance}: refused, epochs below {lowest} are over")]
    StaleEpoch { instance: InstanceId, request_type: String, lowest: Epoch },
    /// The caller, or the instance that it called, stopped before there was a reply. The handler may have run.
    #[error("{request_type} on instance {instance}: the mesh was stopped")]
    Stopped { instance: InstanceId, request_type: String },
    /// Started a second time.
    #[error("this mesh is running already, as instance {instance}")]
    AlreadyRunning { instance: InstanceId },
    /// The link is away. Nothing was sent.
    #[error("{what} on instance {instance}: {source}")]
    Unavailable { instance: InstanceId, what: String, source: Error },
    /// Data, a setting or an address that cannot be used. Nothing was sent.
    #[error("{0}")]
    Invalid(#[from] Invalid),
    /// The reply is not of the type that was expected.
    #[error("{request_type} on instance {instance}: the reply cannot be read: {message}")]
    BadReply { instance: InstanceId, request_type: String, message: String },
}

impl MeshError {
    /// What a reply's fault means to the caller.
    pub fn of(fault: Fault, instance: InstanceId, request_type: &str) -> Self {
        let request_type = request_type.to_owned();
        match fault {
            Fault::NoHandler => MeshError::NoHandler { instance, request_type },
            Fault::Busy => MeshError::Busy { instance, request_type },
            Fault::Stopped => MeshError::Stopped { instance, request_type },
            Fault::StaleEpoch(lowest) => MeshError::StaleEpoch { instance, request_type, lowest },
            Fault::Handler(message) => MeshError::Handler { instance, request_type, message },
            Fault::TooLarge => {
                let message = format!("instance {instance} takes no {request_type} of that size");
                MeshError::Invalid(Invalid::too_large("data", message))
            }
        }
    }

    /// What it is called, in the code and to people.
    pub fn name(&self) -> &'static str {
        match self {
            MeshError::RequestTimeout { .. } => "RequestTimeout",
            MeshError::NoNode { .. } => "NoNode",
            MeshError::Handler { .. } => "Handler",
            MeshError::NoHandler { .. } => "NoHandler",
            MeshError::Busy { .. } => "Busy",
            MeshError::StaleEpoch { .. } => "StaleEpoch",
            MeshError::Stopped { .. } => "Stopped",
            MeshError::AlreadyRunning { .. } => "AlreadyRunning",
            MeshError::Unavailable { .. } => "Unavailable",
            MeshError::Invalid(_) => "Invalid",
            MeshError::BadReply { .. } => "BadReply",
        }
    }

    /// How a call that ended so is counted.
    pub fn outcome(&self) -> &'static str {
        match self {
            MeshError::RequestTimeout { .. } => "timeout",
            MeshError::NoNode { .. } => "no_node",
            MeshError::Handler { .. } => "failed",
            MeshError::NoHandler { .. } => "no_handler",
            MeshError::Busy { .. } => "busy",
            MeshError::StaleEpoch { .. } => "stale_epoch",
            MeshError::Stopped { .. } => "stopped",
            MeshError::Unavailable { .. } => "unavailable",
            MeshError::AlreadyRunning { .. } | MeshError::Invalid(_) => "invalid",
            MeshError::BadReply { .. } => "bad_reply",
        }
    }
}
