use proptest::prelude::{any, prop, prop_assert, prop_assert_eq, proptest};

use super::*;

fn ids(names: &[String]) -> Vec<WorkerId> {
    let mut ids: Vec<WorkerId> = names.iter().map(|name| WorkerId::new(name).expect("a name")).collect();
    ids.sort();
    ids.dedup();
    ids
}

fn numbered(count: usize) -> Vec<WorkerId> {
    ids(&(0..count).map(|n| format!("w{n:04}")).collect::<Vec<_>>())
}

fn plan(strategy: Strategy, workers: &[WorkerId], current: &[u32]) -> Vec<u32> {
    strategy.plan(&workers.iter().collect::<Vec<_>>(), current)
}

fn loads(workers: usize, plan: &[u32]) -> Vec<usize> {
    let mut loads = vec![0; workers];
    plan.iter().for_each(|place| loads[*place as usize] += 1);
    loads
}

/// `plan` over `before`, as places in `after`.
fn carried(plan: &[u32], before: &[WorkerId], after: &[WorkerId]) -> Vec<u32> {
    let place = |place: &u32| after.binary_search(&before[*place as usize]).map_or(NOBODY, |place| place as u32);
    plan.iter().map(place).collect()
}

#[test]
fn ten_shards_over_three_workers_are_four_three_and_three() {
    let plan = plan(Strategy::Contiguous, &numbered(3), &[NOBODY; 10]);
    assert_eq!(plan, [0, 0, 0, 0, 1, 1, 1, 2, 2, 2]);
}

#[test]
fn without_workers_nobody_owns_anything() {
    for strategy in Strategy::ALL {
        assert_eq!(strategy.plan(&[], &[NOBODY; 3]), [NOBODY; 3]);
        assert_eq!(plan(strategy, &numbered(2), &[]), [0u32; 0]);
    }
}

#[test]
fn a_strategy_is_read_by_its_name() {
    for strategy in Strategy::ALL {
        assert_eq!(strategy.to_string().parse(), Ok(strategy));
    }
    let refused = "random".parse::<Strategy>().expect_err("no strategy");
    assert_eq!(refused.to_string(), "strategy: expected contiguous, sticky or rendezvous, got \"random\"");
}

proptest! {
    #[test]
    fn every_shard_has_an_owner_and_the_same_one_each_time(
        names in prop::collection::btree_set("[a-z]{1,6}", 1..40),
        shards in 0usize..400,
    ) {
        let workers = ids(&names.into_iter().collect::<Vec<_>>());
        for strategy in Strategy::ALL {
            let first = plan(strategy, &workers, &vec![NOBODY; shards]);
            prop_assert_eq!(first.len(), shards);
            prop_assert!(first.iter().all(|place| (*place as usize) < workers.len()));
            prop_assert_eq!(&plan(strategy, &workers, &vec![NOBODY; shards]), &first);
            prop_assert_eq!(&plan(strategy, &workers, &first), &first, "nothing moves while nothing changes");
        }
    }

    #[test]
    fn even_strategies_differ_by_at_most_one_whatever_was_before(
        names in prop::collection::btree_set("[a-z]{1,6}", 1..40),
        past in prop::collection::vec(0u32..60, 0..400),
    ) {
        let workers = ids(&names.into_iter().collect::<Vec<_>>());
        let known = |place: &u32| if (*place as usize) < workers.len() { *place } else { NOBODY };
        let current: Vec<u32> = past.iter().map(known).collect();
        for strategy in [Strategy::Contiguous, Strategy::Sticky] {
            let loads = loads(workers.len(), &plan(strategy, &workers, &current));
            let (least, most) = (loads.iter().min().expect("one"), loads.iter().max().expect("one"));
            prop_assert!(most - least <= 1, "{strategy}: {loads:?}");
        }
    }

    #[test]
    fn one_worker_more_or_less_moves_the_least(
        names in prop::collection::btree_set("[a-z]{1,6}", 2..40),
        which in any::<prop::sample::Index>(),
        shards in 0usize..400,
    ) {
        let all = ids(&names.into_iter().collect::<Vec<_>>());
        let mut fewer = all.clone();
        let gone = fewer.remove(which.index(all.len()));
        let free = vec![NOBODY; shards];
        for strategy in [Strategy::Sticky, Strategy::Rendezvous] {
            for (before, after) in [(&all, &fewer), (&fewer, &all)] {
                let first = plan(strategy, before, &free);
                let carried = carried(&first, before, after);
                let second = plan(strategy, after, &carried);
                let moved: Vec<usize> = (0..shards).filter(|shard| carried[*shard] != second[*shard]).collect();
                if strategy == Strategy::Sticky {
                    let bound = shards.div_ceil(all.len());
                    prop_assert!(moved.len() <= bound, "{} moved, at most {bound}", moved.len());
                } else {
                    let concerns = |shard: &usize| carried[*shard] == NOBODY || after[second[*shard] as usize] == gone;
                    prop_assert!(moved.iter().all(concerns), "a shard moved between workers that stayed");
                }
            }
        }
    }

    #[test]
    fn rendezvous_keeps_its_owners_when_shards_are_added(workers in 1usize..30, few in 0usize..200, more in 0usize..200) {
        let workers = numbered(workers);
        let before = plan(Strategy::Rendezvous, &workers, &vec![NOBODY; few]);
        let after = plan(Strategy::Rendezvous, &workers, &vec![NOBODY; few + more]);
        prop_assert_eq!(&after[..few], &before[..]);
    }
}
