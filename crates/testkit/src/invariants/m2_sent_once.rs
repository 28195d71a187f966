//! M2: a call is never sent twice by us: no handler runs twice for it.

use super::Broken;
use super::calls::CallObservations;

pub fn check(observations: &CallObservations) -> Vec<Broken> {
    let broken = |(number, call): (u64, super::SeenCall)| {
        (call.runs > 1).then(|| Broken { invariant: "M2", what: format!("call {number} ran {} times", call.runs) })
    };
    observations.calls().into_iter().filter_map(broken).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_ran_twice_is_seen() {
        let observations = CallObservations::default();
        (1..=3).for_each(|number| observations.begun(number));
        [2, 3, 3].into_iter().for_each(|number| observations.ran(number));
        let found: Vec<_> = check(&observations).into_iter().map(|broken| broken.what).collect();
        assert_eq!(found, ["call 3 ran 2 times"]);
    }
}
