//! What can go wrong, for callers of a client and for handlers.

use std::any::Any;
use std::error::Error as StdError;
use std::fmt::{self, Display};

use convoke_core::jobs::Status;
use convoke_core::{Invalid, JobId};
use convoke_runtime::jobs::worker::{Failure, Stopped};

pub type Result<T, E = Error> = std::result::Result<T, E>;

type Source = Box<dyn StdError + Send + Sync>;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The coordinator refused, or is away.
    #[error(transparent)]
    Coordinator(#[from] convoke_core::Error),
    /// A job that was waited for did not complete.
    #[error("job {id} ended as {}{}", status.as_str(), error.as_ref().map(|why| format!(": {why}")).unwrap_or_default())]
    NotCompleted { id: JobId, status: Status, error: Option<String> },
    /// A handler's own failure.
    #[error("{message}")]
    Failed {
        message: String,
        /// False where another attempt would be in vain.
        retry: bool,
    },
    /// The run that a handler speaks of is over.
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// Arguments or a result that cannot be written or read as JSON.
    #[error("{what}: {source}")]
    Json { what: &'static str, source: serde_json::Error },
    /// A coordinator in this process may not, or cannot, listen where it was told to.
    #[cfg(feature = "coordinator")]
    #[error(transparent)]
    Listen(#[from] convoke_http::ListenError),
    /// A coordinator in this process has left, and some of its runs found no other owner.
    #[cfg(feature = "coordinator")]
    #[error("some runs found no other owner; they are marked as orphans, and the next leader will see to them")]
    RunsOrphaned,
    /// Whatever a handler met.
    #[error("{}", Chain(&**.0))]
    Other(Source),
}

impl Error {
    /// A failure that another attempt may mend.
    pub fn failed(message: impl Display) -> Self {
        Error::Failed { message: message.to_string(), retry: true }
    }

    /// A failure for good: the job becomes a dead letter at once.
    pub fn permanent(message: impl Display) -> Self {
        Error::Failed { message: message.to_string(), retry: false }
    }

    /// Any other error, with its causes.
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

/// An error with its causes in one line.
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

/// What a handler's error means to its run. Handlers may return any error that can be shown; ours can also say that
/// another attempt would be in vain.
pub(crate) fn failure<E: Display + 'static>(error: E) -> Failure {
    let any: &dyn Any = &error;
    let ours = any.downcast_ref::<Error>().or_else(|| any.downcast_ref::<Source>()?.downcast_ref::<Error>());
    match ours {
        Some(Error::Failed { message, retry: false }) => Failure::permanent(message),
        // The alternate form is what shows the causes of errors that carry a chain.
        _ => Failure::new(format!("{error:#}")),
    }
}
