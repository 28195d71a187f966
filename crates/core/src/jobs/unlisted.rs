//! Runs that their worker no longer lists: a run that is missing in two of its lists, one after the other, is lost.
//!
//! The rule is the same for a worker of a gateway, whose node compares its heartbeats with what it handed out, and for
//! a worker on the bus, whose heartbeats the leader compares with the store. One missing list is not enough: the run
//! may have been on its way to the worker, or its end on the way to the store.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::run::{Outcome, RunReport};
use super::wire::RunRef;
use crate::ids::{ExecutionId, WorkerId};

/// The runs that a worker should have and that its last list did not name.
#[derive(Debug, Default)]
pub struct Unlisted(BTreeSet<ExecutionId>);

impl Unlisted {
    /// Compares a list of the worker with the runs that it should have by now. Returns those that were missing in the
    /// list before, too: they are lost. A run is returned again until it is no longer expected.
    pub fn compare(
        &mut self,
        expected: impl IntoIterator<Item = RunRef>,
        is_listed: impl Fn(&ExecutionId) -> bool,
    ) -> Vec<RunRef> {
        let missing: Vec<RunRef> = expected.into_iter().filter(|run| !is_listed(&run.execution_id)).collect();
        let before = std::mem::replace(&mut self.0, missing.iter().map(|run| run.execution_id).collect());
        missing.into_iter().filter(|run| before.contains(&run.execution_id)).collect()
    }
}

/// Returns why a run is lost that [`Unlisted::compare`] returned.
pub fn unlisted_error(worker: &WorkerId) -> String {
    format!("worker {worker} lost the run: two of its heartbeats did not list it")
}

/// Returns the reports that end runs as lost by their worker. `roll` is [`RunEnd::roll`](super::RunEnd::roll).
pub fn lost_reports(
    worker: &WorkerId,
    runs: impl IntoIterator<Item = RunRef>,
    error: &str,
    now: Timestamp,
    roll: impl Fn() -> f64,
) -> Vec<RunReport> {
    let reports = runs.into_iter().map(|run| {
        let outcome = Outcome::Lost { error: error.to_owned() };
        let report = RunReport::of(run.job_id, run.execution_id).ended(now, outcome, roll());
        RunReport { worker: Some(worker.clone()), ..report }
    });
    reports.collect()
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::ids::JobId;

    fn run(n: u128) -> RunRef {
        RunRef { job_id: JobId(Uuid::from_u128(n)), execution_id: ExecutionId(Uuid::from_u128(n)) }
    }

    fn lists(runs: &[u128]) -> impl Fn(&ExecutionId) -> bool {
        let runs: BTreeSet<ExecutionId> = runs.iter().map(|n| run(*n).execution_id).collect();
        move |execution| runs.contains(execution)
    }

    #[test]
    fn a_run_that_two_lists_in_a_row_do_not_name_is_lost() {
        let mut unlisted = Unlisted::default();
        let all = || (1..4).map(run);
        assert!(unlisted.compare(all(), lists(&[1])).is_empty(), "2 and 3 are missing for the first time");
        assert_eq!(unlisted.compare(all(), lists(&[1, 3])), [run(2)]);
        assert_eq!(unlisted.compare(all(), lists(&[1])), [run(2)], "until it has ended; 3 is missing again, not twice");
        assert_eq!(unlisted.compare([run(1), run(3)], lists(&[])), [run(3)]);
    }

    #[test]
    fn a_run_that_is_not_expected_is_not_missed() {
        let mut unlisted = Unlisted::default();
        assert!(unlisted.compare([], lists(&[])).is_empty());
        assert!(unlisted.compare([run(1)], lists(&[])).is_empty());
        assert!(unlisted.compare([], lists(&[])).is_empty(), "it has ended");
        assert!(unlisted.compare([run(1)], lists(&[])).is_empty(), "a run counts from when it is expected");
    }

    #[test]
    fn a_lost_run_names_its_worker_and_the_reason() {
        let worker = WorkerId::new("w").expect("a name");
        let reports = lost_reports(&worker, [run(1)], &unlisted_error(&worker), Timestamp::UNIX_EPOCH, || 0.25);
        let end = reports[0].end.as_ref().expect("an end");
        assert_eq!((end.outcome.error(), end.roll), (Some(unlisted_error(&worker).as_str()), 0.25));
        assert_eq!(reports[0].worker, Some(worker));
    }
}
