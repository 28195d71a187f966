//! Checks a protocol in every order of events, for small numbers of processes, messages and faults.
//!
//! A model's state holds the state machines of the product, beside a minimal store and network; its actions are what can
//! happen next. [`holds`] visits every state that can be reached. It panics if a property that must always hold fails
//! in one of them, or if a state that must be reachable is not reached: a model in which nothing happens proves nothing.
//! [`fails`] is for a model without one of the rules: it panics unless the check finds the fault.
//!
//! `CONVOKE_TEST_SCALE=full` selects the larger numbers. Every check prints its figures; with `CONVOKE_EVIDENCE=write` it
//! also writes them to `docs/evidence.md`, as one row of the table between two markers.

use std::fmt::Debug;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use stateright::{Checker, Expectation, HasDiscoveries, Model};

/// Returns the number for this run.
pub fn scaled<T>(quick: T, full: T) -> T {
    if is_full() { full } else { quick }
}

/// Returns the hash of a value, by which states of models are compared.
pub fn digest(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

fn is_full() -> bool {
    std::env::var("CONVOKE_TEST_SCALE").is_ok_and(|scale| scale == "full")
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Visits every state of a model. Panics if a property does not hold.
pub fn holds<M>(name: &str, sizes: &str, model: M)
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq + 'static,
{
    let checker = model.checker().threads(threads()).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let (states, steps, depth) = (checker.unique_state_count(), checker.state_count(), checker.max_depth());
    let discoveries = checker.discoveries();
    let mut always = 0;
    for property in checker.model().properties() {
        match (&property.expectation, discoveries.get(property.name)) {
            (Expectation::Sometimes, None) => panic!("{name}: never: {}", property.name),
            (Expectation::Sometimes, Some(_)) => {}
            (_, Some(path)) => {
                panic!("{name}: not always: {}, after:\n{:#?}", property.name, path.clone().into_actions())
            }
            (_, None) => always += 1,
        }
    }
    let reached = discoveries.len();
    let scale = scaled("quick", "full");
    println!("{name} ({sizes}): {states} states, {steps} steps, depth {depth}, {always} always, {reached} sometimes");
    write_row("models", &[name, sizes, scale, &with_commas(states), &with_commas(steps), &depth.to_string()]);
}

/// Panics unless the check of a model that lacks a rule finds that `property` does not hold.
pub fn fails<M>(name: &str, lacks: &str, model: M, property: &'static str)
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq + 'static,
{
    // With one thread the first failure that is found is a shortest one.
    let checker = model.checker().finish_when(HasDiscoveries::AnyOf([property].into())).spawn_bfs().join();
    let Some(path) = checker.discovery(property) else {
        panic!("{name} without {lacks}: nothing shows that it is not always so: {property}");
    };
    let actions = path.into_actions();
    println!("{name} without {lacks}: not always: {property}, after {} steps: {actions:?}", actions.len());
    write_row("models-without", &[name, lacks, property, &actions.len().to_string()]);
}

fn with_commas(number: usize) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(|group| String::from_utf8_lossy(group));
    groups.collect::<Vec<_>>().join(",")
}

/// Replaces the row of the table whose first two cells are these, or adds it.
fn write_row(section: &str, cells: &[&str]) {
    if std::env::var("CONVOKE_EVIDENCE").is_ok_and(|value| value == "write") {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/evidence.md");
        // Tests in other processes write their rows at the same time.
        let lock = File::open(&page).expect("the page of evidence");
        lock.lock().expect("a lock");
        let text = std::fs::read_to_string(&page).expect("UTF-8");
        std::fs::write(&page, with_row(&text, section, cells)).expect("a writable page");
    }
}

fn with_row(page: &str, section: &str, cells: &[&str]) -> String {
    let (open, close) = (format!("<!-- {section} -->\n"), format!("<!-- /{section} -->"));
    let (before, rest) = page.split_once(&open).expect("the section begins");
    let (table, after) = rest.split_once(&close).expect("the section ends");
    let key = format!("| {} | {} |", cells[0], cells[1]);
    let (head, rows) = table.split_at(table.match_indices('\n').nth(1).map_or(table.len(), |(end, _)| end + 1));
    let mut rows: Vec<String> = rows.lines().filter(|row| !row.starts_with(&key)).map(str::to_owned).collect();
    rows.push(format!("| {} |", cells.join(" | ")));
    rows.sort();
    format!("{before}{open}{head}{}\n{close}{after}", rows.join("\n"))
}

#[test]
fn a_row_of_the_evidence_replaces_the_one_of_the_same_model() {
    let page = |rows: &str| format!("a\n<!-- m -->\n| name | of |\n| --- | --- |\n{rows}<!-- /m -->\nb\n");
    let first = with_row(&page(""), "m", &["x", "1", "old"]);
    assert_eq!(first, page("| x | 1 | old |\n"));
    let second = with_row(&first, "m", &["b", "1", "12"]);
    assert_eq!(with_row(&second, "m", &["x", "1", "new"]), page("| b | 1 | 12 |\n| x | 1 | new |\n"));
    assert_eq!((with_commas(7), with_commas(1_234_567)), ("7".into(), "1,234,567".into()));
}
