//! The states of a job and the transitions between them.
//!
//! Every change of a status is checked by [`Status::to`], so that the table in [`Status::next`] is the only definition.
//! A job whose attempt failed with retries left becomes `scheduled` or `pending` again. `failed` and `timedOut` are the
//! dead letters: no retries are left. Dead letters and `cancelled` jobs can be redriven; `completed` is final.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::retry::RetryPolicy;
use super::run::Outcome;

/// The state of a job. `completed`, `failed`, `timedOut` and `cancelled` are final.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[repr(u8)]
pub enum Status {
    /// Not yet in the store.
    Created = 0,
    /// Due: waits for a free slot of a worker.
    Pending = 1,
    /// Waits for its time.
    Scheduled = 2,
    /// On its way to a worker.
    Dispatched = 3,
    /// A worker reported that it started.
    Running = 4,
    /// A run reported success.
    Completed = 5,
    /// No attempts are left, or the worker reported that the job must not be retried: a dead letter.
    Failed = 6,
    /// The last attempt exceeded its timeout, and no attempts are left: a dead letter.
    TimedOut = 7,
    /// It was cancelled before it ended otherwise.
    Cancelled = 8,
}

use Status::*;

/// A transition that is not allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a job that is {} cannot become {}", from.as_str(), to.as_str())]
pub struct IllegalTransition {
    /// The status of the job.
    pub from: Status,
    /// The status that was requested.
    pub to: Status,
}

impl Status {
    /// All values, in the order of their codes.
    pub const ALL: [Status; 9] =
        [Created, Pending, Scheduled, Dispatched, Running, Completed, Failed, TimedOut, Cancelled];

    /// Returns the statuses that may follow.
    pub const fn next(self) -> &'static [Status] {
        match self {
            Created => &[Pending, Scheduled, Cancelled],
            Pending => &[Dispatched, Cancelled],
            Scheduled => &[Pending, Cancelled],
            // A run may end without a `started` before. The job becomes pending again if the run was lost or released.
            Dispatched => &[Pending, Scheduled, Running, Completed, Failed, TimedOut, Cancelled],
            Running => &[Pending, Scheduled, Completed, Failed, TimedOut, Cancelled],
            Completed => &[],
            // Redriven.
            Failed | TimedOut | Cancelled => &[Pending],
        }
    }

    /// Returns `to`, or an error if it cannot follow.
    pub fn to(self, to: Status) -> Result<Status, IllegalTransition> {
        if self.next().contains(&to) { Ok(to) } else { Err(IllegalTransition { from: self, to }) }
    }

    /// Returns whether the job has not ended.
    pub const fn is_live(self) -> bool {
        matches!(self, Created | Pending | Scheduled | Dispatched | Running)
    }

    /// Returns whether a worker has the job or is about to receive it.
    pub const fn is_in_flight(self) -> bool {
        matches!(self, Dispatched | Running)
    }

    /// Returns whether the job is a dead letter.
    pub const fn is_dead_letter(self) -> bool {
        matches!(self, Failed | TimedOut)
    }

    /// Returns the name of the status, as in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Created => "created",
            Pending => "pending",
            Scheduled => "scheduled",
            Dispatched => "dispatched",
            Running => "running",
            Completed => "completed",
            Failed => "failed",
            TimedOut => "timedOut",
            Cancelled => "cancelled",
        }
    }

    /// Returns the status with this name; `None` if there is none.
    pub fn parse(text: &str) -> Option<Status> {
        Status::ALL.into_iter().find(|status| status.as_str() == text)
    }

    /// Returns the number that stores keep.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Returns the status with this number; `None` if there is none.
    pub fn from_code(code: u8) -> Option<Status> {
        Status::ALL.get(usize::from(code)).copied()
    }
}

/// The state of a job after one of its runs ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Next {
    /// The job ends with this status.
    Final(Status),
    /// The job runs again.
    Again {
        /// The earliest time of the next run.
        due_at: Timestamp,
        /// Whether the run that ended counts as an attempt.
        counted: bool,
    },
}

/// The retries of a job, as needed to end one of its runs.
#[derive(Debug, Clone, Copy)]
pub struct Budget<'a> {
    /// The number of the run that ends: 1 for the first since the job was enqueued or redriven.
    pub tries: u32,
    /// The number of retries that the job allows.
    pub max_retries: u32,
    /// The delays of its retries.
    pub policy: &'a RetryPolicy,
}

/// Returns what follows the end of a run at `at`. `roll` is the random number of the jitter, in `[0, 1)`.
pub fn after(outcome: &Outcome, budget: Budget<'_>, at: Timestamp, roll: f64) -> Next {
    // `at` may come from a worker: a time in the far future must not overflow.
    let again = |delay| Next::Again { due_at: at.saturating_add(delay).unwrap_or(Timestamp::MAX), counted: true };
    let exhausted = budget.tries > budget.max_retries;
    match outcome {
        Outcome::Completed { .. } => Next::Final(Completed),
        Outcome::Cancelled { .. } => Next::Final(Cancelled),
        Outcome::Failed { retry: false, .. } => Next::Final(Failed),
        Outcome::Failed { .. } | Outcome::Lost { .. } if exhausted => Next::Final(Failed),
        Outcome::TimedOut { .. } if exhausted => Next::Final(TimedOut),
        // A lost run is a failure of the worker, not of the job: retry without delay.
        Outcome::Lost { .. } => again(Duration::ZERO),
        Outcome::Failed { .. } | Outcome::TimedOut { .. } => again(budget.policy.delay(budget.tries, roll)),
        Outcome::Released => Next::Again { due_at: at, counted: false },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::retry::Jitter;

    /// All 81 pairs, from a row to a column, in the order of [`Status::ALL`]. A second copy of the table, on purpose.
    const TABLE: [(Status, &str); 9] = [
        //            crea pend sche disp runn comp fail timd canc
        (Created, "   no   yes  yes  no   no   no   no   no   yes"),
        (Pending, "   no   no   no   yes  no   no   no   no   yes"),
        (Scheduled, " no   yes  no   no   no   no   no   no   yes"),
        (Dispatched, "no   yes  yes  no   yes  yes  yes  yes  yes"),
        (Running, "   no   yes  yes  no   no   yes  yes  yes  yes"),
        (Completed, " no   no   no   no   no   no   no   no   no"),
        (Failed, "    no   yes  no   no   no   no   no   no   no"),
        (TimedOut, "  no   yes  no   no   no   no   no   no   no"),
        (Cancelled, " no   yes  no   no   no   no   no   no   no"),
    ];

    #[test]
    fn every_pair_is_as_the_table_says() {
        let mut pairs = 0;
        for (from, row) in TABLE {
            for (to, cell) in Status::ALL.into_iter().zip(row.split_whitespace()) {
                let expected = if cell == "yes" { Ok(to) } else { Err(IllegalTransition { from, to }) };
                assert_eq!(from.to(to), expected, "from {from:?} to {to:?}");
                pairs += 1;
            }
        }
        assert_eq!(pairs, 81);
    }

    #[test]
    fn a_refused_move_names_both_states() {
        for from in Status::ALL {
            for to in Status::ALL {
                if let Err(refused) = from.to(to) {
                    let expected = format!("a job that is {} cannot become {}", from.as_str(), to.as_str());
                    assert_eq!(refused.to_string(), expected);
                }
            }
        }
    }

    #[test]
    fn a_job_can_be_cancelled_from_every_live_state_and_from_no_other() {
        for status in Status::ALL {
            assert_eq!(status.to(Cancelled).is_ok(), status.is_live(), "{status:?}");
        }
        assert_eq!(Status::ALL.into_iter().filter(|status| status.is_live()).count(), 5);
    }

    #[test]
    fn nothing_leaves_completed() {
        assert!(Status::ALL.into_iter().all(|to| Completed.to(to).is_err()));
    }

    #[test]
    fn what_is_in_flight_is_live_and_a_dead_letter_is_not() {
        let of = |is: fn(Status) -> bool| Status::ALL.into_iter().filter(|s| is(*s)).collect::<Vec<_>>();
        assert_eq!(of(Status::is_live), [Created, Pending, Scheduled, Dispatched, Running]);
        assert_eq!(of(Status::is_in_flight), [Dispatched, Running]);
        assert_eq!(of(Status::is_dead_letter), [Failed, TimedOut]);
    }

    #[test]
    fn a_status_is_read_back_from_its_name_and_its_code() {
        for status in Status::ALL {
            assert_eq!(Status::parse(status.as_str()), Some(status));
            assert_eq!(Status::from_code(status.code()), Some(status));
            let json = serde_json::to_string(&status).expect("serialises");
            assert_eq!(json, format!("{:?}", status.as_str()));
            assert_eq!(serde_json::from_str::<Status>(&json).expect("reads"), status);
        }
        assert_eq!((Status::parse("timedout"), Status::parse(""), Status::from_code(9)), (None, None, None));
    }

    const POLICY: RetryPolicy = RetryPolicy {
        initial_delay: Duration::from_secs(10),
        multiplier: 2.0,
        max_delay: Duration::from_secs(600),
        jitter: Jitter::None,
    };

    fn now() -> Timestamp {
        Timestamp::from_second(1_000_000).expect("in range")
    }

    fn ended(outcome: Outcome, tries: u32, max_retries: u32) -> Next {
        after(&outcome, Budget { tries, max_retries, policy: &POLICY }, now(), 0.5)
    }

    fn again(seconds: u64) -> Next {
        Next::Again { due_at: now() + Duration::from_secs(seconds), counted: true }
    }

    fn failed(retry: bool) -> Outcome {
        Outcome::Failed { error: "boom".into(), retry }
    }

    #[test]
    fn a_completed_or_cancelled_run_ends_the_job_whatever_is_left() {
        for tries in [1, 4, 5] {
            assert_eq!(ended(Outcome::Completed { result: None }, tries, 3), Next::Final(Completed));
            assert_eq!(ended(Outcome::Cancelled { reason: None }, tries, 3), Next::Final(Cancelled));
        }
    }

    #[test]
    fn a_failed_run_is_retried_later_and_later_until_its_retries_are_used_up() {
        assert_eq!([1, 2, 3].map(|tries| ended(failed(true), tries, 3)), [again(10), again(20), again(40)]);
        assert_eq!(ended(failed(true), 4, 3), Next::Final(Failed));
        assert_eq!(ended(failed(true), 1, 0), Next::Final(Failed));
    }

    #[test]
    fn a_run_that_says_not_to_retry_is_not() {
        assert_eq!(ended(failed(false), 1, 3), Next::Final(Failed));
    }

    #[test]
    fn a_run_out_of_time_is_a_failed_attempt_and_the_last_one_ends_timed_out() {
        let timed_out = || Outcome::TimedOut { error: "30s".into() };
        assert_eq!(ended(timed_out(), 3, 3), again(40));
        assert_eq!(ended(timed_out(), 4, 3), Next::Final(TimedOut));
    }

    #[test]
    fn a_lost_run_counts_and_is_tried_again_at_once() {
        let lost = || Outcome::Lost { error: "its worker died".into() };
        assert_eq!([1, 2, 3].map(|tries| ended(lost(), tries, 3)), [again(0), again(0), again(0)]);
        assert_eq!(ended(lost(), 4, 3), Next::Final(Failed));
    }

    #[test]
    fn a_run_that_was_given_back_does_not_count_and_never_exhausts() {
        for tries in [1, 4, 1_000] {
            assert_eq!(ended(Outcome::Released, tries, 3), Next::Again { due_at: now(), counted: false });
        }
    }

    #[test]
    fn the_die_decides_the_wait_of_a_retry_with_jitter() {
        let policy = RetryPolicy { jitter: Jitter::Full, ..POLICY };
        let rolled = |roll| after(&failed(true), Budget { tries: 1, max_retries: 3, policy: &policy }, now(), roll);
        assert_eq!((rolled(0.0), rolled(0.5)), (again(0), again(5)));
    }

    #[test]
    fn a_run_that_claims_to_end_at_the_end_of_time_is_no_worse_than_late() {
        let budget = Budget { tries: 1, max_retries: 3, policy: &POLICY };
        let next = after(&failed(true), budget, Timestamp::MAX, 0.5);
        assert_eq!(next, Next::Again { due_at: Timestamp::MAX, counted: true });
    }

    #[test]
    fn what_follows_a_run_is_a_move_that_the_table_has() {
        let outcomes = [
            Outcome::Completed { result: None },
            failed(true),
            failed(false),
            Outcome::TimedOut { error: String::new() },
            Outcome::Cancelled { reason: None },
            Outcome::Lost { error: String::new() },
            Outcome::Released,
        ];
        for (outcome, tries) in outcomes.iter().flat_map(|outcome| [(outcome, 1), (outcome, 9)]) {
            let next = match ended(outcome.clone(), tries, 3) {
                Next::Final(status) => status,
                Next::Again { due_at, .. } if due_at > now() => Scheduled,
                Next::Again { .. } => Pending,
            };
            assert!(Dispatched.to(next).is_ok() && Running.to(next).is_ok(), "{outcome:?} to {next:?}");
        }
    }
}
