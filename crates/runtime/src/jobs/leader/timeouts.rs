//! Ends runs that take longer than their job allows.
//!
//! A worker watches its own runs; this is for those that do not, or that hang. The run is ended in the store first, then
//! its worker is told to stop: whatever it still reports is stale.
//!
//! A run may have ended in time without its owner having read so: it waits for a [while](super::unread), and times out only
//! if what was unread is not its end.

use std::sync::Arc;
use std::time::Duration;

use convoke_core::Result;
use convoke_core::jobs::wire::RunRef;
use convoke_core::jobs::{Outcome, RunReport};
use convoke_core::ports::store::InFlight;
use jiff::Timestamp;

use super::unread::Unread;
use crate::election::Term;
use crate::jobs::node::Node;
use crate::jobs::recorder;

const BATCH_MAX: usize = 500;
/// Runs that start are not announced to the leader: it must look often enough for short timeouts.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// How soon a run that was postponed is looked at again.
const UNREAD_INTERVAL: Duration = Duration::from_millis(50);

pub async fn run(node: Arc<Node>, term: Term) {
    let (mut unread, mut postponed) = (Unread::new(&node), 0);
    loop {
        let pause = match end_overdue(&node, &term, &mut unread, &mut postponed).await {
            Ok(_) if postponed > 0 => UNREAD_INTERVAL,
            Ok(None) => LOOK_INTERVAL,
            Ok(Some(next)) => super::until(node.now(), next).min(LOOK_INTERVAL),
            Err(error) => {
                super::note(&node, &term, "timeouts", &error);
                super::LOOK_INTERVAL
            }
        };
        if !term.sleep(pause).await {
            return;
        }
    }
}

/// Returns when the next run's time is up.
async fn end_overdue(
    node: &Node,
    term: &Term,
    unread: &mut Unread,
    postponed: &mut usize,
) -> Result<Option<Timestamp>> {
    let now = node.now();
    // Postponed runs must not be in the way of others.
    let overdue = node.store().overdue(now, BATCH_MAX + *postponed).await?;
    let run_ref = |run: &InFlight| RunRef { job_id: run.job, execution_id: run.execution };
    let waiting = unread.postpone(node, overdue.runs.iter().map(|run| (run_ref(run), run.worker.as_ref()))).await;
    *postponed = waiting.len();
    let over = overdue.runs.iter().filter(|run| !waiting.contains(&run.execution));
    let reports = over.map(|run| {
        let outcome = Outcome::TimedOut { error: "the run took longer than the job's timeout".into() };
        RunReport::of(run.job, run.execution).ended(now, outcome, rand::random())
    });
    recorder::judge(node, term.fence(), reports.collect()).await?;
    Ok(overdue.next_at)
}
