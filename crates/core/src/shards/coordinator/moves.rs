//! The shards that a rebalance moves, as ranges, for display.

use std::sync::Arc;

use jiff::Timestamp;

use crate::history::{MOVES_MAX, Rebalance, RebalanceCause, ShardMove};
use crate::ids::{NodeId, ServiceName, WorkerId};
use crate::shards::strategy::NOBODY;
use crate::shards::{Shard, Version};

/// A rebalance, without the time and the node, which the rules do not know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rebalanced {
    /// The service.
    pub service: ServiceName,
    /// The version of the new assignment.
    pub version: Version,
    /// The number of shards of the service.
    pub shard_count: u32,
    /// The changes since the last rebalance.
    pub causes: Vec<RebalanceCause>,
    /// The number of shards that moved.
    pub moved: u64,
    /// The shards that moved; empty if they are too many ranges.
    pub moves: Vec<ShardMove>,
    /// Whether they are too many ranges.
    pub cut: bool,
}

impl Rebalanced {
    /// Returns the record of a rebalance that `node` made at that time.
    pub fn at(self, at: Timestamp, node: NodeId) -> Rebalance {
        let Rebalanced { service, version, shard_count, causes, moved, moves, cut } = self;
        Rebalance { service, version, at, node, shard_count, causes, moved, moves, cut }
    }
}

/// Ranges of shards with the places of their workers: those of the live ones first, then those of the departed.
pub struct Moves {
    /// The departed worker of each shard; empty if there is none.
    former: Vec<u32>,
    ranges: Vec<(Shard, Shard, u32, u32)>,
    is_cut: bool,
}

impl Moves {
    /// `live`: how many places come before those of the departed workers.
    pub fn new(shards: usize, live: usize, departed: &[(WorkerId, Arc<[Shard]>)]) -> Self {
        let mut former = Vec::new();
        for (place, (_, target)) in departed.iter().enumerate() {
            former.resize(shards, NOBODY);
            for shard in target.iter() {
                if let Some(former) = former.get_mut(*shard as usize) {
                    *former = (live + place) as u32;
                }
            }
        }
        Moves { former, ranges: Vec::new(), is_cut: false }
    }

    /// Adds a shard, in ascending order, with its worker before and now.
    pub fn add(&mut self, shard: Shard, before: u32, now: u32) {
        let before = if before == NOBODY { self.former.get(shard as usize).copied().unwrap_or(NOBODY) } else { before };
        if before == now || self.is_cut {
            return;
        }
        if let Some((_, last, from, to)) = self.ranges.last_mut()
            && (*last + 1, *from, *to) == (shard, before, now)
        {
            *last = shard;
        } else if self.ranges.len() == MOVES_MAX {
            (self.ranges, self.is_cut) = (Vec::new(), true);
        } else {
            self.ranges.push((shard, shard, before, now));
        }
    }

    /// Returns the ranges with the names of their workers, and whether there are too many.
    pub fn named(self, live: &[&WorkerId], departed: &[(WorkerId, Arc<[Shard]>)]) -> (Vec<ShardMove>, bool) {
        let name = |place: u32| {
            let place = place as usize;
            match live.get(place) {
                Some(worker) => Some((*worker).clone()),
                None => departed.get(place - live.len()).map(|(worker, _)| worker.clone()),
            }
        };
        let named = |(first, last, from, to)| ShardMove { first, last, from: name(from), to: name(to) };
        (self.ranges.iter().copied().map(named).collect(), self.is_cut)
    }
}
