//! The error of a handler.

use std::fmt::{self, Display};

use convoke_core::mesh::Fault;

/// An error of a handler, made by `?` from any error and by `.into()` from any text. The caller receives its text as
/// [`MeshError::Handler`](crate::MeshError::Handler).
pub struct HandlerError(String);

impl HandlerError {
    pub(super) fn into_fault(self) -> Fault {
        Fault::Handler(self.0)
    }
}

// It does not implement `Display` or `Error` itself, since that would conflict with the conversion from every error.
impl<E: Display> From<E> for HandlerError {
    fn from(error: E) -> Self {
        // The alternate form shows the causes of errors that carry a chain.
        HandlerError(format!("{error:#}"))
    }
}

impl fmt::Debug for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
