//! Merges the sources of the configuration: flag over environment over file over default.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail};
use figment::error::{Actual, Kind};
use figment::providers::{Format as _, Serialized, Toml};
use figment::value::{Dict, Map, Value};
use figment::{Figment, Metadata, Profile, Provider};

use super::Config;
use super::environment::{self, Variables};

/// Read if it exists and no other file was given.
const DEFAULT_FILE: &str = "convoke.toml";

/// Keys that were set on the command line.
#[derive(Debug, Clone, Default)]
pub struct Flags(Vec<(&'static str, &'static str, Value)>);

impl Flags {
    /// Sets `key` to the value of `flag`, if it was given.
    pub fn set(&mut self, flag: &'static str, key: &'static str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.0.push((flag, key, value.into()));
        }
    }
}

/// The sources of a configuration.
#[derive(Debug, Clone, Default)]
pub struct Load {
    /// A file that must exist. `None`: `convoke.toml` in `directory`, if it exists.
    pub file: Option<PathBuf>,
    pub directory: PathBuf,
    pub variables: Variables,
    pub flags: Flags,
}

impl Load {
    pub fn config(&self) -> Result<Config> {
        let keys = Keys::new()?;
        let mut figment = Figment::from(Serialized::defaults(Config::default()));
        if let Some(path) = self.file()? {
            let file = Figment::from(Toml::file_exact(&path));
            let tables = file.data().map_err(|error| anyhow!("{}: {error}", path.display()))?;
            for key in tables.values().flat_map(flat) {
                if keys.default_of(&key).is_none() {
                    bail!("{}: {}", path.display(), keys.unknown(&key));
                }
            }
            figment = figment.merge(file);
        }
        let bind: String = figment.extract_inner("http.bind").map_err(|error| self.refusal(error, &keys))?;
        let public = self.variables.get("CONVOKE_HTTP__PUBLIC").cloned();
        let public =
            public.or_else(|| figment.extract_inner("http.public").ok()).is_some_and(|paths| !paths.is_empty());
        let inherited = environment::inherited(&self.variables, &bind, public).map_err(|message| anyhow!(message))?;
        let set = environment::keys_set(&self.variables, &keys).map_err(|message| anyhow!(message))?;
        let figment = figment
            .merge(Layer { name: "the environment", values: inherited })
            .merge(Layer { name: "the environment", values: set })
            .merge(Layer { name: "the command line", values: self.flag_values() });
        let config = Config::read(&figment).map_err(|error| self.refusal(*error, &keys))?;
        config.check().map_err(|invalid| {
            let from = self.origin(&invalid.field);
            anyhow!("{}: {}{from}", invalid.field, invalid.message)
        })?;
        Ok(config)
    }

    /// Returns whether `key` was set explicitly.
    pub fn sets(&self, key: &str) -> bool {
        let inherited =
            environment::inherited(&self.variables, "", false).is_ok_and(|set| Value::from(set).find(key).is_some());
        inherited || !self.origin(key).is_empty()
    }

    fn file(&self) -> Result<Option<PathBuf>> {
        if let Some(path) = &self.file {
            // Opened here, so that the message names the file and not a missing key.
            std::fs::File::open(path).with_context(|| format!("--config {}: cannot read the file", path.display()))?;
            return Ok(Some(path.clone()));
        }
        let path = self.directory.join(DEFAULT_FILE);
        Ok(path.is_file().then_some(path))
    }

    fn flag_values(&self) -> Dict {
        let mut values = Dict::new();
        for (_, key, value) in &self.flags.0 {
            insert(&mut values, key, value.clone());
        }
        values
    }

    /// Returns a line for each invalid value: key, expected values, actual value and source.
    fn refusal(&self, errors: figment::Error, keys: &Keys) -> anyhow::Error {
        let mut lines = String::new();
        for error in errors {
            let key = error.path.join(".");
            if !lines.is_empty() {
                lines.push('\n');
            }
            let _ = write!(lines, "{key}: {}{}", expectation(&error.kind, &key, keys), self.origin(&key));
        }
        anyhow!(lines)
    }

    /// Returns the source of a key's value, for error messages.
    fn origin(&self, key: &str) -> String {
        if let Some((flag, ..)) = self.flags.0.iter().find(|(_, set, _)| *set == key) {
            return format!(" (set by {flag})");
        }
        let variable = format!("CONVOKE_{}", key.replace('.', "__").to_ascii_uppercase());
        if self.variables.contains_key(&variable) {
            return format!(" (set by {variable})");
        }
        match self.file() {
            Ok(Some(path)) if sets(&path, key) => format!(" (set in {})", path.display()),
            _ => String::new(),
        }
    }
}

fn sets(path: &Path, key: &str) -> bool {
    Figment::from(Toml::file_exact(path)).contains(key)
}

/// Returns the expected value, for a value that serde rejected.
fn expectation(kind: &Kind, key: &str, keys: &Keys) -> String {
    let example = match keys.default_of(key) {
        Some(Value::String(_, text)) if convoke_core::duration::parse(text).is_ok() => {
            Some(format!("a duration such as {text:?}"))
        }
        _ => None,
    };
    match kind {
        Kind::InvalidType(found, expected) | Kind::InvalidValue(found, expected) => {
            format!("expected {}, got {}", example.as_ref().unwrap_or(expected), shown(found))
        }
        Kind::UnknownVariant(found, expected) => format!("expected one of {}, got {found:?}", expected.join(", ")),
        Kind::MissingField(field) => format!("expected the field {field:?}"),
        Kind::UnknownField(field, expected) => format!("expected only {}, got {field:?}", expected.join(", ")),
        other => other.to_string(),
    }
}

fn shown(found: &Actual) -> String {
    match found {
        Actual::Bool(value) => value.to_string(),
        Actual::Unsigned(value) => value.to_string(),
        Actual::Signed(value) => value.to_string(),
        Actual::Float(value) => value.to_string(),
        Actual::Char(value) => format!("{value:?}"),
        Actual::Str(value) => format!("{value:?}"),
        Actual::Map => "a table".into(),
        Actual::Seq => "a list".into(),
        other => other.to_string(),
    }
}

/// All keys with their defaults.
pub struct Keys(BTreeMap<String, Value>);

impl Keys {
    pub fn new() -> Result<Self> {
        let defaults = Value::serialize(Config::default())?;
        let Value::Dict(_, sections) = defaults else { bail!("the configuration is not a table") };
        let mut keys = BTreeMap::new();
        for key in flat(&sections) {
            if let Some(value) = Value::from(sections.clone()).find(&key) {
                keys.insert(key, value);
            }
        }
        Ok(Keys(keys))
    }

    pub fn default_of(&self, key: &str) -> Option<&Value> {
        self.0.get(key)
    }

    #[cfg(test)]
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Returns the error for an unknown key, with the keys of its section.
    pub fn unknown(&self, key: &str) -> String {
        let section = key.split('.').next().unwrap_or(key);
        let within: Vec<&str> =
            self.0.keys().filter_map(|known| known.strip_prefix(section)?.strip_prefix('.')).collect();
        if within.is_empty() {
            let mut sections: Vec<&str> = self.0.keys().filter_map(|known| known.split('.').next()).collect();
            sections.dedup();
            return format!("unknown key {key:?}, expected one in the sections {}", sections.join(", "));
        }
        format!("unknown key {key:?}, expected in section {section:?} one of {}", within.join(", "))
    }
}

/// Returns the dotted names of all leaves. A list is a leaf, and so is an empty table.
fn flat(table: &Dict) -> Vec<String> {
    let mut keys = Vec::new();
    for (key, value) in table {
        match value {
            Value::Dict(_, inner) if !inner.is_empty() => {
                keys.extend(flat(inner).into_iter().map(|rest| format!("{key}.{rest}")));
            }
            _ => keys.push(key.clone()),
        }
    }
    keys
}

/// Sets a dotted key in nested tables.
pub fn insert(table: &mut Dict, key: &str, value: Value) {
    match key.split_once('.') {
        None => {
            table.insert(key.to_owned(), value);
        }
        Some((head, rest)) => {
            let inner = table.entry(head.to_owned()).or_insert_with(|| Value::from(Dict::new()));
            if let Value::Dict(_, inner) = inner {
                insert(inner, rest, value);
            }
        }
    }
}

/// One source of values.
struct Layer {
    name: &'static str,
    values: Dict,
}

impl Provider for Layer {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.name)
    }

    fn data(&self) -> figment::Result<Map<Profile, Dict>> {
        Ok(Map::from([(Profile::default(), self.values.clone())]))
    }
}

#[cfg(test)]
mod tests;
