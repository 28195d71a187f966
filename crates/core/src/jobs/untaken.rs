//! Bytes of the runs that were sent to a place and that no worker has taken.
//!
//! A bus, and the inbox of a node, report how many runs of a queue are untaken, but not their size. Workers take runs in
//! the order of sending, so the untaken runs are the last ones. Runs that another leader sent are unknown here and count
//! as zero bytes, so the bound is exceeded by at most the bytes that the other leader was allowed.

use std::collections::{BTreeMap, VecDeque};

use super::window::Place;
use crate::ids::QueueName;
use crate::limits::{UNTAKEN_BYTES_MAX, UNTAKEN_QUEUE_BYTES_MAX};

/// The sizes of the runs that this leader sent and that no worker has taken.
#[derive(Debug, Default)]
pub struct UntakenBytes {
    queues: BTreeMap<QueueName, BTreeMap<Place, Sizes>>,
    total: u64,
}

/// Sizes of the runs of one queue at one place, in the order in which they were sent.
#[derive(Debug, Default)]
struct Sizes {
    runs: VecDeque<u64>,
    total: u64,
}

impl UntakenBytes {
    /// Adds a run of `queue` that was sent to `place`.
    pub fn sent(&mut self, queue: &QueueName, place: &Place, bytes: usize) {
        let bytes = bytes as u64;
        if !self.queues.contains_key(queue) {
            self.queues.insert(queue.clone(), BTreeMap::new());
        }
        let Some(places) = self.queues.get_mut(queue) else { return };
        if !places.contains_key(place) {
            places.insert(place.clone(), Sizes::default());
        }
        if let Some(sizes) = places.get_mut(place) {
            sizes.runs.push_back(bytes);
            sizes.total += bytes;
            self.total += bytes;
        }
    }

    /// Removes all runs of `queue` at `place` but the last `waiting`: these are untaken, the others were taken.
    pub fn observe(&mut self, queue: &QueueName, place: &Place, waiting: u64) {
        let Some(places) = self.queues.get_mut(queue) else { return };
        let Some(sizes) = places.get_mut(place) else { return };
        while sizes.runs.len() as u64 > waiting
            && let Some(bytes) = sizes.runs.pop_front()
        {
            sizes.total -= bytes;
            self.total -= bytes;
        }
        if sizes.runs.is_empty() {
            places.remove(place);
            if places.is_empty() {
                self.queues.remove(queue);
            }
        }
    }

    /// Returns how many jobs of the queue the bounds in bytes allow to send to the place. If all queues together have
    /// used up their bytes, a queue without untaken runs at the place still gets one job, so that no queue waits for
    /// the workers of another.
    pub fn limit(&self, queue: &QueueName, place: &Place) -> usize {
        let own = self.queues.get(queue).and_then(|places| places.get(place)).map_or(0, |sizes| sizes.total);
        if own >= UNTAKEN_QUEUE_BYTES_MAX {
            0
        } else if self.is_full() {
            usize::from(own == 0)
        } else {
            usize::MAX
        }
    }

    /// Returns whether all queues together have used up their bytes, by what was observed last.
    pub fn is_full(&self) -> bool {
        self.total >= UNTAKEN_BYTES_MAX
    }

    /// Returns the queues that may have untaken runs, with the places of these.
    pub fn queues(&self) -> impl Iterator<Item = (&QueueName, &Place)> {
        self.queues.iter().flat_map(|(queue, places)| places.keys().map(move |place| (queue, place)))
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
            assert_eq!(untaken.limit(&queue("a"), &Place::Bus), usize::MAX, "after {n}");
            untaken.sent(&queue("a"), &Place::Bus, MIB);
        }
        assert_eq!(untaken.limit(&queue("a"), &Place::Bus), 0);
        assert_eq!(untaken.limit(&queue("b"), &Place::Bus), usize::MAX, "no other queue suffers");
        untaken.observe(&queue("a"), &Place::Bus, 16);
        assert_eq!(untaken.limit(&queue("a"), &Place::Bus), 0, "none was taken");
        untaken.observe(&queue("a"), &Place::Bus, 15);
        assert_eq!(untaken.limit(&queue("a"), &Place::Bus), usize::MAX);
    }

    #[test]
    fn the_first_published_are_the_first_taken() {
        let mut untaken = UntakenBytes::default();
        untaken.sent(&queue("a"), &Place::Bus, 16 * MIB);
        (0..9).for_each(|_| untaken.sent(&queue("a"), &Place::Bus, 1));
        untaken.observe(&queue("a"), &Place::Bus, 9);
        assert_eq!((untaken.total, untaken.limit(&queue("a"), &Place::Bus)), (9, usize::MAX));
        untaken.observe(&queue("a"), &Place::Bus, 0);
        assert_eq!((untaken.total, untaken.queues().count()), (0, 0));
        untaken.observe(&queue("a"), &Place::Bus, 5);
        assert_eq!(untaken.total, 0, "what another published is not known");
    }

    #[test]
    fn beyond_the_bytes_of_all_queues_each_gets_one_run_at_a_time() {
        let mut untaken = UntakenBytes::default();
        for name in ["a", "b", "c", "d", "e"] {
            (0..13).for_each(|_| untaken.sent(&queue(name), &Place::Bus, MIB));
        }
        assert!(untaken.is_full());
        assert_eq!((untaken.limit(&queue("a"), &Place::Bus), untaken.limit(&queue("f"), &Place::Bus)), (0, 1));
        untaken.sent(&queue("f"), &Place::Bus, 1);
        assert_eq!(untaken.limit(&queue("f"), &Place::Bus), 0);
        untaken.observe(&queue("a"), &Place::Bus, 0);
        assert_eq!(untaken.limit(&queue("f"), &Place::Bus), usize::MAX);
    }

    #[test]
    fn the_runs_at_one_place_do_not_count_at_another() {
        let mut untaken = UntakenBytes::default();
        let node = Place::Node(crate::ids::NodeId::new("n1").expect("a name"));
        (0..16).for_each(|_| untaken.sent(&queue("a"), &node, MIB));
        assert_eq!((untaken.limit(&queue("a"), &node), untaken.limit(&queue("a"), &Place::Bus)), (0, usize::MAX));
        untaken.observe(&queue("a"), &Place::Bus, 0);
        assert_eq!(untaken.queues().collect::<Vec<_>>(), [(&queue("a"), &node)]);
        untaken.observe(&queue("a"), &node, 0);
        assert_eq!((untaken.total, untaken.queues().count()), (0, 0));
    }
}
