//! L1: one holder of an epoch, and epochs rise. L2: no write below the sealed epoch. L3: nobody leads beyond the lease.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Violation;
use crate::history::{Entry, Record};

pub fn check(records: &[Record]) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut sealed: BTreeMap<u64, &Arc<str>> = BTreeMap::new();
    for Record { at_ms, by, what } in records {
        match what {
            Entry::Sealed { epoch, before } => {
                if let Some(other) = sealed.insert(*epoch, by) {
                    found.push(Violation::new("L1", format!("epoch {epoch} was sealed by {other} and by {by}")));
                }
                if epoch <= before {
                    found.push(Violation::new("L1", format!("{by} sealed epoch {epoch} after {before}")));
                }
            }
            Entry::Fenced { what, epoch, sealed, is_refused: false } if epoch < sealed => {
                let what = format!("{what} of {by} with epoch {epoch} was applied after {sealed} was sealed");
                found.push(Violation::new("L2", what));
            }
            Entry::Acts { what, epoch, lease_until_ms: Some(until_ms) } if at_ms > until_ms => {
                let what =
                    format!("{by} began {what} at {at_ms} ms; its lease of epoch {epoch} ended at {until_ms} ms");
                found.push(Violation::new("L3", what));
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::records;
    use super::*;

    fn found(entries: impl IntoIterator<Item = (&'static str, Entry)>) -> Vec<&'static str> {
        check(&records(entries)).iter().map(|violation| violation.invariant).collect()
    }

    #[test]
    fn an_epoch_that_two_seal_or_that_falls_is_found() {
        let seal = |epoch, before| Entry::Sealed { epoch, before };
        assert!(found([("n1", seal(1, 0)), ("n2", seal(2, 1))]).is_empty());
        assert_eq!(found([("n1", seal(2, 0)), ("n2", seal(2, 1))]), ["L1"]);
        assert_eq!(found([("n1", seal(3, 0)), ("n2", seal(2, 3))]), ["L1"]);
    }

    #[test]
    fn a_write_below_the_sealed_epoch_is_found_unless_it_was_refused() {
        let write = |is_refused| Entry::Fenced { what: "dispatch", epoch: 1, sealed: 2, is_refused };
        assert!(found([("n1", write(true))]).is_empty());
        assert_eq!(found([("n1", write(false))]), ["L2"]);
    }

    #[test]
    fn a_leader_that_acts_beyond_its_lease_is_found() {
        let acts = |until| Entry::Acts { what: "dispatch", epoch: 1, lease_until_ms: until };
        let waits = || Entry::Resigned { epoch: 9 };
        assert!(found([("n1", waits()), ("n1", acts(Some(1))), ("n1", acts(None))]).is_empty());
        assert_eq!(found([("n1", waits()), ("n1", waits()), ("n1", acts(Some(1)))]), ["L3"]);
    }
}
