//! The ticks of a schedule as readers see them: the next ones, and those that have passed with their outcome.
//!
//! Nothing is stored for a tick but its job. So a tick that passed without one is found by comparing the jobs of the
//! schedule with the ticks of its rhythm, back to the oldest job that is known and no further than the schedule's own
//! beginning: a change of the rhythm begins it anew.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Overlap, Rhythm, Schedule};
use crate::ids::JobId;
use crate::jobs::job::Job;
use crate::jobs::lifecycle::Status;

/// The outcome of a tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub enum TickOutcome {
    /// A job was made.
    Made,
    /// A job was made on request, beside the ticks of the rhythm.
    Triggered,
    /// No job was made, because one of the schedule was live.
    Skipped,
    /// No job was made: no leader was there in time, or the schedule was paused.
    Missed,
}

/// A tick that has passed.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct PastTick {
    /// The instant of the tick.
    pub at: Timestamp,
    /// Whether it made a job.
    pub outcome: TickOutcome,
    /// The job that it made.
    pub job_id: Option<JobId>,
    /// The state of that job.
    pub status: Option<Status>,
}

impl Schedule {
    /// Returns the rhythm in words; `None` if this version cannot parse the stored schedule.
    pub fn words(&self) -> Option<String> {
        match self.rhythm()? {
            Rhythm::Cron(cron) => Some(cron.words()),
            Rhythm::Every(_) => self.every.map(|every| format!("Every {}.", crate::duration::format(every))),
        }
    }

    /// Returns the first `count` ticks after `at`; fewer if it never ticks again.
    pub fn ticks_after(&self, at: Timestamp, count: usize) -> Vec<Timestamp> {
        let Some(rhythm) = self.rhythm() else { return Vec::new() };
        std::iter::successors(rhythm.next_after(at), |tick| rhythm.next_after(*tick)).take(count).collect()
    }

    /// Returns at most `limit` ticks up to `now`, the newest first. `jobs` are the newest jobs of the schedule, the last
    /// stored first; `is_whole` if there are no others.
    pub fn past_ticks(&self, jobs: &[Job], is_whole: bool, now: Timestamp, limit: usize) -> Vec<PastTick> {
        let tick_of = |job: &Job| job.scheduled_at.unwrap_or(job.created_at);
        let oldest = jobs.iter().map(tick_of).min();
        let since = match oldest.filter(|_| !is_whole) {
            Some(oldest) => oldest.max(self.created_at),
            None => self.created_at,
        };
        let rhythmic = self.ticks_before(now, since, limit);
        let mut ticks: Vec<PastTick> = Vec::new();
        for job in jobs {
            let at = tick_of(job);
            // Of a rhythm that was replaced: whether it was a tick is no longer known.
            let is_tick =
                at < self.created_at || rhythmic.contains(&at) || rhythmic.last().is_some_and(|last| at < *last);
            let outcome = if is_tick { TickOutcome::Made } else { TickOutcome::Triggered };
            ticks.push(PastTick { at, outcome, job_id: Some(job.id), status: Some(job.status) });
        }
        let was_live = |at: Timestamp| {
            let lives = |job: &&Job| tick_of(job) < at && job.completed_at.is_none_or(|end| end > at);
            self.overlap == Overlap::Skip && jobs.iter().any(|job| lives(&job))
        };
        let idle = rhythmic.iter().filter(|at| !jobs.iter().any(|job| tick_of(job) == **at));
        let idle: Vec<PastTick> = idle
            .map(|at| {
                let outcome = if was_live(*at) { TickOutcome::Skipped } else { TickOutcome::Missed };
                PastTick { at: *at, outcome, job_id: None, status: None }
            })
            .collect();
        ticks.extend(idle);
        ticks.sort_by_key(|tick| std::cmp::Reverse(tick.at));
        ticks.truncate(limit);
        ticks
    }

    /// Returns the ticks of the rhythm from `since` to `now`, the newest first.
    fn ticks_before(&self, now: Timestamp, since: Timestamp, limit: usize) -> Vec<Timestamp> {
        let Some(rhythm) = self.rhythm() else { return Vec::new() };
        let back = std::iter::successors(rhythm.last_before(now), |tick| rhythm.last_before(*tick));
        back.take_while(|tick| *tick >= since).take(limit).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::ids::{JobType, ScheduleName};
    use crate::jobs::retry::RetrySettings;
    use crate::jobs::schedule::{ScheduleSpec, job_for_tick};

    fn at(minute: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + minute * 60).expect("an instant")
    }

    /// A schedule of one tick a minute, from minute 0 on.
    fn minutely() -> Schedule {
        let mut spec = ScheduleSpec::new(JobType::new("t").expect("a name"));
        spec.every = Some(Duration::from_secs(60));
        spec.into_schedule(ScheduleName::new("s").expect("a name"), at(0)).expect("valid")
    }

    fn job(schedule: &Schedule, tick: Timestamp, ended: Option<Timestamp>) -> Job {
        let id = format!("0198c0de-0000-7000-8000-{:012x}", tick.as_second()).parse().expect("an id");
        let mut job = job_for_tick(schedule, id, tick, tick, &RetrySettings::default()).into_stored();
        job.completed_at = ended;
        if ended.is_some() {
            job.status = Status::Completed;
        }
        job
    }

    #[test]
    fn ticks_without_a_job_are_skipped_by_a_live_one_or_missed() {
        let schedule = minutely();
        let jobs = [
            job(&schedule, at(6) + Duration::from_secs(30), Some(at(7))),
            job(&schedule, at(5), Some(at(6))),
            job(&schedule, at(2), Some(at(3) + Duration::from_secs(1))),
            job(&schedule, at(1), Some(at(2))),
        ];
        let ticks = schedule.past_ticks(&jobs, true, at(6) + Duration::from_secs(59), 50);
        let outcomes: Vec<_> = ticks.iter().map(|tick| tick.outcome).collect();
        use TickOutcome::*;
        assert_eq!(outcomes, [Triggered, Missed, Made, Missed, Skipped, Made, Made]);
        assert_eq!(schedule.past_ticks(&jobs, true, at(7), 2).len(), 2);
    }

    #[test]
    fn ticks_before_the_oldest_known_job_are_unknown() {
        let schedule = minutely();
        let jobs = [job(&schedule, at(5), Some(at(5)))];
        assert_eq!(schedule.past_ticks(&jobs, false, at(5) + Duration::from_secs(1), 50).len(), 1);
        assert_eq!(schedule.past_ticks(&jobs, true, at(5) + Duration::from_secs(1), 50).len(), 5);
        assert_eq!(schedule.past_ticks(&[], true, at(3), 50).len(), 2, "a tick of this very instant is not missed");
    }

    #[test]
    fn the_next_ticks_follow_each_other() {
        assert_eq!(minutely().ticks_after(at(2), 3), [at(3), at(4), at(5)]);
    }

    #[test]
    fn a_rhythm_is_described_in_words() {
        assert_eq!(minutely().words().as_deref(), Some("Every 1m."));
        let mut spec = ScheduleSpec::new(JobType::new("t").expect("a name"));
        spec.cron = Some("0 9 * * 1-5".into());
        let schedule = spec.into_schedule(ScheduleName::new("s").expect("a name"), at(0)).expect("valid");
        let words = schedule.words().expect("words");
        assert!(words.contains("09:00") && words.contains("Monday"), "{words}");
    }
}
