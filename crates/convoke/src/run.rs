//! A run on its way to its handler: the request that layers see and that extractors read.

use std::fmt;
use std::sync::Arc;

use convoke_core::Json;
use convoke_runtime::jobs::worker::HandlerFuture;

use crate::context::Context;
use crate::state::{MissingState, StateMap};

/// The future of a handler, which the runtime polls.
pub(crate) type Call = Box<dyn Fn(&Run) -> HandlerFuture + Send + Sync>;

/// A handler and the state of its worker.
pub(crate) struct Target {
    pub call: Call,
    pub state: Arc<StateMap>,
}

/// A run that was not given to its handler yet: the request of [layers](crate::Worker::layer), and what an extractor
/// reads ([`FromRun`](crate::FromRun)).
#[derive(Clone)]
pub struct Run {
    context: Context,
    args: Json,
    target: Arc<Target>,
}

impl Run {
    pub(crate) fn new(context: Context, args: Json, target: Arc<Target>) -> Self {
        Run { context, args, target }
    }

    /// Calls the handler.
    pub(crate) fn call(self) -> HandlerFuture {
        (self.target.call)(&self)
    }

    /// Returns the context of the run: its ids, type, queue and attempt, its log and its cancellation.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Returns the arguments of the job, as they were sent.
    pub fn args(&self) -> &Json {
        &self.args
    }

    /// Replaces the arguments that the handler receives. The job keeps its own.
    pub fn set_args(&mut self, args: Json) {
        self.args = args;
    }

    /// Returns the value of the type `T` that was added by [`Worker::state`](crate::Worker::state).
    pub fn state<T: Send + Sync + 'static>(&self) -> Result<&T, MissingState> {
        self.target.state.get()
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("context", &self.context).field("args", &self.args.as_str()).finish()
    }
}
