//! Ends runs that take longer than their job allows.
//!
//! A worker watches its own runs; this is for those that do not, or that hang. The run is ended in the store first, then
//! its worker is told to stop: whatever it still reports is stale.

use std::sync::Arc;

use convoke_core::Result;
use convoke_core::jobs::{Outcome, RunReport};
use jiff::Timestamp;

use crate::election::Term;
use crate::jobs::node::Node;
use crate::jobs::recorder;

const BATCH_MAX: usize = 500;
/// Runs that start are not announced to the leader: it must look often enough for short timeouts.
const LOOK_INTERVAL: std::time::Duration = std::time::Duration::from_millis(250);

pub async fn run(node: Arc<Node>, term: Term) {
    loop {
        let pause = match end_overdue(&node, &term).await {
            Ok(None) => LOOK_INTERVAL,
            Ok(Some(next)) => super::until(node.now(), next).min(LOOK_INTERVAL),
            Err(error) => {
                super::note(&term, "timeouts", &error);
                super::LOOK_INTERVAL
            }
        };
        if !term.sleep(pause).await {
            return;
        }
    }
}

/// Answers when the next run's time is up.
async fn end_overdue(node: &Node, term: &Term) -> Result<Option<Timestamp>> {
    let now = node.now();
    let overdue = node.store().overdue(now, BATCH_MAX).await?;
    let reports = overdue.runs.iter().map(|run| {
        let outcome = Outcome::TimedOut { error: "the run took longer than the job's timeout".into() };
        RunReport::of(run.job, run.execution).ended(now, outcome, rand::random())
    });
    recorder::judge(node, term.fence(), reports.collect()).await?;
    Ok(overdue.next_at)
}
