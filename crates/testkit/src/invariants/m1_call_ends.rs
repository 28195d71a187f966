//! M1: a call ends once: by its reply, an error or its deadline.

use super::Broken;
use super::calls::CallLedger;

/// Once all is quiet.
pub fn check(ledger: &CallLedger) -> Vec<Broken> {
    let broken = |(number, call): (usize, super::SeenCall)| {
        (call.ends != 1).then(|| Broken { invariant: "M1", what: format!("call {number} ended {} times", call.ends) })
    };
    ledger.calls().into_iter().enumerate().filter_map(broken).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_never_ends_or_ends_twice_is_seen() {
        let ledger = CallLedger::default();
        let [once, never, twice] = [ledger.begin(), ledger.begin(), ledger.begin()];
        [once, twice, twice].into_iter().for_each(|number| ledger.ended(number));
        let said: Vec<_> = check(&ledger).into_iter().map(|broken| broken.what).collect();
        assert_eq!(said, [format!("call {never} ended 0 times"), format!("call {twice} ended 2 times")]);
    }
}
