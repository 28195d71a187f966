//! The statements that must use their indexes, for the tests of their plans.

use convoke_core::ports::store::InFlightFilter;

use super::{cancel, dispatch, list, outcome, record, runs};
use crate::statement::sql;

/// Returns a statement by the name of its file.
pub fn of(file: &str) -> String {
    match file {
        "dispatch" => dispatch::dispatch_sql().to_owned(),
        "complete" => record::complete_sql().to_owned(),
        "finish" => outcome::finish_sql().to_owned(),
        "again" => outcome::again_sql().to_owned(),
        "update_run" => sql!(include_str!("sql/update_run.sql")).to_owned(),
        "runs_to_record" => sql!(include_str!("sql/runs_to_record.sql")).to_owned(),
        "give_rows" => runs::give_rows_sql().to_owned(),
        "holders" => sql!(include_str!("sql/holders.sql")).to_owned(),
        "cancel" => cancel::cancel_sql().to_owned(),
        "delete_jobs" => sql!(include_str!("sql/delete_jobs.sql")).to_owned(),
        // Down the index of search keys.
        "walk" => list::walk_sql(list::JOBS_OF_KEY),
        "walk_type" => list::walk_sql(list::JOBS_OF_TYPE),
        "walk_queue" => list::walk_sql(list::JOBS_OF_QUEUE),
        "types" => list::types_sql(),
        "first_created" => list::FIRST_CREATED.to_owned(),
        "finished" => sql!(include_str!("sql/finished.sql")).to_owned(),
        unknown => panic!("{unknown} is not among the statements whose plans are tested"),
    }
}

pub fn in_flight(filter: &InFlightFilter) -> String {
    runs::in_flight_sql(filter)
}
