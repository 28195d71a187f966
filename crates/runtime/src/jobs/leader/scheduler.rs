//! Fires schedules: one job for each tick, whichever node leads.
//!
//! A tick's job and the schedule's next tick are one write, which the store rejects if the schedule has moved on
//! meanwhile; a leader that dies before it has done nothing, one that dies after it has done all.

use std::sync::Arc;

use convoke_core::jobs::event::ClusterEvent;
use convoke_core::jobs::schedule::{Overlap, Schedule, job_for_tick, plan};
use convoke_core::ports::store::{Tick, Ticked};
use convoke_core::{Error, Result};
use jiff::Timestamp;
use metrics::counter;
use tracing::warn;

use super::LeaderState;
use crate::election::Term;
use crate::jobs::duty::{DutyRun, SubscribedTo};
use crate::jobs::node::{Node, NodeBase};
use crate::jobs::{history, telemetry};

const BATCH_MAX: usize = 100;

pub async fn run(leader: Arc<LeaderState>, mut run: DutyRun<SubscribedTo>) -> Result<()> {
    let LeaderState { node, term, .. } = &*leader;
    let mut hints = run.feed("hints");
    loop {
        let next = match fire(node, term).await {
            Ok(Fired::More) if !term.is_over() => continue,
            Ok(Fired::More) => return Ok(()),
            Ok(Fired::All { next_at }) => next_at,
            Err(error) => {
                run.failed("scheduler", &error);
                None
            }
        };
        if !super::wait_for(&mut run, &mut hints, next, |ready| ready.schedules).await {
            return Ok(());
        }
    }
}

enum Fired {
    /// One pass was full: there may be more.
    More,
    All {
        next_at: Option<Timestamp>,
    },
}

async fn fire(node: &Node, term: &Term) -> Result<Fired> {
    let now = node.now();
    let found = node.store().due_schedules(now, BATCH_MAX).await?;
    if found.due.is_empty() {
        return Ok(Fired::All { next_at: found.next_at });
    }
    let ticks: Vec<Tick> = found.due.iter().filter_map(|schedule| tick(node, schedule, now)).collect();
    let moved_to = ticks.iter().filter_map(|tick| tick.next_run_at).min();
    let planned: Vec<_> = ticks.iter().map(|tick| (tick.schedule.clone(), planned(tick))).collect();
    let ticked = tick_all(node, term, ticks).await?;
    let moved = ticked.iter().any(|ticked| ticked.moved);
    for ((schedule, planned), ticked) in planned.into_iter().zip(ticked) {
        announce(node, &schedule, planned, &ticked);
    }
    for queue in found.due.iter().filter_map(|schedule| schedule.template.queue.as_ref()) {
        node.gateway.hints.ready(queue);
    }
    if found.due.len() == BATCH_MAX && moved {
        return Ok(Fired::More);
    }
    // A schedule that was just moved may be due again before any of those that were not read.
    Ok(Fired::All { next_at: moved_to.into_iter().chain(found.next_at).min() })
}

/// Fires all at once; if one of them is rejected, each by itself, so that it does not block others.
async fn tick_all(node: &NodeBase, term: &Term, ticks: Vec<Tick>) -> Result<Vec<Ticked>> {
    let store = node.store();
    match telemetry::timed("tick", store.tick(term.fence(), ticks.clone())).await {
        Err(Error::Invalid(_)) => {}
        result => return result,
    }
    let mut ticked = Vec::with_capacity(ticks.len());
    for tick in ticks {
        let (name, missed) = (tick.schedule.clone(), tick.clone());
        match store.tick(term.fence(), vec![tick]).await {
            Ok(result) => ticked.extend(result),
            Err(Error::Invalid(invalid)) => {
                // Its tick is skipped, so that it does not block those that are due after it.
                warn!(schedule = %name, error = %invalid, "schedule cannot fire");
                ticked.extend(store.tick(term.fence(), vec![Tick { jobs: Vec::new(), ..missed }]).await?);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(ticked)
}

fn tick(node: &NodeBase, schedule: &Schedule, now: Timestamp) -> Option<Tick> {
    let expected = schedule.next_run_at?;
    let plan = plan(schedule, now);
    if plan.dropped > 0 {
        counter!("convoke_schedule_ticks_total", "outcome" => "missed").increment(plan.dropped);
    }
    let defaults = &node.settings.retry;
    let jobs = plan.ticks.iter().map(|tick| job_for_tick(schedule, node.job_id(), *tick, now, defaults));
    Some(Tick {
        schedule: schedule.name.clone(),
        expected,
        jobs: jobs.collect(),
        skip_overlap: schedule.overlap == Overlap::Skip,
        next_run_at: plan.next_run_at,
    })
}

type Planned = Vec<(convoke_core::JobId, Timestamp, convoke_core::QueueName)>;

fn planned(tick: &Tick) -> Planned {
    tick.jobs.iter().map(|job| (job.id, job.run_at.unwrap_or(job.created_at), job.definition.queue.clone())).collect()
}

fn announce(node: &NodeBase, schedule: &convoke_core::ScheduleName, planned: Planned, ticked: &Ticked) {
    if !ticked.moved {
        return;
    }
    let skipped = planned.len() - ticked.made.len();
    counter!("convoke_schedule_ticks_total", "outcome" => "fired").increment(ticked.made.len() as u64);
    counter!("convoke_schedule_ticks_total", "outcome" => "overlapped").increment(skipped as u64);
    for (job, tick, queue) in planned {
        let job_id = Some(job).filter(|job| ticked.made.contains(job));
        if job_id.is_some() {
            history::count_enqueued(node, &queue, 1);
        }
        node.publish_event(ClusterEvent::ScheduleFired { schedule: schedule.clone(), tick, job_id });
    }
}
