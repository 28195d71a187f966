//! Extractors: what a handler may take as its arguments, in any order.
//!
//! An extractor reads the run and does no I/O, so that a worker calls a handler at once. Whatever a handler needs
//! beyond the run is a [`State`], which is checked before the worker registers: a type that is missing there cannot fail
//! a job in the middle of the night.

use convoke_core::{Epoch, ExecutionId, JobId};
use serde::de::DeserializeOwned;

use crate::context::Context;
use crate::error::{Error, Result};
use crate::run::Run;
use crate::state::StateMap;

/// A type that a handler can take as an argument: it is read from the run.
///
/// ```
/// use convoke::{FromRun, Run};
///
/// /// The tenant that a tag names.
/// struct Tenant(String);
///
/// impl FromRun for Tenant {
///     fn from_run(run: &Run) -> convoke::Result<Self> {
///         let tag = run.context().tags().iter().find_map(|tag| tag.strip_prefix("tenant:"));
///         let tenant = tag.ok_or_else(|| convoke::Error::permanent("the job has no tag tenant:NAME"))?;
///         Ok(Tenant(tenant.to_owned()))
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no extractor",
    label = "cannot be read from a run",
    note = "extractors are `Context`, `State<T>`, `Args<T>`, `Epoch`, `JobId`, `ExecutionId` and types that implement `FromRun`"
)]
pub trait FromRun: Sized {
    /// Reads the value. An error fails the run; [`Error::permanent`] prevents a retry.
    fn from_run(run: &Run) -> Result<Self>;

    /// Returns why no run of this worker can have such a value. It is called once for each handler before the worker
    /// registers.
    fn check(_state: &StateMap) -> Result<()> {
        Ok(())
    }
}

impl FromRun for Context {
    fn from_run(run: &Run) -> Result<Self> {
        Ok(run.context().clone())
    }
}

/// A value that handlers share: a pool of connections, a client, a configuration. Each run gets a clone, so wrap what is
/// expensive to clone in an [`Arc`](std::sync::Arc). Added by [`Worker::state`](crate::Worker::state).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct State<T>(pub T);

impl<T: Clone + Send + Sync + 'static> FromRun for State<T> {
    fn from_run(run: &Run) -> Result<Self> {
        Ok(State(run.state::<T>()?.clone()))
    }

    fn check(state: &StateMap) -> Result<()> {
        state.get::<T>()?;
        Ok(())
    }
}

/// The epoch of the leader that dispatched the run. It never falls from one run of a job to the next.
impl FromRun for Epoch {
    fn from_run(run: &Run) -> Result<Self> {
        Ok(run.context().epoch())
    }
}

impl FromRun for JobId {
    fn from_run(run: &Run) -> Result<Self> {
        Ok(run.context().job_id())
    }
}

impl FromRun for ExecutionId {
    fn from_run(run: &Run) -> Result<Self> {
        Ok(run.context().execution_id())
    }
}

/// The arguments of the job as a `T`. For [`Worker::handle`](crate::Worker::handle) `T` is a [`Job`](crate::Job), which
/// may also stand alone: `job: SendEmail`. For [`Worker::handle_named`](crate::Worker::handle_named) it is any type that
/// implements `Deserialize`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Args<T>(pub T);

impl<T: DeserializeOwned> Args<T> {
    pub(crate) fn read(run: &Run) -> Result<Self> {
        run.args().to().map(Args).map_err(|error| {
            let message = format!("the arguments do not fit {}: ", run.context().job_type());
            // Read once more, for the path; not at first, because it costs time and few arguments are wrong.
            let mut deserializer = serde_json::Deserializer::from_str(run.args().as_str());
            // Permanent: another attempt would have the same arguments.
            match serde_path_to_error::deserialize::<_, T>(&mut deserializer) {
                Err(found) if found.path().iter().next().is_some() => {
                    Error::permanent(format!("{message}{}: {}", found.path(), found.inner()))
                }
                _ => Error::permanent(format!("{message}{error}")),
            }
        })
    }
}
