//! C1: one job for each tick of a schedule, and a job for every tick that was to have one.
//!
//! The ticks follow from the schedule's expression and a span of time, never from the jobs that were made: those would prove
//! themselves.

use std::collections::{BTreeMap, BTreeSet};

use convoke_core::jobs::schedule::Schedule;
use jiff::{SignedDuration, Timestamp};

use super::{Broken, Seen};

/// Checks the ticks of a schedule after `after` and up to `until`, all of which must have a job: nothing was triggered by hand,
/// and no tick was skipped by the schedule's own policy. Outside of the span a tick has one job at most.
pub fn check(seen: &Seen, schedule: &Schedule, after: Timestamp, until: Timestamp) -> Vec<Broken> {
    let name = schedule.name.as_str();
    let broken = |what| Broken { invariant: "C1", what };
    let expected = ticks(schedule, after, until);
    let mut found = Vec::new();
    if expected.is_empty() {
        found.push(broken(format!("{name} has no tick between {after} and {until}: nothing is checked")));
    }
    let mut jobs: BTreeMap<Timestamp, Vec<&str>> = BTreeMap::new();
    for (id, job) in seen.jobs.iter().filter(|(_, job)| job.schedule.as_deref() == Some(name)) {
        match job.scheduled_at.as_deref().map(str::parse::<Timestamp>) {
            Some(Ok(tick)) => jobs.entry(tick).or_default().push(id),
            other => found.push(broken(format!("job {id} of {name} has no tick: {other:?}"))),
        }
    }
    for (tick, ids) in &jobs {
        if ids.len() > 1 {
            found.push(broken(format!("tick {tick} of {name} has {} jobs: {ids:?}", ids.len())));
        }
        if *tick > after && *tick <= until && !expected.contains(tick) {
            found.push(broken(format!("jobs {ids:?} of {name} are of {tick}, which is none of its ticks")));
        }
    }
    let missing = expected.iter().filter(|tick| !jobs.contains_key(tick));
    found.extend(missing.map(|tick| broken(format!("tick {tick} of {name} has no job"))));
    found
}

/// Returns the ticks of a schedule after `after` and up to `until`. Intervals count from the schedule's creation.
fn ticks(schedule: &Schedule, after: Timestamp, until: Timestamp) -> BTreeSet<Timestamp> {
    let first = match schedule.every {
        Some(every) => {
            let every = SignedDuration::try_from(every).expect("an interval in range");
            std::iter::successors(Some(schedule.created_at), |tick| Some(*tick + every)).find(|tick| *tick > after)
        }
        None => schedule.next_after(after),
    };
    let next = |tick: &Timestamp| match schedule.every {
        Some(every) => Some(*tick + every),
        None => schedule.next_after(*tick),
    };
    std::iter::successors(first, next).take_while(|tick| *tick <= until).collect()
}

#[cfg(test)]
mod tests {
    use super::super::SeenJob;
    use super::super::seen::{job, seen};
    use super::*;

    fn tick(second: u32) -> String {
        format!("2026-03-01T00:00:{second:02}Z")
    }

    fn at(second: u32) -> Timestamp {
        tick(second).parse().expect("a timestamp")
    }

    fn made(second: u32) -> SeenJob {
        SeenJob { schedule: Some("s".into()), scheduled_at: Some(tick(second)), ..job("pending", &[]) }
    }

    fn schedule(rhythm: &str) -> Schedule {
        let spec = serde_json::from_str::<convoke_core::jobs::ScheduleSpec>(&format!(r#"{{"type":"t",{rhythm}}}"#));
        let name = convoke_core::ScheduleName::new("s").expect("a name");
        spec.expect("a schedule").into_schedule(name, at(0)).expect("it makes sense")
    }

    /// Returns the breaches of these jobs of the first three seconds, by an interval and by the same cron expression.
    fn wrong<const N: usize>(jobs: [(&'static str, SeenJob); N]) -> usize {
        let seen = seen(jobs);
        let [every, cron] = [r#""every":"1s""#, r#""cron":"* * * * * *""#].map(schedule);
        let found = check(&seen, &every, at(0), at(3));
        assert_eq!(found, check(&seen, &cron, at(0), at(3)));
        found.len()
    }

    #[test]
    fn holds_for_one_job_a_tick() {
        assert_eq!(wrong([("a", made(1)), ("b", made(2)), ("c", made(3))]), 0);
    }

    #[test]
    fn a_tick_that_fired_twice_is_found() {
        assert_eq!(wrong([("a", made(1)), ("b", made(2)), ("c", made(3)), ("d", made(2))]), 1);
    }

    #[test]
    fn a_tick_that_never_fired_is_found_wherever_it_is() {
        assert_eq!(wrong([("a", made(1)), ("c", made(3))]), 1);
        assert_eq!(wrong([("b", made(2)), ("c", made(3))]), 1, "the first");
        assert_eq!(wrong([("a", made(1)), ("b", made(2))]), 1, "the last");
        assert_eq!(wrong([]), 3, "all of them");
    }

    #[test]
    fn a_job_without_its_tick_is_found() {
        let lost = SeenJob { scheduled_at: None, ..made(1) };
        assert_eq!(wrong([("a", made(1)), ("b", made(2)), ("c", made(3)), ("d", lost)]), 1);
    }

    #[test]
    fn a_job_between_two_ticks_is_found() {
        let odd = SeenJob { scheduled_at: Some("2026-03-01T00:00:01.5Z".into()), ..made(1) };
        assert_eq!(wrong([("a", made(1)), ("b", made(2)), ("c", made(3)), ("d", odd)]), 1);
    }

    #[test]
    fn a_span_without_a_tick_checks_nothing_and_is_found() {
        assert_eq!(check(&seen([]), &schedule(r#""every":"1s""#), at(1), at(1)).len(), 1);
    }
}
