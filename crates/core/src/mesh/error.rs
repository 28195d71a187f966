//! The errors of a mesh call, with the instance and the request type.

use std::fmt;
use std::time::Duration;

use super::fault::Fault;
use super::instance::InstanceId;
use crate::error::{Error, Invalid};
use crate::ids::Epoch;

/// The error of a mesh call.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeshError {
    /// No reply and no heartbeat within the call's timeout. The handler may have run.
    #[error("{request_type} on instance {instance}: no reply and no heartbeat within {timeout:?}")]
    RequestTimeout {
        /// The called instance.
        instance: InstanceId,
        /// The type of the request.
        request_type: String,
        /// How long the caller waited without a reply or heartbeat.
        timeout: Duration,
    },
    /// No instance listens under that number: it left, died, or is reconnecting. Nothing ran.
    #[error("{}", no_node(*instance, request_type))]
    NoNode {
        /// The called instance; `NOBODY` if any instance would have done and none is live.
        instance: InstanceId,
        /// The type of the request.
        request_type: String,
    },
    /// The handler returned an error.
    #[error("{request_type} on instance {instance} failed: {message}")]
    Handler {
        /// The called instance.
        instance: InstanceId,
        /// The type of the request.
        request_type: String,
        /// The error text of the handler.
        message: String,
    },
    /// The instance has no handler for the type. Nothing ran.
    #[error("{request_type} on instance {instance}: it has no handler for this type")]
    NoHandler {
        /// The called instance.
        instance: InstanceId,
        /// The type of the request.
        request_type: String,
    },
    /// The instance already runs its maximum of handlers. Nothing ran.
    #[error("{request_type} on instance {instance}: it is busy")]
    Busy {
        /// The called instance.
        instance: InstanceId,
        /// The type of the request.
        request_type: String,
    },
    /// The handler requires an epoch, and the caller's is over or missing. Nothing ran.
    #[error("{request_type} on instance {instance}: rejected, expected a caller of epoch {lowest} or later")]
    StaleEpoch {
        /// The called instance.
        instance: InstanceId,
        /// The type of the request.
        request_type: String,
        /// The lowest epoch that the handler accepts.
        lowest: Epoch,
    },
    /// The caller or the called instance stopped before a reply, and the handler may have run; or the caller was not
    /// started.
    #[error("{}: {} not running", At(request_type, *instance), not_running(*instance))]
    Stopped {
        /// The called instance; `NOBODY` if there was none.
        instance: InstanceId,
        /// The type of the request.
        request_type: String,
    },
    /// The mesh was started a second time.
    #[error("this mesh is running already, as instance {instance}")]
    AlreadyRunning {
        /// The number of the running instance.
        instance: InstanceId,
    },
    /// The link is down. A call was not sent; a broadcast may have been if the source is [`Error::Unknown`].
    #[error("{}: {source}", At(what, *instance))]
    Unavailable {
        /// The called instance; `NOBODY` if there was none.
        instance: InstanceId,
        /// The type of the request, or the operation.
        what: String,
        /// The error of the link.
        source: Error,
    },
    /// Data, a setting or an address is invalid. Nothing was sent.
    #[error("{0}")]
    Invalid(#[from] Invalid),
    /// The reply does not have the expected type.
    #[error("{request_type} on instance {instance}: the reply cannot be read: {message}")]
    BadReply {
        /// The called instance.
        instance: InstanceId,
        /// The type of the request.
        request_type: String,
        /// Why the reply cannot be read.
        message: String,
    },
}

/// A request type, and the instance that it was sent to if there is one.
struct At<'a>(&'a str, InstanceId);

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            At(what, InstanceId::NOBODY) => f.write_str(what),
            At(what, instance) => write!(f, "{what} on instance {instance}"),
        }
    }
}

fn no_node(instance: InstanceId, request_type: &str) -> String {
    match instance {
        InstanceId::NOBODY => format!("{request_type}: there is no live instance"),
        _ => format!("{}: no instance listens under that number", At(request_type, instance)),
    }
}

fn not_running(instance: InstanceId) -> &'static str {
    match instance {
        InstanceId::NOBODY => "this mesh is",
        _ => "this mesh or that instance is",
    }
}

impl MeshError {
    /// Returns the error for a fault that a reply reports.
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

    /// Returns the name of the variant, for code and messages.
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

    /// Returns the label of this outcome in metrics.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_not_called_an_instance() {
        let request_type = || "getStatus".to_owned();
        let away = || Error::unavailable("connect", "refused");
        let error_text = |instance| {
            [
                MeshError::NoNode { instance, request_type: request_type() },
                MeshError::Stopped { instance, request_type: request_type() },
                MeshError::Unavailable { instance, what: request_type(), source: away() },
            ]
            .map(|error| error.to_string())
        };
        let expected = [
            "getStatus: there is no live instance".to_owned(),
            "getStatus: this mesh is not running".to_owned(),
            format!("getStatus: {}", away()),
        ];
        assert_eq!(error_text(InstanceId::NOBODY), expected);
        let expected = [
            "getStatus on instance 7: no instance listens under that number".to_owned(),
            "getStatus on instance 7: this mesh or that instance is not running".to_owned(),
            format!("getStatus on instance 7: {}", away()),
        ];
        assert_eq!(error_text(InstanceId(7)), expected);
    }

    #[test]
    fn a_refusal_by_epoch_is_true_of_those_who_name_none() {
        let error = MeshError::of(Fault::StaleEpoch(Epoch(0)), InstanceId(2), "reindex");
        assert_eq!(error.to_string(), "reindex on instance 2: rejected, expected a caller of epoch 0 or later");
    }
}
