//! The rules of a run: what a report changes, in all stores.
//!
//! A store reads the present run of a job as a [`RunState`], applies reports to it in order and writes the result: the state
//! itself while the run is in flight, [`Write::Final`] or [`Write::Again`] when it ended. For a report of any other run the
//! store reads the recorded end of that run, by which the rules distinguish a duplicate from a stale report.
//!
//! A store may record plain completions by a statement of its own. The conformance suite compares what that statement writes
//! with what this module decides.

use std::time::Duration;

use jiff::Timestamp;

use super::job::{Execution, ExecutionStatus, LogLevel, Ownership, Progress};
use super::lifecycle::{self, Budget, Next, Status};
use super::retry::RetryPolicy;
use super::run::{Outcome, RunEnd, RunReport};
use super::run_log::RunLog;
use crate::ids::{ExecutionId, JobType, NodeId, QueueName, WorkerId};
use crate::json::Json;
use crate::mutant::mutant;
use crate::ports::store::{Change, Recorded};

#[cfg(test)]
mod tests;

/// The sender of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The worker of the run, through the node that owns it.
    Run,
    /// The leader, for a run that is lost, timed out or never started. It does not know whether the run opened channels.
    Leader,
}

/// The present run of a job, as a store keeps it.
#[derive(Debug, Clone, PartialEq)]
pub struct RunState {
    /// None if the job is not in flight.
    pub execution: Option<ExecutionId>,
    /// The status of the job.
    pub status: Status,
    /// The attempts that counted so far, this run included.
    pub attempt: u32,
    /// The attempts that were made when the job was last enqueued or redriven.
    pub attempt_base: u32,
    /// The type of the job.
    pub job_type: JobType,
    /// The queue of the job.
    pub queue: QueueName,
    /// The number of retries that the job allows.
    pub max_retries: u32,
    /// The delays of its retries.
    pub retry_policy: RetryPolicy,
    /// How long one attempt may take. None: without limit.
    pub timeout: Option<Duration>,
    /// The time from which on the job could run.
    pub due_at: Timestamp,
    /// When this run started.
    pub started_at: Option<Timestamp>,
    /// When this run is timed out. None: never.
    pub deadline: Option<Timestamp>,
    /// The worker that has the run.
    pub worker: Option<WorkerId>,
    /// The node that records the events of the run.
    pub owner: Option<NodeId>,
    /// Whether a node records the events of the run.
    pub ownership: Ownership,
    /// The progress that the worker reported last.
    pub progress: Option<Progress>,
    /// Whether the job may have channels on the bus that must be closed.
    pub by_channel: bool,
    /// Whether runs before this one are in the job's history.
    pub has_history: bool,
    /// How far the log of this run is recorded.
    pub log: RunLog,
    /// The number of the job's last log line.
    pub log_seq: u64,
}

/// The effect of a report on its run, returned by [`RunState::apply`].
#[derive(Debug, Clone, PartialEq)]
pub enum Effect<'r> {
    /// The report changed the run.
    Applied(Applied<'r>),
    /// The run already ended with the same outcome. Nothing changed.
    Duplicate,
    /// Another node owns the run, and the report is accepted from the owner only. Nothing changed.
    NotOwner,
    /// The run is not in flight and did not end with this outcome. Nothing changed.
    Stale,
}

/// The changes of one report.
#[derive(Debug, Clone, PartialEq)]
pub struct Applied<'r> {
    /// The change to publish after the write.
    pub change: Change,
    /// The kind of write that it needs.
    pub write: Write<'r>,
    /// The run as it moves to the job's history, if another follows it.
    pub history: Option<Box<Execution>>,
    /// Log lines to append.
    pub logs: Vec<AppendedLog<'r>>,
}

/// A log line with its number within the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppendedLog<'r> {
    /// The number of the line, from 1 within the job.
    pub seq: u64,
    /// When the line was logged.
    pub at: Timestamp,
    /// The level of the line.
    pub level: LogLevel,
    /// The text of the line.
    pub message: &'r str,
}

/// The kind of write that a report needs. The job's new status is [`RunState::status`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Write<'r> {
    /// The run is still in flight: the state replaces the stored one.
    InFlight,
    /// The job ended with this run.
    Final {
        /// When the job ended.
        at: Timestamp,
        /// The result of the run.
        result: Option<&'r Json>,
        /// The error of the run, or the reason of its cancellation.
        error: Option<&'r str>,
        /// The end of the run, if the job's status does not imply it.
        run_end: Option<ExecutionStatus>,
        /// Whether there are no channels to close.
        channels_cleaned: bool,
    },
    /// The job runs again: this run moves to the history.
    Again {
        /// The earliest time of the next run.
        due_at: Timestamp,
        /// The attempts that count from now on.
        attempt: u32,
        /// The error of the run. None leaves the job's error as it is.
        error: Option<&'r str>,
    },
}

/// The recorded end of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RecordedEnd<'a> {
    /// How the run ended.
    pub status: ExecutionStatus,
    /// The error, or the reason of the cancellation.
    pub error: Option<&'a str>,
    /// The result, as JSON text.
    pub result: Option<&'a str>,
}

impl<'a> From<&'a Outcome> for RecordedEnd<'a> {
    fn from(outcome: &'a Outcome) -> Self {
        let result = outcome.result().map(Json::as_str);
        RecordedEnd { status: outcome.ended_as(), error: outcome.error(), result }
    }
}

impl Effect<'_> {
    /// Returns the effect of a report whose run is not in flight: by the recorded end of that run, if there is one.
    pub fn of_ended_run(report: &RunReport, recorded: Option<RecordedEnd<'_>>) -> Self {
        match (&report.end, recorded) {
            (Some(end), Some(recorded)) if end.outcome.repeats(recorded.status, recorded.error, recorded.result) => {
                Effect::Duplicate
            }
            _ => Effect::Stale,
        }
    }

    /// Returns what a store reports of it.
    pub fn into_recorded(self) -> Recorded {
        match self {
            Effect::Applied(applied) => Recorded::Applied(applied.change),
            Effect::Duplicate => Recorded::Duplicate,
            Effect::NotOwner => Recorded::NotOwner,
            Effect::Stale => Recorded::Stale,
        }
    }
}

/// Returns the status of the present run of a job with this status. `run_end` is the stored exception, if there is one.
pub fn present_status(status: Status, run_end: Option<ExecutionStatus>) -> ExecutionStatus {
    run_end.unwrap_or(match status {
        Status::Running => ExecutionStatus::Running,
        Status::Completed => ExecutionStatus::Completed,
        Status::Failed => ExecutionStatus::Failed,
        Status::TimedOut => ExecutionStatus::TimedOut,
        Status::Cancelled => ExecutionStatus::Cancelled,
        Status::Created | Status::Pending | Status::Scheduled | Status::Dispatched => ExecutionStatus::Dispatched,
    })
}

impl RunState {
    /// Returns whether `execution` is the job's present run and has not ended.
    pub fn is_in_flight(&self, execution: ExecutionId) -> bool {
        (self.execution == Some(execution) || mutant("execution on reports")) && self.status.is_in_flight()
    }

    /// Applies a report. `recorded` is the recorded end of the report's run, which is used if that run is not
    /// [in flight](Self::is_in_flight). After the run ended, the other fields keep its last values.
    pub fn apply<'r>(
        &mut self,
        report: &'r RunReport,
        source: Source,
        recorded: Option<RecordedEnd<'_>>,
    ) -> Effect<'r> {
        if !self.is_in_flight(report.execution) {
            return Effect::of_ended_run(report, recorded);
        }
        if report.owner.as_ref().is_some_and(|claim| claim.yields_to(self.owner.as_ref())) {
            return Effect::NotOwner;
        }
        if report.worker.is_some() {
            self.worker.clone_from(&report.worker);
        }
        if report.progress.is_some() {
            self.progress.clone_from(&report.progress);
        }
        self.claim(report);
        self.time(report);
        // The leader's word ends a run whose channels it never saw.
        self.by_channel |= report.by_channel || (source == Source::Leader && report.end.is_some());
        let logs = self.append(report);
        let (write, history) = match &report.end {
            None => (Write::InFlight, None),
            Some(end) => self.end(report.execution, end),
        };
        Effect::Applied(Applied { change: self.change(&write), write, history, logs })
    }

    /// An owner that is named again leaves a handoff in progress as it is.
    fn claim(&mut self, report: &RunReport) {
        if let Some(claim) = &report.owner
            && self.owner.as_ref() != Some(claim.node())
        {
            self.owner = Some(claim.node().clone());
            self.ownership = Ownership::Owned;
        }
    }

    /// A run is timed from its start, or from its hand-out if it never reports a start. The first start counts.
    fn time(&mut self, report: &RunReport) {
        self.started_at = self.started_at.or(report.started_at);
        if self.started_at.is_some() {
            self.status = Status::Running;
        }
        if let (Some(from), Some(timeout)) = (self.started_at.or(report.handed_out_at), self.timeout) {
            self.deadline = Some(from.saturating_add(timeout).unwrap_or(Timestamp::MAX));
        }
    }

    fn append<'r>(&mut self, report: &'r RunReport) -> Vec<AppendedLog<'r>> {
        let mut logs = Vec::new();
        for line in &report.logs {
            let Some(taken) = self.log.take(line) else { continue };
            self.log_seq = self.log_seq.saturating_add(1);
            let (level, message) = taken.text(line);
            logs.push(AppendedLog { seq: self.log_seq, at: line.at, level, message });
        }
        logs
    }

    fn end<'r>(&mut self, execution: ExecutionId, end: &'r RunEnd) -> (Write<'r>, Option<Box<Execution>>) {
        let tries = self.attempt.saturating_sub(self.attempt_base);
        let budget = Budget { tries, max_retries: self.max_retries, policy: &self.retry_policy };
        let ended_as = end.outcome.ended_as();
        self.deadline = None;
        self.ownership = Ownership::Unowned;
        match lifecycle::after(&end.outcome, budget, end.at, end.roll) {
            Next::Final(status) => {
                self.status = status;
                let write = Write::Final {
                    at: end.at,
                    result: end.outcome.result(),
                    error: end.outcome.error(),
                    run_end: Some(ended_as).filter(|ended| *ended != present_status(status, None)),
                    channels_cleaned: !self.by_channel && !self.has_history,
                };
                (write, None)
            }
            Next::Again { due_at, counted } => {
                self.status = if due_at > end.at { Status::Scheduled } else { Status::Pending };
                let attempt = if counted { self.attempt } else { self.attempt.saturating_sub(1) };
                let history = Execution {
                    execution_id: execution,
                    attempt: self.attempt,
                    worker_id: self.worker.clone(),
                    status: ended_as,
                    error: end.outcome.error().map(str::to_owned),
                    started_at: self.started_at,
                    ended_at: Some(end.at),
                };
                (Write::Again { due_at, attempt, error: end.outcome.error() }, Some(Box::new(history)))
            }
        }
    }

    fn change(&self, write: &Write<'_>) -> Change {
        Change {
            status: self.status,
            job_type: self.job_type.clone(),
            queue: self.queue.clone(),
            attempt: self.attempt,
            due_at: self.due_at,
            started_at: self.started_at,
            retry_at: match write {
                Write::Again { due_at, .. } => Some(*due_at),
                Write::InFlight | Write::Final { .. } => None,
            },
        }
    }
}
