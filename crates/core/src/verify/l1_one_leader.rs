//! L1: a sealed epoch has one holder, and sealed epochs only rise.
//!
//! Terms are compared by their seals, not by their leases: a backend of leases that forgot may grant an epoch twice, and the
//! store then refuses the second seal. A store that does not outlive its process begins anew with it; its epochs are
//! compared within one start only.

use std::collections::{BTreeMap, BTreeSet};

use super::index::Index;
use super::{Record, Violation};
use crate::decisions::What;
use crate::ids::{Epoch, NodeId};

const CODE: &str = "L1";

pub fn check(index: &Index<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    if !index.is_fleeting {
        found.extend(sealed_twice(index));
        found.extend(led_by_two(index));
    }
    found.extend(fallen(index));
    found
}

fn sealed_twice(index: &Index<'_>) -> Vec<Violation> {
    let twice = index.seals.iter().filter(|(_, seals)| seals.len() > 1);
    twice
        .map(|(epoch, seals)| {
            let by: BTreeSet<&str> = seals.iter().map(|it| it.decision.node.as_str()).collect();
            let by: Vec<&str> = by.into_iter().collect();
            let what = format!("epoch {epoch} was sealed {} times, by {}", seals.len(), by.join(" and "));
            Violation::of(CODE, what, seals.iter().copied())
        })
        .collect()
}

/// Writes under one epoch by two processes.
fn led_by_two(index: &Index<'_>) -> Vec<Violation> {
    let mut first: BTreeMap<Epoch, (&NodeId, u32, &Record)> = BTreeMap::new();
    let mut found: BTreeMap<Epoch, Violation> = BTreeMap::new();
    for ((node, boot), lines) in &index.boots {
        for record in lines.lines.values() {
            let decision = &record.decision;
            let Some(epoch) = decision.epoch.filter(|_| decision.what.is_leaders() && decision.is_accepted()) else {
                continue;
            };
            let (leader, leader_boot, proof) = *first.entry(epoch).or_insert((node, *boot, record));
            if (leader, leader_boot) != (*node, *boot) {
                found.entry(epoch).or_insert_with(|| {
                    let who = if leader == *node {
                        format!("two processes named {node}")
                    } else {
                        format!("{leader} and {node}")
                    };
                    Violation::of(CODE, format!("{who} wrote as leaders of epoch {epoch}"), [proof, record])
                });
            }
        }
    }
    found.into_values().collect()
}

/// A seal that was not above what its process had known to be sealed.
fn fallen(index: &Index<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (epoch, seals) in &index.seals {
        for seal in seals {
            let known = index.boot_of(seal).and_then(|boot| boot.sealed_before(seal.decision.since));
            if let Some((highest, proof)) = known.filter(|(highest, _)| highest >= epoch) {
                let what = format!("epoch {epoch} was sealed by {} after {highest} had been", seal.decision.node);
                found.push(Violation::of(CODE, what, [proof, seal]));
            }
        }
    }
    found
}

/// Returns whether a process sealed an epoch before an operation with this `since`.
pub(super) fn has_sealed(index: &Index<'_>, record: &Record, epoch: Epoch) -> bool {
    let decision = &record.decision;
    let own = index.seals.get(&epoch).map(Vec::as_slice).unwrap_or_default();
    own.iter().any(|seal| {
        let by = &seal.decision;
        debug_assert_eq!(by.what, What::EpochSeal);
        (&by.node, by.boot) == (&decision.node, decision.boot) && by.seq <= decision.since
    })
}

#[cfg(test)]
mod tests {
    use super::super::samples::{World, broken};
    use crate::decisions::Outcome;

    #[test]
    fn holds_while_sealed_epochs_rise_whoever_seals_them() {
        let mut world = World::new();
        world.seal("n1", 1).dispatch("n1", 1, 1, 1);
        world.seal("n2", 2).dispatch("n2", 2, 2, 1);
        world.seal_as("n1", 2, Outcome::Fenced).seal("n1", 5);
        assert_eq!(world.check(), []);
    }

    #[test]
    fn a_lease_that_is_granted_twice_is_no_breach_while_one_of_its_seals_is_refused() {
        let mut world = World::new();
        world.elect("n1", 4).elect("n2", 4).seal("n1", 4).seal_as("n2", 4, Outcome::Fenced);
        assert_eq!(world.check(), []);
    }

    #[test]
    fn an_epoch_that_is_sealed_twice_is_found_with_both_lines() {
        let mut world = World::new();
        world.seal("n1", 4).seal("n2", 4);
        assert_eq!(world.check(), broken("L1", "epoch 4 was sealed 2 times, by n1 and n2", &["n1:2", "n2:2"]));
    }

    #[test]
    fn a_store_that_begins_anew_with_its_process_seals_its_epochs_again() {
        let mut world = World::new();
        world.fleeting("n1").seal("n1", 1).restart("n1").fleeting("n1").seal("n1", 1);
        assert_eq!(world.check(), []);
    }

    #[test]
    fn an_epoch_that_falls_is_found() {
        let mut world = World::new();
        world.seal("n1", 4).seal("n1", 3);
        assert_eq!(world.check(), broken("L1", "epoch 3 was sealed by n1 after 4 had been", &["n1:2", "n1:3"]));
    }

    #[test]
    fn a_seal_that_overlaps_a_higher_one_of_the_same_process_is_none() {
        let mut world = World::new();
        world.seal("n1", 4).seal("n1", 3).last("n1").since = 1;
        assert_eq!(world.check(), []);
    }

    #[test]
    fn two_that_lead_in_one_epoch_are_found_although_one_of_them_never_sealed_it() {
        let mut world = World::new();
        world.seal("n1", 4).dispatch("n1", 4, 1, 1).dispatch("n2", 4, 2, 1);
        let found = world.check();
        assert_eq!(found[0], broken("L1", "n1 and n2 wrote as leaders of epoch 4", &["n1:3", "n2:2"])[0]);
        assert_eq!(found[1].invariant, "L2", "and one of them without its seal");
    }
}
