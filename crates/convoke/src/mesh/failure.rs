//! Why a handler failed: anything that can be shown.

use std::fmt::{self, Display};

use convoke_core::mesh::Fault;

/// Made by `?` from any error, and by `.into()` from any text. The caller gets its words as
/// [`MeshError::Handler`](crate::MeshError::Handler).
pub struct HandlerError(String);

impl HandlerError {
    pub(super) fn into_fault(self) -> Fault {
        Fault::Handler(self.0)
    }
}

// It cannot be shown itself: that is what lets it be made of everything that can.
impl<E: Display> From<E> for HandlerError {
    fn from(error: E) -> Self {
        // The alternate form is what shows the causes of errors that carry a chain.
        HandlerError(format!("{error:#}"))
    }
}

impl fmt::Debug for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
