//! Errors of clients, handlers and coordinators.

use std::any::Any;
use std::error::Error as StdError;
use std::fmt::{self, Display};

use convoke_core::jobs::Status;
use convoke_core::{Invalid, JobId};
use convoke_runtime::jobs::worker::{Failure, Stopped};

use crate::state::MissingState;

/// The result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

pub(crate) type Source = Box<dyn StdError + Send + Sync>;

/// An error of a client, a handler, or a coordinator in this process.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The coordinator rejected the request or is unreachable.
    #[error(transparent)]
    Coordinator(#[from] convoke_core::Error),
    /// A job ended, but not as completed. Returned by [`Handle::wait`](crate::Handle::wait).
    #[error("job {id} ended as {}{}", status.as_str(), error.as_ref().map(|why| format!(": {why}")).unwrap_or_default())]
    NotCompleted {
        /// The job.
        id: JobId,
        /// How it ended.
        status: Status,
        /// The error of the last attempt, or the reason of the cancellation.
        error: Option<String>,
    },
    /// A handler failed.
    #[error("{message}")]
    Failed {
        /// Shown with the job.
        message: String,
        /// False if the job must not be retried.
        retry: bool,
    },
    /// A handler cannot be called by its worker. Returned by [`Worker::run`](crate::Worker::run) before it registers.
    #[error("the handler of {job_type:?} cannot be called: {source}")]
    Handler {
        /// The type of its jobs.
        job_type: String,
        /// The reason.
        source: Box<Error>,
    },
    /// A handler takes a [`State`](crate::State) that its worker does not have.
    #[error(transparent)]
    MissingState(#[from] MissingState),
    /// The run of this handler is over.
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// Arguments or a result could not be written or read as JSON.
    #[error("{what}: {source}")]
    Json {
        /// Which value it was.
        what: &'static str,
        /// The reason.
        source: serde_json::Error,
    },
    /// A coordinator in this process may not, or cannot, listen on the given address.
    #[cfg(feature = "coordinator")]
    #[error(transparent)]
    Listen(#[from] convoke_http::ListenError),
    /// A coordinator in this process has left, and some of its runs found no other owner.
    #[cfg(feature = "coordinator")]
    #[error("some runs found no other owner; they are marked as orphans, and the next leader assigns them")]
    RunsOrphaned,
    /// Any other error of a handler, with its causes as [`source`](StdError::source).
    #[error(transparent)]
    Other(Source),
}

impl Error {
    /// Returns a failure that is retried, if the job has retries left.
    pub fn failed(message: impl Display) -> Self {
        Error::Failed { message: message.to_string(), retry: true }
    }

    /// Returns a failure that is not retried: the job becomes a dead letter at once.
    pub fn permanent(message: impl Display) -> Self {
        Error::Failed { message: message.to_string(), retry: false }
    }

    /// Wraps any other error, with its causes.
    pub fn other(error: impl Into<Source>) -> Self {
        Error::Other(error.into())
    }
}

impl From<Invalid> for Error {
    fn from(invalid: Invalid) -> Self {
        Error::Coordinator(invalid.into())
    }
}

impl From<Source> for Error {
    fn from(source: Source) -> Self {
        match source.downcast::<Error>() {
            Ok(error) => *error,
            Err(source) => Error::Other(source),
        }
    }
}

impl From<convoke_core::mesh::MeshError> for Error {
    fn from(error: convoke_core::mesh::MeshError) -> Self {
        Error::other(error)
    }
}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Error::other(error)
    }
}

impl From<serde_json::Error> for Error {
    fn from(error: serde_json::Error) -> Self {
        Error::other(error)
    }
}

/// Shows an error with its causes in one line.
struct Chain<'a>(&'a (dyn StdError + 'static));

impl Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

/// Converts a handler's error into the outcome of its run. Handlers may return any error that implements `Display`;
/// [`Error::permanent`] also prevents a retry.
pub(crate) fn failure<E: Display + 'static>(error: E) -> Failure {
    let any: &dyn Any = &error;
    let boxed = any.downcast_ref::<Source>();
    match any.downcast_ref::<Error>().or_else(|| boxed?.downcast_ref::<Error>()) {
        Some(Error::Failed { message, retry: false }) => Failure::permanent(message),
        Some(Error::Other(source)) => Failure::new(Chain(&**source)),
        Some(ours) => Failure::new(ours),
        None => match boxed {
            Some(source) => Failure::new(Chain(&**source)),
            // The alternate form shows the causes of errors that carry a chain.
            None => Failure::new(format!("{error:#}")),
        },
    }
}
