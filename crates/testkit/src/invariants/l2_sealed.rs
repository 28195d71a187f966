//! L2: no write with an epoch below the sealed one commits.

use super::Broken;

/// What happened at the store, in its order.
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

#[cfg(test)]
mod tests {
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
}
