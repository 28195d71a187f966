//! J3: every job ends, once work has drained. Only whoever drained it knows that, so it is checked on request.

use super::index::Index;
use super::{Expectations, Record, Violation};
use crate::jobs::Status;

const CODE: &str = "J3";
/// How many jobs are named.
const SHOWN_MAX: usize = 20;

pub fn check(index: &Index<'_>, expectations: Expectations, notes: &mut Vec<String>) -> Vec<Violation> {
    if !expectations.drained {
        return Vec::new();
    }
    let Some(export) = index.exports.last() else {
        notes.push("without an export of the store nothing shows that all jobs have ended".into());
        return Vec::new();
    };
    let is_open = |record: &&&Record| record.decision.status.is_none_or(Status::is_live);
    let open = export.jobs.values().filter(is_open).take(SHOWN_MAX);
    open.map(|record| {
        let job = record.decision.job.map(|job| job.to_string()).unwrap_or_default();
        let status = record.decision.status.map_or("without a status", Status::as_str);
        Violation::of(CODE, format!("job {job} is {status} although work has drained"), [*record])
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::super::Expectations;
    use super::super::samples::{World, broken, job};

    #[test]
    fn a_job_that_is_left_is_found_only_if_work_has_drained() {
        let mut world = World::new();
        world.export("client", &[(1, "completed"), (2, "running")]);
        assert_eq!(world.check(), []);
        let what = format!("job {} is running although work has drained", job(2));
        let found = world.history().check(Expectations { drained: true }).violations;
        assert_eq!(found, broken("J3", &what, &["client:4"]));
    }
}
