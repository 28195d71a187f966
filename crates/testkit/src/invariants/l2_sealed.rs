//! L2: no write with an epoch below the sealed one commits.

use std::collections::BTreeMap;

use convoke_core::jobs::Status;

use super::{Broken, Change, Entry, Row};

/// The writes to the store, in its order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audit {
    Sealed(u64),
    /// A fenced write that was committed.
    Wrote(u64),
    /// A fenced write that was refused.
    Refused(u64),
}

pub fn check(audit: &[Audit]) -> Vec<Broken> {
    let mut sealed = 0;
    let mut found = Vec::new();
    for entry in audit {
        match *entry {
            Audit::Sealed(epoch) if epoch <= sealed => found.push(format!("epoch {epoch} was sealed over {sealed}")),
            Audit::Sealed(epoch) => sealed = epoch,
            Audit::Wrote(epoch) if epoch < sealed => found.push(format!("{epoch} wrote although {sealed} was sealed")),
            Audit::Wrote(epoch) if epoch > sealed => found.push(format!("{epoch} wrote before it was sealed")),
            Audit::Refused(epoch) if epoch == sealed => found.push(format!("{epoch} was refused in its own term")),
            Audit::Wrote(_) | Audit::Refused(_) => {}
        }
    }
    found.into_iter().map(|what| Broken { invariant: "L2", what }).collect()
}

/// The seals and the leaders' writes of a store's chronicle. A leader wrote with the epoch that it had last sealed; one
/// that never did, with none.
pub fn audit(entries: &[Entry]) -> Vec<Audit> {
    let mut terms: BTreeMap<&str, u64> = BTreeMap::new();
    let mut audit = Vec::new();
    for Entry { writer, change } in entries {
        match change {
            Change::Sealed(epoch) => {
                terms.insert(writer, *epoch);
                audit.push(Audit::Sealed(*epoch));
            }
            Change::Job { before: Some(before), after: Some(after), .. } if is_a_leaders(before, after) => {
                audit.push(Audit::Wrote(terms.get(writer.as_str()).copied().unwrap_or_default()));
            }
            Change::Job { .. } => {}
        }
    }
    audit
}

/// Changes of a job that only a leader makes, whatever else others may write: it makes one that is due pending, and it
/// dispatches.
fn is_a_leaders(before: &Row, after: &Row) -> bool {
    let waited = matches!(before.status, Status::Pending | Status::Scheduled);
    waited
        && (before.status, after.status) != (Status::Pending, Status::Pending)
        && matches!(after.status, Status::Pending | Status::Dispatched)
}

#[cfg(test)]
mod tests {
    use super::super::chronicle::{life, row};
    use super::Audit::*;
    use super::*;

    #[test]
    fn holds_while_former_leaders_are_refused() {
        assert_eq!(check(&[Sealed(1), Wrote(1), Sealed(3), Refused(1), Wrote(3)]), []);
    }

    #[test]
    fn a_late_write_of_a_former_leader_is_found() {
        assert_eq!(check(&[Sealed(1), Sealed(2), Wrote(1)]).len(), 1);
    }

    #[test]
    fn a_write_before_its_seal_and_a_refusal_in_its_term_are_found() {
        assert_eq!(check(&[Sealed(1), Wrote(2)]).len(), 1);
        assert_eq!(check(&[Sealed(1), Refused(1)]).len(), 1);
    }

    #[test]
    fn a_seal_that_does_not_rise_is_found() {
        assert_eq!(check(&[Sealed(2), Sealed(2)]).len(), 1);
        assert_eq!(check(&[Sealed(2), Sealed(1)]).len(), 1);
    }

    #[test]
    fn a_dispatch_counts_for_the_term_of_its_writer() {
        let seal = |writer: &str, epoch| Entry { writer: writer.into(), change: Change::Sealed(epoch) };
        let dispatch =
            |writer| life("a", &[("client", row(Status::Pending, None)), (writer, row(Status::Dispatched, None))]);
        let history = |writer| [vec![seal("n1", 4), seal("n2", 5)], dispatch(writer)].concat();
        assert_eq!(audit(&history("n2")), [Sealed(4), Sealed(5), Wrote(5)]);
        assert_eq!(check(&audit(&history("n2"))), []);
        assert_eq!(check(&audit(&history("n1"))).len(), 1, "a former leader");
        assert_eq!(check(&audit(&history("vandal"))).len(), 1, "one that never led");
    }
}
