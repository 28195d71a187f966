//! Bytes of the runs that were published to the bus and that no worker has taken.
//!
//! A bus reports how many entries of a queue are untaken, but not their size. Workers take entries in the order of
//! publication, so the untaken entries are the last published ones. Runs that another leader published are unknown here
//! and count as zero bytes, so the bound is exceeded by at most the bytes that the other leader was allowed.

use std::collections::{HashMap, VecDeque};

use crate::ids::QueueName;
use crate::limits::{UNTAKEN_BYTES_MAX, UNTAKEN_QUEUE_BYTES_MAX};

/// The sizes of the runs that this leader published and that no worker has taken.
#[derive(Debug, Default)]
pub struct UntakenBytes {
    queues: HashMap<QueueName, Sizes>,
    total: u64,
}

/// Sizes of the runs of one queue, in the order in which they were published.
#[derive(Debug, Default)]
struct Sizes {
    runs: VecDeque<u64>,
    total: u64,
}

impl UntakenBytes {
    /// Adds a run of `queue` that was published.
    pub fn published(&mut self, queue: &QueueName, bytes: usize) {
        let bytes = bytes as u64;
        if !self.queues.contains_key(queue) {
            self.queues.insert(queue.clone(), Sizes::default());
        }
        if let Some(sizes) = self.queues.get_mut(queue) {
            sizes.runs.push_back(bytes);
            sizes.total += bytes;
            self.total += bytes;
        }
    }

    /// Removes all runs of `queue` but the last `backlog`: these are untaken, the others were taken.
    pub fn observe(&mut self, queue: &QueueName, backlog: u64) {
        let Some(sizes) = self.queues.get_mut(queue) else { return };
        while sizes.runs.len() as u64 > backlog
            && let Some(bytes) = sizes.runs.pop_front()
        {
            sizes.total -= bytes;
            self.total -= bytes;
        }
        if sizes.runs.is_empty() {
            self.queues.remove(queue);
        }
    }

    /// Returns how many jobs of the queue the bounds in bytes allow to dispatch. If all queues together have used up
    /// their bytes, a queue without untaken runs still gets one job, so that no queue waits for the workers of another.
    pub fn limit(&self, queue: &QueueName) -> usize {
        let own = self.queues.get(queue).map_or(0, |sizes| sizes.total);
        if own >= UNTAKEN_QUEUE_BYTES_MAX {
            0
        } else if self.is_full() {
            usize::from(own == 0)
        } else {
            usize::MAX
        }
    }

    /// Returns whether all queues together have used up their bytes, by the backlogs observed last.
    pub fn is_full(&self) -> bool {
        self.total >= UNTAKEN_BYTES_MAX
    }

    /// Returns the queues that may have untaken runs.
    pub fn queues(&self) -> impl Iterator<Item = &QueueName> {
        self.queues.keys()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn queue(name: &str) -> QueueName {
        QueueName::new(name).expect("a name")
    }

    #[test]
    fn a_queue_with_its_bytes_untaken_is_not_dispatched_from() {
        let mut untaken = UntakenBytes::default();
        for n in 0..16 {
            assert_eq!(untaken.limit(&queue("a")), usize::MAX, "after {n}");
            untaken.published(&queue("a"), MIB);
        }
        assert_eq!(untaken.limit(&queue("a")), 0);
        assert_eq!(untaken.limit(&queue("b")), usize::MAX, "no other queue suffers");
        untaken.observe(&queue("a"), 16);
        assert_eq!(untaken.limit(&queue("a")), 0, "none was taken");
        untaken.observe(&queue("a"), 15);
        assert_eq!(untaken.limit(&queue("a")), usize::MAX);
    }

    #[test]
    fn the_first_published_are_the_first_taken() {
        let mut untaken = UntakenBytes::default();
        untaken.published(&queue("a"), 16 * MIB);
        (0..9).for_each(|_| untaken.published(&queue("a"), 1));
        untaken.observe(&queue("a"), 9);
        assert_eq!((untaken.total, untaken.limit(&queue("a"))), (9, usize::MAX));
        untaken.observe(&queue("a"), 0);
        assert_eq!((untaken.total, untaken.queues().count()), (0, 0));
        untaken.observe(&queue("a"), 5);
        assert_eq!(untaken.total, 0, "what another published is not known");
    }

    #[test]
    fn beyond_the_bytes_of_all_queues_each_gets_one_run_at_a_time() {
        let mut untaken = UntakenBytes::default();
        for name in ["a", "b", "c", "d", "e"] {
            (0..13).for_each(|_| untaken.published(&queue(name), MIB));
        }
        assert!(untaken.is_full());
        assert_eq!((untaken.limit(&queue("a")), untaken.limit(&queue("f"))), (0, 1));
        untaken.published(&queue("f"), 1);
        assert_eq!(untaken.limit(&queue("f")), 0);
        untaken.observe(&queue("a"), 0);
        assert_eq!(untaken.limit(&queue("f")), usize::MAX);
    }
}
