//! `convoke-sim`: runs seeds of the simulated cluster, and shows what they violate.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use convoke_core::mutant::MUTANTS;
use convoke_sim::branches::BRANCHES;
use convoke_sim::fault::Kind;
use convoke_sim::mutants;
use convoke_sim::run::{self, Options, Outcome, Summary};
use serde_json::json;

/// Seeds from which on every branch must be reached.
const SEEDS_OF_ALL_BRANCHES: u64 = 500;
/// Around the table of mutants in a document.
const MARKERS: [&str; 2] = ["<!-- fences -->", "<!-- /fences -->"];
/// Lines of a trace that are shown: the last ones.
const LINES_SHOWN: usize = 120;

/// Runs a cluster of three nodes, their workers and clients in one thread for each seed, with faults, and checks that
/// nothing promised was broken.
#[derive(Parser)]
#[command(name = "convoke-sim", version, about)]
struct Args {
    /// How many seeds to run.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// The kinds of faults, separated by commas; `none` for none. All if absent; `--list` shows them.
    #[arg(long, value_name = "A,B,…")]
    faults: Option<String>,
    /// Remove a fence: the run is expected to fail. `--list` shows the names.
    #[arg(long, value_name = "NAME")]
    mutant: Option<String>,
    /// Run each seed twice and compare the traces.
    #[arg(long)]
    check_twice: bool,
    /// Remove each fence in turn, and print the table of what was noticed; with a file, write it between that file's markers.
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-", conflicts_with_all = ["mutant", "json"])]
    evidence: Option<String>,
    /// Write one JSON object for each seed that failed, and one for the run.
    #[arg(long)]
    json: bool,
    /// Show the whole trace of the first seed that failed, not only its end.
    #[arg(long)]
    trace: bool,
    /// How many seeds run at once. As many as there are processors if absent.
    #[arg(long)]
    threads: Option<usize>,
    /// Print the kinds of faults, the mutants and the branches, and end.
    #[arg(long)]
    list: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    if args.list {
        list();
        return ExitCode::SUCCESS;
    }
    let options = match options(&args) {
        Ok(options) => options,
        Err(message) => {
            eprintln!("convoke-sim: {message}");
            return ExitCode::from(2);
        }
    };
    match &args.evidence {
        Some(file) => evidence(file, &options),
        None => simulate(&args, &options),
    }
}

fn options(args: &Args) -> Result<Options, String> {
    if args.seeds == 0 {
        return Err("--seeds: expected at least 1, got 0".into());
    }
    let kinds = match args.faults.as_deref() {
        None => Kind::ALL.to_vec(),
        Some("none") => Vec::new(),
        Some(text) => text
            .split(',')
            .map(|name| name.trim().parse().map_err(|error| format!("--faults: {error}")))
            .collect::<Result<Vec<Kind>, String>>()?,
    };
    let mutant = match &args.mutant {
        None => None,
        Some(name) => {
            Some(mutants::find(name).ok_or_else(|| format!("--mutant: {name:?} is none; --list shows the names"))?)
        }
    };
    let threads = args.threads.or_else(|| std::thread::available_parallelism().ok().map(usize::from)).unwrap_or(1);
    Ok(Options {
        from: args.from,
        seeds: args.seeds,
        kinds,
        mutant,
        checks_twice: args.check_twice,
        threads,
        stops_at_first: false,
    })
}

fn list() {
    println!("Faults:");
    Kind::ALL.iter().for_each(|kind| println!("  {}", kind.name()));
    println!("Mutants:");
    MUTANTS.iter().for_each(|(name, removes)| println!("  {name:<42} {removes}"));
    println!("Branches:");
    BRANCHES.iter().for_each(|(name, shows)| println!("  {name:<52} {shows}"));
}

fn simulate(args: &Args, options: &Options) -> ExitCode {
    let (began, is_terminal) = (Instant::now(), std::io::stderr().is_terminal());
    let summary = run::seeds(options, |ended, failed| {
        if is_terminal && ended % 10 == 0 {
            eprint!("\r{ended} of {} seeds, {failed} failed ", options.seeds);
            let _ = std::io::stderr().flush();
        }
    });
    if is_terminal {
        eprint!("\r");
    }
    let missing = missing_branches(&summary, options);
    if args.json {
        report_json(&summary, &missing, options);
    } else {
        report(args, &summary, options);
        let rate = summary.seeds as f64 * 60.0 / began.elapsed().as_secs_f64().max(0.001);
        println!("{} seeds, {} failed, {rate:.0} seeds a minute", summary.seeds, summary.failed.len());
        for branch in &missing {
            println!("not reached: {branch}");
        }
    }
    if summary.failed.is_empty() && missing.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Branches that such a run must reach and has not.
fn missing_branches(summary: &Summary, options: &Options) -> Vec<&'static str> {
    let expects_all =
        options.seeds >= SEEDS_OF_ALL_BRANCHES && options.mutant.is_none() && options.kinds.len() == Kind::ALL.len();
    let missing = BRANCHES.iter().map(|(name, _)| *name).filter(|name| !summary.reached.contains_key(name));
    if expects_all { missing.collect() } else { Vec::new() }
}

fn report(args: &Args, summary: &Summary, options: &Options) {
    for (place, failed) in summary.failed.iter().enumerate() {
        println!("seed {} fails:", failed.seed);
        print_violations(failed);
        println!("  replay: {}", replay(failed.seed, options));
        // One is enough to read; the others are named.
        if place > 0 {
            continue;
        }
        let (faults, smallest) = run::shrink(failed, options);
        println!("  with as few faults as possible:");
        faults.iter().for_each(|fault| println!("    {}", fault.line()));
        print_violations(&smallest);
        let shown = if args.trace { smallest.lines.len() } else { LINES_SHOWN };
        let skipped = smallest.lines.len().saturating_sub(shown);
        if skipped > 0 {
            println!("  ({skipped} lines before these: --trace)");
        }
        smallest.lines.iter().skip(skipped).for_each(|line| println!("  {line}"));
    }
}

fn print_violations(outcome: &Outcome) {
    for violation in outcome.violations.iter().take(10) {
        println!("  {}: {}", violation.invariant, violation.what);
    }
}

/// Returns the command that runs a seed again.
fn replay(seed: u64, options: &Options) -> String {
    let mut command = format!("convoke-sim --seeds 1 --from {seed}");
    if options.kinds.len() != Kind::ALL.len() {
        let names: Vec<&str> = options.kinds.iter().map(|kind| kind.name()).collect();
        command += &format!(" --faults {}", if names.is_empty() { "none".into() } else { names.join(",") });
    }
    if let Some(mutant) = options.mutant {
        command += &format!(" --mutant '{mutant}'");
    }
    if options.checks_twice {
        command += " --check-twice";
    }
    command
}

fn report_json(summary: &Summary, missing: &[&str], options: &Options) {
    for failed in &summary.failed {
        let (faults, _) = run::shrink(failed, options);
        let (violations, replay) = (&failed.violations, replay(failed.seed, options));
        println!("{}", json!({ "seed": failed.seed, "violations": violations, "faults": faults, "replay": replay }));
    }
    let failed: Vec<u64> = summary.failed.iter().map(|outcome| outcome.seed).collect();
    let reached = &summary.reached;
    println!("{}", json!({ "seeds": summary.seeds, "failed": failed, "reached": reached, "missing": missing }));
}

fn evidence(file: &str, options: &Options) -> ExitCode {
    let options = Options { seeds: mutants::SEEDS_MAX, ..options.clone() };
    let mut all = Vec::new();
    for (name, _) in MUTANTS {
        let caught = mutants::catch(name, &options);
        let found = caught.outcome.as_ref().map_or("nothing".into(), mutants::invariants);
        eprintln!("{name}: {found}");
        all.push(caught);
    }
    let table = mutants::table(&all);
    if file == "-" {
        print!("{table}");
    } else if let Err(message) = write_between_markers(file, &table) {
        eprintln!("convoke-sim: {message}");
        return ExitCode::from(2);
    }
    if all.iter().all(|caught| caught.outcome.is_some()) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Replaces what a document has between the markers of this table.
fn write_between_markers(file: &str, table: &str) -> Result<(), String> {
    let document = std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
    let [begin, end] = MARKERS;
    let (before, rest) = document.split_once(begin).ok_or_else(|| format!("{file}: expected the marker {begin}"))?;
    let (_, after) = rest.split_once(end).ok_or_else(|| format!("{file}: expected the marker {end}"))?;
    std::fs::write(file, format!("{before}{begin}\n{table}{end}{after}")).map_err(|error| format!("{file}: {error}"))
}
