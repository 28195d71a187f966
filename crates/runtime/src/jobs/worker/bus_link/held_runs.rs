//! The runs that a worker received from the bus and whose end it has not reported. This module only decides: it gathers
//! messages and acknowledgements for the errands to send.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use convoke_core::jobs::link::{Assignment, Event, EventKind};
use convoke_core::jobs::rejections::{Rejections, producer_of};
use convoke_core::jobs::wire::{self, Dispatch, EventMessage, Poison};
use convoke_core::ports::Delivery;
use convoke_core::{ExecutionId, JobId, QueueName, WorkerId};
use metrics::counter;

use super::Post;
use crate::jobs::over::Over;

/// An entry that was delivered to this many workers, none of which reported a start, killed them.
const DELIVERIES_MAX: u32 = 3;

pub(super) struct HeldRuns {
    pub concurrency: u32,
    held: BTreeMap<ExecutionId, Held>,
    /// Runs in hand that must stop, until the worker is notified.
    cancelled: BTreeSet<ExecutionId>,
    over: Over,
    pending_actions: PendingActions,
    rejections: Rejections,
}

/// The background work, in this order.
#[derive(Default)]
pub(super) struct PendingActions {
    pub push: Vec<(String, Bytes)>,
    /// The index of the consumer and the entries that it is done with.
    pub ack: Vec<(usize, Vec<String>)>,
}

struct Held {
    job: JobId,
    /// Until it is acknowledged.
    entry: Option<(usize, String)>,
}

impl HeldRuns {
    pub fn new(concurrency: u32) -> Self {
        HeldRuns {
            concurrency,
            held: BTreeMap::new(),
            cancelled: BTreeSet::new(),
            over: Over::default(),
            pending_actions: PendingActions::default(),
            rejections: Rejections::default(),
        }
    }

    pub fn running(&self) -> u32 {
        u32::try_from(self.held.len()).unwrap_or(u32::MAX)
    }

    pub fn free(&self) -> u32 {
        self.concurrency.saturating_sub(self.running())
    }

    pub fn executions(&self) -> Vec<ExecutionId> {
        self.held.keys().copied().collect()
    }

    pub fn take_cancelled(&mut self) -> Vec<ExecutionId> {
        std::mem::take(&mut self.cancelled).into_iter().collect()
    }

    pub fn take_pending_actions(&mut self) -> PendingActions {
        std::mem::take(&mut self.pending_actions)
    }

    /// Puts back runs that could not be run now: before all that came since.
    pub fn put_back(&mut self, mut pending_actions: PendingActions) {
        pending_actions.push.append(&mut self.pending_actions.push);
        pending_actions.ack.append(&mut self.pending_actions.ack);
        self.pending_actions = pending_actions;
    }

    /// Adds the entries that the consumer at `place` received. Returns the runs to start.
    pub fn take(
        &mut self,
        post: &Post,
        worker: &WorkerId,
        place: usize,
        queue: &QueueName,
        deliveries: Vec<Delivery>,
    ) -> Vec<Assignment> {
        let mut jobs = Vec::with_capacity(deliveries.len());
        let mut done = Vec::new();
        for Delivery { id, body, deliveries } in deliveries {
            let dispatch = match serde_json::from_slice::<Dispatch>(&body) {
                Ok(dispatch) => dispatch,
                Err(error) => {
                    let (producer, reason) = (producer_of(&body), error.to_string());
                    if self.rejections.is_first("job.dispatch", &producer, &reason) {
                        tracing::warn!(%queue, producer, %error, "message rejected: further ones like it are only counted");
                    }
                    counter!("convoke_bus_poison_total", "channel" => "job.dispatch").increment(1);
                    let poison = Poison::of(post.channels.dispatch(queue), error, &body);
                    self.pending_actions.push.push((post.channels.poison(), wire::encode(&poison)));
                    done.push(id);
                    continue;
                }
            };
            let (job, execution) = (dispatch.job_id, dispatch.execution_id);
            // Cancelled or given to another worker while it lay on the bus; or it came twice.
            if self.over.contains(&execution) || self.held.contains_key(&execution) {
                done.push(id);
            } else if deliveries > DELIVERIES_MAX {
                let error = format!("{} workers were given the run and vanished before it started", deliveries - 1);
                tracing::error!(%job, %error, "run rejected");
                let event = Event { error: Some(error), ..Event::new(job, execution, EventKind::Failed) };
                self.pending_actions.push.push(message(post, worker, &event));
                done.push(id);
            } else {
                self.held.insert(execution, Held { job, entry: Some((place, id)) });
                jobs.push(dispatch.into());
            }
        }
        if !done.is_empty() {
            self.pending_actions.ack.push((place, done));
        }
        jobs
    }

    /// Returns the events as they are sent, in order.
    pub fn messages(&self, post: &Post, worker: &WorkerId, events: &[Event]) -> Vec<(String, Bytes)> {
        events.iter().map(|event| message(post, worker, event)).collect()
    }

    /// Records that the bus has these events. Returns whether there is an errand.
    pub fn mark_reported(&mut self, events: &[Event]) -> bool {
        let mut acks: BTreeMap<usize, Vec<String>> = BTreeMap::new();
        let mut freed = false;
        for event in events {
            let entry = match event.kind {
                EventKind::Progress | EventKind::Log => None,
                EventKind::Started => self.held.get_mut(&event.execution_id).and_then(|held| held.entry.take()),
                _ => {
                    let held = self.held.remove(&event.execution_id);
                    freed |= held.is_some();
                    held.and_then(|held| held.entry)
                }
            };
            if let Some((place, id)) = entry {
                acks.entry(place).or_default().push(id);
            }
        }
        let acknowledged = !acks.is_empty();
        self.pending_actions.ack.extend(acks);
        freed || acknowledged
    }

    /// Records that a coordinator has ended a run. Returns whether it is in hand.
    pub fn cancel(&mut self, execution: ExecutionId) -> bool {
        self.over.insert(execution);
        let held = self.held.contains_key(&execution);
        if held {
            self.cancelled.insert(execution);
        }
        held
    }

    /// Releases everything.
    pub fn release(&mut self, post: &Post, worker: &WorkerId) {
        let held = self.held.iter().map(|(execution, held)| Event::new(held.job, *execution, EventKind::Released));
        let events: Vec<Event> = held.collect();
        let messages = self.messages(post, worker, &events);
        self.pending_actions.push.extend(messages);
        self.mark_reported(&events);
    }
}

/// Returns an event as it is sent to the channel of its job.
fn message(post: &Post, worker: &WorkerId, event: &Event) -> (String, Bytes) {
    match EventMessage::of(worker, event, post.clock.now()) {
        EventMessage::Status(status) => (post.channels.status(event.job_id), wire::encode(&status)),
        EventMessage::Log(log) => (post.channels.logs(event.job_id), wire::encode(&log)),
    }
}
