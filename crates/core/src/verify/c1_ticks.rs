//! C1: a tick of a schedule has one job at most.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::index::Index;
use super::{Record, Violation};
use crate::decisions::What;
use crate::ids::{JobId, ScheduleName};

const CODE: &str = "C1";

pub fn check(index: &Index<'_>) -> Vec<Violation> {
    let mut ticks: BTreeMap<(&ScheduleName, Timestamp), BTreeMap<JobId, &Record>> = BTreeMap::new();
    for record in &index.ticks {
        let decision = &record.decision;
        let is_made =
            matches!(decision.what, What::JobsTick | What::JobsEnqueue | What::StoreJob) && decision.is_accepted();
        let (Some(schedule), Some(tick), Some(job)) = (&decision.schedule, decision.tick, decision.job) else {
            continue;
        };
        // The tick of a job that was purged is free again.
        if is_made && !index.may_be_purged(job) {
            ticks.entry((schedule, tick)).or_default().entry(job).or_insert(record);
        }
    }
    let twice = ticks.into_iter().filter(|(_, jobs)| jobs.len() > 1 && !index.is_fleeting);
    twice
        .map(|((schedule, tick), jobs)| {
            let what = format!("tick {tick} of schedule {schedule} made {} jobs", jobs.len());
            Violation::of(CODE, what, jobs.into_values())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::samples::{World, broken};

    #[test]
    fn holds_for_one_job_a_tick_whoever_shows_it() {
        let mut world = World::new();
        world.seal("n1", 1).tick("n1", 1, 1, 5).tick("n1", 1, 2, 6);
        assert_eq!(world.check(), []);
    }

    #[test]
    fn a_tick_that_made_two_jobs_is_found() {
        let mut world = World::new();
        world.seal("n1", 1).tick("n1", 1, 1, 5).seal("n2", 2).tick("n2", 2, 2, 5);
        let what = "tick 1970-01-01T00:00:05Z of schedule s made 2 jobs";
        assert_eq!(world.check(), broken("C1", what, &["n1:3", "n2:3"]));
        world.purge("n1", 1);
        assert_eq!(world.check(), []);
    }
}
