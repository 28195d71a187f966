//! The trace that a task is part of.
//!
//! A handler runs in the trace of its caller, and what it calls is part of the same; whoever has a trace of another making
//! enters it with [`in_trace`]. A task that is spawned is in none, as is a call that was made in none.

use convoke_core::mesh::TraceParent;

tokio::task_local! {
    static TRACE: TraceParent;
}

/// Runs `work` as a part of a trace: the calls that it makes carry it.
pub async fn in_trace<F: Future>(trace: TraceParent, work: F) -> F::Output {
    TRACE.scope(trace, work).await
}

/// The trace of this task.
pub fn current_trace() -> Option<TraceParent> {
    TRACE.try_with(|trace| *trace).ok()
}

/// What a call carries that is made here: the same trace, one step further.
pub(super) fn next_step() -> Option<TraceParent> {
    current_trace().map(|trace| trace.child(rand::random()))
}
