//! The statements that must go by their indexes, for the tests of their plans.

use convoke_core::ports::store::InFlightFilter;

use super::{dispatch, list, outcome, record, runs};
use crate::statement::statement;

pub fn dispatch() -> &'static str {
    dispatch::dispatch_sql()
}

pub fn complete() -> &'static str {
    record::complete_sql()
}

pub fn note() -> &'static str {
    statement!("sql/note.sql")
}

pub fn finish() -> &'static str {
    outcome::finish_sql()
}

pub fn again() -> &'static str {
    outcome::again_sql()
}

pub fn runs_to_record() -> &'static str {
    statement!("sql/runs_to_record.sql")
}

pub fn in_flight(filter: &InFlightFilter) -> String {
    runs::in_flight_sql(filter)
}

pub fn holders() -> &'static str {
    statement!("sql/holders.sql")
}

pub fn cancel() -> &'static str {
    statement!("sql/cancel.sql")
}

pub fn delete_jobs() -> &'static str {
    statement!("sql/delete_jobs.sql")
}

/// Down the index of search keys.
pub fn walk_keys() -> String {
    list::walk_sql(list::JOBS_OF_KEY)
}
