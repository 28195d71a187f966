//! The trace that a task is part of.
//!
//! A handler runs in the trace of its caller, and its calls belong to the same trace; code with a trace from elsewhere
//! enters it with [`in_trace`]. A spawned task has no trace, nor has a call that is made outside of one.

use convoke_core::mesh::TraceParent;

tokio::task_local! {
    static TRACE: TraceParent;
}

/// Runs `work` as a part of a trace: its calls carry the trace.
pub async fn in_trace<F: Future>(trace: TraceParent, work: F) -> F::Output {
    TRACE.scope(trace, work).await
}

/// Returns the trace of this task.
pub fn current_trace() -> Option<TraceParent> {
    TRACE.try_with(|trace| *trace).ok()
}

/// Returns the trace for a call that is made here: the same trace, one step further.
pub(super) fn next_step() -> Option<TraceParent> {
    current_trace().map(|trace| trace.child(crate::machine::bits()))
}
