//! Seeds of the simulated cluster: none breaks a promise, a seed repeats itself, and what failed once is kept.

use convoke_sim::run::{self, Options, Summary};
use convoke_testkit::scale::Scaled;

/// The seeds are split into parts, which run side by side.
const SEEDS_OF_A_PART: Scaled<u64> = Scaled { quick: 50, full: 125 };
const SEEDS_RUN_TWICE: Scaled<u64> = Scaled { quick: 15, full: 30 };

/// Shows what failed, with the command that runs it again.
fn expect_nothing_broken(summary: &Summary, options: &Options) {
    let Some(failed) = summary.failed.first() else { return };
    let (faults, smallest) = run::shrink(failed, options);
    let faults: Vec<String> = faults.iter().map(convoke_sim::fault::Fault::line).collect();
    let seeds: Vec<u64> = summary.failed.iter().map(|outcome| outcome.seed).collect();
    let tail: Vec<&str> = smallest.lines.iter().rev().take(60).rev().map(String::as_str).collect();
    panic!(
        "{} of {} seeds failed: {seeds:?}\n{:#?}\nconvoke-sim --seeds 1 --from {}\nwith {faults:#?}:\n{}",
        summary.failed.len(),
        summary.seeds,
        failed.violations,
        failed.seed,
        tail.join("\n"),
    );
}

fn part(number: u64) {
    let seeds = SEEDS_OF_A_PART.get();
    let options = Options { from: 1 + number * seeds, seeds, ..Options::default() };
    expect_nothing_broken(&run::seeds(&options, |_, _| ()), &options);
}

#[test]
fn no_seed_of_the_first_part_breaks_a_promise() {
    part(0);
}

#[test]
fn no_seed_of_the_second_part_breaks_a_promise() {
    part(1);
}

#[test]
fn no_seed_of_the_third_part_breaks_a_promise() {
    part(2);
}

#[test]
fn no_seed_of_the_fourth_part_breaks_a_promise() {
    part(3);
}

#[test]
fn a_seed_that_runs_twice_leaves_the_same_trace() {
    let seeds = SEEDS_RUN_TWICE.get();
    let options = Options { from: 1, seeds, checks_twice: true, ..Options::default() };
    expect_nothing_broken(&run::seeds(&options, |_, _| ()), &options);
}

#[test]
fn another_seed_leaves_another_trace() {
    let number = |seed| run::seed(seed, &Options::default()).number;
    assert_ne!(number(1), number(2));
}

#[test]
fn without_faults_everything_ends_soon() {
    for seed in 1..=3 {
        let outcome = run::live(seed, &[], None, false);
        assert_eq!(outcome.violations, []);
        assert!(outcome.took_ms < 30_000, "seed {seed} took {} ms of virtual time", outcome.took_ms);
    }
}
