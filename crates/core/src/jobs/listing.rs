//! The search for the jobs of a page of a list, in all stores that have indexes.
//!
//! A list is in the order of storing, the newest first. A store follows the first of the [`paths`] whose condition
//! holds. No path reads more than about [`ROWS_READ_MAX`] rows, however many jobs there are: a page that is not full by
//! then ends early, and its [`Cursor`] continues from there.

use std::fmt;
use std::str::FromStr;

use super::job::Job;
use super::lifecycle::Status;
use super::template::{correlation_key, tag_key};
use crate::error::Invalid;
use crate::ids::{JobType, QueueName};

/// The filters and the page of a list of jobs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct JobQuery {
    /// Only jobs of this queue.
    pub queue: Option<QueueName>,
    /// Only jobs of this type.
    pub job_type: Option<JobType>,
    /// Only jobs with one of these statuses; empty for all.
    pub statuses: Vec<Status>,
    /// Only jobs with this correlation id.
    pub correlation_id: Option<String>,
    /// Only jobs with this tag.
    pub tag: Option<String>,
    /// Upper bound of the jobs on the page.
    pub limit: usize,
    /// The cursor that the page before returned. Anything else is [`Invalid`].
    pub cursor: Option<String>,
}

impl JobQuery {
    /// Returns the [search keys](super::JobDefinition::search_keys) that a job must have, the rarest first.
    pub fn search_keys(&self) -> Vec<String> {
        let correlation = self.correlation_id.iter().map(|id| correlation_key(id));
        correlation.chain(self.tag.iter().map(|tag| tag_key(tag))).collect()
    }
}

/// Upper bound of the rows that a page reads.
pub const ROWS_READ_MAX: usize = 10_000;

/// Upper bound of the ranges of ended jobs that are read side by side.
pub const RANGES_MAX: usize = 64;

/// A way from a query to its jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Path {
    /// Down the index of the query's first search key.
    Key,
    /// Down the index of the type.
    Type,
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
    /// The store has ranges for these statuses, and at most [`RANGES_MAX`] of them hold jobs of the query.
    FewRanges,
    /// The store finds jobs by these statuses, and reads at most [`ROWS_READ_MAX`] index entries for it.
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
        if query.statuses.iter().all(|status| !status.is_live()) {
            paths.push((Path::Ended, Condition::FewRanges));
        }
        paths.push((Path::Statuses, Condition::FewJobs));
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
        && (query.statuses.is_empty() || query.statuses.contains(&job.status))
        && (wanted.is_empty() || has_keys(&wanted, &definition.search_keys()))
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
    fn a_cursor_is_read_back_and_nothing_else_is() {
        for cursor in [Cursor(1), Cursor::at(41), Cursor::START, Cursor::at(i64::MAX)] {
            assert_eq!(cursor.to_string().parse::<Cursor>().expect("its own text"), cursor);
        }
        for text in ["", "j", "j0", "j-1", "7", "jx", "jffffffffffffffffff", "J1"] {
            assert!(text.parse::<Cursor>().is_err(), "{text:?}");
        }
    }
}
