//! Decides which jobs of a batch are new.
//!
//! A batch is planned first and stored then, so that a rejected one has changed nothing.

use std::collections::{BTreeMap, BTreeSet};

use convoke_core::error::Invalid;
use convoke_core::jobs::NewJob;
use convoke_core::jobs::link::Enqueued;
use convoke_core::limits::QUEUES_MAX;
use convoke_core::mutant::mutant;
use convoke_core::{JobId, Result, ScheduleName};
use jiff::Timestamp;

use super::state::State;

/// The ids, keys and ticks that the jobs of the batch so far would take.
#[derive(Default)]
struct Planned<'a> {
    ids: BTreeSet<JobId>,
    keys: BTreeMap<&'a str, JobId>,
    ticks: BTreeMap<(&'a ScheduleName, Timestamp), JobId>,
}

impl State {
    pub(super) fn insert(&mut self, jobs: Vec<NewJob>) -> Result<Vec<Enqueued>> {
        let results = self.plan(&jobs);
        let created = jobs.iter().zip(&results).filter(|(_, result)| result.created);
        self.check_queues(created.map(|(job, _)| job))?;
        for (job, result) in jobs.into_iter().zip(&results) {
            if result.created {
                self.store(job);
            }
        }
        Ok(results)
    }

    fn plan(&self, jobs: &[NewJob]) -> Vec<Enqueued> {
        let mut planned = Planned::default();
        let result = |job| {
            let there = self.there_already(job).or_else(|| planned.there_already(job));
            if there.is_none() {
                planned.add(job);
            }
            Enqueued { id: there.unwrap_or(job.id), created: there.is_none() }
        };
        jobs.iter().map(result).collect()
    }

    /// Returns the job that conflicts with this one.
    pub(super) fn there_already(&self, job: &NewJob) -> Option<JobId> {
        if self.ids.contains_key(&job.id) {
            return Some(job.id);
        }
        let tick = job.schedule.clone().zip(job.run_at).and_then(|tick| self.ticks.get(&tick).copied());
        let tick = tick.filter(|_| !mutant("tick uniqueness"));
        tick.or_else(|| self.key_holder(job.definition.unique_key.as_deref()?, job.created_at))
    }

    /// Rejects jobs that would open more queues than the limit.
    pub(super) fn check_queues<'a>(&self, jobs: impl Iterator<Item = &'a NewJob>) -> Result<(), Invalid> {
        let new: BTreeSet<_> =
            jobs.map(|job| &job.definition.queue).filter(|queue| !self.queues.contains_key(*queue)).collect();
        if new.is_empty() || self.queues.len() + new.len() <= QUEUES_MAX {
            return Ok(());
        }
        Err(too_many_queues())
    }
}

pub(super) fn too_many_queues() -> Invalid {
    Invalid::new("queue", format!("expected at most {QUEUES_MAX} queues; name one that exists"))
}

impl<'a> Planned<'a> {
    fn there_already(&self, job: &'a NewJob) -> Option<JobId> {
        if self.ids.contains(&job.id) {
            return Some(job.id);
        }
        let tick = job.schedule.as_ref().zip(job.run_at).and_then(|tick| self.ticks.get(&tick).copied());
        tick.or_else(|| self.keys.get(job.definition.unique_key.as_deref()?).copied())
    }

    fn add(&mut self, job: &'a NewJob) {
        self.ids.insert(job.id);
        if let Some(key) = &job.definition.unique_key {
            self.keys.insert(key, job.id);
        }
        if let Some(tick) = job.schedule.as_ref().zip(job.run_at) {
            self.ticks.insert(tick, job.id);
        }
    }
}
