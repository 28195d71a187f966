//! C1: one job for each tick of a schedule, and a job for every tick that was to have one.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::{Broken, Seen};

/// `expected` are the ticks that must have a job; others of the schedule may have one, but no more than one each.
pub fn check(seen: &Seen, schedule: &str, expected: &BTreeSet<Timestamp>) -> Vec<Broken> {
    let broken = |what| Broken { invariant: "C1", what };
    let mut found = Vec::new();
    let mut jobs: BTreeMap<Timestamp, Vec<&str>> = BTreeMap::new();
    for (id, job) in seen.jobs.iter().filter(|(_, job)| job.schedule.as_deref() == Some(schedule)) {
        match job.scheduled_at.as_deref().map(str::parse::<Timestamp>) {
            Some(Ok(tick)) => jobs.entry(tick).or_default().push(id),
            other => found.push(broken(format!("job {id} of {schedule} has no tick: {other:?}"))),
        }
    }
    for (tick, ids) in jobs.iter().filter(|(_, ids)| ids.len() > 1) {
        found.push(broken(format!("tick {tick} of {schedule} has {} jobs: {ids:?}", ids.len())));
    }
    let missing = expected.iter().filter(|tick| !jobs.contains_key(tick));
    found.extend(missing.map(|tick| broken(format!("tick {tick} of {schedule} has no job"))));
    found
}

/// The ticks of an interval between its first and its last: none left out in between.
pub fn evenly(first: Timestamp, last: Timestamp, every: SignedDuration) -> BTreeSet<Timestamp> {
    let mut ticks = BTreeSet::new();
    let mut tick = first;
    while tick <= last {
        ticks.insert(tick);
        tick += every;
    }
    ticks
}

#[cfg(test)]
mod tests {
    use super::super::SeenJob;
    use super::super::seen::{job, seen};
    use super::*;

    fn tick(second: u32) -> String {
        format!("2026-03-01T00:00:{second:02}Z")
    }

    fn made(second: u32) -> SeenJob {
        SeenJob { schedule: Some("s".into()), scheduled_at: Some(tick(second)), ..job("pending", &[]) }
    }

    fn expected() -> BTreeSet<Timestamp> {
        let at = |second| tick(second).parse().expect("a timestamp");
        evenly(at(1), at(3), SignedDuration::from_secs(1))
    }

    #[test]
    fn holds_for_one_job_a_tick() {
        assert_eq!(check(&seen([("a", made(1)), ("b", made(2)), ("c", made(3))]), "s", &expected()), []);
    }

    #[test]
    fn a_tick_that_fired_twice_is_found() {
        let world = seen([("a", made(1)), ("b", made(2)), ("c", made(3)), ("d", made(2))]);
        assert_eq!(check(&world, "s", &expected()).len(), 1);
    }

    #[test]
    fn a_tick_that_never_fired_is_found() {
        assert_eq!(check(&seen([("a", made(1)), ("c", made(3))]), "s", &expected()).len(), 1);
    }

    #[test]
    fn a_job_without_its_tick_is_found() {
        let lost = SeenJob { scheduled_at: None, ..made(1) };
        assert_eq!(check(&seen([("a", lost)]), "s", &BTreeSet::new()).len(), 1);
    }
}
