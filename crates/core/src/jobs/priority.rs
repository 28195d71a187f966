//! The order in which the jobs of a queue are dispatched.
//!
//! A priority is a head start: a job is ranked as if it had been due [`HEAD_START`] earlier for each level above `low`.
//! So a `critical` job overtakes waiting jobs, and a `low` job that has waited long enough is next nevertheless: no job
//! starves, and no row is rewritten to age it.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The head start of one level of priority.
pub const HEAD_START: Duration = Duration::from_secs(60);

/// How early a job runs. Each level ranks a job as if it had been due a minute earlier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
#[repr(u8)]
pub enum Priority {
    /// Ranked by its due time.
    Low = 0,
    /// One head start. The default.
    #[default]
    Normal = 1,
    /// Two head starts.
    High = 2,
    /// Three head starts.
    Critical = 3,
}

impl Priority {
    /// All values, in the order of their codes.
    pub const ALL: [Priority; 4] = [Priority::Low, Priority::Normal, Priority::High, Priority::Critical];

    /// Returns the name of the priority, as in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Priority::Low => "low",
            Priority::Normal => "normal",
            Priority::High => "high",
            Priority::Critical => "critical",
        }
    }

    /// Returns the priority with this name; `None` if there is none.
    pub fn parse(text: &str) -> Option<Priority> {
        Priority::ALL.into_iter().find(|priority| priority.as_str() == text)
    }

    /// Returns the number that stores keep.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Returns the priority with this number; `None` if there is none.
    pub fn from_code(code: u8) -> Option<Priority> {
        Priority::ALL.get(usize::from(code)).copied()
    }

    /// Returns the rank of a job, in microseconds. Jobs of all priorities are dispatched in ascending order of rank.
    pub fn rank(self, due_at: Timestamp) -> i64 {
        due_at.as_microsecond() - i64::from(self.code()) * HEAD_START.as_micros() as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("in range")
    }

    #[test]
    fn at_the_same_time_the_higher_goes_first() {
        let mut all = Priority::ALL;
        all.sort_by_key(|priority| priority.rank(at(1_000)));
        assert_eq!(all, [Priority::Critical, Priority::High, Priority::Normal, Priority::Low]);
    }

    #[test]
    fn a_low_job_is_not_starved_by_a_stream_of_critical_ones() {
        let waiting = Priority::Low.rank(at(0));
        let wait = 3 * HEAD_START.as_secs() as i64;
        assert!(Priority::Critical.rank(at(wait - 1)) < waiting);
        assert!(Priority::Critical.rank(at(wait + 1)) > waiting);
    }
}
