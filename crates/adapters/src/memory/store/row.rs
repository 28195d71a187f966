//! A stored job: the part that readers see, and the store's own part.

use convoke_core::jobs::retention::Rows;
use convoke_core::jobs::run_log::RunLog;
use convoke_core::jobs::run_state::{
    AppendedLog, Applied, Effect, RecordedEnd, RunState, Source, Write, present_status,
};
use convoke_core::jobs::{Execution, ExecutionStatus, Job, LogLine, NewJob, Ownership, RunReport, Status};
use convoke_core::mutant::mutant;
use convoke_core::ports::store::{Handover, InFlight, Reassign, Reassigned, Recorded};
use convoke_core::{ExecutionId, Json, NodeId};
use jiff::Timestamp;

pub(super) struct Row {
    pub(super) seq: u64,
    pub(super) job: Job,
    /// The time from which on it can run.
    pub(super) due_at: Timestamp,
    pub(super) unique_until: Option<Timestamp>,
    /// When the present run times out.
    pub(super) deadline: Option<Timestamp>,
    /// Runs that were followed by another.
    pub(super) history: Vec<Execution>,
    pub(super) logs: Vec<LogLine>,
    /// How far the log of the present run is recorded.
    run_log: RunLog,
    /// Its attempts when it was last enqueued or redriven: the budget of retries begins there.
    attempts_before: u32,
    /// How the present run ended.
    ended: Option<ExecutionStatus>,
    /// Events came through the job's channels.
    by_channel: bool,
}

impl Row {
    pub(super) fn new(seq: u64, new: NewJob) -> Self {
        Row {
            seq,
            due_at: new.due_at(),
            unique_until: new.unique_until,
            job: new.into_stored(),
            deadline: None,
            history: Vec::new(),
            logs: Vec::new(),
            run_log: RunLog::default(),
            attempts_before: 0,
            ended: None,
            by_channel: false,
        }
    }

    /// Changes the status by the state table. Callers have checked the state first, so that the table never rejects it.
    pub(super) fn become_status(&mut self, to: Status) {
        self.job.status = self.job.status.to(to).expect("a move was not checked before it was made");
    }

    pub(super) fn present_run(&self) -> Option<Execution> {
        let status = match self.ended {
            Some(ended) => ended,
            None if self.job.status == Status::Dispatched => ExecutionStatus::Dispatched,
            None => ExecutionStatus::Running,
        };
        Some(Execution {
            execution_id: self.job.execution_id?,
            attempt: self.job.attempt,
            worker_id: self.job.worker_id.clone(),
            status,
            error: self.ended.and(self.job.error.clone()),
            started_at: self.job.started_at,
            ended_at: self.job.completed_at,
        })
    }

    pub(super) fn in_flight(&self) -> Option<InFlight> {
        Some(InFlight {
            job: self.job.id,
            execution: self.job.execution_id?,
            job_type: self.job.definition.job_type.clone(),
            queue: self.job.definition.queue.clone(),
            attempt: self.job.attempt,
            status: self.job.status,
            worker: self.job.worker_id.clone(),
            owner: self.job.owner_node.clone(),
            ownership: self.job.ownership,
            dispatched_at: self.job.dispatched_at?,
            deadline: None,
        })
    }

    /// Counts the attempts of the present budget.
    pub(super) fn set_attempt(&mut self, attempt: u32) {
        self.job.attempt = attempt;
        self.job.retry_count = self.tries().saturating_sub(1);
    }

    fn tries(&self) -> u32 {
        self.job.attempt - self.attempts_before
    }

    /// Returns the rows that a deletion of the job counts.
    pub(super) fn rows(&self) -> Rows {
        Rows { log_lines: self.logs.len() as u64, runs: self.history.len() as u64 }
    }

    /// Deletes so many log lines, from the last on.
    pub(super) fn trim_logs(&mut self, lines: u64) {
        let left = (self.logs.len() as u64).saturating_sub(lines);
        self.logs.truncate(usize::try_from(left).unwrap_or(usize::MAX));
    }

    pub(super) fn redrive(&mut self, now: Timestamp) {
        self.history.extend(self.present_run());
        self.forget_run();
        self.become_status(Status::Pending);
        self.attempts_before = self.job.attempt;
        self.job.retry_count = 0;
        self.job.completed_at = None;
        self.job.result = None;
        self.job.channels_cleaned = false;
        if self.job.schedule.is_none() {
            self.job.scheduled_at = None;
        }
        self.due_at = now;
    }

    pub(super) fn cancel(&mut self, reason: Option<&str>, now: Timestamp) {
        let in_flight = self.job.status.is_in_flight();
        let never_ran = !in_flight && self.history.is_empty();
        self.become_status(Status::Cancelled);
        self.job.completed_at = Some(now);
        self.job.channels_cleaned = never_ran;
        self.job.ownership = Ownership::Unowned;
        self.deadline = None;
        self.job.error = reason.map(str::to_owned);
        self.ended = in_flight.then_some(ExecutionStatus::Cancelled);
    }

    fn forget_run(&mut self) {
        self.job.execution_id = None;
        self.run_log = RunLog::default();
        self.job.ownership = Ownership::Unowned;
        self.job.owner_node = None;
        self.job.worker_id = None;
        self.job.progress = None;
        self.job.dispatched_at = None;
        self.job.started_at = None;
        self.deadline = None;
        self.ended = None;
    }

    fn run_state(&self) -> RunState {
        let job = &self.job;
        RunState {
            execution: job.execution_id,
            status: job.status,
            attempt: job.attempt,
            attempt_base: self.attempts_before,
            job_type: job.definition.job_type.clone(),
            queue: job.definition.queue.clone(),
            max_retries: job.definition.max_retries,
            retry_policy: job.definition.retry_policy,
            timeout: job.definition.timeout,
            due_at: self.due_at,
            started_at: job.started_at,
            deadline: self.deadline,
            worker: job.worker_id.clone(),
            owner: job.owner_node.clone(),
            ownership: job.ownership,
            progress: job.progress.clone(),
            by_channel: self.by_channel,
            has_history: !self.history.is_empty(),
            log: self.run_log,
            log_seq: self.logs.len() as u64,
        }
    }

    /// Applies a report to the present run.
    pub(super) fn record(&mut self, report: &RunReport, source: Source) -> Recorded {
        let mut run = self.run_state();
        let effect = run.apply(report, source, self.recorded_end(report.execution));
        if let Effect::Applied(applied) = &effect {
            self.store(run, applied, report.execution);
        }
        effect.into_recorded()
    }

    fn recorded_end(&self, execution: ExecutionId) -> Option<RecordedEnd<'_>> {
        if self.job.execution_id == Some(execution) {
            let (error, result) = (self.job.error.as_deref(), self.job.result.as_ref().map(Json::as_str));
            return self.ended.map(|status| RecordedEnd { status, error, result });
        }
        let past = self.history.iter().find(|run| run.execution_id == execution);
        past.map(|run| RecordedEnd { status: run.status, error: run.error.as_deref(), result: None })
    }

    fn store(&mut self, run: RunState, applied: &Applied<'_>, execution_id: ExecutionId) {
        let line = |&AppendedLog { seq, at, level, message }: &AppendedLog<'_>| {
            let message = message.to_owned();
            LogLine { seq, at, level, message, execution_id }
        };
        self.logs.extend(applied.logs.iter().map(line));
        if self.job.status != run.status {
            self.become_status(run.status);
        }
        self.job.started_at = run.started_at;
        self.job.worker_id = run.worker;
        self.job.owner_node = run.owner;
        self.job.ownership = run.ownership;
        self.job.progress = run.progress;
        self.deadline = run.deadline;
        self.by_channel = run.by_channel;
        self.run_log = run.log;
        match applied.write {
            Write::InFlight => {}
            Write::Final { at, result, error, run_end, channels_cleaned } => {
                self.ended = Some(present_status(run.status, run_end));
                self.job.completed_at = Some(at);
                self.job.result = result.cloned();
                self.job.error = error.map(str::to_owned);
                self.job.channels_cleaned = channels_cleaned;
            }
            Write::Again { due_at, attempt, error } => {
                self.history.extend(applied.history.as_deref().cloned());
                if let Some(error) = error {
                    self.job.error = Some(error.to_owned());
                }
                self.forget_run();
                self.set_attempt(attempt);
                if self.job.schedule.is_none() {
                    self.job.scheduled_at = (run.status == Status::Scheduled).then_some(due_at);
                }
                self.due_at = due_at;
            }
        }
    }

    /// Moves the ownership of the present run, if the change expects its present state.
    pub(super) fn reassign(&mut self, change: Reassign) -> Reassigned {
        let owner = self.job.owner_node.clone();
        let expected = match change.to {
            Handover::Take(_) => {
                let is_left = owner.is_none() || self.job.ownership == Ownership::OrphanPending;
                is_left || mutant("owner on offers taken")
            }
            Handover::Offer | Handover::Keep | Handover::Orphan => false,
        };
        if !expected && owner.as_ref() != Some(&change.from) {
            return Reassigned::OwnedBy(owner);
        }
        match change.to {
            Handover::Offer => self.job.ownership = Ownership::HandingOff,
            Handover::Keep => self.job.ownership = Ownership::Owned,
            Handover::Orphan => self.job.ownership = Ownership::OrphanPending,
            Handover::Take(node) => self.own(node),
        }
        Reassigned::Done
    }

    fn own(&mut self, node: NodeId) {
        self.job.owner_node = Some(node);
        self.job.ownership = Ownership::Owned;
    }
}
