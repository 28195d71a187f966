//! The search for the jobs of a page of a list, or of a count, in all stores that have indexes.
//!
//! A list is in the order of storing, the newest first. A store follows the first of the [`paths`] whose condition
//! holds. No path reads more than about [`ROWS_READ_MAX`] rows, however many jobs there are: a page that is not full by
//! then ends early, and its [`Cursor`] continues from there. A count does the same and reads no job.
//!
//! Jobs are stored about in the order of their creation, so that the order of storing serves as the index of their
//! times: [`first_created`] searches it for the bounds of a query by time, and [`CREATED_SKEW`] allows for clocks that
//! differ and for transactions that take long.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use jiff::Timestamp;

use super::job::Job;
use super::lifecycle::Status;
use super::template::{correlation_key, schedule_key, tag_key};
use crate::error::Invalid;
use crate::ids::{JobType, QueueName, ScheduleName};

/// The filters and the page of a list of jobs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct JobQuery {
    /// Only jobs of this queue.
    pub queue: Option<QueueName>,
    /// Only jobs of this type.
    pub job_type: Option<JobType>,
    /// Only jobs whose type begins with this text.
    pub type_prefix: Option<String>,
    /// Only jobs that were created then or later.
    pub created_from: Option<Timestamp>,
    /// Only jobs that were created before.
    pub created_until: Option<Timestamp>,
    /// Only jobs with one of these statuses; empty for all.
    pub statuses: Vec<Status>,
    /// Only jobs with this correlation id.
    pub correlation_id: Option<String>,
    /// Only jobs with this tag.
    pub tag: Option<String>,
    /// Only jobs that this schedule made.
    pub schedule: Option<ScheduleName>,
    /// Upper bound of the jobs on the page.
    pub limit: usize,
    /// The cursor that the page before returned. Anything else is [`Invalid`].
    pub cursor: Option<String>,
}

impl JobQuery {
    /// Returns the search keys that a job must have, the rarest first.
    pub fn search_keys(&self) -> Vec<String> {
        let correlation = self.correlation_id.iter().map(|id| correlation_key(id));
        let schedule = self.schedule.iter().map(schedule_key);
        correlation.chain(schedule).chain(self.tag.iter().map(|tag| tag_key(tag))).collect()
    }

    /// Returns whether a job that was created then is within the times of the query.
    pub fn is_in_time(&self, created_at: Timestamp) -> bool {
        self.created_from.is_none_or(|from| created_at >= from)
            && self.created_until.is_none_or(|until| created_at < until)
    }

    /// Returns the times between which jobs are read: those of the query, and [`CREATED_SKEW`] more.
    pub fn times_read(&self) -> (Option<Timestamp>, Option<Timestamp>) {
        let from = self.created_from.map(|at| at.checked_sub(CREATED_SKEW).unwrap_or(Timestamp::MIN));
        let until = self.created_until.map(|at| at.checked_add(CREATED_SKEW).unwrap_or(Timestamp::MAX));
        (from, until)
    }
}

/// By how much the times of jobs may deviate from the order of storing. A query by time may miss jobs that deviate more.
pub const CREATED_SKEW: Duration = Duration::from_secs(60);

/// Types that a prefix stands for at most. Further ones are not found.
pub const PREFIX_TYPES_MAX: usize = 10_000;

/// Returns the lowest number from `low` on, and below `high`, of a job that was created at `at` or later, if jobs are
/// numbered in the order of creation; `high` if there is none. `next` returns the first job from one number on and below
/// another.
pub fn first_created<E>(
    mut low: i64,
    mut high: i64,
    at: Timestamp,
    mut next: impl FnMut(i64, i64) -> Result<Option<(i64, Timestamp)>, E>,
) -> Result<i64, E> {
    while low < high {
        let middle = low + (high - low) / 2;
        match next(middle, high)? {
            Some((seq, created_at)) if created_at < at => low = seq + 1,
            _ => high = middle,
        }
    }
    Ok(low)
}

/// Upper bound of the rows that a page or a count reads: some milliseconds, on every engine.
pub const ROWS_READ_MAX: usize = 4_000;

/// Upper bound of the index entries that are sorted for a page. No job is read for an entry that is not on the page.
pub const ENTRIES_READ_MAX: usize = 10_000;

/// Upper bound of the ranges of ended jobs that are read side by side.
pub const RANGES_MAX: usize = 64;

/// A way from a query to its jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Path {
    /// Down the index of the query's first search key.
    Key,
    /// Down the index of the type.
    Type,
    /// Down the index of each type that begins with the prefix.
    Types,
    /// Down the ranges of ended jobs, one for each queue and status.
    Ended,
    /// All jobs of the statuses, sorted.
    Statuses,
    /// Down the index of the queue.
    Queue,
    /// Down all jobs.
    All,
}

/// The condition under which a path is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// No condition.
    Always,
    /// The type has at most [`ROWS_READ_MAX`] jobs.
    RareType,
    /// The store has ranges for these statuses or types, and at most [`RANGES_MAX`] of them hold jobs of the query.
    FewRanges,
    /// The store finds jobs by these statuses, and reads at most [`ENTRIES_READ_MAX`] index entries for it.
    FewJobs,
}

/// Returns the paths of a query in the order in which they are tried. The last one has no condition.
pub fn paths(query: &JobQuery) -> Vec<(Path, Condition)> {
    if !query.search_keys().is_empty() {
        return vec![(Path::Key, Condition::Always)];
    }
    let (of_queue, of_type) = (query.queue.is_some(), query.job_type.is_some());
    let mut paths = Vec::new();
    if of_type && (of_queue || !query.statuses.is_empty()) {
        paths.push((Path::Type, Condition::RareType));
    }
    if !query.statuses.is_empty() {
        // Most jobs complete: down the ranges of completed ones a type is rarer than down its own index.
        let is_typed = of_type || query.type_prefix.is_some();
        let is_usual = is_typed && query.statuses.contains(&Status::Completed);
        if !is_usual && query.statuses.iter().all(|status| !status.is_live()) {
            paths.push((Path::Ended, Condition::FewRanges));
        }
        paths.push((Path::Statuses, Condition::FewJobs));
    }
    if query.type_prefix.is_some() && !of_type {
        paths.push((Path::Types, Condition::FewRanges));
    }
    let walk = match (of_queue, of_type) {
        (true, _) => Path::Queue,
        (false, true) => Path::Type,
        (false, false) => Path::All,
    };
    paths.push((walk, Condition::Always));
    paths
}

/// Returns whether the job matches the filters of the query.
pub fn matches(query: &JobQuery, job: &Job) -> bool {
    let (wanted, definition) = (query.search_keys(), &job.definition);
    query.queue.as_ref().is_none_or(|queue| *queue == definition.queue)
        && query.job_type.as_ref().is_none_or(|job_type| *job_type == definition.job_type)
        && query.type_prefix.as_ref().is_none_or(|prefix| definition.job_type.as_str().starts_with(prefix))
        && query.is_in_time(job.created_at)
        && (query.statuses.is_empty() || query.statuses.contains(&job.status))
        && (wanted.is_empty() || has_keys(&wanted, &job.search_keys()))
}

/// Returns whether the search keys `keys` of a job contain all `wanted`.
pub fn has_keys(wanted: &[String], keys: &[String]) -> bool {
    wanted.iter().all(|wanted| keys.contains(wanted))
}

/// The place where a page begins: its jobs have lower numbers in the order of storing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor(pub i64);

impl Cursor {
    /// The place before the newest job.
    pub const START: Cursor = Cursor(i64::MAX);

    /// Returns the place where the page of the query begins.
    pub fn of(query: &JobQuery) -> Result<Cursor, Invalid> {
        query.cursor.as_deref().map_or(Ok(Cursor::START), str::parse)
    }

    /// Returns the place of a page that begins with the job of this number.
    pub fn at(seq: i64) -> Cursor {
        Cursor(seq.saturating_add(1))
    }
}

/// The first letter of a cursor, which a number typed by a person lacks.
const MARK: &str = "j";

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{MARK}{:x}", self.0)
    }
}

impl FromStr for Cursor {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let seq = text.strip_prefix(MARK).and_then(|digits| i64::from_str_radix(digits, 16).ok());
        seq.filter(|seq| *seq > 0).map(Cursor).ok_or_else(|| {
            Invalid::new("cursor", format!("expected a cursor as given by the page before, got {text:?}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(queue: bool, job_type: bool, statuses: &[Status]) -> JobQuery {
        JobQuery {
            queue: queue.then(|| QueueName::new("q").expect("a name")),
            job_type: job_type.then(|| JobType::new("t").expect("a name")),
            statuses: statuses.to_vec(),
            ..JobQuery::default()
        }
    }

    #[test]
    fn every_query_has_a_path_without_a_condition_at_its_end_and_nowhere_else() {
        let statuses: [&[Status]; 4] = [&[], &[Status::Failed], &[Status::Pending], &[Status::Pending, Status::Failed]];
        for (queue, job_type) in [(false, false), (false, true), (true, false), (true, true)] {
            for statuses in statuses {
                let paths = paths(&query(queue, job_type, statuses));
                let always = paths.iter().position(|(_, condition)| *condition == Condition::Always);
                assert_eq!(always, Some(paths.len() - 1), "{queue} {job_type} {statuses:?}");
            }
        }
    }

    #[test]
    fn a_search_key_is_the_only_path_of_a_query_that_has_one() {
        let query = JobQuery { correlation_id: Some("c".into()), ..query(true, true, &[Status::Failed]) };
        assert_eq!(paths(&query), [(Path::Key, Condition::Always)]);
        let query = JobQuery { tag: Some("t".into()), ..query };
        assert_eq!(paths(&query), [(Path::Key, Condition::Always)]);
        assert_eq!(query.search_keys(), [correlation_key("c"), tag_key("t")], "few jobs have one correlation id");
    }

    #[test]
    fn a_type_alone_is_walked_and_with_more_only_if_it_is_rare() {
        assert_eq!(paths(&query(false, true, &[])), [(Path::Type, Condition::Always)]);
        let of_queue = paths(&query(true, true, &[]));
        assert_eq!(of_queue, [(Path::Type, Condition::RareType), (Path::Queue, Condition::Always)]);
    }

    #[test]
    fn ranges_of_ended_jobs_serve_only_queries_for_ended_jobs() {
        let has_ended =
            |statuses: &[Status]| paths(&query(false, false, statuses)).contains(&(Path::Ended, Condition::FewRanges));
        assert!(has_ended(&[Status::Failed, Status::TimedOut]));
        assert!(!has_ended(&[Status::Failed, Status::Pending]));
        assert!(!has_ended(&[]));
    }

    #[test]
    fn completed_jobs_of_a_type_are_read_down_the_index_of_the_type() {
        let ended = [Status::Completed, Status::Failed, Status::TimedOut, Status::Cancelled];
        let has_ended = |query: &JobQuery| paths(query).iter().any(|(path, _)| *path == Path::Ended);
        assert!(!has_ended(&query(false, true, &ended)));
        assert!(!has_ended(&JobQuery { type_prefix: Some("email.".into()), ..query(false, false, &ended) }));
        assert!(has_ended(&query(false, true, &ended[1..])), "few jobs fail");
        assert!(has_ended(&query(true, false, &ended)));
    }

    #[test]
    fn a_prefix_is_read_by_its_types_after_rarer_statuses() {
        let prefixed = |statuses: &[Status]| {
            paths(&JobQuery { type_prefix: Some("email.".into()), ..query(false, false, statuses) })
        };
        let types = (Path::Types, Condition::FewRanges);
        assert_eq!(prefixed(&[]), [types, (Path::All, Condition::Always)]);
        assert_eq!(prefixed(&[Status::Failed])[0], (Path::Ended, Condition::FewRanges));
        assert_eq!(prefixed(&[Status::Failed])[2], types);
        let of_type = JobQuery { type_prefix: Some("email.".into()), ..query(false, true, &[]) };
        assert!(!paths(&of_type).contains(&types), "one type is rarer");
    }

    #[test]
    fn the_order_of_storing_is_searched_for_a_time() {
        let at = |second: i64| Timestamp::from_second(second).expect("a time");
        // Jobs 10, 13, 16 … of the seconds 0, 1, 2 …, with gaps where others were deleted.
        let jobs: std::collections::BTreeMap<i64, Timestamp> = (0..100).map(|n| (10 + 3 * n, at(n))).collect();
        let search = |second| {
            let mut reads = 0;
            let found = first_created::<()>(0, 1_000, at(second), |from, below| {
                reads += 1;
                Ok(jobs.range(from..below).next().map(|(seq, at)| (*seq, *at)))
            });
            assert!(reads <= 11, "{reads}");
            found.expect("read")
        };
        for second in 0..100 {
            // Any number after the job before.
            let (first, before) = (10 + 3 * second, if second == 0 { -1 } else { 7 + 3 * second });
            assert!((before + 1..=first).contains(&search(second)), "{second}");
        }
        assert!(search(-5) <= 10);
        assert!(search(100) > 307);
    }

    #[test]
    fn a_cursor_is_read_back_and_nothing_else_is() {
        for cursor in [Cursor(1), Cursor::at(41), Cursor::START, Cursor::at(i64::MAX)] {
            assert_eq!(cursor.to_string().parse::<Cursor>().expect("its own text"), cursor);
        }
        for text in ["", "j", "j0", "j-1", "7", "jx", "jffffffffffffffffff", "J1"] {
            assert!(text.parse::<Cursor>().is_err(), "{text:?}");
        }
    }
}
