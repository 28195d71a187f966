//! Which worker should have which shard.
//!
//! A strategy is a function of the shards' number, the live workers in order of their ids, and who was meant to have
//! each shard so far. It gives every shard an owner as long as there is a worker, and the same answer to the same question.
//!
//! | strategy | loads | what moves when one worker joins or leaves |
//! | --- | --- | --- |
//! | `contiguous` | differ by at most one | ranges shift: up to about half of the shards |
//! | `sticky` | differ by at most one | at most ⌈shards / workers⌉ |
//! | `rendezvous` | as chance has it: about √(shards / workers) around the mean | only to the joiner, only from the leaver |
//!
//! `contiguous` and `rendezvous` look at the present workers alone: a coordinator that knows nothing of the past answers
//! as its predecessor did. `sticky` follows the past, which a successor learns from what workers report.

mod rendezvous;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::Shard;
use crate::error::Invalid;
use crate::ids::WorkerId;

/// The place of a shard that nobody has.
pub const NOBODY: u32 = u32::MAX;

/// How shards are spread over workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum Strategy {
    /// Ranges of one length, in order of the workers' ids.
    #[default]
    Contiguous,
    /// As even, and moves the least.
    Sticky,
    /// Each shard has its own ranking of workers.
    Rendezvous,
}

impl Strategy {
    pub const ALL: [Strategy; 3] = [Strategy::Contiguous, Strategy::Sticky, Strategy::Rendezvous];

    pub const fn as_str(self) -> &'static str {
        match self {
            Strategy::Contiguous => "contiguous",
            Strategy::Sticky => "sticky",
            Strategy::Rendezvous => "rendezvous",
        }
    }

    /// The place in `workers` (which are in order of their ids) of each shard's owner; `current` is the same as it was,
    /// with [`NOBODY`] where that worker is gone.
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

/// How many shards each worker gets: the remainder goes to the first of them.
fn quota(place: usize, workers: usize, shards: usize) -> usize {
    shards / workers + usize::from(place < shards % workers)
}

fn contiguous(workers: usize, shards: usize) -> Vec<u32> {
    (0..workers).flat_map(|place| std::iter::repeat_n(place as u32, quota(place, workers, shards))).collect()
}

/// Who has more than its quota gives the rest to those who have less. Those who have most may keep the remainder, so
/// that nothing moves which could stay.
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
