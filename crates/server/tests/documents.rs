//! Statements of the documents that can be checked.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace exists")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every page, by its path.
fn pages() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md"].map(|name| root().join(name)).into();
    let mut left = vec![root().join("docs")];
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(&directory).expect("a readable directory") {
            let path = entry.expect("a readable entry").path();
            if path.is_dir() {
                left.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    found
}

/// The targets of links and pictures on a page.
fn links(text: &str) -> Vec<String> {
    let markdown = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let html = text.split("src=\"").skip(1).filter_map(|rest| rest.split('"').next());
    markdown.chain(html).map(str::to_owned).collect()
}

#[test]
fn every_link_leads_somewhere() {
    let mut broken = Vec::new();
    for page in pages() {
        let text = std::fs::read_to_string(&page).expect("UTF-8");
        let local = links(&text).into_iter().filter(|link| !link.contains("://") && !link.starts_with('#'));
        for link in local {
            let target = page.parent().expect("a directory").join(link.split('#').next().unwrap_or_default());
            if !target.exists() {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// The anchors of a page's headings, as GitHub makes them.
fn anchors(text: &str) -> BTreeSet<String> {
    let outside_blocks = text.split("\n```").step_by(2);
    let headings = outside_blocks.flat_map(str::lines).filter(|line| line.starts_with('#'));
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, '-' | '_' | ' ');
    let anchor = |heading: &str| -> String {
        let title = heading.trim_start_matches('#').trim().to_lowercase();
        title.chars().filter(kept).map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}

#[test]
fn every_anchor_is_a_heading() {
    let mut broken = Vec::new();
    for page in pages() {
        let text = std::fs::read_to_string(&page).expect("UTF-8");
        for link in links(&text).into_iter().filter(|link| !link.contains("://")) {
            let Some((path, anchor)) = link.split_once('#') else { continue };
            let target = if path.is_empty() { page.clone() } else { page.parent().expect("a directory").join(path) };
            if target.extension().is_none_or(|extension| extension != "md") {
                continue;
            }
            let known = std::fs::read_to_string(&target).map(|text| anchors(&text)).unwrap_or_default();
            if !known.contains(anchor) {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// The texts between backquotes, each with the text that follows up to the next.
fn quoted(text: &str) -> Vec<(&str, &str)> {
    let parts: Vec<&str> = text.split('`').skip(1).collect();
    parts.chunks(2).map(|pair| (pair[0], pair.get(1).copied().unwrap_or_default())).collect()
}

#[test]
fn every_invariant_is_on_the_page_of_invariants_and_every_path_there_exists() {
    let page = read("docs/invariants.md");
    let directory = "crates/testkit/src/invariants";
    for entry in std::fs::read_dir(root().join(directory)).expect("a readable directory") {
        let name = entry.expect("a readable entry").file_name();
        let path = format!("{directory}/{}", name.to_string_lossy());
        assert!(page.contains(&format!("`{path}`")), "{path} is not on the page");
    }
    let (paths, functions, missing) = named_code(&page);
    assert!(paths > 100 && functions > 100, "{paths} paths and {functions} functions are found");
    assert!(missing.is_empty(), "named in docs/invariants.md and not there: {missing:?}");
}

/// The page of evidence names the test of every fault that was found.
#[test]
fn every_test_that_the_page_of_evidence_names_exists() {
    let page = read("docs/evidence.md");
    let (paths, functions, missing) = named_code(&page);
    assert!(paths > 20 && functions > 20, "{paths} paths and {functions} functions are found");
    assert!(missing.is_empty(), "named in docs/evidence.md and not there: {missing:?}");
    let (_, record) = page.split_once("## Track record").expect("the track record");
    let rows: Vec<&str> = record
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| fault |") && !line.starts_with("| ---"))
        .collect();
    assert!(rows.len() > 20, "{} faults are found", rows.len());
    let without: Vec<&&str> = rows.iter().filter(|row| !row.contains("`crates/") && !row.contains("`fuzz/")).collect();
    assert!(without.is_empty(), "faults that no test shows: {without:#?}");
}

/// The paths that a page names and the functions named behind them: how many, and those that do not exist.
fn named_code(page: &str) -> (usize, usize, Vec<String>) {
    let (mut missing, mut paths, mut functions) = (Vec::new(), 0, 0);
    for line in page.lines() {
        // A path opens a list of functions by " (`"; the list goes on by ", ".
        let (mut source, mut lists) = (String::new(), false);
        for (word, follows) in quoted(line) {
            if word.starts_with("crates/") || word.starts_with("fuzz/corpus/") {
                paths += 1;
                if !root().join(word).exists() {
                    missing.push(word.to_owned());
                }
                let is_source = word.ends_with(".rs") && root().join(word).is_file();
                source = if is_source { read(word) } else { String::new() };
                lists = is_source && follows == " (";
                continue;
            }
            if lists {
                functions += 1;
                if !source.contains(&format!("fn {word}(")) && !source.contains(&format!("fn {word}<")) {
                    missing.push(word.to_owned());
                }
                lists = follows == ", ";
            }
        }
    }
    (paths, functions, missing)
}

#[test]
fn every_direct_dependency_has_its_reason() {
    let page = read("docs/decisions/dependencies.md");
    let justified: BTreeSet<&str> =
        page.lines().filter_map(|line| line.strip_prefix("| `")).flat_map(|line| first_cell(line)).collect();
    let manifest = read("Cargo.toml");
    let (_, section) = manifest.split_once("[workspace.dependencies]").expect("the workspace's dependencies");
    let section = section.split("\n[").next().unwrap_or_default();
    let used: BTreeSet<&str> = section
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| Some(line.split_once('=')?.0.trim()))
        .filter(|name| !name.starts_with("convoke"))
        .collect();
    let silent: Vec<_> = used.difference(&justified).collect();
    assert!(silent.is_empty(), "without a reason in docs/decisions/dependencies.md: {silent:?}");
    let gone: Vec<_> = justified.difference(&used).collect();
    assert!(gone.is_empty(), "justified in docs/decisions/dependencies.md and not used: {gone:?}");
}

/// The names in the first cell of a row whose opening "| `" was taken off.
fn first_cell(line: &str) -> Vec<&str> {
    let cell = line.split('|').next().unwrap_or_default();
    cell.split(',').map(|name| name.trim().trim_matches('`')).collect()
}

#[test]
fn the_first_screen_has_both_commands() {
    let readme = read("README.md");
    let screen: Vec<&str> = readme.lines().take(40).collect();
    for command in ["cargo run --release", "scripts/test"] {
        assert!(screen.iter().any(|line| line.starts_with(command)), "{command} is not on the first screen");
    }
}

/// The code of every block of a language on a page.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    page.split(&fence).skip(1).filter_map(|rest| Some(rest.split_once("```")?.0.to_owned())).collect()
}

/// `scripts/test` runs the example, so that the README's program is known to work.
#[test]
fn the_program_in_the_readme_is_the_example() {
    assert_eq!(blocks(&read("README.md"), "rust"), [read("crates/convoke/examples/readme.rs")]);
    assert!(read("scripts/test").contains("rust_example readme"));
}

#[test]
fn the_licences_are_whole() {
    assert!(read("LICENSE-MIT").contains("WITHOUT WARRANTY OF ANY KIND"));
    assert!(read("LICENSE-APACHE").contains("END OF TERMS AND CONDITIONS"));
}

/// The names in the table of duties.
fn duties(table: &str) -> BTreeSet<&str> {
    let started = ["Duty::node(", "Duty::competing(", "Duty::leader(", "Duty::of_leader("];
    let named = |start: &str| table.split(start).skip(1).filter_map(|rest| rest.split('"').nth(1)).collect::<Vec<_>>();
    started.into_iter().flat_map(named).collect()
}

/// A unit test of the runtime compares the tables word for word.
#[test]
fn every_task_of_a_node_is_in_the_architecture() {
    let page = read("docs/architecture.md");
    let named = |task: &str| page.lines().any(|line| line.starts_with(&format!("| `{task}` |")));
    let table = read("crates/runtime/src/jobs/duties.rs");
    let tasks = duties(&table);
    assert!(tasks.len() > 30, "the tasks are found: {tasks:?}");
    let missing: Vec<_> = tasks.into_iter().filter(|task| !named(task)).collect();
    assert!(missing.is_empty(), "not in a table of docs/architecture.md: {missing:?}");
}

/// The tests that only `scripts/test --full` runs: each with the file that it is in.
fn full_only() -> Vec<(String, String)> {
    let between = |text: &str, from: &str, to: &str| -> Option<String> {
        Some(text.split_once(from)?.1.split_once(to)?.0.to_owned())
    };
    let config = read(".config/nextest.toml");
    let list = between(&config, "default-filter = '''", "'''").expect("the filter of the quick profile");
    let mut found = Vec::new();
    // A line names a package and a binary, or another test of the last ones named.
    let mut place = String::new();
    for line in list.lines() {
        if let (Some(package), Some(binary)) = (between(line, "package(", ")"), between(line, "binary(", ")")) {
            let directory = package.strip_prefix("convoke-").unwrap_or("convoke");
            place = format!("crates/{directory}/tests/{binary}");
        }
        if let Some(test) = between(line, "test(=", ")") {
            let (file, test) = match test.split_once("::") {
                Some((module, test)) => (format!("{place}/{module}"), test.to_owned()),
                None => (place.clone(), test),
            };
            let is_file = root().join(format!("{file}.rs")).exists();
            found.push((if is_file { format!("{file}.rs") } else { format!("{file}/mod.rs") }, test));
        }
    }
    found
}

#[test]
fn every_fault_of_the_cluster_has_a_scenario_in_a_quick_run() {
    let full_only = full_only();
    assert!(full_only.len() > 5, "{full_only:?}");
    for (file, test) in &full_only {
        assert!(read(file).contains(&format!("fn {test}(")), "{file} has no test {test}");
    }
    let several = read("crates/server/tests/cluster/several.rs");
    let invariants = read("docs/invariants.md");
    let faults = invariants.split('`').filter(|name| name.starts_with("crates/server/tests/cluster/"));
    for file in faults.filter(|name| name.ends_with(".rs")) {
        let tests = read(file).matches("#[tokio::test").count();
        let left = full_only.iter().filter(|(of, _)| of == file).count();
        let module = file.rsplit('/').next().and_then(|name| name.strip_suffix(".rs")).expect("the name of a file");
        let is_combined = several.contains(&format!("    {module}::"));
        assert!(tests == 0 || left < tests || is_combined, "all tests of {file} are left to the full run");
    }
}

/// A task that is started by hand has no name, no metrics, and nobody who starts it again.
#[test]
fn every_task_of_a_node_is_started_from_the_table() {
    let jobs = root().join("crates/runtime/src/jobs");
    let mut left = vec![jobs.clone()];
    let mut spawning = BTreeMap::new();
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(&directory).expect("a readable directory") {
            let path = entry.expect("a readable entry").path();
            let name = path.strip_prefix(&jobs).expect("below it").display().to_string();
            if path.is_dir() {
                // The worker is no part of a node.
                left.extend(Some(path).filter(|_| name != "worker"));
            } else {
                let text = std::fs::read_to_string(&path).expect("a readable file");
                let code = text.split("#[cfg(test)]").next().unwrap_or_default();
                let count = code.matches("spawn(").count() + code.matches("spawn_blocking(").count();
                spawning.extend(Some((name, count)).filter(|(name, count)| *count > 0 && !name.ends_with("tests.rs")));
            }
        }
    }
    // The duties of a node by their scope, those of a term, and a probe for somebody who asks for `/health`.
    let expected = [("coordinator.rs", 2), ("health.rs", 1), ("leader/mod.rs", 1)];
    assert_eq!(spawning, expected.map(|(name, count)| (name.to_owned(), count)).into());
}
