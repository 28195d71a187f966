//! J3: every job ends: completed, failed, timed out or cancelled. To be asked once work has drained.

use super::seen::TERMINAL;
use super::{Broken, Seen};

pub fn check(seen: &Seen) -> Vec<Broken> {
    let open = seen.jobs.iter().filter(|(_, job)| !TERMINAL.contains(&job.status.as_str()));
    open.map(|(id, job)| Broken { invariant: "J3", what: format!("job {id} has not ended: it is {}", job.status) })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::seen::{job, seen};
    use super::*;

    #[test]
    fn only_what_has_ended_holds() {
        for status in TERMINAL {
            assert_eq!(check(&seen([("a", job(status, &[]))])), [], "{status}");
        }
        for status in ["created", "pending", "scheduled", "dispatched", "running", "", "Completed"] {
            assert_eq!(check(&seen([("a", job(status, &[]))])).len(), 1, "{status}");
        }
    }
}
