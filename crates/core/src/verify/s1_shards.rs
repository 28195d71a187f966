//! S1: no shard has two holders under one version.

use std::collections::BTreeMap;

use super::index::Index;
use super::{Record, Violation};
use crate::ids::{ServiceName, WorkerId};

const CODE: &str = "S1";

/// The ranges that were granted under one version: first, last, holder, proof.
type Ranges<'a> = Vec<(u32, u32, &'a WorkerId, &'a Record)>;

pub fn check(index: &Index<'_>) -> Vec<Violation> {
    let mut versions: BTreeMap<(&ServiceName, u64), Ranges<'_>> = BTreeMap::new();
    for record in &index.grants {
        let decision = &record.decision;
        let version = decision.after.as_ref().and_then(|mark| mark.number());
        let (Some(service), Some(version), Some(worker)) = (&decision.service, version, &decision.worker) else {
            continue;
        };
        let ranges = versions.entry((service, version)).or_default();
        ranges.extend(decision.shards.iter().map(|(first, last)| (*first, *last, worker, *record)));
    }
    let mut found = Vec::new();
    for ((service, version), mut ranges) in versions {
        ranges.sort_by_key(|(first, last, ..)| (*first, *last));
        // Of each worker the range that reaches furthest so far.
        let mut open: BTreeMap<&WorkerId, (u32, &Record)> = BTreeMap::new();
        for (first, last, worker, record) in ranges {
            let other = open.iter().find(|(holder, (reach, _))| **holder != worker && *reach >= first);
            if let Some((holder, (_, proof))) = other {
                let what = format!(
                    "shard {first} of {service} was granted to {holder} and to {worker} under version {version}"
                );
                found.push(Violation::of(CODE, what, [*proof, record]));
                break;
            }
            open.retain(|_, (reach, _)| *reach >= first);
            let reach = open.entry(worker).or_insert((last, record));
            if reach.0 < last {
                *reach = (last, record);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::samples::{World, broken};

    #[test]
    fn holds_while_shards_move_with_their_version() {
        let mut world = World::new();
        world.grant("n1", "a", 1, &[(0, 9)]).grant("n1", "a", 2, &[(0, 4)]).grant("n1", "b", 2, &[(5, 9)]);
        world.grant("n1", "a", 2, &[(0, 4)]);
        assert_eq!(world.check(), []);
    }

    #[test]
    fn a_shard_with_two_holders_under_one_version_is_found() {
        let mut world = World::new();
        world.grant("n1", "a", 2, &[(0, 2), (7, 9)]).grant("n2", "b", 2, &[(3, 7)]);
        let what = "shard 7 of app was granted to b and to a under version 2";
        assert_eq!(world.check(), broken("S1", what, &["n1:2", "n2:2"]));
    }
}
