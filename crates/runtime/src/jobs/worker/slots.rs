//! Runs handlers, up to the concurrency of the worker.
//!
//! A slot is a task that runs one handler after another for as long as runs wait. The faults of a handler stay within
//! its run: a panic is a failure, and a handler that ignores its timeout or its cancellation is dropped.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use convoke_core::Json;
use convoke_core::jobs::link::{Event, EventKind};
use convoke_core::limits::{ERROR_BYTES_MAX, RESULT_BYTES_MAX};
use futures_util::FutureExt;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::context::{Context, cut};
use super::handlers::{Failure, HandlerFuture, Handlers};
use super::run::{Run, Stop};
use super::run_table::{Ended, RunTable, ending};

/// How much of an error is logged.
const ERROR_LOGGED_BYTES_MAX: usize = 500;
/// How long a handler may go on once its worker's grace period is over.
const DRAIN_CANCEL_GRACE: Duration = Duration::from_secs(1);

pub(super) struct Slots {
    /// Aborted when dropped: with the worker its handlers end.
    tasks: JoinSet<()>,
    run_table: Arc<RunTable>,
    handlers: Arc<Handlers>,
    cancel_grace: Duration,
}

impl Slots {
    pub fn new(run_table: Arc<RunTable>, handlers: Arc<Handlers>, cancel_grace: Duration) -> Self {
        Slots { tasks: JoinSet::new(), run_table, handlers, cancel_grace }
    }

    pub fn start(&mut self, count: usize) {
        while self.tasks.try_join_next().is_some() {}
        for _ in 0..count {
            self.tasks.spawn(slot(self.run_table.clone(), self.handlers.clone(), self.cancel_grace));
        }
    }

    /// Completes once no handler runs.
    pub async fn idle(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

async fn slot(run_table: Arc<RunTable>, handlers: Arc<Handlers>, cancel_grace: Duration) {
    let mut next = run_table.turn(None);
    while let Some((run, args)) = next {
        let began = Instant::now();
        let event = execute(&run_table, &handlers, &run, args, cancel_grace).await;
        let took = began.elapsed();
        if run_table.lines.admits() {
            log(&run, &event, took);
        }
        next = run_table.turn(Some(Ended { run, event, took }));
        // Handlers that never wait must not starve other tasks of the thread.
        tokio::task::coop::consume_budget().await;
    }
}

/// Logs the one line about a run.
fn log(run: &Run, event: &Event, took: Duration) {
    tracing::info!(
        job = %run.job,
        "type" = %run.input.job_type,
        queue = %run.input.queue,
        attempt = run.attempt,
        outcome = event.kind.as_str(),
        duration_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        error = event.error.as_deref().map(start_of),
        "job run ended"
    );
}

/// Returns the part of an error that fits a log line.
fn start_of(error: &str) -> &str {
    &error[..error.floor_char_boundary(ERROR_LOGGED_BYTES_MAX)]
}

async fn execute(
    run_table: &Arc<RunTable>,
    handlers: &Handlers,
    run: &Arc<Run>,
    args: Json,
    cancel_grace: Duration,
) -> Event {
    let handler = match handlers.find(&run.input.job_type) {
        Ok(handler) => handler,
        Err(failure) => return failed(run, failure),
    };
    let context = Context::new(run.clone(), run_table.clone());
    let mut future = match catch_unwind(AssertUnwindSafe(|| handler(context, args))) {
        Ok(future) => future,
        Err(panic) => return failed(run, panicked(&*panic)),
    };
    let event = attend(&mut future, run, cancel_grace).await;
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(future))) {
        tracing::error!(job = %run.job, error = panicked(&*panic).error, "handler panicked when it was dropped");
    }
    event
}

/// Polls the handler until it is done, out of time, or asked to stop and out of grace.
async fn attend(future: &mut HandlerFuture, run: &Run, cancel_grace: Duration) -> Event {
    let mut handler = AssertUnwindSafe(future).catch_unwind();
    let out_of_time = async {
        match run.input.timeout {
            Some(timeout) => tokio::time::sleep(timeout).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        ended = &mut handler => return match ended {
            // The result of a handler that was asked to stop is not trusted: it may have stopped in the middle.
            _ if run.stopped() != Stop::No => ending(run),
            Ok(Ok(result)) => completed(run, result),
            Ok(Err(failure)) => failed(run, failure),
            Err(panic) => failed(run, panicked(&*panic)),
        },
        () = run.token.cancelled() => {}
        () = out_of_time => {
            run.token.cancel();
            let error = format!("the run took longer than {:?}", run.input.timeout.unwrap_or_default());
            return Event { error: Some(error), ..run.event(EventKind::TimedOut) };
        }
    }
    let grace = if run.stopped() == Stop::Drained { DRAIN_CANCEL_GRACE.min(cancel_grace) } else { cancel_grace };
    if tokio::time::timeout(grace, &mut handler).await.is_err() {
        tracing::warn!(job = %run.job, "handler did not stop within its grace period: it was dropped");
    }
    ending(run)
}

fn completed(run: &Run, result: Option<Json>) -> Event {
    if let Some(Err(invalid)) = result.as_ref().map(|result| result.check("result", RESULT_BYTES_MAX)) {
        // The next attempt would do its work once more and have the same result.
        return failed(run, Failure::permanent(invalid));
    }
    Event { result, ..run.event(EventKind::Completed) }
}

fn failed(run: &Run, failure: Failure) -> Event {
    let error = Some(cut(failure.error, ERROR_BYTES_MAX));
    Event { error, retry: Some(failure.retry), ..run.event(EventKind::Failed) }
}

fn panicked(panic: &(dyn Any + Send)) -> Failure {
    let message = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Failure::new(format!("the handler panicked: {}", message.unwrap_or("it gave no message")))
}
