//! Strategies: which worker should have which shard.
//!
//! A strategy is a pure function of the number of shards, the live workers in order of their ids, and the intended
//! owner of each shard so far. It gives every shard an owner if there is a worker.
//!
//! | strategy | loads | what moves when one worker joins or leaves |
//! | --- | --- | --- |
//! | `contiguous` | differ by at most one | ranges shift: up to about half of the shards |
//! | `sticky` | differ by at most one | at most ⌈shards / workers⌉ |
//! | `rendezvous` | random: about √(shards / workers) around the mean | only to the joiner, only from the leaver |
//!
//! `contiguous` and `rendezvous` depend on the present workers only: a coordinator without any history returns the same
//! plan as its predecessor. `sticky` depends on the history, which a successor learns from the workers' reports.

mod rendezvous;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::Shard;
use crate::error::Invalid;
use crate::ids::WorkerId;

/// The place of a shard without an owner.
pub const NOBODY: u32 = u32::MAX;

/// How shards are spread over workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Strategy {
    /// Ranges of equal length, in order of the workers' ids.
    #[default]
    Contiguous,
    /// Equally even, and moves as few shards as possible.
    Sticky,
    /// Each worker ranks all shards; a shard goes to the worker that ranks it best.
    Rendezvous,
}

impl Strategy {
    /// All strategies.
    pub const ALL: [Strategy; 3] = [Strategy::Contiguous, Strategy::Sticky, Strategy::Rendezvous];

    /// Returns the name in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Strategy::Contiguous => "contiguous",
            Strategy::Sticky => "sticky",
            Strategy::Rendezvous => "rendezvous",
        }
    }

    /// Returns the place of each shard's owner in `workers`, which are in order of their ids. `current` is the last
    /// plan, with [`NOBODY`] for each worker that is gone.
    pub fn plan(self, workers: &[&WorkerId], current: &[u32]) -> Vec<u32> {
        if workers.is_empty() {
            return vec![NOBODY; current.len()];
        }
        match self {
            Strategy::Contiguous => contiguous(workers.len(), current.len()),
            Strategy::Sticky => sticky(workers.len(), current),
            Strategy::Rendezvous => rendezvous::plan(workers, current.len()),
        }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Strategy {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        Strategy::ALL
            .into_iter()
            .find(|strategy| strategy.as_str() == text)
            .ok_or_else(|| Invalid::new("strategy", format!("expected contiguous, sticky or rendezvous, got {text:?}")))
    }
}

/// Returns how many shards a worker gets: the first workers get the remainder.
fn quota(place: usize, workers: usize, shards: usize) -> usize {
    shards / workers + usize::from(place < shards % workers)
}

fn contiguous(workers: usize, shards: usize) -> Vec<u32> {
    (0..workers).flat_map(|place| std::iter::repeat_n(place as u32, quota(place, workers, shards))).collect()
}

/// Moves shards from workers above their quota to those below. The workers with the most shards get the remainder, so
/// that as little as possible moves.
fn sticky(workers: usize, current: &[u32]) -> Vec<u32> {
    let mut loads = vec![0usize; workers];
    for place in current.iter().filter(|place| **place != NOBODY) {
        loads[*place as usize] += 1;
    }
    let mut by_load: Vec<usize> = (0..workers).collect();
    by_load.sort_by_key(|place| (std::cmp::Reverse(loads[*place]), *place));
    let mut room = vec![0usize; workers];
    for (rank, place) in by_load.into_iter().enumerate() {
        room[place] = quota(rank, workers, current.len());
    }
    let mut plan = vec![NOBODY; current.len()];
    let mut homeless: Vec<Shard> = Vec::new();
    for (shard, place) in current.iter().enumerate() {
        match room.get_mut(*place as usize).filter(|room| **room > 0) {
            Some(room) => {
                *room -= 1;
                plan[shard] = *place;
            }
            None => homeless.push(shard as Shard),
        }
    }
    let free = room.iter().enumerate().flat_map(|(place, room)| std::iter::repeat_n(place as u32, *room));
    for (shard, place) in homeless.into_iter().zip(free) {
        plan[shard as usize] = place;
    }
    plan
}

#[cfg(test)]
mod tests;
