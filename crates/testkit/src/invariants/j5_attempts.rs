//! J5: attempts stay within the budget and add up; what is exhausted is a dead letter exactly once, and nothing else is.

use super::seen::DEAD;
use super::{Broken, Seen, SeenJob};

pub fn check(seen: &Seen) -> Vec<Broken> {
    let mut found = Vec::new();
    for (id, job) in &seen.jobs {
        found.extend(of(job).map(|what| format!("job {id} {what}")));
        let letters = seen.dead.iter().filter(|dead| *dead == id).count();
        let expected = usize::from(DEAD.contains(&job.status.as_str()));
        if letters != expected {
            found.push(format!("job {id} is {} and is {letters} times among the dead letters", job.status));
        }
    }
    let unknown = seen.dead.iter().filter(|dead| !seen.jobs.contains_key(*dead));
    found.extend(unknown.map(|dead| format!("dead letter {dead} is no job")));
    found.into_iter().map(|what| Broken { invariant: "J5", what }).collect()
}

fn of(job: &SeenJob) -> Option<String> {
    // A run that was released unfinished does not count.
    let counted = job.history.iter().filter(|run| run.status != "released").count() as u64;
    if counted != job.attempt {
        return Some(format!("shows {} attempts and has {counted} runs that count: {:?}", job.attempt, job.history));
    }
    if !job.redriven && job.attempt > job.max_retries + 1 {
        return Some(format!("had {} attempts of at most {}", job.attempt, job.max_retries + 1));
    }
    let numbers: Vec<u64> = job.history.iter().filter(|run| run.status != "released").map(|run| run.attempt).collect();
    let rising = numbers.iter().zip(1..).all(|(number, expected)| *number == expected);
    (!rising).then(|| format!("numbers its attempts {numbers:?}"))
}

#[cfg(test)]
mod tests {
    use super::super::seen::{job, seen};
    use super::*;

    const THREE: [(&str, &str); 3] = [("1", "failed"), ("2", "lost"), ("3", "failed")];

    #[test]
    fn holds_for_a_job_that_used_up_its_budget() {
        let exhausted = SeenJob { max_retries: 2, ..job("failed", &THREE) };
        assert_eq!(check(&seen([("a", exhausted)])), []);
    }

    #[test]
    fn an_attempt_too_many_is_found() {
        let over = SeenJob { max_retries: 1, ..job("failed", &THREE) };
        assert_eq!(check(&seen([("a", over.clone())])).len(), 1);
        assert_eq!(check(&seen([("a", SeenJob { redriven: true, ..over })])), [], "a redriven job has a new budget");
    }

    #[test]
    fn attempts_that_do_not_add_up_are_found() {
        assert_eq!(check(&seen([("a", SeenJob { attempt: 2, ..job("completed", &THREE) })])).len(), 1);
        let mut released = job("completed", &[("1", "released"), ("2", "completed")]);
        assert_eq!(check(&seen([("a", released.clone())])).len(), 1);
        released.attempt = 1;
        released.history[1].attempt = 1;
        assert_eq!(check(&seen([("a", released)])), []);
    }

    #[test]
    fn a_dead_letter_that_is_missing_doubled_or_undeserved_is_found() {
        let mut world = seen([("a", job("failed", &THREE)), ("b", job("completed", &[("1", "completed")]))]);
        assert_eq!(check(&world), []);
        world.dead = vec![];
        assert_eq!(check(&world).len(), 1);
        world.dead = vec!["a".into(), "a".into()];
        assert_eq!(check(&world).len(), 1);
        world.dead = vec!["a".into(), "b".into(), "c".into()];
        assert_eq!(check(&world).len(), 2);
    }
}
