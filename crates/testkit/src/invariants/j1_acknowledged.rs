//! J1: an acknowledged enqueue survives every allowed crash, as it was asked for.

use super::{Broken, Entries, Seen};

pub fn check(entries: &Entries, seen: &Seen) -> Vec<Broken> {
    let broken = |what| Broken { invariant: "J1", what };
    let mut found = Vec::new();
    for (id, asked) in &entries.acknowledged {
        match seen.jobs.get(id) {
            None => found.push(broken(format!("job {id} was acknowledged and is gone"))),
            Some(job) if (&job.job_type, &job.queue) != (&asked.job_type, &asked.queue) => {
                let (job_type, queue) = (&job.job_type, &job.queue);
                found.push(broken(format!("job {id} was {asked:?} and is now {job_type} in {queue}")));
            }
            Some(_) => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::Observations;
    use super::super::seen::{job, seen};
    use super::*;

    fn observations() -> Entries {
        let observations = Observations::default();
        observations.acknowledged("a", "t", "q");
        observations.acknowledged("b", "t", "q");
        observations.entries()
    }

    #[test]
    fn holds_where_all_are_there_and_also_some_that_nobody_was_told_of() {
        let seen = seen([
            ("a", job("pending", &[])),
            ("b", job("completed", &[("1", "completed")])),
            ("c", job("pending", &[])),
        ]);
        assert_eq!(check(&observations(), &seen), []);
    }

    #[test]
    fn a_lost_job_is_found() {
        let found = check(&observations(), &seen([("a", job("pending", &[]))]));
        assert_eq!(found.len(), 1);
        assert!(found[0].what.contains("job b"), "{found:?}");
    }

    #[test]
    fn a_job_that_came_back_as_another_is_found() {
        let mut other = job("pending", &[]);
        other.queue = "elsewhere".into();
        assert_eq!(check(&observations(), &seen([("a", other), ("b", job("pending", &[]))])).len(), 1);
    }
}
