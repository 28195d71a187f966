//! Faults that a test asks for.

use std::collections::{BTreeMap, BTreeSet};

use convoke_core::{Error, Result, WorkerId};
use parking_lot::Mutex;
use serde::Serialize;

/// The faults that are set and have not happened yet.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FaultState {
    /// So many of the next reports are rejected, and nothing of them is recorded.
    pub fail_reports: u32,
    /// So many of the reports after those are recorded, and their replies are lost.
    pub lose_replies: u32,
    /// So many of the next heartbeats of these workers are lost.
    pub drop_heartbeats: BTreeMap<WorkerId, u32>,
    /// None of the requests of these workers arrives.
    pub cut_off: BTreeSet<WorkerId>,
    /// Workers whose last heartbeat was lost.
    #[serde(skip)]
    missed: BTreeSet<WorkerId>,
}

#[derive(Default)]
pub(super) struct Faults(Mutex<FaultState>);

/// The handling of a report.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum ReportFault {
    /// Nothing.
    None,
    /// It is recorded, and its reply is lost.
    ReplyLost,
}

impl Faults {
    pub fn state(&self) -> FaultState {
        self.0.lock().clone()
    }

    pub fn change(&self, change: impl FnOnce(&mut FaultState)) {
        change(&mut self.0.lock());
    }

    /// Returns an error if no request of the worker arrives.
    pub fn on_request(&self, worker: &WorkerId) -> Result<()> {
        match self.0.lock().cut_off.contains(worker) {
            true => Err(injected(format!("worker {worker} is cut off"))),
            false => Ok(()),
        }
    }

    /// Returns an error if the next report is rejected.
    pub fn on_report(&self) -> Result<ReportFault> {
        let mut state = self.0.lock();
        if state.fail_reports > 0 {
            state.fail_reports -= 1;
            return Err(injected("this report was to fail"));
        }
        if state.lose_replies > 0 {
            state.lose_replies -= 1;
            return Ok(ReportFault::ReplyLost);
        }
        Ok(ReportFault::None)
    }

    /// Returns an error if the next heartbeat of the worker is lost.
    pub fn on_heartbeat(&self, worker: &WorkerId) -> Result<()> {
        let mut state = self.0.lock();
        let Some(left) = state.drop_heartbeats.get_mut(worker) else {
            state.missed.remove(worker);
            return Ok(());
        };
        *left = left.saturating_sub(1);
        if *left == 0 {
            state.drop_heartbeats.remove(worker);
        }
        state.missed.insert(worker.clone());
        Err(injected(format!("this heartbeat of worker {worker} was to be lost")))
    }

    /// Returns whether a worker counts as alive only by the requests that arrive.
    pub fn is_silent(&self, worker: &WorkerId) -> bool {
        let state = self.0.lock();
        state.cut_off.contains(worker) || state.missed.contains(worker) || state.drop_heartbeats.contains_key(worker)
    }
}

fn injected(what: impl std::fmt::Display) -> Error {
    Error::unavailable("test server", format!("a fault of the test: {what}"))
}

/// Returns the error of a report that was recorded.
pub(super) fn reply_lost() -> Error {
    Error::unknown("test server", "a fault of the test: the reply to this report was to be lost")
}
