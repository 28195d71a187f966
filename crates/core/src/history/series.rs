//! The time series of jobs: counters of every node, summed in steps of ten seconds over the last hour.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::ids::{NodeId, QueueName};

/// The length of one step.
pub const STEP: Duration = Duration::from_secs(10);
/// Steps that are kept: one hour.
pub const BUCKETS_MAX: usize = 360;
/// Queues that are counted by name in one step. The others are part of the total only.
pub const QUEUES_MAX: usize = 100;
/// Nodes of one step. Further ones are not counted: a store lists far fewer.
const NODES_MAX: usize = 1_024;
/// How many steps the clock of another node may be ahead.
const AHEAD_MAX: i64 = 6;
/// A step is shown once it has been over for this long, so that the counters of the other nodes have arrived.
const REPORT_DELAY_SECONDS: i64 = 2;

/// How many jobs something happened to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = JobCounts))]
#[serde(rename_all = "camelCase", default)]
pub struct Counts {
    /// Jobs that were enqueued through a node. Jobs that `convoke_enqueue` of PostgreSQL inserts are not counted.
    pub enqueued: u64,
    /// Runs that were dispatched.
    pub started: u64,
    /// Jobs that completed.
    pub completed: u64,
    /// Attempts that failed, timed out or were lost, the last ones of dead letters included.
    pub failed: u64,
    /// Jobs that became dead letters.
    pub dead: u64,
}

impl Counts {
    /// Adds the other counts to these.
    pub fn add(&mut self, other: &Counts) {
        let pairs = [
            (&mut self.enqueued, other.enqueued),
            (&mut self.started, other.started),
            (&mut self.completed, other.completed),
            (&mut self.failed, other.failed),
            (&mut self.dead, other.dead),
        ];
        // Another node sent them: a sum must not overflow.
        pairs.into_iter().for_each(|(sum, count)| *sum = sum.saturating_add(count));
    }

    /// Returns whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        *self == Counts::default()
    }
}

/// The slots of all workers at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Slots {
    /// Slots that execute a run.
    pub busy: u64,
    /// Slots that are free.
    pub free: u64,
}

/// The counts of one node in one step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Bucket {
    /// The number of the step: the seconds since 1970 divided by ten.
    pub step: i64,
    /// Writes of former owners that were refused.
    #[serde(default)]
    pub refused: u64,
    /// The slots of all workers, which only the leader counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slots: Option<Slots>,
    /// By queue: at most [`QUEUES_MAX`].
    #[serde(default)]
    pub queues: BTreeMap<QueueName, Counts>,
    /// Of all other queues.
    #[serde(default)]
    pub other: Counts,
}

impl Bucket {
    /// Returns the number of the step that `at` is in.
    pub fn step_of(at: Timestamp) -> i64 {
        at.as_second().div_euclid(STEP.as_secs() as i64)
    }

    /// Returns when a step begins.
    pub fn begins_at(step: i64) -> Timestamp {
        Timestamp::from_second(step.saturating_mul(STEP.as_secs() as i64)).unwrap_or(Timestamp::UNIX_EPOCH)
    }
}

/// The counters of all nodes.
#[derive(Debug, Default)]
pub struct Series {
    steps: BTreeMap<i64, Sum>,
}

#[derive(Debug, Default)]
struct Sum {
    nodes: BTreeSet<NodeId>,
    refused: u64,
    slots: Option<Slots>,
    total: Counts,
    queues: BTreeMap<QueueName, Counts>,
}

impl Series {
    /// Adds what a node counted; once for each node and step.
    pub fn add(&mut self, node: &NodeId, bucket: &Bucket, now: Timestamp) {
        let present = Bucket::step_of(now);
        self.steps = self.steps.split_off(&(present - BUCKETS_MAX as i64));
        if !(present - BUCKETS_MAX as i64..=present + AHEAD_MAX).contains(&bucket.step) {
            return;
        }
        let sum = self.steps.entry(bucket.step).or_default();
        if sum.nodes.len() >= NODES_MAX || !sum.nodes.insert(node.clone()) {
            return;
        }
        sum.refused = sum.refused.saturating_add(bucket.refused);
        sum.slots = bucket.slots.or(sum.slots);
        sum.total.add(&bucket.other);
        for (queue, counts) in &bucket.queues {
            sum.total.add(counts);
            if sum.queues.len() < QUEUES_MAX || sum.queues.contains_key(queue) {
                sum.queues.entry(queue.clone()).or_default().add(counts);
            }
        }
    }

    /// Returns the last steps that are over, at most `count`; of one queue, or of all jobs.
    pub fn view(&self, count: usize, queue: Option<&QueueName>, now: Timestamp) -> SeriesView {
        let complete = Timestamp::from_second(now.as_second() - REPORT_DELAY_SECONDS).unwrap_or(now);
        let end = Bucket::step_of(complete);
        let begin = end - count.clamp(1, BUCKETS_MAX) as i64;
        let (mut points, mut slots, mut refused) = (Vec::new(), Vec::new(), Vec::new());
        let (mut nodes, mut queues) = (BTreeSet::new(), BTreeMap::<QueueName, Counts>::new());
        for step in begin..end {
            let sum = self.steps.get(&step);
            let of_queue = |sum: &Sum| queue.map_or(Some(sum.total), |queue| sum.queues.get(queue).copied());
            points.push(sum.and_then(of_queue).unwrap_or_default());
            refused.push(sum.map_or(0, |sum| sum.refused));
            slots.push(sum.and_then(|sum| sum.slots));
            if let Some(sum) = sum {
                nodes.extend(sum.nodes.iter().cloned());
                for (name, counts) in sum.queues.iter().filter(|(name, _)| queue.is_none_or(|queue| queue == *name)) {
                    queues.entry(name.clone()).or_default().add(counts);
                }
            }
        }
        let queues = queues.into_iter().map(|(queue, counts)| QueueTotal { queue, counts });
        SeriesView {
            from: Bucket::begins_at(begin),
            until: Bucket::begins_at(end),
            nodes: nodes.into_iter().collect(),
            points,
            refused,
            slots,
            queues: queues.collect(),
        }
    }
}

/// The counts of a queue in the whole window.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct QueueTotal {
    /// The queue.
    pub queue: QueueName,
    /// Its counts.
    pub counts: Counts,
}

/// Consecutive steps of the time series.
#[derive(Debug, Clone, PartialEq)]
pub struct SeriesView {
    /// The begin of the first step.
    pub from: Timestamp,
    /// The end of the last step.
    pub until: Timestamp,
    /// The nodes that counted in any of the steps.
    pub nodes: Vec<NodeId>,
    /// The counts of each step.
    pub points: Vec<Counts>,
    /// The refused writes of each step, of all queues.
    pub refused: Vec<u64>,
    /// The slots of all workers at the end of each step; `None` if no leader counted them.
    pub slots: Vec<Option<Slots>>,
    /// The counts of each queue in all steps together.
    pub queues: Vec<QueueTotal>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str) -> NodeId {
        NodeId::new(name).expect("a name")
    }

    fn queue(name: &str) -> QueueName {
        QueueName::new(name).expect("a name")
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn bucket(step: i64, counts: &[(&str, u64)]) -> Bucket {
        let enqueued = |count: u64| Counts { enqueued: count, ..Counts::default() };
        let queues = counts.iter().map(|(name, count)| (queue(name), enqueued(*count))).collect();
        Bucket { step, refused: 1, slots: None, queues, other: enqueued(1) }
    }

    fn enqueued(view: &SeriesView) -> Vec<u64> {
        view.points.iter().map(|point| point.enqueued).collect()
    }

    #[test]
    fn the_counters_of_all_nodes_are_summed_and_each_counts_once() {
        let mut series = Series::default();
        let now = at(100);
        series.add(&node("a"), &bucket(8, &[("mail", 5)]), now);
        series.add(&node("b"), &bucket(8, &[("mail", 2), ("web", 3)]), now);
        series.add(&node("b"), &bucket(8, &[("mail", 2), ("web", 3)]), now);
        let view = series.view(2, None, at(92));
        assert_eq!((view.from, view.until), (at(70), at(90)));
        assert_eq!(enqueued(&view), [0, 12]);
        assert_eq!(view.refused, [0, 2]);
        assert_eq!(view.nodes, [node("a"), node("b")]);
        let view = series.view(2, Some(&queue("mail")), at(92));
        assert_eq!(enqueued(&view), [0, 7]);
        assert_eq!(view.queues.len(), 1);
    }

    #[test]
    fn a_step_is_shown_once_the_other_nodes_have_sent_theirs() {
        let mut series = Series::default();
        series.add(&node("a"), &bucket(8, &[]), at(90));
        assert_eq!(enqueued(&series.view(1, None, at(91))), [0], "still the step before");
        assert_eq!(enqueued(&series.view(1, None, at(92))), [1]);
    }

    #[test]
    fn only_the_last_hour_is_kept_and_nothing_of_the_future() {
        let mut series = Series::default();
        let now = at(100_000);
        let present = Bucket::step_of(now);
        for step in [0, present - 361, present + 7, i64::MAX, i64::MIN] {
            series.add(&node("a"), &bucket(step, &[("q", 1)]), now);
        }
        assert!(series.steps.is_empty());
        for step in 0..10_000 {
            series.add(&node("a"), &bucket(present + step, &[("q", 1)]), Bucket::begins_at(present + step));
        }
        assert_eq!(series.steps.len(), BUCKETS_MAX + 1);
    }

    #[test]
    fn queues_beyond_the_limit_are_part_of_the_total_only() {
        let mut series = Series::default();
        let names: Vec<String> = (0..QUEUES_MAX + 10).map(|number| format!("q{number}")).collect();
        let counts: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), 1)).collect();
        series.add(&node("a"), &bucket(8, &counts), at(100));
        let view = series.view(1, None, at(92));
        assert_eq!(view.queues.len(), QUEUES_MAX);
        assert_eq!(enqueued(&view), [QUEUES_MAX as u64 + 11]);
    }

    #[test]
    fn a_node_that_sends_absurd_counters_overflows_nothing() {
        let mut series = Series::default();
        for name in ["a", "b"] {
            series.add(&node(name), &bucket(8, &[("q", u64::MAX)]), at(100));
        }
        assert_eq!(enqueued(&series.view(1, None, at(92))), [u64::MAX]);
    }
}
