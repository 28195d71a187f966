//! J6: a run has one owner, which changes by compare-and-set.
//!
//! A node enters as the owner of a run by a dispatch that names it, by a claim of a run that nobody owns, by taking it over,
//! or by the gateway that hands it out. A run is claimed as free by one node at most; and a node cannot lose a run more often
//! than it entered. A killed node may have lost the line by which it entered, so that as many entries may be missing as
//! starts of processes lack their end.

use std::collections::{BTreeMap, BTreeSet};

use super::index::Index;
use super::{Record, Violation};
use crate::decisions::{ClaimKind, Decision, Outcome, What};
use crate::ids::{ExecutionId, NodeId};

const CODE: &str = "J6";

pub fn check(index: &Index<'_>) -> Vec<Violation> {
    let missing = index.incomplete_boots();
    // Another process may be the one by which a node entered.
    let knows_all = index.silent_nodes().is_empty();
    let of = |(run, lines): (&ExecutionId, &Vec<&Record>)| {
        claimed_by_two(index, *run, lines).or_else(|| lost_too_often(*run, lines, missing).filter(|_| knows_all))
    };
    index.runs.iter().filter_map(of).collect()
}

/// The node that became the owner by this line, or may have.
fn entered(decision: &Decision) -> Option<&NodeId> {
    let enters = match decision.what {
        What::JobsDispatch | What::RunTake | What::RunClaim | What::RunReport => decision.may_have_happened(),
        _ => false,
    };
    // A node that was too late to take a run may find itself the owner: an earlier reply was lost.
    let found = decision.what == What::RunTake && decision.outcome == Outcome::NotOwner;
    let owner = if found { &decision.before } else { &decision.after };
    owner.as_ref().filter(|_| enters || found).and_then(|mark| mark.name())
}

fn claims_as_free(decision: &Decision) -> bool {
    matches!(decision.what, What::RunClaim | What::RunReport) && decision.claim == Some(ClaimKind::IfFree)
}

/// A run that two nodes claimed while each took it for free.
fn claimed_by_two(index: &Index<'_>, run: ExecutionId, lines: &[&Record]) -> Option<Violation> {
    let mut first: BTreeMap<&NodeId, &Record> = BTreeMap::new();
    // Nodes that entered otherwise: their later claims confirm what they own.
    let mut others: BTreeSet<&NodeId> = BTreeSet::new();
    for record in lines {
        let Some(node) = entered(&record.decision) else { continue };
        if !claims_as_free(&record.decision) {
            others.insert(node);
        } else if record.decision.is_accepted() {
            first.entry(node).or_insert(record);
        }
    }
    first.retain(|node, record| !others.contains(node) && has_whole_past(index, node, record));
    if first.len() < 2 {
        return None;
    }
    let names: Vec<&str> = first.keys().map(|node| node.as_str()).collect();
    let what = format!("run {run} was free when {} claimed it", names.join(" and "));
    Some(Violation::of(CODE, what, first.into_values()))
}

/// Returns whether no earlier line of this node about the run can be missing.
fn has_whole_past(index: &Index<'_>, node: &NodeId, record: &Record) -> bool {
    let own = (node, record.decision.boot);
    let mut boots = index.boots.range((node, 0)..=(node, u32::MAX));
    boots.all(|((_, boot), lines)| {
        lines.is_contiguous() && lines.begin().is_some() && ((*boot == own.1) || lines.has_ended())
    }) && &record.decision.node == node
}

/// A node from which a run was taken more often than it had it.
fn lost_too_often(run: ExecutionId, lines: &[&Record], missing: usize) -> Option<Violation> {
    // An orphan may be taken by whoever still expects an earlier owner.
    let orphaned =
        lines.iter().filter(|it| it.decision.what == What::RunOrphan && it.decision.may_have_happened()).count();
    let mut taken: BTreeMap<&NodeId, Vec<&Record>> = BTreeMap::new();
    for record in lines {
        let decision = &record.decision;
        let (before, after) = (decision.before.as_ref().and_then(|it| it.name()), entered(decision));
        if decision.what == What::RunTake && decision.is_accepted() && before != after {
            taken.entry(before?).or_default().push(record);
        }
    }
    let entries = |node: &NodeId| {
        let own = || lines.iter().filter(|it| entered(&it.decision) == Some(node));
        // A run is claimed as free once, and confirmed by further claims.
        let free = own().any(|it| claims_as_free(&it.decision));
        own().filter(|it| !claims_as_free(&it.decision)).count() + usize::from(free)
    };
    // A run without an owner may be taken by whoever expects one: once, if it is not known who was the first owner.
    let has_taken = |node: &NodeId| taken.values().flatten().any(|it| entered(&it.decision) == Some(node));
    let is_first = |decision: &Decision| match entered(decision) {
        Some(_) if decision.what == What::JobsDispatch => true,
        Some(node) => claims_as_free(decision) && !has_taken(node),
        None => false,
    };
    let unexplained = usize::from(!lines.iter().any(|it| is_first(&it.decision)));
    let allowed = |node: &NodeId| entries(node) + unexplained + orphaned + missing;
    let (node, taken) = taken.iter().find(|(node, taken)| taken.len() > allowed(node))?;
    let what = format!("run {run} was taken from {node} {} times, which had it {} times", taken.len(), entries(node));
    Some(Violation::of(CODE, what, taken.iter().copied()))
}

#[cfg(test)]
mod tests {
    use super::super::samples::{World, broken, run};
    use crate::decisions::Outcome;
    use crate::jobs::ExecutionStatus::*;

    #[test]
    fn holds_for_a_run_that_is_handed_from_node_to_node() {
        let mut world = World::new();
        world.claim("n1", 1, 1).takes("n2", 1, 1, "n1").takes("n1", 1, 1, "n2").takes("n3", 1, 1, "n1");
        world.claim("n3", 1, 1).report("n3", 1, 1, Completed);
        world.end("n1").end("n2").end("n3");
        assert_eq!(world.check(), []);
    }

    #[test]
    fn a_run_that_two_nodes_claim_as_free_is_found() {
        let mut world = World::new();
        world.claim("n1", 1, 1).claim("n2", 1, 1);
        let what = format!("run {} was free when n1 and n2 claimed it", run(1));
        assert_eq!(world.check(), broken("J6", &what, &["n1:2", "n2:2"]));
    }

    #[test]
    fn a_node_that_was_killed_may_have_taken_what_it_confirms_after_its_restart() {
        let mut world = World::new();
        world.claim("n1", 1, 1).restart("n2").claim("n2", 1, 1);
        assert_eq!(world.check(), []);
    }

    #[test]
    fn a_node_whose_claim_was_refused_or_that_took_the_run_is_no_second_owner() {
        let mut world = World::new();
        world.claim("n1", 1, 1).claim("n2", 1, 1).last("n2").outcome = Outcome::NotOwner;
        world.takes("n3", 1, 1, "n1").claim("n3", 1, 1);
        assert_eq!(world.check(), []);
    }

    #[test]
    fn a_run_that_is_taken_twice_from_one_node_is_found() {
        let mut world = World::new();
        world.claim("n1", 1, 1).takes("n2", 1, 1, "n1").takes("n3", 1, 1, "n1").end("n1").end("n2").end("n3");
        let what = format!("run {} was taken from n1 2 times, which had it 1 times", run(1));
        assert_eq!(world.check(), broken("J6", &what, &["n2:2", "n3:2"]));
        world.restart("n1");
        assert_eq!(world.check(), [], "a start that has not ended may have lost the line");
    }
}
