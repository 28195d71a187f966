//! Divides the common limit of all queues among the queues that have jobs.
//!
//! No queue gets more than it wants, and none gets less than another unless it wants less: a queue with three jobs gets
//! all three, even beside a queue with a million. If the limit is less than one job for each queue, the queues take
//! turns, so that every queue is served after at most as many jobs as there are queues.

use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};

use crate::ids::QueueName;

/// The order in which queues take turns.
#[derive(Debug, Default)]
pub struct Turns {
    /// The queue that was served last while the limit was short. The next one by name comes first.
    last: Option<QueueName>,
}

impl Turns {
    /// Removes the next queue from `queues` and returns it: the first by name after `after`, or after the queue that
    /// was served last if `after` is `None`.
    pub fn next(&self, queues: &mut BTreeSet<QueueName>, after: Option<&QueueName>) -> Option<QueueName> {
        let later = after
            .or(self.last.as_ref())
            .and_then(|last| queues.range::<QueueName, _>((Excluded(last), Unbounded)).next());
        let next = later.or_else(|| queues.first())?.clone();
        queues.take(&next)
    }

    /// Divides `budget` among queues. `wants` has the number of jobs that each wants, in the order of their turns.
    pub fn share(&mut self, budget: usize, wants: &[(QueueName, usize)]) -> Vec<usize> {
        let (level, mut extra) = level(budget, wants);
        let mut shares = Vec::with_capacity(wants.len());
        for (queue, want) in wants {
            let share = if *want > level && extra > 0 {
                extra -= 1;
                self.last = Some(queue.clone());
                level + 1
            } else {
                level.min(*want)
            };
            shares.push(share);
        }
        if wants.len() == budget {
            // Other queues may wait, because these used up the budget.
            self.last = wants.last().map(|(queue, _)| queue.clone());
        }
        shares
    }
}

/// Returns the share of each queue that wants more than it, and how many of these queues get one more.
fn level(budget: usize, wants: &[(QueueName, usize)]) -> (usize, usize) {
    let mut sorted: Vec<usize> = wants.iter().map(|(_, want)| *want).collect();
    sorted.sort_unstable();
    let mut left = budget;
    for (place, want) in sorted.iter().enumerate() {
        let others = sorted.len() - place;
        if *want > left / others {
            return (left / others, left % others);
        }
        left -= want;
    }
    (usize::MAX, 0)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn queue(name: &str) -> QueueName {
        QueueName::new(name).expect("a name")
    }

    fn wants(wants: &[(&str, usize)]) -> Vec<(QueueName, usize)> {
        wants.iter().map(|(name, want)| (queue(name), *want)).collect()
    }

    #[test]
    fn a_queue_that_wants_little_gets_it_and_the_others_share_the_rest() {
        let share = |budget, of: &[(&str, usize)]| Turns::default().share(budget, &wants(of));
        assert_eq!(share(100, &[("a", 1_000), ("b", 10), ("c", 1_000)]), [45, 10, 45]);
        assert_eq!(share(100, &[("a", 1_000), ("b", 10), ("c", 20)]), [70, 10, 20]);
        assert_eq!(share(100, &[("a", 30), ("b", 30)]), [30, 30]);
        assert_eq!(share(11, &[("a", 9), ("b", 1), ("c", 9)]), [5, 1, 5]);
        assert_eq!(share(10, &[("a", 9), ("b", 1), ("c", 9)]), [5, 1, 4]);
        assert_eq!(share(0, &[("a", 9), ("b", 1)]), [0, 0]);
        assert_eq!(share(5, &[]), [0; 0]);
    }

    /// Serves all queues with a limit of `budget` in each round, as the dispatcher does.
    fn rounds(count: usize, budget: usize, queues: &[(&str, usize)]) -> Vec<usize> {
        let want: BTreeMap<QueueName, usize> = wants(queues).into_iter().collect();
        let mut turns = Turns::default();
        let mut served: BTreeMap<QueueName, usize> = BTreeMap::new();
        for _ in 0..count {
            let mut waiting: BTreeSet<QueueName> = want.keys().cloned().collect();
            let mut chosen: Vec<(QueueName, usize)> = Vec::new();
            while chosen.len() < budget
                && let Some(next) = turns.next(&mut waiting, chosen.last().map(|(queue, _)| queue))
            {
                chosen.push((next.clone(), want[&next]));
            }
            for ((queue, _), share) in chosen.iter().zip(turns.share(budget, &chosen)) {
                *served.entry(queue.clone()).or_default() += share;
            }
        }
        want.keys().map(|queue| served.get(queue).copied().unwrap_or(0)).collect()
    }

    #[test]
    fn queues_take_turns_where_there_is_less_than_one_job_for_each() {
        assert_eq!(rounds(30, 1, &[("a", 9), ("b", 9), ("c", 9)]), [10, 10, 10]);
        assert_eq!(rounds(30, 2, &[("a", 9), ("b", 9), ("c", 9)]), [20, 20, 20]);
        assert_eq!(rounds(30, 4, &[("a", 9), ("b", 9), ("c", 9)]), [40, 40, 40]);
    }

    #[test]
    fn the_turn_goes_round_and_passes_by_queues_that_are_gone() {
        let mut turns = Turns::default();
        assert_eq!(turns.share(1, &wants(&[("b", 1)])), [1]);
        let mut waiting = BTreeSet::from(["a", "c"].map(queue));
        assert_eq!(turns.next(&mut waiting, None), Some(queue("c")), "after b");
        assert_eq!(turns.next(&mut waiting, Some(&queue("c"))), Some(queue("a")));
        assert_eq!(turns.next(&mut waiting, Some(&queue("a"))), None);
    }

    proptest! {
        #[test]
        fn all_of_the_budget_is_used_and_nobody_gets_less_who_wants_more(
            budget in 0..200usize,
            wanted in prop::collection::vec(0..50usize, 1..20),
        ) {
            let named: Vec<_> = (0..).map(|n| queue(&format!("q{n:02}"))).zip(wanted.iter().copied()).collect();
            let shares = Turns::default().share(budget, &named);
            prop_assert_eq!(shares.iter().sum::<usize>(), budget.min(wanted.iter().sum()));
            for (share, want) in shares.iter().zip(&wanted) {
                prop_assert!(share <= want);
                let is_cut = share < want;
                prop_assert!(!is_cut || shares.iter().all(|other| *other <= share + 1));
            }
        }

        #[test]
        fn no_queue_starves(budget in 1..6usize, count in 2..12usize) {
            let names: Vec<String> = (0..count).map(|n| format!("q{n:02}")).collect();
            let all: Vec<(&str, usize)> = names.iter().map(|name| (name.as_str(), 100)).collect();
            let served = rounds(count * 5, budget, &all);
            let (least, most) = (served.iter().min(), served.iter().max());
            prop_assert!(most.zip(least).is_some_and(|(most, least)| most - least <= 1), "{served:?}");
        }
    }
}
