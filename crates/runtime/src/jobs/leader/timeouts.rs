//! Ends runs that take longer than their job allows.
//!
//! A worker watches its own runs; this is for workers that do not, or that hang. The run is ended in the store first,
//! then its worker is asked to stop: its later reports are stale.
//!
//! Clocks may be minutes apart: the leader acts on a deadline once it is [certain](Watch::is_certain), by its own
//! monotonic clock. A step of its wall clock has the effect of a new leader.
//!
//! A run may have ended in time, with its report still unread by its owner: it waits for a [while](super::unread), and
//! times out only if the unread entries do not contain its end.

use std::sync::Arc;
use std::time::Duration;

use convoke_core::Result;
use convoke_core::jobs::deadline::Watch;
use convoke_core::jobs::wire::RunRef;
use convoke_core::jobs::{Outcome, RunReport};
use convoke_core::ports::store::InFlight;
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;
use tracing::warn;

use super::LeaderState;
use super::unread::Unread;
use crate::jobs::duty::{DutyRun, WokenBy};
use crate::jobs::recorder;

const BATCH_MAX: usize = 500;
/// The leader receives no message when a run starts: it must check often enough for short timeouts.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// A leader that has dispatched nothing for this long, and knows of no deadline, checks once a second. Only a run that
/// waited for longer for its start, with a timeout below a second, may be ended later.
const QUIET_AFTER: Duration = Duration::from_secs(60);
/// How soon a postponed run is checked again.
const UNREAD_INTERVAL: Duration = Duration::from_millis(50);
/// A wall clock that differs by more from the monotonic one, between two passes, was set.
const STEP_MAX: SignedDuration = SignedDuration::from_secs(1);

pub async fn run(leader: Arc<LeaderState>, mut run: DutyRun<WokenBy>) -> Result<()> {
    let node = &leader.node;
    let mut clock = LeaderClock::start(node.now());
    let mut postponed = Postponed { unread: Unread::new(node), waiting: 0, uncertain: 0 };
    loop {
        let pause = match end_overdue(&leader, &mut clock, &mut postponed).await {
            Ok(_) if postponed.waiting > 0 => UNREAD_INTERVAL,
            Ok(None) if leader.dispatched.lock().elapsed() > QUIET_AFTER => super::LOOK_INTERVAL,
            Ok(None) => LOOK_INTERVAL,
            Ok(Some(next)) => super::until(node.now(), next).min(LOOK_INTERVAL),
            Err(error) => {
                run.failed("timeouts", &error);
                super::LOOK_INTERVAL
            }
        };
        if !run.sleep(pause).await {
            return Ok(());
        }
    }
}

/// Runs whose deadline has passed and that are not ended yet.
struct Postponed {
    unread: Unread,
    /// How many have unread entries.
    waiting: usize,
    /// How many may still have time by the clock that they were dispatched by.
    uncertain: usize,
}

/// Since when the leader's wall clock has gone on without a step.
struct LeaderClock {
    since: Instant,
    since_at: Timestamp,
    checked: Instant,
    checked_at: Timestamp,
}

impl LeaderClock {
    fn start(now: Timestamp) -> Self {
        LeaderClock { since: Instant::now(), since_at: now, checked: Instant::now(), checked_at: now }
    }

    fn check(&mut self, now: Timestamp) -> Watch {
        let expected = self.checked_at + self.checked.elapsed();
        let step = now.duration_since(expected);
        if step.abs() > STEP_MAX {
            warn!(step_ms = step.as_millis(), "wall clock of this node was set: timeouts are measured anew");
            *self = LeaderClock::start(now);
        }
        (self.checked, self.checked_at) = (Instant::now(), now);
        Watch { since_at: self.since_at, lasted: self.since.elapsed() }
    }
}

/// Returns when the next run's time is up.
async fn end_overdue(
    leader: &LeaderState,
    clock: &mut LeaderClock,
    postponed: &mut Postponed,
) -> Result<Option<Timestamp>> {
    let LeaderState { node, term, .. } = leader;
    let now = node.now();
    let watch = clock.check(now);
    // Postponed runs must not block others.
    let limit = BATCH_MAX + postponed.waiting + postponed.uncertain;
    let overdue = node.store().overdue(now, limit).await?;
    let is_certain = |run: &InFlight| watch.is_certain(run.dispatched_at, run.deadline.unwrap_or(now));
    let (certain, uncertain): (Vec<_>, Vec<_>) = overdue.runs.into_iter().partition(is_certain);
    let run_ref = |run: &InFlight| RunRef { job_id: run.job, execution_id: run.execution };
    let asked = certain.iter().map(|run| (run_ref(run), run.worker.as_ref()));
    let waiting = postponed.unread.postpone(leader, asked).await;
    (postponed.waiting, postponed.uncertain) = (waiting.len(), uncertain.len());
    let over = certain.iter().filter(|run| !waiting.contains(&run.execution));
    let reports = over.map(|run| {
        let outcome = Outcome::TimedOut { error: "the run took longer than the job's timeout".into() };
        RunReport::of(run.job, run.execution).ended(now, outcome, node.fraction())
    });
    recorder::end_as_leader(node, term.fence(), reports.collect()).await?;
    Ok(overdue.next_at)
}
