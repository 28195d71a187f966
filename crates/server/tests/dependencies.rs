//! The rules for dependencies of Convoke, asserted in every run of the tests.
//!
//! The rules for licences, banned crates and sources are those of `deny.toml`; they are read from there, so that they hold
//! with or without cargo-deny installed. Which crates there are is read from `Cargo.lock` (every platform) and from `cargo
//! metadata` (this platform, because only its crates are sure to be downloaded). Whether a crate is used is read from the
//! sources: its name must stand in front of `::` or `!`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use toml::Table;

/// The promise to applications: `cargo tree --edges normal` of `convoke` with its default features.
const DEFAULT_CRATES_MAX: usize = 90;
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace exists")
}

fn cargo(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO")).args(arguments).current_dir(root()).output().expect("cargo runs");
    assert!(output.status.success(), "cargo {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn metadata() -> Value {
    let version = cargo(&["-vV"]);
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).expect("cargo names its host");
    let text = cargo(&[
        "metadata",
        "--format-version",
        "1",
        "--offline",
        "--locked",
        "--all-features",
        "--filter-platform",
        host,
    ]);
    serde_json::from_str(&text).expect("cargo metadata is JSON")
}

fn file(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn table(name: &str) -> Table {
    file(name).parse().unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn array(value: &Value) -> &[Value] {
    value.as_array().expect("an array")
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("expected a string, got {value}"))
}

/// A list in `deny.toml`.
fn rules<'a>(deny: &'a Table, section: &str, key: &str) -> Vec<&'a toml::Value> {
    let list = deny.get(section).and_then(|section| section.get(key)).and_then(toml::Value::as_array);
    let list = list.unwrap_or_else(|| panic!("deny.toml has no list {section}.{key}"));
    assert!(!list.is_empty(), "{section}.{key} of deny.toml is empty");
    list.iter().collect()
}

/// Whether the terms of an SPDX expression can be kept with the licences in `allowed`. `/` is an old way to write OR.
fn is_allowed(expression: &str, allowed: &BTreeSet<&str>) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let (is_allowed, rest) = any_of(&words, allowed);
    assert!(rest.is_empty(), "not understood as a licence: {expression}");
    is_allowed
}

fn any_of<'a, 'w>(words: &'w [&'a str], allowed: &BTreeSet<&str>) -> (bool, &'w [&'a str]) {
    let (mut found, mut rest) = all_of(words, allowed);
    while let ["OR", more @ ..] = rest {
        let (other, after) = all_of(more, allowed);
        (found, rest) = (found || other, after);
    }
    (found, rest)
}

fn all_of<'a, 'w>(words: &'w [&'a str], allowed: &BTreeSet<&str>) -> (bool, &'w [&'a str]) {
    let (mut found, mut rest) = one_of(words, allowed);
    while let ["AND", more @ ..] = rest {
        let (other, after) = one_of(more, allowed);
        (found, rest) = (found && other, after);
    }
    (found, rest)
}

fn one_of<'a, 'w>(words: &'w [&'a str], allowed: &BTreeSet<&str>) -> (bool, &'w [&'a str]) {
    match words {
        ["(", inner @ ..] => match any_of(inner, allowed) {
            (found, [")", rest @ ..]) => (found, rest),
            (_, rest) => (false, rest),
        },
        [licence, "WITH", exception, rest @ ..] => {
            (allowed.contains(format!("{licence} WITH {exception}").as_str()), rest)
        }
        [licence, rest @ ..] => (allowed.contains(licence), rest),
        [] => (false, words),
    }
}

#[test]
fn a_licence_is_read_as_spdx_has_it() {
    let allowed = BTreeSet::from(["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception"]);
    for good in [
        "MIT",
        "GPL-3.0 OR MIT",
        "MIT/GPL-3.0",
        "(MIT OR GPL-3.0) AND Apache-2.0",
        "MIT AND Apache-2.0 WITH LLVM-exception",
    ] {
        assert!(is_allowed(good, &allowed), "{good}");
    }
    for bad in ["GPL-3.0", "MIT AND GPL-3.0", "(MIT AND GPL-3.0) OR GPL-3.0", "MIT WITH LLVM-exception"] {
        assert!(!is_allowed(bad, &allowed), "{bad}");
    }
}

#[test]
fn every_licence_is_permissive() {
    let deny = table("deny.toml");
    let allowed = rules(&deny, "licenses", "allow").into_iter().filter_map(toml::Value::as_str).collect();
    let metadata = metadata();
    let others = array(&metadata["packages"]).iter().filter(|package| !package["source"].is_null());
    let (mut seen, mut wrong) = (0, Vec::new());
    for package in others {
        seen += 1;
        let licence = package["license"].as_str().unwrap_or("none is named");
        if licence == "none is named" || !is_allowed(licence, &allowed) {
            wrong.push(format!("{} {}: {licence}", text(&package["name"]), text(&package["version"])));
        }
    }
    assert!(seen > 100, "cargo metadata shows only {seen} crates");
    assert!(wrong.is_empty(), "deny.toml does not allow these licences: {wrong:#?}");
}

/// The crates that an application builds with the default features of `convoke`, each version once.
#[test]
fn a_client_and_a_worker_need_few_crates() {
    let tree = cargo(&[
        "tree",
        "--offline",
        "--locked",
        "--edges",
        "normal",
        "--package",
        "convoke",
        "--prefix",
        "none",
        "--no-dedupe",
    ]);
    let crates: BTreeSet<&str> = tree.lines().filter(|line| !line.is_empty()).collect();
    assert!(crates.iter().any(|it| it.starts_with("tokio ")), "not the tree of a worker: {crates:#?}");
    let count = crates.len();
    assert!(count <= DEFAULT_CRATES_MAX, "{count} crates; at most {DEFAULT_CRATES_MAX} are promised: {crates:#?}");
}

/// The numbers of a version such as `1.93` or `1.89.0`.
fn numbers(version: &str) -> Vec<u64> {
    version.split('.').map(|part| part.parse().unwrap_or_else(|_| panic!("no version: {version}"))).collect()
}

/// The oldest compiler that we promise must be enough for each crate that we link, by the version that its author names. Crates that only
/// tests need are left out. A crate that names no version is not checked.
#[test]
fn no_dependency_needs_a_newer_compiler_than_we_promise() {
    let manifest = table("Cargo.toml");
    let promised = manifest["workspace"]["package"]["rust-version"].as_str().expect("a promise").to_owned();
    let tree = cargo(&[
        "tree",
        "--offline",
        "--locked",
        "--workspace",
        "--all-features",
        "--edges",
        "normal,build",
        "--prefix",
        "none",
        "--no-dedupe",
        "--format",
        "{p}",
    ]);
    let linked: BTreeSet<&str> = tree.lines().map(|line| line.split(" (").next().unwrap_or(line)).collect();
    let metadata = metadata();
    let (mut seen, mut wrong) = (0, Vec::new());
    for package in array(&metadata["packages"]) {
        let (name, version) = (text(&package["name"]), text(&package["version"]));
        let Some(needed) = package["rust_version"].as_str().filter(|_| linked.contains(&*format!("{name} v{version}")))
        else {
            continue;
        };
        seen += 1;
        if numbers(needed) > [numbers(&promised), vec![0]].concat() {
            wrong.push(format!("{name} {version} needs {needed}"));
        }
    }
    assert!(seen > 100, "only {seen} crates name the compiler that they need");
    assert!(wrong.is_empty(), "rust-version is {promised}: {wrong:#?}");
}

/// The registry rejects a crate without these; `cargo publish --dry-run` only warns.
#[test]
fn every_published_crate_has_what_the_registry_asks_for() {
    let metadata = metadata();
    let ours = array(&metadata["packages"]).iter().filter(|package| package["source"].is_null());
    let is_private = |package: &&Value| package["publish"].as_array().is_some_and(Vec::is_empty);
    let (private, published): (Vec<_>, Vec<_>) = ours.partition(is_private);
    let private: BTreeSet<&str> = private.iter().map(|package| text(&package["name"])).collect();
    assert_eq!(private, BTreeSet::from(["convoke-sim", "convoke-testkit", "convoke-ui-tests"]), "parts of tests alone");
    for package in published {
        let name = text(&package["name"]);
        for field in ["description", "license", "readme", "documentation", "rust_version"] {
            assert!(package[field].as_str().is_some_and(|it| !it.is_empty()), "{name} has no {field}");
        }
        let directory = Path::new(text(&package["manifest_path"])).with_file_name("");
        for file in ["README.md", "LICENSE-MIT", "LICENSE-APACHE"] {
            assert!(directory.join(file).exists(), "{name} has no {file}");
        }
        assert!(array(&package["keywords"]).len() <= 5 && array(&package["categories"]).len() <= 5, "{name}");
        for dependency in array(&package["dependencies"]).iter().filter(|it| !it["path"].is_null()) {
            let (other, is_dev) = (text(&dependency["name"]), dependency["kind"] == "dev");
            match private.contains(other) {
                // A dependency of tests without a version is left out of the package.
                true => assert!(is_dev && dependency["req"] == "*", "{name} needs {other}, which is not published"),
                false => assert_eq!(dependency["req"], format!("^{}", text(&package["version"])), "{name}: {other}"),
            }
        }
    }
}

/// Every crate of every platform, from `Cargo.lock`.
fn locked() -> Vec<(String, Option<String>)> {
    let lock = table("Cargo.lock");
    let packages = lock["package"].as_array().expect("Cargo.lock lists packages");
    let field = |package: &toml::Value, name: &str| package.get(name).and_then(toml::Value::as_str).map(str::to_owned);
    let all: Vec<_> = packages.iter().map(|it| (field(it, "name").expect("a name"), field(it, "source"))).collect();
    assert!(all.len() > 100, "Cargo.lock lists only {} crates", all.len());
    all
}

#[test]
fn no_banned_crate_is_in_the_tree() {
    let deny = table("deny.toml");
    let banned: BTreeSet<&str> = rules(&deny, "bans", "deny")
        .into_iter()
        .map(|rule| rule.get("crate").and_then(toml::Value::as_str).expect("a banned crate has a name"))
        .collect();
    let found: Vec<String> = locked().into_iter().map(|(name, _)| name).filter(|it| banned.contains(&**it)).collect();
    assert!(found.is_empty(), "deny.toml bans {found:?}; `cargo tree -i NAME` shows who brings it");
}

#[test]
fn every_crate_comes_from_the_registry() {
    let deny = table("deny.toml");
    for rule in ["unknown-registry", "unknown-git"] {
        assert_eq!(deny["sources"][rule].as_str(), Some("deny"), "sources.{rule}: this test would be stricter");
    }
    let elsewhere: Vec<_> =
        locked().into_iter().filter(|(_, source)| source.as_deref().is_some_and(|it| it != REGISTRY)).collect();
    assert!(elsewhere.is_empty(), "not from crates.io: {elsewhere:?}");
    let metadata = metadata();
    for package in array(&metadata["packages"]).iter().filter(|package| package["source"].is_null()) {
        let manifest = Path::new(text(&package["manifest_path"]));
        assert!(manifest.starts_with(root().join("crates")), "{} is no crate of ours", manifest.display());
        for dependency in array(&package["dependencies"]).iter().filter(|it| it["path"].is_null()) {
            assert_ne!(dependency["req"], "*", "{}: name a version of {}", package["name"], dependency["name"]);
        }
    }
}

/// A direct dependency of one of our crates.
struct Dependency<'a> {
    package: &'a str,
    directory: PathBuf,
    /// As `use` names it.
    name: String,
    entry: &'a Value,
}

impl Dependency<'_> {
    fn is_dev(&self) -> bool {
        self.entry["kind"] == "dev"
    }

    fn features(&self) -> BTreeSet<&str> {
        array(&self.entry["features"]).iter().map(text).collect()
    }
}

fn direct(metadata: &Value) -> Vec<Dependency<'_>> {
    let ours = array(&metadata["packages"]).iter().filter(|package| package["source"].is_null());
    ours.flat_map(|package| {
        array(&package["dependencies"]).iter().map(|entry| Dependency {
            package: text(&package["name"]),
            directory: Path::new(text(&package["manifest_path"])).with_file_name(""),
            name: entry["rename"].as_str().unwrap_or_else(|| text(&entry["name"])).replace('-', "_"),
            entry,
        })
    })
    .collect()
}

/// The code of every Rust file under `directory`, without comments; `with_tests` has unit tests in it, too.
fn code(directory: &Path, with_tests: bool, into: &mut String) {
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    for path in entries.map(|entry| entry.expect("a readable entry").path()) {
        let is_test = path.file_stem().is_some_and(|stem| stem == "tests");
        if is_test && !with_tests {
            continue;
        }
        if path.is_dir() {
            code(&path, with_tests, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).expect("UTF-8");
            // Unit tests stand at the end of their file.
            let product = text.find("#[cfg(test)]\nmod tests {").filter(|_| !with_tests).unwrap_or(text.len());
            for line in text[..product].lines() {
                into.push_str(line.split("//").next().unwrap_or_default());
                into.push('\n');
            }
        }
    }
}

/// Whether code names a crate: `name::…`, `name!(…)`, `use name as …`, not as a part of another path.
fn names(code: &str, name: &str) -> bool {
    let in_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    code.match_indices(name).any(|(start, _)| {
        let (before, after) = (&code[..start], &code[start + name.len()..]);
        let before = before.strip_suffix("::").unwrap_or(before);
        let is_path = ["::", "!", " as "].iter().any(|mark| after.starts_with(mark));
        is_path && !before.ends_with(|letter| in_word(letter) || letter == '>')
    })
}

#[test]
fn a_crate_is_found_where_it_is_named() {
    for code in ["use http::Method;", "let x = ::http::Method::GET;", "http!(1)", "use http as wire;", "(http::Method)"]
    {
        assert!(names(code, "http"), "{code}");
    }
    for code in ["use crate::http::Method;", "use convoke_http::Method;", "let http = 1;", "use http_body::Body;"] {
        assert!(!names(code, "http"), "{code}");
    }
}

#[test]
fn every_dependency_is_used() {
    let metadata = metadata();
    let all = direct(&metadata);
    let mut sources: BTreeMap<&str, (String, String)> = BTreeMap::new();
    for Dependency { package, directory, .. } in &all {
        let (product, tests) = sources.entry(package).or_default();
        if product.is_empty() {
            code(&directory.join("src"), false, product);
            ["src", "tests", "examples", "benches"].iter().for_each(|it| code(&directory.join(it), true, tests));
        }
    }
    let mut wrong = Vec::new();
    for it in &all {
        let (product, tests) = &sources[it.package];
        if !names(if it.is_dev() { tests } else { product }, &it.name) {
            let place = if it.is_dev() { "tests and examples" } else { "code" };
            wrong.push(format!("{}: no {place} name {}", it.package, it.name));
        }
        let covers = |other: &&Dependency| {
            other.package == it.package && other.name == it.name && !other.is_dev() && other.entry["optional"] == false
        };
        let normal = all.iter().find(covers).filter(|_| it.is_dev());
        if normal.is_some_and(|normal| it.features().is_subset(&normal.features())) {
            wrong.push(format!("{}: {} need not be a dev-dependency as well", it.package, it.name));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_shared_version_has_a_user() {
    let metadata = metadata();
    let used: BTreeSet<&str> = direct(&metadata).iter().map(|it| text(&it.entry["name"])).collect();
    let manifest = table("Cargo.toml");
    let shared = manifest["workspace"]["dependencies"].as_table().expect("versions that crates share");
    let idle: Vec<_> = shared.keys().filter(|name| !used.contains(name.as_str())).collect();
    assert!(idle.is_empty(), "no crate depends on {idle:?}");
}

/// `docs/decisions/dependencies.md` has a reason for each.
#[test]
fn every_dependency_has_its_reason() {
    let metadata = metadata();
    let direct = direct(&metadata);
    let used: BTreeSet<&str> =
        direct.iter().filter(|it| it.entry["path"].is_null()).map(|it| text(&it.entry["name"])).collect();
    let page = file("docs/decisions/dependencies.md");
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let explained: BTreeSet<&str> =
        rows.flat_map(|row| row.split('|').nth(1).unwrap_or_default().split('`').skip(1).step_by(2)).collect();
    assert_eq!(explained, used, "left: dependencies.md, right: the manifests");
}
