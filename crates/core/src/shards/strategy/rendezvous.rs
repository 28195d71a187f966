//! Highest random weight: each shard goes to the worker that ranks it best.
//!
//! A comparison of a thousand workers for each of a hundred thousand shards would be a hundred million steps. So a
//! worker's ranking is a permutation of all possible shards, made from its id, that can be computed in both directions:
//! the rank of a shard, and the shard of a rank. All workers go through their rankings in step, and each takes the
//! shards that no other ranked better, until none is left: about `n · ln n` steps for any number of workers. If shards
//! times workers is less than that, all workers are compared for each shard. Both ways return the same owners, which
//! depend on the set of workers only.

use super::NOBODY;
use crate::ids::WorkerId;

/// Shards are ranked among 2^17, so that a change of `maxShardCount` moves no shard that remains.
const BITS: u32 = 17;
const MASK: u32 = (1 << BITS) - 1;
const SHIFT: u32 = 9;
const ROUNDS: usize = 3;
/// Below this many steps all workers are compared for each shard.
const ASK_ALL_MAX: usize = 1 << 20;

const _: () = assert!(crate::limits::SHARDS_MAX <= MASK + 1);

/// One worker's ranking of all shards.
struct Ranking {
    key: u64,
    rounds: [Round; ROUNDS],
}

/// `x ↦ xorshift(factor · x + offset)`, modulo 2^17. The factor is odd and the shift more than half of the bits, so that
/// each step has an inverse.
struct Round {
    factor: u32,
    inverse: u32,
    offset: u32,
}

impl Ranking {
    fn of(worker: &WorkerId) -> Ranking {
        // FNV-1a, then mixed: the ids of workers differ in their last digit, mostly.
        let hash = worker
            .as_str()
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
        let key = mix(hash);
        let rounds = std::array::from_fn(|round| {
            let random = mix(key.wrapping_add(round as u64 + 1));
            let factor = (random as u32 & MASK) | 1;
            Round { factor, inverse: inverse(factor), offset: (random >> 32) as u32 & MASK }
        });
        Ranking { key, rounds }
    }

    fn shard(&self, rank: u32) -> u32 {
        self.rounds.iter().fold(rank, |x, round| {
            let x = x.wrapping_mul(round.factor).wrapping_add(round.offset) & MASK;
            x ^ (x >> SHIFT)
        })
    }

    fn rank(&self, shard: u32) -> u32 {
        self.rounds.iter().rev().fold(shard, |x, round| {
            let x = x ^ (x >> SHIFT);
            x.wrapping_sub(round.offset).wrapping_mul(round.inverse) & MASK
        })
    }

    /// Breaks a tie of two workers on a shard: different for each shard, but deterministic.
    fn tie(&self, shard: u32) -> u64 {
        mix(self.key ^ u64::from(shard))
    }
}

/// The finalizer of SplitMix64.
fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Returns the inverse of an odd number modulo 2^32, by Newton: each step doubles the correct bits.
fn inverse(odd: u32) -> u32 {
    (0..5).fold(odd, |x, _| x.wrapping_mul(2u32.wrapping_sub(odd.wrapping_mul(x))))
}

pub fn plan(workers: &[&WorkerId], shards: usize) -> Vec<u32> {
    let rankings: Vec<Ranking> = workers.iter().map(|worker| Ranking::of(worker)).collect();
    if workers.len().saturating_mul(shards) <= ASK_ALL_MAX {
        ask_all(&rankings, shards)
    } else {
        go_in_step(&rankings, shards)
    }
}

fn ask_all(rankings: &[Ranking], shards: usize) -> Vec<u32> {
    (0..shards as u32).map(|shard| best(rankings, shard)).collect()
}

/// Returns the worker that ranks the shard best.
fn best(rankings: &[Ranking], shard: u32) -> u32 {
    let places = 0..rankings.len() as u32;
    let of = |place: u32| &rankings[place as usize];
    places.min_by_key(|place| (of(*place).rank(shard), of(*place).tie(shard), *place)).unwrap_or(NOBODY)
}

fn go_in_step(rankings: &[Ranking], shards: usize) -> Vec<u32> {
    let mut plan = vec![NOBODY; shards];
    let mut taken_at = vec![0u32; shards];
    let mut left = shards;
    for rank in 0..=MASK {
        if left * rankings.len() <= MASK as usize {
            // The last shards are found late: it is cheaper to compare all workers for each of them.
            let free = plan.iter_mut().enumerate().filter(|(_, owner)| **owner == NOBODY);
            free.for_each(|(shard, owner)| *owner = best(rankings, shard as u32));
            break;
        }
        for (place, ranking) in rankings.iter().enumerate() {
            let shard = ranking.shard(rank);
            let Some(owner) = plan.get_mut(shard as usize) else { continue };
            if *owner == NOBODY {
                *owner = place as u32;
                taken_at[shard as usize] = rank;
                left -= 1;
            } else if taken_at[shard as usize] == rank {
                let rival = &rankings[*owner as usize];
                if ranking.tie(shard) < rival.tie(shard) {
                    *owner = place as u32;
                }
            }
        }
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workers(count: usize) -> Vec<WorkerId> {
        (0..count).map(|n| WorkerId::new(format!("worker-{n:05}")).expect("a name")).collect()
    }

    fn rankings(count: usize) -> Vec<Ranking> {
        workers(count).iter().map(Ranking::of).collect()
    }

    #[test]
    fn a_ranking_is_a_permutation_that_reads_both_ways() {
        for ranking in rankings(5) {
            let mut seen = vec![false; MASK as usize + 1];
            for rank in 0..=MASK {
                let shard = ranking.shard(rank);
                assert!(!std::mem::replace(&mut seen[shard as usize], true), "{shard} is ranked twice");
                assert_eq!(ranking.rank(shard), rank);
            }
        }
    }

    #[test]
    fn both_ways_of_asking_give_the_same_owners() {
        for (count, shards) in [(1, 1), (1, 300), (2, 1000), (7, 997), (100, 5000), (300, 20_000)] {
            let rankings = rankings(count);
            assert_eq!(ask_all(&rankings, shards), go_in_step(&rankings, shards), "{count} workers, {shards} shards");
        }
    }

    #[test]
    fn loads_are_as_chance_has_them() {
        for (count, shards) in [(10, 10_000), (100, 100_000), (1000, 100_000), (3, 3000)] {
            let ids = workers(count);
            let mut loads = vec![0usize; count];
            plan(&ids.iter().collect::<Vec<_>>(), shards).iter().for_each(|place| loads[*place as usize] += 1);
            let mean = shards as f64 / count as f64;
            let spread = loads.iter().map(|load| (*load as f64 - mean).abs()).fold(0.0, f64::max);
            assert!(spread < 6.0 * mean.sqrt(), "{count} workers, {shards} shards: {spread} off {mean}");
        }
    }
}
