//! Counters of jobs for the time series of this node.
//!
//! The hot path adds to them once for each queue of a batch; every ten seconds they are read and reset.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use convoke_core::QueueName;
use convoke_core::history::{Bucket, Counts, QUEUES_MAX, Slots};
use parking_lot::RwLock;

/// An event that is counted for the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Happened {
    Enqueued,
    Started,
    Completed,
    Failed,
    Dead,
}

/// The counters of the present step.
#[derive(Default)]
pub struct Traffic {
    queues: RwLock<BTreeMap<QueueName, Arc<Counters>>>,
    /// Of queues beyond the first [`QUEUES_MAX`].
    other: Counters,
    refused: AtomicU64,
}

#[derive(Default)]
struct Counters([AtomicU64; 5]);

impl Counters {
    fn add(&self, what: Happened, count: u64) {
        self.0[what as usize].fetch_add(count, Ordering::Relaxed);
    }

    fn take(&self) -> Counts {
        let [enqueued, started, completed, failed, dead] =
            [0, 1, 2, 3, 4].map(|n: usize| self.0[n].swap(0, Ordering::Relaxed));
        Counts { enqueued, started, completed, failed, dead }
    }
}

impl Traffic {
    pub fn add(&self, queue: &QueueName, what: Happened, count: u64) {
        if let Some(counters) = self.queues.read().get(queue) {
            return counters.add(what, count);
        }
        let mut queues = self.queues.write();
        if queues.len() < QUEUES_MAX || queues.contains_key(queue) {
            queues.entry(queue.clone()).or_default().add(what, count);
        } else {
            self.other.add(what, count);
        }
    }

    pub fn refused(&self, count: u64) {
        self.refused.fetch_add(count, Ordering::Relaxed);
    }

    /// Reads and resets the counters. Queues in which nothing happened give their place to others.
    pub fn take(&self, step: i64, slots: Option<Slots>) -> Bucket {
        let mut queues = BTreeMap::new();
        self.queues.write().retain(|queue, counters| {
            let counts = counters.take();
            let is_used = !counts.is_empty();
            if is_used {
                queues.insert(queue.clone(), counts);
            }
            is_used
        });
        Bucket { step, refused: self.refused.swap(0, Ordering::Relaxed), slots, queues, other: self.other.take() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(name: &str) -> QueueName {
        QueueName::new(name).expect("a name")
    }

    #[test]
    fn a_bucket_has_what_happened_since_the_last_one() {
        let traffic = Traffic::default();
        traffic.add(&queue("mail"), Happened::Enqueued, 3);
        traffic.add(&queue("mail"), Happened::Dead, 1);
        traffic.refused(2);
        let bucket = traffic.take(7, None);
        assert_eq!(bucket.queues[&queue("mail")], Counts { enqueued: 3, dead: 1, ..Counts::default() });
        assert_eq!((bucket.step, bucket.refused), (7, 2));
        let next = traffic.take(8, None);
        assert!(next.queues.is_empty() && next.refused == 0);
    }

    #[test]
    fn queues_beyond_the_limit_are_counted_together_until_others_are_idle() {
        let traffic = Traffic::default();
        for number in 0..QUEUES_MAX {
            traffic.add(&queue(&format!("q{number}")), Happened::Started, 1);
        }
        traffic.add(&queue("late"), Happened::Started, 5);
        let bucket = traffic.take(1, None);
        assert_eq!((bucket.queues.len(), bucket.other.started), (QUEUES_MAX, 5));
        // In the next step nothing happens in the first queues, and after it their places are free.
        traffic.take(2, None);
        traffic.add(&queue("late"), Happened::Started, 5);
        assert_eq!(traffic.take(3, None).queues[&queue("late")].started, 5);
    }
}
