//! The handlers of jobs, by type.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use convoke_core::{JobType, Json};

use super::context::Context;

/// The future of a handler: the result of the job, which may be none, or why the run failed.
pub type HandlerFuture = Pin<Box<dyn Future<Output = Result<Option<Json>, Failure>> + Send>>;
pub(super) type Handler = Arc<dyn Fn(Context, Json) -> HandlerFuture + Send + Sync>;

/// Why a run failed, and whether to retry it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The message that is recorded with the run.
    pub error: String,
    /// Whether another attempt may follow.
    pub retry: bool,
}

impl Failure {
    /// Creates a failure that is worth another attempt.
    pub fn new(error: impl fmt::Display) -> Self {
        Failure { error: error.to_string(), retry: true }
    }

    /// Creates a failure that another attempt would repeat.
    pub fn permanent(error: impl fmt::Display) -> Self {
        Failure { error: error.to_string(), retry: false }
    }
}

/// The handlers of a worker, by job type.
#[derive(Clone, Default)]
pub struct Handlers {
    by_type: BTreeMap<JobType, Handler>,
    otherwise: Option<Handler>,
}

impl Handlers {
    /// Adds a handler; the last one for a type replaces the others.
    pub fn add<F>(&mut self, job_type: JobType, handler: F)
    where
        F: Fn(Context, Json) -> HandlerFuture + Send + Sync + 'static,
    {
        self.by_type.insert(job_type, Arc::new(handler));
    }

    /// Sets the handler of every type that has none of its own.
    pub fn otherwise<F>(&mut self, handler: F)
    where
        F: Fn(Context, Json) -> HandlerFuture + Send + Sync + 'static,
    {
        self.otherwise = Some(Arc::new(handler));
    }

    pub(super) fn find(&self, job_type: &JobType) -> Result<&Handler, Failure> {
        self.by_type.get(job_type).or(self.otherwise.as_ref()).ok_or_else(|| {
            let mut known: Vec<_> = self.by_type.keys().map(|known| format!("{:?}", known.as_str())).collect();
            known.sort();
            let known = if known.is_empty() { "none".into() } else { known.join(", ") };
            // Another worker of the queue may have one, so a retry can succeed.
            Failure::new(format!("this worker has no handler for {:?}; it has {known}", job_type.as_str()))
        })
    }
}

impl fmt::Debug for Handlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.by_type.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_without_a_handler_goes_to_the_one_for_all_others() {
        let (own, other) = (JobType::new("own").expect("a name"), JobType::new("other").expect("a name"));
        let mut handlers = Handlers::default();
        handlers.add(own.clone(), |_, _| Box::pin(async { Ok(None) }));
        let refusal = handlers.find(&other).err().expect("no handler");
        assert_eq!(refusal, Failure::new("this worker has no handler for \"other\"; it has \"own\""));
        handlers.otherwise(|_, _| Box::pin(async { Ok(None) }));
        let (own, other) = (handlers.find(&own).expect("its own"), handlers.find(&other).expect("the one for others"));
        assert!(!Arc::ptr_eq(own, other));
    }
}
