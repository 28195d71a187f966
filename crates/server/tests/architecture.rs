//! The architecture's invariants, asserted.
//!
//! Which crate may know which is read from `cargo metadata`, which module may name which from the sources. A change that
//! breaks a direction fails here with the line that does it, long before it hurts.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The crates that the rules may link: data, its encodings, and calendar arithmetic. No runtime, I/O, clock or random source.
const CORE_MAY_USE: [&str; 7] = ["async-trait", "bytes", "jiff", "serde", "serde_json", "thiserror", "uuid"];
/// The crates that the rules may link if a feature asks for them. `node`: the parser of cron expressions, which clients and workers do not
/// need. `openapi`: a derive that describes types for the document of the HTTP API; it adds no behaviour.
const CORE_MAY_USE_BY_FEATURE: [&str; 2] = ["croner", "utoipa"];
/// Features that would bring a clock or a random source into a crate that is allowed above.
const CORE_MAY_NOT_ENABLE: [(&str, &str); 2] = [("uuid", "v4"), ("uuid", "fast-rng")];
const LINES_MAX: usize = 500;
const SQL_LINES_BESIDE_VERB: usize = 3;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace exists")
}

struct Dependency {
    name: String,
    kind: Kind,
    is_optional: bool,
    features: Vec<String>,
}

#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum Kind {
    Normal,
    Build,
    Dev,
}

/// The manifest of every crate of the workspace, as cargo reads it.
fn manifests() -> Vec<Value> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON");
    metadata["packages"].as_array().expect("packages").clone()
}

/// The direct dependencies of every crate of the workspace, from their manifests.
fn packages() -> BTreeMap<String, Vec<Dependency>> {
    manifests().iter().map(|package| (text(&package["name"]), dependencies(package))).collect()
}

fn dependencies(package: &Value) -> Vec<Dependency> {
    let all = package["dependencies"].as_array().expect("dependencies");
    all.iter()
        .map(|dependency| Dependency {
            name: text(&dependency["name"]),
            kind: match dependency["kind"].as_str() {
                None => Kind::Normal,
                Some("build") => Kind::Build,
                Some("dev") => Kind::Dev,
                Some(other) => panic!("cargo metadata has an unknown kind of dependency {other:?}"),
            },
            is_optional: dependency["optional"] == true,
            features: dependency["features"].as_array().expect("features").iter().map(text).collect(),
        })
        .collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("expected a string, got {value}")).to_owned()
}

fn names(dependencies: &[Dependency], kinds: &[Kind]) -> BTreeSet<String> {
    dependencies.iter().filter(|it| kinds.contains(&it.kind)).map(|it| it.name.clone()).collect()
}

fn ours(dependencies: &[Dependency], kinds: &[Kind]) -> BTreeSet<String> {
    names(dependencies, kinds).into_iter().filter(|name| name.starts_with("convoke")).collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn core_depends_on_no_runtime_no_io_no_clock_and_no_random_source() {
    let packages = packages();
    let core = &packages["convoke-core"];
    let linked = core.iter().filter(|it| it.kind != Kind::Dev);
    let allowed = |it: &Dependency| match it.is_optional {
        false => CORE_MAY_USE.contains(&it.name.as_str()),
        true => CORE_MAY_USE_BY_FEATURE.contains(&it.name.as_str()),
    };
    let foreign: Vec<_> = linked.filter(|it| !allowed(it)).map(|it| &it.name).collect();
    assert!(foreign.is_empty(), "core may not depend on {foreign:?}: time, randomness and I/O are its arguments");
    for (name, feature) in CORE_MAY_NOT_ENABLE {
        let enabled = core.iter().any(|it| it.name == name && it.features.iter().any(|on| on == feature));
        assert!(!enabled, "core may not enable {name}/{feature}");
    }
}

#[test]
fn only_the_http_api_asks_for_schemas() {
    for package in manifests() {
        let name = text(&package["name"]);
        for dependency in dependencies(&package).iter().filter(|it| it.features.iter().any(|on| on == "openapi")) {
            assert_eq!(name, "convoke-http", "enables openapi of {}", dependency.name);
        }
        let by_default = package["features"]["default"].to_string();
        assert!(!by_default.contains("openapi"), "openapi is a default feature of {name}");
    }
}

/// `core ← {adapters, runtime ← http} ← convoke ← bench ← server`.
#[test]
fn dependencies_point_from_the_binary_to_the_rules() {
    let packages = packages();
    let linked = |name: &str| ours(&packages[name], &[Kind::Normal, Kind::Build]);
    assert_eq!(linked("convoke-core"), set(&[]), "core knows nobody");
    assert_eq!(linked("convoke-adapters"), set(&["convoke-core"]), "adapters know the ports alone");
    assert_eq!(linked("convoke-runtime"), set(&["convoke-core"]), "the runtime knows no engine");
    assert_eq!(linked("convoke-http"), set(&["convoke-core", "convoke-runtime"]), "the HTTP API knows no engine");
    assert_eq!(linked("convoke"), set(&["convoke-core", "convoke-adapters", "convoke-runtime", "convoke-http"]));
    assert_eq!(
        linked("convoke-bench"),
        set(&["convoke-core", "convoke-runtime", "convoke"]),
        "benches are an application"
    );
    assert!(!linked("convoke-server").contains("convoke-adapters"), "the server reaches adapters by convoke::connect");
}

/// The product is the binary without its default features.
#[test]
fn only_an_optional_feature_of_the_server_links_the_benches() {
    for (package, dependencies) in packages() {
        let Some(bench) = dependencies.iter().find(|it| it.name == "convoke-bench") else { continue };
        assert_eq!(package, "convoke-server", "links the benches");
        assert!(bench.kind == Kind::Normal && bench.is_optional, "the server must build without benches");
    }
}

#[test]
fn runtime_is_not_even_tested_by_adapters() {
    let packages = packages();
    let adapters = names(&packages["convoke-adapters"], &[Kind::Normal, Kind::Build, Kind::Dev]);
    assert!(!adapters.contains("convoke-runtime"), "an adapter may not name the runtime");
}

#[test]
fn testkit_is_nobodys_normal_dependency() {
    for (package, dependencies) in packages() {
        let linked = names(&dependencies, &[Kind::Normal, Kind::Build]);
        assert!(!linked.contains("convoke-testkit"), "{package} links the testkit");
    }
}

/// Every Rust source of the workspace, by its path from the root.
fn sources() -> Vec<(String, String)> {
    let root = root();
    let mut found = Vec::new();
    let mut left = vec![root.join("crates")];
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(&directory).expect("a readable directory") {
            let path = entry.expect("a readable entry").path();
            if path.is_dir() {
                left.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(&root).expect("under the root").to_string_lossy().into_owned();
                found.push((name, std::fs::read_to_string(&path).expect("UTF-8")));
            }
        }
    }
    found.sort();
    assert!(found.len() > 20, "the sources were not found under {}", root.display());
    found
}

/// `file:line: text` of every line of code (comments left out) in `sources` that `bad` objects to.
fn lines<'a>(sources: impl Iterator<Item = &'a (String, String)>, bad: impl Fn(&str, &str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for (name, text) in sources {
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            if bad(name, code) {
                found.push(format!("{name}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    found
}

#[test]
fn only_connect_names_the_adapters() {
    let sources = sources();
    let application = sources.iter().filter(|(name, _)| {
        let in_convoke = name.starts_with("crates/convoke/src/") && name != "crates/convoke/src/connect.rs";
        // The tests of the HTTP API run on the memory adapters.
        let in_http = name.starts_with("crates/http/src/") && !name.starts_with("crates/http/src/tests/");
        let in_others =
            ["bench", "core", "runtime", "server"].iter().any(|it| name.starts_with(&format!("crates/{it}/src/")));
        in_convoke || in_http || in_others
    });
    let found = lines(application, |_, code| code.contains("convoke_adapters"));
    assert!(found.is_empty(), "only crates/convoke/src/connect.rs turns URLs into adapters:\n{}", found.join("\n"));
}

/// The adapter modules there are: the directories (or files) beside the crate's `lib.rs`.
fn engines() -> BTreeSet<String> {
    let entries = std::fs::read_dir(root().join("crates/adapters/src")).expect("the adapters' sources");
    entries
        .map(|entry| entry.expect("a readable entry").path())
        .filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned()))
        // No engines: statements of both SQL engines take constants of the core from the first, engines that notify of
        // resignations pass notices on by the second, subscribers of both buses read from the third, and the last logs
        // what an SQL engine cannot read.
        .filter(|name| !["lib", "statement", "resignations", "mailbox", "unreadable"].contains(&name.as_str()))
        .collect()
}

#[test]
fn no_adapter_names_another() {
    let engines = engines();
    let sources = sources();
    let adapters = sources.iter().filter(|(name, _)| name.starts_with("crates/adapters/src/"));
    let found = lines(adapters, |name, code| {
        let own = name.trim_start_matches("crates/adapters/src/").split(['/', '.']).next().unwrap_or_default();
        own != "lib" && engines.iter().any(|other| other != own && code.contains(&format!("crate::{other}")))
    });
    assert!(found.is_empty(), "adapters know the ports, not each other:\n{}", found.join("\n"));
}

/// A reader of the verb sees a short statement without opening a file; a long one would hide the verb.
#[test]
fn only_long_statements_have_a_file() {
    let mut files = Vec::new();
    for engine in ["postgres", "sqlite"] {
        let directory = root().join("crates/adapters/src").join(engine).join("sql");
        files.extend(std::fs::read_dir(directory).expect("statements").map(|it| it.expect("a readable entry").path()));
    }
    assert!(files.len() > 20, "the statements were not found");
    let is_short =
        |path: &&PathBuf| std::fs::read_to_string(path).expect("UTF-8").lines().count() <= SQL_LINES_BESIDE_VERB;
    let short: Vec<_> = files.iter().filter(is_short).collect();
    assert!(short.is_empty(), "up to {SQL_LINES_BESIDE_VERB} lines stand beside their verb, in sql!(…): {short:#?}");
}

#[test]
fn core_reads_no_clock_and_does_no_io() {
    const FORBIDDEN: [&str; 10] = [
        "std::fs",
        "std::net",
        "std::io",
        "std::process",
        "std::thread",
        "Instant::now",
        "SystemTime",
        "Timestamp::now",
        "Zoned::now",
        "Uuid::now_v7",
    ];
    let sources = sources();
    let is_test = |name: &str| name.contains("/tests/") || name.ends_with("/tests.rs");
    let core = sources.iter().filter(|(name, _)| name.starts_with("crates/core/src/") && !is_test(name));
    let found = lines(core, |_, code| FORBIDDEN.iter().any(|name| code.contains(name)));
    assert!(found.is_empty(), "time and I/O are arguments of core:\n{}", found.join("\n"));
}

/// A column that is inserted into a select list must not shift the others.
#[test]
fn the_stores_read_rows_by_name() {
    let sources = sources();
    let stores = sources.iter().filter(|(name, _)| {
        ["sqlite", "postgres"].iter().any(|engine| name.starts_with(&format!("crates/adapters/src/{engine}/")))
    });
    let by_number = |code: &str| {
        let calls = ["get(", "try_get(", "get_ref(", ">("].iter().flat_map(|call| {
            code.match_indices(call).map(|(at, _)| code[at + call.len()..].trim_start()).collect::<Vec<_>>()
        });
        let is_number = |argument: &str| {
            let digits = argument.len() - argument.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            digits > 0 && argument[digits..].starts_with(')')
        };
        code.contains("row") && calls.into_iter().any(is_number)
    };
    let found = lines(stores, |_, code| by_number(code));
    assert!(found.is_empty(), "name the column:\n{}", found.join("\n"));
    assert!(by_number("|row| row.get(0)") && by_number("row.try_get::<_, i64>(12)?"), "the rule sees what it forbids");
}

/// A field of a job, and how many files may know it.
struct FieldOfJobs {
    /// Its spellings in Rust, in JSON and on the command line.
    names: &'static [&'static str],
    files_max: usize,
    /// Files that act by the field beyond keeping, showing and passing it: they are not counted, and each must have it.
    rules: &'static [&'static str],
}

/// A field that is stored, shown and a filter, and one that is stored and shown. `docs/development.md` lists the files.
const FIELDS_OF_JOBS: [FieldOfJobs; 3] = [
    FieldOfJobs { names: &["tags"], files_max: 12, rules: &[] },
    FieldOfJobs { names: &["correlation_id", "correlationId", "correlation-id"], files_max: 12, rules: &[] },
    FieldOfJobs {
        names: &["retry_policy", "retryPolicy", "retry-policy"],
        files_max: 5,
        rules: &[
            "crates/adapters/src/memory/store/row.rs",
            "crates/adapters/src/postgres/apply_reports.rs",
            "crates/adapters/src/sqlite/record.rs",
            "crates/core/src/jobs/retry.rs",
            "crates/core/src/jobs/run_state.rs",
            // A job of the demonstration that is retried soon.
            "crates/server/src/demo.rs",
        ],
    },
];

/// Every source of the product, without tests and comments: Rust, SQL, templates and scripts.
fn product() -> Vec<(String, String)> {
    let root = root();
    let (mut found, mut left) = (Vec::new(), vec![root.join("crates")]);
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(&directory).expect("a readable directory") {
            let path = entry.expect("a readable entry").path();
            let name = path.strip_prefix(&root).expect("under the root").to_string_lossy().into_owned();
            let is_of_product =
                !["testkit", "bench", "sim", "ui-tests"].iter().any(|it| name.starts_with(&format!("crates/{it}")))
                    && !name.split('/').any(|part| ["tests", "examples", "benches", "tests.rs"].contains(&part));
            if path.is_dir() {
                left.push(path);
            } else if is_of_product && name.split('/').count() > 3 {
                let Ok(text) = std::fs::read_to_string(&path) else { continue };
                let (text, comment) = match name.ends_with(".sql") {
                    true => (text.as_str(), "--"),
                    // Tests of a module stand at its end.
                    false => (text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default(), "//"),
                };
                let code = text.lines().map(|line| line.split(comment).next().unwrap_or_default()).collect::<Vec<_>>();
                found.push((name, code.join("\n")));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn a_field_of_a_job_is_known_to_few_files() {
    let product = product();
    assert!(product.iter().any(|(name, _)| name.ends_with("enqueue.sql")), "SQL is read");
    assert!(product.iter().any(|(name, _)| name.ends_with(".html")), "templates are read");
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    let has = |text: &str, name: &str| {
        text.match_indices(name).any(|(at, _)| {
            let after = text[at + name.len()..].chars().next();
            // The OpenAPI document has an attribute of this name.
            !text[..at].ends_with(|c: char| is_word(c) && c != '-') && !after.is_some_and(|c| is_word(c) || c == '(')
                || text[..at].ends_with('.') && after == Some('(')
        })
    };
    for FieldOfJobs { names, files_max, rules } in FIELDS_OF_JOBS {
        let knows = |(_, text): &&(String, String)| names.iter().any(|name| has(text, name));
        let files: Vec<&str> = product.iter().filter(knows).map(|(name, _)| name.as_str()).collect();
        for rule in rules {
            assert!(files.contains(rule), "{rule} does not act by {}: take it from the list", names[0]);
        }
        let counted: Vec<&str> = files.into_iter().filter(|file| !rules.contains(file)).collect();
        assert!(
            counted.len() <= files_max,
            "{} is known to {} files:\n{}",
            names[0],
            counted.len(),
            counted.join("\n")
        );
        assert!(counted.contains(&"crates/core/src/jobs/template.rs"), "the names are those of a field");
    }
}

/// So that a simulation repeats itself. Ports and tokio's clock are all the time and chance that the runtime has; what is given
/// no port for them uses `machine.rs`, which a simulation replaces.
#[test]
fn runtime_reads_time_and_draws_numbers_by_its_ports_alone() {
    const FORBIDDEN: [&str; 8] = [
        "std::time::Instant",
        "std::time::{Duration, Instant}",
        "SystemTime",
        "Timestamp::now",
        "now_v7",
        "rand::",
        "RandomState",
        "thread::current",
    ];
    let sources = sources();
    let is_read = |name: &str| {
        name.starts_with("crates/runtime/src/") && !name.contains("/tests") && name != "crates/runtime/src/machine.rs"
    };
    let runtime = sources.iter().filter(|(name, _)| is_read(name));
    let found = lines(runtime, |_, code| FORBIDDEN.iter().any(|name| code.contains(name)));
    assert!(found.is_empty(), "time and chance come from ports, from tokio or from machine.rs:\n{}", found.join("\n"));
}

/// The order of a hash map is another in each process, and `select!` chooses at random unless it is `biased`.
#[test]
fn nothing_in_core_and_runtime_is_decided_by_the_order_of_a_hash_map_or_of_a_select() {
    let sources = sources();
    let ours = |name: &str| name.starts_with("crates/core/src/") || name.starts_with("crates/runtime/src/");
    let ordered = sources.iter().filter(|(name, _)| ours(name));
    let found = lines(ordered.clone(), |_, code| code.contains("HashMap") || code.contains("HashSet"));
    assert!(found.is_empty(), "use BTreeMap and BTreeSet:\n{}", found.join("\n"));
    let mut unbiased = Vec::new();
    for (name, text) in ordered {
        for (place, _) in text.match_indices("select! {") {
            let body = text[place..].lines().skip(1).map(str::trim).find(|line| !line.starts_with("//"));
            if body != Some("biased;") {
                unbiased.push(format!("{name}:{}", text[..place].lines().count()));
            }
        }
    }
    assert!(unbiased.is_empty(), "begin with `biased;`:\n{}", unbiased.join("\n"));
}

/// Switches that remove a fence are not in the product.
#[test]
fn only_the_simulator_enables_mutants_and_nobody_links_it() {
    for package in manifests() {
        let name = text(&package["name"]);
        let by_feature = package["features"].as_object().expect("features").iter();
        let asks = |list: &Value| list.to_string().contains("mutants");
        let own: Vec<_> = by_feature.filter(|(feature, list)| *feature != "mutants" && asks(list)).collect();
        assert!(own.is_empty(), "{name} enables mutants by {own:?}");
        for dependency in dependencies(&package) {
            assert_ne!(dependency.name, "convoke-sim", "{name} links the simulator");
            let enables = dependency.features.iter().any(|on| on == "mutants");
            assert!(!enables || name == "convoke-sim", "{name} enables mutants of {}", dependency.name);
        }
    }
}

/// A write of a leader takes a `Fence`, and only a seal makes one. The compiler keeps other crates from making one; this
/// keeps the one way in `core` from getting company.
#[test]
fn only_a_seal_makes_a_fence() {
    const MADE_IN: [&str; 2] = ["crates/core/src/ports/store.rs", "crates/core/src/ports/store/fence.rs"];
    let sources = sources();
    let is_elsewhere = |name: &str| !MADE_IN.contains(&name) && name != "crates/server/tests/architecture.rs";
    let elsewhere = sources.iter().filter(|(name, _)| is_elsewhere(name));
    let makes = |code: &str| code.contains("Fence(") || code.contains("Fence::");
    let overrides = |code: &str| code.contains("fn seal(") && code.contains("Fence");
    let found = lines(elsewhere, |_, code| makes(code) || overrides(code));
    assert!(found.is_empty(), "a fence comes from EpochStore::seal alone:\n{}", found.join("\n"));
    let made = |file: &str| {
        let makes = |_: &str, code: &str| code.contains("Fence::sealed(") || code.contains("Fence(epoch)");
        lines(sources.iter().filter(|(name, _)| name == file), makes).len()
    };
    assert_eq!(MADE_IN.map(made), [1, 1], "EpochStore::seal calls the constructor, which is the only one");
    let (_, fence) = sources.iter().find(|(name, _)| name == MADE_IN[1]).expect("the fence has its file");
    for kept in ["pub struct Fence(Epoch);", "pub(super) fn sealed(epoch: Epoch) -> Self {"] {
        assert!(fence.contains(kept), "{}: expected {kept:?}, so that nobody else can make a fence", MADE_IN[1]);
    }
    assert!(!fence.contains("derive(Default") && !fence.contains("Deserialize"), "nor may anything be derived for it");
}

#[test]
fn nothing_is_left_for_later() {
    // Spelled in two parts, so that this file does not find itself.
    let forbidden = [concat!("todo", "!("), concat!("unimplemented", "!("), concat!("#[ign", "ore")];
    let sources = sources();
    let found = lines(sources.iter(), |_, code| forbidden.iter().any(|name| code.contains(name)));
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn no_source_file_holds_two_things() {
    let long: Vec<String> = sources()
        .iter()
        .filter(|(name, _)| name.split('/').nth(2) == Some("src"))
        .map(|(name, text)| (name, text.lines().count()))
        .filter(|(_, lines)| *lines > LINES_MAX)
        .map(|(name, lines)| format!("{name}: {lines} lines"))
        .collect();
    assert!(long.is_empty(), "a file over {LINES_MAX} lines has two things in it:\n{}", long.join("\n"));
}

#[test]
fn every_source_opens_with_what_it_promises() {
    let silent: Vec<String> = sources()
        .into_iter()
        .filter(|(name, _)| name.contains("/src/") && !name.contains("/tests"))
        .filter(|(_, text)| text.lines().count() > 120 && !text.starts_with("//!"))
        .map(|(name, _)| name)
        .collect();
    assert!(silent.is_empty(), "a module opens with a short essay:\n{}", silent.join("\n"));
}

/// A log line is for people and machines: what it shows has a form that is meant to be read.
#[test]
fn no_log_line_shows_a_debug_format() {
    let macros = ["error!(", "warn!(", "info!(", "debug!(", "trace!("];
    let mut found = Vec::new();
    for (path, text) in sources().iter().filter(|(path, _)| path.contains("/src/")) {
        for (start, _) in macros.iter().flat_map(|name| text.match_indices(name)) {
            let call = call_at(&text[start..]);
            let fields = call.split(',').filter(|part| !part.trim_start().starts_with('"'));
            if fields
                .clone()
                .any(|part| part.contains("= ?") || part.trim_start_matches(['(', ' ', '\n']).starts_with('?'))
            {
                found.push(format!("{path}: {call}"));
            }
        }
    }
    assert!(found.is_empty(), "show a value with % or as a number: {found:#?}");
}

/// The arguments of a macro, from its name to the parenthesis that closes it.
fn call_at(text: &str) -> &str {
    let text = &text[text.find('(').unwrap_or(0)..];
    let mut depth = 0_usize;
    let end = text.char_indices().find_map(|(place, letter)| {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        (depth == 0).then_some(place)
    });
    &text[..end.unwrap_or(text.len())]
}

/// Words of the code's old dialect, each with a plain word in `docs/glossary.md` or in the field's own vocabulary: a worker
/// *reports*, a node *receives* and *publishes*, the leader *ends* a run. A name, a log line or a help text that uses one of
/// them again fails here. This is the only list; add to it when another word is retired.
const RETIRED: [&str; 47] = [
    "answered",
    "answering",
    "answers",
    "beat",
    "beaten",
    "beating",
    "beckon",
    "brood",
    "bury",
    "desk",
    "desks",
    "ear",
    "errand",
    "errands",
    "goodbye",
    "happening",
    "haunt",
    "hear",
    "heard",
    "hearing",
    "hears",
    "judge",
    "judgement",
    "leash",
    "ledger",
    "looked",
    "neighbours",
    "noting",
    "said",
    "say",
    "saying",
    "says",
    "senseless",
    "settle",
    "settled",
    "settles",
    "settling",
    "speak",
    "spoken",
    "switchboard",
    "tell",
    "telling",
    "tells",
    "tether",
    "told",
    "unheard",
    "vitals",
];
/// Phrases of log lines and help texts that were replaced.
const RETIRED_PHRASES: [&str; 6] = ["cannot beat", "gave back", "give back", "given back", "let go of", "lets go of"];
/// Names that may have such a word, each with the reason.
const RETIRED_BUT_ALLOWED: [(&str, &str); 0] = [];
/// A function's name with so many words is a sentence: the name of a test.
const SENTENCE_WORDS: usize = 5;

/// The words of an identifier: `read_back`, `ReadBack` and `READ_BACK` are `read` and `back`.
fn words_of(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let is_constant = !name.chars().any(char::is_lowercase);
    for letter in name.chars() {
        if letter == '_' || (letter.is_uppercase() && !is_constant) {
            words.push(String::new());
        }
        if letter != '_' {
            words.last_mut().expect("one word").extend(letter.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// The retired words and phrases of a text that people read.
fn retired_in(text: &str) -> Vec<&'static str> {
    let text = text.to_lowercase();
    let words: BTreeSet<&str> = text.split(|c: char| !c.is_alphanumeric()).collect();
    let single = RETIRED.into_iter().filter(|word| words.contains(word));
    single.chain(RETIRED_PHRASES.into_iter().filter(|phrase| text.contains(phrase))).collect()
}

/// The names that a line of code defines: items, and variants of enums (a line that begins with a capital letter).
fn defined_in(code: &str) -> Vec<&str> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    let mut tokens = code.split(|c: char| !is_name(c)).filter(|token| !token.is_empty()).peekable();
    while let Some(token) = tokens.next() {
        if ["fn", "struct", "enum", "trait", "mod", "type", "const", "static"].contains(&token) {
            found.extend(tokens.peek());
        }
    }
    let line = code.trim();
    let name = line.split(|c: char| !is_name(c)).next().unwrap_or_default();
    let is_variant =
        name.starts_with(char::is_uppercase) && [",", "(", " {"].iter().any(|it| line[name.len()..].starts_with(it));
    if is_variant {
        found.push(name);
    }
    found
}

#[test]
fn no_name_uses_a_retired_word() {
    let mut found = Vec::new();
    for (path, text) in sources().iter().filter(|(path, _)| path != "crates/server/tests/architecture.rs") {
        for (number, line) in text.lines().enumerate() {
            for name in defined_in(line.split("//").next().unwrap_or_default()) {
                let words = words_of(name);
                let is_sentence = words.len() >= SENTENCE_WORDS;
                let is_allowed = RETIRED_BUT_ALLOWED.iter().any(|(allowed, _)| *allowed == name);
                if !is_sentence && !is_allowed && words.iter().any(|word| RETIRED.contains(&word.as_str())) {
                    found.push(format!("{path}:{}: {name}", number + 1));
                }
            }
        }
        let stem = path.rsplit('/').next().unwrap_or_default().trim_end_matches(".rs");
        if words_of(stem).iter().any(|word| RETIRED.contains(&word.as_str())) {
            found.push(path.clone());
        }
    }
    assert!(found.is_empty(), "name it by what it does (docs/glossary.md):\n{}", found.join("\n"));
}

#[test]
fn no_log_line_uses_a_retired_word() {
    let macros = ["error!(", "warn!(", "info!(", "debug!(", "trace!("];
    let mut found = Vec::new();
    for (path, text) in sources().iter().filter(|(path, _)| path.contains("/src/") && !path.contains("/tests")) {
        for (start, _) in macros.iter().flat_map(|name| text.match_indices(name)) {
            let call = call_at(&text[start..]);
            // Every second part is between quotation marks.
            for message in call.split('"').skip(1).step_by(2) {
                for word in retired_in(message) {
                    found.push(format!("{path}: {word}: {message}"));
                }
            }
        }
    }
    assert!(found.is_empty(), "write what happened in plain words (docs/glossary.md):\n{}", found.join("\n"));
}

/// The help of a command and of all below it.
fn helps(command: &mut Vec<String>, found: &mut Vec<(String, String)>) {
    let output = Command::new(env!("CARGO_BIN_EXE_convoke")).args(&*command).arg("--help").output().expect("it runs");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let nested: Vec<String> = text
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
        .filter(|name| name != "help")
        .collect();
    found.push((command.join(" "), text));
    for name in nested {
        command.push(name);
        helps(command, found);
        command.pop();
    }
}

#[test]
fn no_help_text_uses_a_retired_word() {
    let mut all = Vec::new();
    helps(&mut Vec::new(), &mut all);
    assert!(all.len() > 20, "only {} commands were found", all.len());
    let mut found = Vec::new();
    for (command, text) in &all {
        for line in text.lines() {
            found.extend(retired_in(line).into_iter().map(|word| format!("convoke {command} --help: {word}: {line}")));
        }
    }
    assert!(found.is_empty(), "use plain words (docs/glossary.md):\n{}", found.join("\n"));
}
