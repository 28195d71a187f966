//! Queues: their settings, counters and the grants of their rate.

use std::time::Duration;

use async_trait::async_trait;
use convoke_core::jobs::dispatch::{HEADS_READ, oldest_due};
use convoke_core::jobs::{Queue, QueuePatch};
use convoke_core::limits::QUEUES_MAX;
use convoke_core::ports::store::QueueStore;
use convoke_core::{QueueName, Result};
use jiff::Timestamp;

use super::MemoryStore;
use super::insert::too_many_queues;
use super::state::{QueueSettings, State};

#[async_trait]
impl QueueStore for MemoryStore {
    async fn queues(&self) -> Result<Vec<Queue>> {
        let state = self.state();
        Ok(state.queues.iter().map(|(name, settings)| state.show(name, settings)).collect())
    }

    async fn queue(&self, name: &QueueName) -> Result<Option<Queue>> {
        let state = self.state();
        Ok(state.queues.get(name).map(|settings| state.show(name, settings)))
    }

    async fn configure(&self, name: &QueueName, patch: QueuePatch) -> Result<Queue> {
        let mut state = self.state();
        if !state.queues.contains_key(name) && state.queues.len() >= QUEUES_MAX {
            return Err(too_many_queues().into());
        }
        let settings = state.queues.entry(name.clone()).or_default();
        settings.paused = patch.paused.unwrap_or(settings.paused);
        settings.rate_limit = patch.rate_limit.unwrap_or(settings.rate_limit);
        settings.concurrency = patch.concurrency.unwrap_or(settings.concurrency);
        Ok(state.show(name, &state.queues[name]))
    }

    async fn delete_queue(&self, name: &QueueName) -> Result<bool> {
        let mut state = self.state();
        let Some(settings) = state.queues.get(name) else { return Ok(false) };
        if !state.show(name, settings).is_empty() {
            return Err(Queue::not_empty(name));
        }
        Ok(state.queues.remove(name).is_some())
    }

    async fn grants(&self, queue: Option<&QueueName>, since: Timestamp) -> Result<Vec<(Timestamp, u32)>> {
        let state = self.state();
        let asked = state.queues.iter().filter(|(name, _)| queue.is_none_or(|queue| queue == *name));
        let grants = asked.flat_map(|(_, settings)| &settings.grants);
        let mut grants: Vec<_> = grants.filter(|(at, _)| *at >= since).copied().collect();
        grants.sort_by_key(|(at, _)| *at);
        Ok(grants)
    }
}

impl State {
    fn show(&self, name: &QueueName, settings: &QueueSettings) -> Queue {
        let heads = self.indexes.pending(name).take(HEADS_READ);
        Queue {
            name: name.clone(),
            paused: settings.paused,
            rate_limit: settings.rate_limit,
            concurrency: settings.concurrency,
            counts: self.indexes.counts(name),
            oldest_pending_at: oldest_due(heads.filter_map(|seq| self.rows.get(&seq)).map(|row| row.due_at)),
        }
    }
}

impl QueueSettings {
    /// Records a grant, and drops grants older than `kept`.
    pub(super) fn grant(&mut self, now: Timestamp, count: u32, kept: Duration) {
        self.grants.push_back((now, count));
        let Ok(horizon) = now.checked_sub(kept) else { return };
        while self.grants.front().is_some_and(|(at, _)| *at < horizon) {
            self.grants.pop_front();
        }
    }
}
