//! A queue: its settings, its limits and the counts of its jobs.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::lifecycle::Status;
use crate::duration;
use crate::error::{Error, Invalid};
use crate::ids::QueueName;

/// A queue with its settings and its counts.
#[derive(Debug, Clone, PartialEq)]
pub struct Queue {
    /// The name of the queue.
    pub name: QueueName,
    /// Whether its jobs stay pending.
    pub paused: bool,
    /// The limit of its dispatches. None: no limit.
    pub rate_limit: Option<RateLimit>,
    /// Upper bound of its jobs in flight. None: no bound.
    pub concurrency: Option<u32>,
    /// How many of its jobs are in each state.
    pub counts: QueueCounts,
    /// The due time of the pending job that has waited longest. None: no job is pending.
    pub oldest_pending_at: Option<Timestamp>,
}

impl Queue {
    /// Returns whether the queue has no jobs, ended ones included.
    pub fn is_empty(&self) -> bool {
        self.counts.iter().all(|(_, count)| count == 0)
    }

    /// Returns whether the queue has neither jobs nor settings, so that deleting it loses nothing.
    pub fn is_unused(&self) -> bool {
        self.is_empty() && !self.paused && self.rate_limit.is_none() && self.concurrency.is_none()
    }

    /// Returns the error of a request to delete a queue that has jobs.
    pub fn not_empty(name: &QueueName) -> Error {
        Error::Conflict(format!("queue {:?} has jobs: only an empty queue can be deleted", name.as_str()))
    }
}

/// How long a queue must be unused before the leader deletes it.
pub const UNUSED_FOR: Duration = Duration::from_secs(24 * 60 * 60);

/// The queues that a leader observed as unused, and since when by its monotonic clock.
#[derive(Debug, Default)]
pub struct UnusedQueues {
    since: BTreeMap<QueueName, Duration>,
}

impl UnusedQueues {
    /// Records the queues that are unused at `now`. Returns the queues that have been unused for [`UNUSED_FOR`].
    pub fn observe(&mut self, unused: impl IntoIterator<Item = QueueName>, now: Duration) -> Vec<QueueName> {
        let since = |name: QueueName| (self.since.get(&name).copied().unwrap_or(now), name);
        let seen: Vec<_> = unused.into_iter().map(since).collect();
        self.since = seen.iter().map(|(since, name)| (name.clone(), *since)).collect();
        seen.into_iter().filter(|(since, _)| now.saturating_sub(*since) >= UNUSED_FOR).map(|(_, name)| name).collect()
    }
}

/// At most `limit` dispatches in any window of `per`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, expecting = "an object")]
pub struct RateLimit {
    /// The number of dispatches.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 1_000_000))]
    pub limit: u32,
    /// The length of the window.
    #[cfg_attr(feature = "openapi", schema(value_type = String, example = "1s"))]
    #[serde(with = "crate::duration")]
    pub per: Duration,
}

impl RateLimit {
    /// Upper bound of `limit`.
    pub const LIMIT_MAX: u32 = 1_000_000;

    /// Rejects a limit that is out of bounds and a window of zero.
    pub fn check(&self) -> Result<(), Invalid> {
        if self.limit == 0 || self.limit > Self::LIMIT_MAX {
            let message = format!("expected 1 to {} (pause the queue to stop it), got {}", Self::LIMIT_MAX, self.limit);
            return Err(Invalid::new("rateLimit.limit", message));
        }
        if self.per.is_zero() {
            return Err(Invalid::new("rateLimit.per", "expected a duration longer than zero"));
        }
        Ok(())
    }
}

/// Parses `100/1s` or `100/s`.
impl FromStr for RateLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || format!("expected a number and a duration such as 100/1s, got {text:?}");
        let (limit, per) = text.split_once('/').ok_or_else(expected)?;
        let per = if per.starts_with(|c: char| c.is_ascii_digit()) { per.to_owned() } else { format!("1{per}") };
        let rate = RateLimit {
            limit: limit.parse().map_err(|_| expected())?,
            per: duration::parse(&per).map_err(|_| expected())?,
        };
        rate.check().map_err(|invalid| invalid.message)?;
        Ok(rate)
    }
}

impl fmt::Display for RateLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.limit, duration::format(self.per))
    }
}

/// How many jobs of a queue are in each state.
// The store updates the counts with each change, so that reading them costs no scan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(value_type = BTreeMap<Status, u64>))]
pub struct QueueCounts([u64; Status::ALL.len()]);

impl QueueCounts {
    /// Returns the number of jobs with this status.
    pub fn get(&self, status: Status) -> u64 {
        self.0[usize::from(status.code())]
    }

    /// Sets the number of jobs with this status.
    pub fn set(&mut self, status: Status, count: u64) {
        self.0[usize::from(status.code())] = count;
    }

    /// Returns the number of jobs that are dispatched or running.
    pub fn in_flight(&self) -> u64 {
        self.get(Status::Dispatched) + self.get(Status::Running)
    }

    /// Returns the number of jobs for each status.
    pub fn iter(&self) -> impl Iterator<Item = (Status, u64)> + '_ {
        Status::ALL.into_iter().map(|status| (status, self.get(status)))
    }
}

impl Serialize for QueueCounts {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter().map(|(status, count)| (status.as_str(), count)))
    }
}

/// A change of the settings of a queue. `None` leaves a setting as it is, `Some(None)` removes the limit.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct QueuePatch {
    /// Whether to pause the queue.
    pub paused: Option<bool>,
    /// The new rate limit.
    pub rate_limit: Option<Option<RateLimit>>,
    /// The new bound of jobs in flight.
    pub concurrency: Option<Option<u32>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_limit_is_read_as_promised_and_checked() {
        let read = |text| serde_json::from_str::<RateLimit>(text);
        let limit = read(r#"{"limit":100,"per":"1s"}"#).expect("reads");
        assert_eq!(limit, RateLimit { limit: 100, per: Duration::from_secs(1) });
        assert_eq!(serde_json::to_string(&limit).expect("serialises"), r#"{"limit":100,"per":"1s"}"#);
        assert_eq!(limit.check(), Ok(()));
        for (text, field) in [
            (r#"{"limit":0,"per":"1s"}"#, "rateLimit.limit"),
            (r#"{"limit":1000001,"per":"1s"}"#, "rateLimit.limit"),
            (r#"{"limit":1,"per":"0s"}"#, "rateLimit.per"),
        ] {
            assert_eq!(read(text).expect("reads").check().expect_err(text).field, field);
        }
        for text in [
            r#"{"limit":1}"#,
            r#"{"limit":-1,"per":"1s"}"#,
            r#"{"limit":1,"per":1}"#,
            r#"{"limit":1,"per":"1s","burst":2}"#,
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_rate_is_written_as_a_number_and_a_window() {
        let minute = RateLimit { limit: 100, per: Duration::from_secs(60) };
        assert_eq!(["100/1m", "100/m", "100/60s"].map(str::parse), [Ok(minute), Ok(minute), Ok(minute)]);
        assert_eq!(minute.to_string().parse(), Ok(minute));
        for bad in ["", "none", "100", "/1s", "100/", "-1/s", "1.5/s", "100/fortnight", "0/1s", "5/0s", "1000001/s"] {
            assert!(bad.parse::<RateLimit>().expect_err(bad).contains("expected"), "{bad}");
        }
    }

    #[test]
    fn a_queue_is_deleted_after_a_day_without_use_and_not_for_two_halves_of_one() {
        let name = |name: &str| QueueName::new(name).expect("a name");
        let hours = |hours: u64| Duration::from_secs(hours * 3600);
        let mut unused = UnusedQueues::default();
        assert!(unused.observe([name("a"), name("b")], hours(5)).is_empty());
        assert!(unused.observe([name("a")], hours(17)).is_empty(), "b is used");
        assert!(unused.observe([name("a"), name("b")], hours(18)).is_empty());
        assert_eq!(unused.observe([name("a"), name("b")], hours(29)), [name("a")]);
        assert_eq!(unused.observe([name("b")], hours(42)), [name("b")]);
    }

    #[test]
    fn a_queue_with_jobs_or_settings_is_used() {
        let plain = Queue {
            name: QueueName::new("q").expect("a name"),
            paused: false,
            rate_limit: None,
            concurrency: None,
            counts: QueueCounts::default(),
            oldest_pending_at: None,
        };
        assert!(plain.is_unused());
        let mut counts = QueueCounts::default();
        counts.set(Status::Completed, 1);
        let rate_limit = Some(RateLimit { limit: 1, per: Duration::from_secs(1) });
        assert!(!Queue { counts, ..plain.clone() }.is_unused());
        assert!(!Queue { paused: true, ..plain.clone() }.is_unused());
        assert!(!Queue { rate_limit, ..plain.clone() }.is_unused());
        assert!(!Queue { concurrency: Some(1), ..plain }.is_unused());
    }

    #[test]
    fn counts_are_shown_by_the_name_of_the_status() {
        let mut counts = QueueCounts::default();
        for (count, status) in (1..).zip(Status::ALL) {
            counts.set(status, count);
        }
        assert_eq!((counts.get(Status::Running), counts.in_flight()), (5, 4 + 5));
        assert_eq!(
            serde_json::to_string(&counts).expect("serialises"),
            concat!(
                r#"{"created":1,"pending":2,"scheduled":3,"dispatched":4,"running":5,"completed":6,"failed":7,"#,
                r#""timedOut":8,"cancelled":9}"#
            )
        );
    }
}
