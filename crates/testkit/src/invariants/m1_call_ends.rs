//! M1: a call ends once: by its reply, an error or its deadline. Its end is true about its handler.

use super::Broken;
use super::calls::{Account, CallObservations, SeenCall};

/// Once all is quiet.
pub fn check(observations: &CallObservations) -> Vec<Broken> {
    let broken =
        |(number, call)| Some(Broken { invariant: "M1", what: format!("call {number} {}", complaint(&call)?) });
    observations.calls().into_iter().filter_map(broken).collect()
}

fn complaint(call: &SeenCall) -> Option<String> {
    match call {
        SeenCall { begins: 1, ends: 0, is_abandoned: true, .. } => None,
        SeenCall { begins: 1, ends: 1, account, runs, .. } => match (account, runs) {
            (Account::Ran, 0) => Some("got a reply, and nothing ran".into()),
            (Account::NothingRan, 1..) => Some("ran, and its caller got an error that nothing did".into()),
            _ => None,
        },
        SeenCall { begins: 1, ends, .. } => Some(format!("ended {ends} times")),
        SeenCall { begins, .. } => Some(format!("was made {begins} times")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn violations(observations: &CallObservations) -> Vec<String> {
        check(observations).into_iter().map(|broken| broken.what).collect()
    }

    #[test]
    fn a_call_that_never_ends_or_ends_twice_is_seen() {
        let observations = CallObservations::default();
        (1..=3).for_each(|number| observations.begun(number));
        [1, 3, 3].into_iter().for_each(|number| observations.ended(number, Account::Unsure));
        assert_eq!(violations(&observations), ["call 2 ended 0 times", "call 3 ended 2 times"]);
    }

    #[test]
    fn a_killed_caller_need_not_see_the_end_and_sees_it_once_at_most() {
        let observations = CallObservations::default();
        for number in 1..=3 {
            observations.begun(number);
            observations.abandon(number);
        }
        [2, 3, 3].into_iter().for_each(|number| observations.ended(number, Account::Unsure));
        assert_eq!(violations(&observations), ["call 3 ended 2 times"]);
    }

    #[test]
    fn what_nobody_made_or_two_made_is_seen() {
        let observations = CallObservations::default();
        [2, 2].into_iter().for_each(|number| observations.begun(number));
        [1, 2].into_iter().for_each(|number| observations.ended(number, Account::Unsure));
        assert_eq!(violations(&observations), ["call 1 was made 0 times", "call 2 was made 2 times"]);
    }

    #[test]
    fn an_end_that_is_not_true_is_seen() {
        let observations = CallObservations::default();
        for (number, account) in (1..).zip([Account::Ran, Account::NothingRan, Account::Unsure]) {
            for (number, has_run) in [(number, true), (10 + number, false)] {
                observations.begun(number);
                observations.ended(number, account);
                has_run.then(|| observations.ran(number));
            }
        }
        let expected =
            ["call 2 ran, and its caller got an error that nothing did", "call 11 got a reply, and nothing ran"];
        assert_eq!(violations(&observations), expected);
    }
}
