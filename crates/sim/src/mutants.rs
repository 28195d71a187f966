//! Removes one fence at a time, and finds the first seed in which that is noticed.

use std::time::{Duration, Instant};

use convoke_core::mutant::MUTANTS;

use crate::run::{self, Options, Outcome};

/// How many seeds may pass before a mutant must be caught.
pub const SEEDS_MAX: u64 = 2_000;

/// A mutant that was run.
#[derive(Debug)]
pub struct Caught {
    pub name: &'static str,
    /// What it removes.
    pub removes: &'static str,
    /// The first seed that failed; `None` if none did.
    pub outcome: Option<Outcome>,
    pub took: Duration,
}

/// Returns the name of a mutant as the switches know it.
pub fn find(name: &str) -> Option<&'static str> {
    MUTANTS.iter().map(|(known, _)| *known).find(|known| *known == name)
}

/// Runs seeds with a mutant until one fails.
pub fn catch(name: &'static str, options: &Options) -> Caught {
    let began = Instant::now();
    let options = Options { mutant: Some(name), stops_at_first: true, ..options.clone() };
    let outcome = run::seeds(&options, |_, _| ()).failed.into_iter().next();
    let removes = MUTANTS.iter().find(|(known, _)| *known == name).map_or("", |(_, removes)| removes);
    Caught { name, removes, outcome, took: began.elapsed() }
}

/// Returns the table of all mutants for `docs/evidence.md`.
pub fn table(caught: &[Caught]) -> String {
    let mut table =
        "| removed | what it is | violated | first seed | seconds |\n| --- | --- | --- | --- | --- |\n".to_owned();
    for Caught { name, removes, outcome, took } in caught {
        let (violated, seed) = match outcome {
            Some(outcome) => (invariants(outcome), outcome.seed.to_string()),
            None => ("**nothing**".into(), "–".into()),
        };
        table += &format!("| {name} | {removes} | {violated} | {seed} | {:.1} |\n", took.as_secs_f64());
    }
    table
}

/// Returns the invariants that a seed violates, once each.
pub fn invariants(outcome: &Outcome) -> String {
    let mut names: Vec<&str> = outcome.violations.iter().map(|violation| violation.invariant).collect();
    names.sort_unstable();
    names.dedup();
    names.join(", ")
}
