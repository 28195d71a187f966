//! Folds the events of workers into one report per run, so that a short job costs one write.
//!
//! Events of HTTP workers and those of workers on the bus are folded by the same rules, as if they came one by one: the
//! first end of a run counts, and nothing of the run counts after it.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::deadline;
use super::job::Progress;
use super::link::{Event, EventKind};
use super::run::{NewLog, Outcome, RunEnd, RunReport};
use crate::ids::{ExecutionId, WorkerId};

/// The reports of a batch of events, in order of first mention.
#[derive(Debug, Default)]
pub struct EventFold {
    reports: Vec<RunReport>,
    by_run: BTreeMap<ExecutionId, usize>,
}

/// The place of an event among the reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Folded {
    /// The index of the report of its run.
    pub report: usize,
    /// False if the event came after the run's end and does not repeat that end. It is not part of the report.
    pub fits: bool,
}

impl EventFold {
    /// Returns an empty fold for about this many runs.
    pub fn with_capacity(runs: usize) -> Self {
        EventFold { reports: Vec::with_capacity(runs), by_run: BTreeMap::new() }
    }

    /// Adds an event of `worker`, if that is known. A worker's clock may be minutes off: the event happened neither
    /// before `earliest` nor before its dispatch, and not after `now`. `roll` is [`RunEnd::roll`].
    pub fn add(
        &mut self,
        worker: Option<&WorkerId>,
        event: Event,
        earliest: Timestamp,
        now: Timestamp,
        roll: impl FnOnce() -> f64,
    ) -> Folded {
        let EventFold { reports, by_run } = self;
        let index = *by_run.entry(event.execution_id).or_insert_with(|| {
            reports.push(RunReport::of(event.job_id, event.execution_id));
            reports.len() - 1
        });
        let report = &mut reports[index];
        if let Some(worker) = worker.filter(|worker| report.worker.as_ref() != Some(*worker)) {
            report.worker = Some(worker.clone());
        }
        Folded { report: index, fits: apply(report, event, earliest, now, roll) }
    }

    /// Returns the reports.
    pub fn into_reports(self) -> Vec<RunReport> {
        self.reports
    }
}

fn apply(
    report: &mut RunReport,
    event: Event,
    earliest: Timestamp,
    now: Timestamp,
    roll: impl FnOnce() -> f64,
) -> bool {
    let bounded = |at: Timestamp| deadline::happened_at(event.execution_id, at.max(earliest), now);
    let at = bounded(event.at.unwrap_or(now));
    let error = event.error.unwrap_or_default();
    let outcome = match event.kind {
        EventKind::Started | EventKind::Progress | EventKind::Log if report.end.is_some() => return false,
        EventKind::Started => {
            report.started_at = Some(at);
            return true;
        }
        EventKind::Progress => {
            report.progress = Some(Progress { percent: event.percent.unwrap_or(0), message: event.message });
            return true;
        }
        EventKind::Log => {
            let message = event.message.unwrap_or_default();
            report.logs.push(NewLog { seq: event.seq, at, level: event.level.unwrap_or_default(), message });
            return true;
        }
        EventKind::Completed => Outcome::Completed { result: event.result },
        EventKind::Failed => Outcome::Failed { error, retry: event.retry.unwrap_or(true) },
        EventKind::TimedOut => Outcome::TimedOut { error },
        EventKind::Cancelled => Outcome::Cancelled { reason: event.message },
        EventKind::Released => Outcome::Released,
    };
    // The first end counts: a run cannot end twice.
    if let Some(end) = &report.end {
        return end.outcome == outcome;
    }
    if report.started_at.is_none() {
        report.started_at = event.started_at.map(|started| bounded(started).min(at));
    }
    report.end = Some(RunEnd { at, outcome, roll: roll() });
    true
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::ids::JobId;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("an instant")
    }

    /// An event of run `n` at this second.
    fn event(n: u128, kind: EventKind, second: i64) -> Event {
        Event { at: Some(at(second)), ..Event::new(JobId(Uuid::from_u128(n)), ExecutionId(Uuid::from_u128(n)), kind) }
    }

    fn folded(events: Vec<Event>) -> (Vec<RunReport>, Vec<bool>) {
        let worker = WorkerId::new("w").expect("a name");
        let mut fold = EventFold::default();
        let fits = events.into_iter().map(|event| fold.add(Some(&worker), event, at(10), at(100), || 0.5).fits);
        let fits = fits.collect();
        (fold.into_reports(), fits)
    }

    #[test]
    fn events_of_a_run_become_one_report() {
        let (reports, fits) = folded(vec![
            event(1, EventKind::Started, 20),
            event(2, EventKind::Started, 21),
            Event { message: Some("line".into()), ..event(1, EventKind::Log, 22) },
            event(1, EventKind::Completed, 30),
        ]);
        assert_eq!(fits, [true; 4]);
        assert_eq!(reports.len(), 2, "in order of first mention");
        let [first, second] = &reports[..] else { panic!("two runs") };
        assert_eq!((first.started_at, first.logs.len()), (Some(at(20)), 1));
        assert_eq!(first.end.as_ref().map(|end| (end.at, end.roll)), Some((at(30), 0.5)));
        assert_eq!((second.started_at, second.end.is_none()), (Some(at(21)), true));
        assert_eq!(first.worker.as_ref().map(WorkerId::as_str), Some("w"));
    }

    #[test]
    fn an_end_alone_tells_when_the_run_started() {
        let (reports, _) = folded(vec![Event { started_at: Some(at(25)), ..event(1, EventKind::Completed, 30) }]);
        assert_eq!(reports[0].started_at, Some(at(25)));
        let end = Event { started_at: Some(at(25)), ..event(1, EventKind::Completed, 30) };
        let (reports, _) = folded(vec![event(1, EventKind::Started, 20), end]);
        assert_eq!(reports[0].started_at, Some(at(20)), "a start that was sent counts");
        let (reports, _) = folded(vec![event(1, EventKind::Completed, 30)]);
        assert_eq!(reports[0].started_at, None);
    }

    #[test]
    fn no_time_is_before_the_hand_out_or_after_now_and_no_run_starts_after_its_end() {
        let end = |started, ended| Event { started_at: Some(at(started)), ..event(1, EventKind::Completed, ended) };
        for (started, ended, expected) in [(1, 2, (10, 10)), (500, 600, (100, 100)), (50, 40, (40, 40))] {
            let (reports, _) = folded(vec![end(started, ended)]);
            let times = (reports[0].started_at, reports[0].end.as_ref().map(|end| end.at));
            assert_eq!(times, (Some(at(expected.0)), Some(at(expected.1))), "{started} {ended}");
        }
    }

    #[test]
    fn nothing_counts_after_the_first_end_but_its_repetition() {
        let failed = Event { error: Some("boom".into()), ..event(1, EventKind::Failed, 31) };
        let (reports, fits) = folded(vec![
            event(1, EventKind::Completed, 30),
            event(1, EventKind::Completed, 32),
            failed,
            event(1, EventKind::Started, 33),
            Event { percent: Some(1), ..event(1, EventKind::Progress, 34) },
            Event { message: Some("late".into()), ..event(1, EventKind::Log, 35) },
        ]);
        assert_eq!(fits, [true, true, false, false, false, false]);
        let report = &reports[0];
        assert!(matches!(report.end.as_ref().map(|end| &end.outcome), Some(Outcome::Completed { .. })));
        assert!(report.logs.is_empty() && report.progress.is_none() && report.started_at.is_none());
    }
}
