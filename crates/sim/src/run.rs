//! Runs seeds: one, one twice, or many on several threads; and finds the smallest plan that still fails.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;

use convoke_adapters::memory::SeededChance;
use convoke_core::mutant::set_mutant;

use crate::checks::{self, Violation};
use crate::fault::{self, Fault, Kind};
use crate::trace::Trace;
use crate::world::World;

/// What to run.
#[derive(Debug, Clone)]
pub struct Options {
    pub from: u64,
    pub seeds: u64,
    pub kinds: Vec<Kind>,
    pub mutant: Option<&'static str>,
    /// Each seed runs twice, and the traces are compared.
    pub checks_twice: bool,
    pub threads: usize,
    /// No further seeds are begun after one that failed.
    pub stops_at_first: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            from: 1,
            seeds: 100,
            kinds: Kind::ALL.to_vec(),
            mutant: None,
            checks_twice: false,
            threads: 1,
            stops_at_first: false,
        }
    }
}

/// What became of a seed.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    pub seed: u64,
    pub violations: Vec<Violation>,
    pub reached: BTreeMap<&'static str, u64>,
    /// The number of its trace: two runs of a seed have the same.
    pub number: u64,
    pub steps: u64,
    pub took_ms: u64,
    pub lines: Vec<String>,
}

/// What became of many seeds.
#[derive(Debug, Default)]
pub struct Summary {
    pub seeds: u64,
    pub failed: Vec<Outcome>,
    pub reached: BTreeMap<&'static str, u64>,
    pub steps: u64,
}

/// Returns the plan of a seed.
pub fn plan(seed: u64, kinds: &[Kind]) -> Vec<Fault> {
    fault::plan(&SeededChance::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x51), kinds)
}

thread_local! {
    /// What panicked in the world of this thread.
    static PANICS: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// Keeps what panics in a world from the terminal: it becomes a violation.
fn collect_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let is_collected = PANICS.with(|panics| match &mut *panics.borrow_mut() {
                Some(panics) => {
                    panics.push(info.to_string());
                    true
                }
                None => false,
            });
            if !is_collected {
                before(info);
            }
        }));
    });
}

/// Runs one seed with this plan. `is_read`: with the lines of its trace.
pub fn live(seed: u64, faults: &[Fault], mutant: Option<&'static str>, is_read: bool) -> Outcome {
    collect_panics();
    set_mutant(mutant);
    PANICS.with(|panics| *panics.borrow_mut() = Some(Vec::new()));
    let ended = catch_unwind(AssertUnwindSafe(|| {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().start_paused(true).build().expect("a runtime without I/O");
        runtime.block_on(World::live(seed, faults, Trace::new(is_read)))
    }));
    set_mutant(None);
    let panics = PANICS.with(|panics| panics.borrow_mut().take()).unwrap_or_default();
    let Ok(mut ended) = ended else {
        let violations = panics.into_iter().map(|what| Violation { invariant: "panic", what }).collect();
        return Outcome { seed, violations, ..Outcome::default() };
    };
    ended.panics.extend(panics);
    Outcome {
        seed,
        violations: checks::violations(&ended),
        number: ended.trace.number(),
        steps: ended.trace.steps(),
        took_ms: ended.took_ms,
        lines: ended.trace.lines().to_vec(),
        reached: ended.reached,
    }
}

/// Runs one seed, twice if the options say so.
pub fn seed(seed: u64, options: &Options) -> Outcome {
    let faults = plan(seed, &options.kinds);
    let mut outcome = live(seed, &faults, options.mutant, false);
    if options.checks_twice && outcome.number != live(seed, &faults, options.mutant, false).number {
        outcome.violations.push(Violation { invariant: "determinism", what: first_difference(seed, &faults, options) });
    }
    outcome
}

fn first_difference(seed: u64, faults: &[Fault], options: &Options) -> String {
    let [one, other] = [(); 2].map(|()| live(seed, faults, options.mutant, true).lines);
    let differs = one.iter().zip(&other).position(|(one, other)| one != other);
    match differs {
        Some(place) => format!("two runs differ at line {place}: {:?} and {:?}", one[place], other[place]),
        None => "two runs differ".into(),
    }
}

/// Runs many seeds. `progress` is called with the number of those that have ended.
pub fn seeds(options: &Options, mut progress: impl FnMut(u64, usize)) -> Summary {
    let (next, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let (sender, outcomes) = mpsc::channel();
    let mut summary = Summary::default();
    std::thread::scope(|scope| {
        for _ in 0..options.threads.max(1) {
            let (sender, next, is_over) = (sender.clone(), &next, &is_over);
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    if place >= options.seeds {
                        return;
                    }
                    let outcome = seed(options.from + place, options);
                    if options.stops_at_first && !outcome.violations.is_empty() {
                        is_over.store(true, Ordering::Relaxed);
                    }
                    if sender.send(outcome).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        for outcome in outcomes {
            summary.seeds += 1;
            summary.steps += outcome.steps;
            for (branch, count) in &outcome.reached {
                *summary.reached.entry(branch).or_default() += count;
            }
            if !outcome.violations.is_empty() {
                summary.failed.push(outcome);
            }
            progress(summary.seeds, summary.failed.len());
        }
    });
    summary.failed.sort_by_key(|outcome| outcome.seed);
    summary
}

/// Returns the smallest part of the plan with which the seed still violates the same invariant, and what happens then.
pub fn shrink(failed: &Outcome, options: &Options) -> (Vec<Fault>, Outcome) {
    let mut faults = plan(failed.seed, &options.kinds);
    let Some(first) = failed.violations.first().map(|violation| violation.invariant) else {
        return (faults, failed.clone());
    };
    let fails = |faults: &[Fault]| {
        let outcome = live(failed.seed, faults, options.mutant, false);
        outcome.violations.iter().any(|violation| violation.invariant == first)
    };
    let mut place = 0;
    while place < faults.len() {
        let mut fewer = faults.clone();
        fewer.remove(place);
        if fails(&fewer) {
            faults = fewer;
        } else {
            place += 1;
        }
    }
    let outcome = live(failed.seed, &faults, options.mutant, true);
    (faults, outcome)
}
