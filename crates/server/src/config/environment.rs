//! Reads settings from environment variables.
//!
//! `CONVOKE_SECTION__KEY` sets a key. A variable with `__` in its name that is not a key is rejected, because it was
//! probably meant as one. The text is read as the type of the key, not guessed from the text alone, so that a node may
//! be called `123`. The variables of older coordinators are read too, so that the binary can replace them: they take
//! precedence over the file, but not over a key's own variable.

use std::collections::BTreeMap;

use figment::value::{Dict, Num, Value};

use super::load::{Keys, insert};
use convoke_http::Role;

/// The variables, as a map so that tests do not change the process.
pub type Variables = BTreeMap<String, String>;

/// Returns the variables of this process. Names and values that are not valid text are ignored.
pub fn variables() -> Variables {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// Facts about the process from outside the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Surroundings {
    /// `LOG_LEVEL`.
    pub log_level: &'static str,
    /// `PROCESS_NAME`: the service's name in logs and metrics; the role of the process if it is not set.
    pub name: String,
    /// `NODE_ENV=production`: logs are JSON.
    pub production: bool,
}

impl Surroundings {
    /// Reads the variables of a process with this role: `coordinator`, `worker`, `elector`, `mesh`.
    pub fn read(variables: &Variables, role: &str) -> Result<Self, String> {
        let level = text(variables, "LOG_LEVEL").unwrap_or("info");
        let log_level = match level.to_ascii_lowercase().as_str() {
            "trace" => "trace",
            "debug" => "debug",
            "info" => "info",
            "warn" | "warning" => "warn",
            "error" | "fatal" => "error",
            "off" | "silent" => "off",
            _ => return Err(format!("LOG_LEVEL: expected trace, debug, info, warn, error or off, got {level:?}")),
        };
        Ok(Surroundings {
            log_level,
            name: text(variables, "PROCESS_NAME").unwrap_or(role).to_owned(),
            production: text(variables, "NODE_ENV") == Some("production"),
        })
    }
}

/// Returns the keys that `CONVOKE_SECTION__KEY` sets, as nested tables.
pub fn keys_set(variables: &Variables, keys: &Keys) -> Result<Dict, String> {
    let mut set = Dict::new();
    for (name, text) in variables {
        let Some(rest) = name.strip_prefix("CONVOKE_").filter(|rest| rest.contains("__")) else { continue };
        let key = rest.split("__").map(str::to_ascii_lowercase).collect::<Vec<_>>().join(".");
        let Some(default) = keys.default_of(&key) else {
            return Err(format!("{name}: {}", keys.unknown(&key)));
        };
        insert(&mut set, &key, value_like(default, &key, text).map_err(|message| format!("{name}: {message}"))?);
    }
    Ok(set)
}

/// Reads `text` as a value of the same type as the key's default. Text of another type stays text, and is rejected with
/// the key's name when the configuration is read.
fn value_like(default: &Value, key: &str, text: &str) -> Result<Value, String> {
    let number = |text: &str| {
        let whole = text.parse::<i64>().ok().map(Num::from);
        whole.or_else(|| text.parse::<f64>().ok().map(Num::from))
    };
    Ok(match default {
        Value::Bool(..) => text.parse::<bool>().map_or_else(|_| Value::from(text), Value::from),
        Value::Num(..) => number(text).map_or_else(|| Value::from(text), Value::from),
        Value::Array(..) if key == "http.tokens" => Value::from(tokens(text)?),
        Value::Array(..) => Value::from(words(text)),
        _ => Value::from(text),
    })
}

/// Reads text separated by commas.
fn words(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// Reads `role:token,role/name:token,role/name/hidden:token`.
fn tokens(text: &str) -> Result<Vec<Dict>, String> {
    let roles = || Role::ALL.map(Role::as_str).join(", ");
    let mut tokens = Vec::new();
    // The message does not repeat the text: it is a secret.
    for (index, entry) in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()).enumerate() {
        let nth = index + 1;
        let (bearer, token) = entry
            .split_once(':')
            .ok_or_else(|| format!("expected \"role:token,role:token\", got no colon in entry {nth}"))?;
        let mut parts = bearer.split('/');
        let role = parts.next().unwrap_or_default();
        if !Role::ALL.iter().any(|known| known.as_str() == role) {
            return Err(format!("expected a role ({}) before the colon of entry {nth}, got {role:?}", roles()));
        }
        let mut read = Dict::from([("role".into(), Value::from(role)), ("token".into(), Value::from(token))]);
        if let Some(name) = parts.next() {
            read.insert("name".into(), Value::from(name));
        }
        match (parts.next(), parts.next()) {
            (None, _) => {}
            (Some("hidden"), None) => drop(read.insert("payloads".into(), Value::from("hidden"))),
            _ => {
                let expected = "role, role/name or role/name/hidden";
                return Err(format!("expected {expected} before the colon of entry {nth}, got {bearer:?}"));
            }
        }
        tokens.push(read);
    }
    Ok(tokens)
}

/// Returns the keys that the variables of older deployments set. `bind` is the address of the file or the default; with
/// public paths, the host is `HOST` or all addresses.
pub fn inherited(variables: &Variables, bind: &str, public: bool) -> Result<Dict, String> {
    let mut set = Dict::new();
    let port = text(variables, "PORT")
        .map(|port| port.parse::<u16>().map_err(|_| format!("PORT: expected a port from 0 to 65535, got {port:?}")));
    let port = port.transpose()?.map(|port| port.to_string());
    // Shells set it to the machine's name, so it counts only if the server has public paths.
    let host = text(variables, "HOST").filter(|_| public);
    if port.is_some() || host.is_some() {
        let (bind_host, bind_port) = bind.rsplit_once(':').unwrap_or((bind, "3000"));
        let host = host.unwrap_or(if public { "0.0.0.0" } else { bind_host });
        let port = port.as_deref().unwrap_or(bind_port);
        insert(&mut set, "http.bind", Value::from(format!("{host}:{port}")));
    }
    let (host, port) = (text(variables, "SHARD_COORDINATOR_BIND_HOST"), text(variables, "SHARD_COORDINATOR_BIND_PORT"));
    if host.is_some() || port.is_some() {
        let host = host.unwrap_or("tcp://127.0.0.1");
        let host = if host.contains("://") { host.to_owned() } else { format!("tcp://{host}") };
        insert(&mut set, "shards.bind", Value::from(format!("{host}:{}", port.unwrap_or("5555"))));
    }
    for (name, key) in [
        ("HEARTBEAT_TIMEOUT_SECONDS", "shards.heartbeat_timeout"),
        ("HEARTBEAT_CHECK_INTERVAL_SECONDS", "shards.check_interval"),
    ] {
        if let Some(text) = text(variables, name) {
            let seconds = text.parse::<f64>().ok().filter(|seconds| (0.001..=1e9).contains(seconds));
            let seconds = seconds.ok_or_else(|| format!("{name}: expected a number of seconds, got {text:?}"))?;
            insert(&mut set, key, Value::from(format!("{}ms", (seconds * 1_000.0).round() as u64)));
        }
    }
    Ok(set)
}

/// An empty variable counts as unset, because shells and compose files leave such variables.
fn text<'a>(variables: &'a Variables, name: &str) -> Option<&'a str> {
    variables.get(name).map(|text| text.trim()).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> Variables {
        pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn the_surroundings_have_defaults_and_refuse_an_unknown_level() {
        let plain = Surroundings::read(&Variables::new(), "worker").expect("defaults");
        assert_eq!(plain, Surroundings { log_level: "info", name: "worker".into(), production: false });
        let set = variables(&[("LOG_LEVEL", "WARN"), ("PROCESS_NAME", "jobs"), ("NODE_ENV", "production")]);
        let set = Surroundings::read(&set, "worker").expect("valid");
        assert_eq!(set, Surroundings { log_level: "warn", name: "jobs".into(), production: true });
        let error = Surroundings::read(&variables(&[("LOG_LEVEL", "loud")]), "worker").expect_err("refused");
        assert_eq!(error, "LOG_LEVEL: expected trace, debug, info, warn, error or off, got \"loud\"");
    }

    #[test]
    fn a_bad_list_of_tokens_is_refused_without_showing_a_token() {
        for text in ["hush-hush", "root:hush-hush", "admin:a,hush-hush", "read/a/shown:hush-hush"] {
            let error = tokens(text).expect_err(text);
            assert!(error.contains("expected") && !error.contains("hush-hush"), "{error}");
        }
    }

    #[test]
    fn a_token_may_have_a_name_and_hidden_payloads() {
        let read = tokens("admin:a:b, read/ada l.:c,read/bob/hidden:d").expect("valid");
        let texts = |token: &Dict| {
            let text = |key| token.get(key).and_then(Value::as_str).unwrap_or("-").to_owned();
            ["role", "name", "payloads", "token"].map(text).join(" ")
        };
        let read: Vec<String> = read.iter().map(texts).collect();
        assert_eq!(read, ["admin - - a:b", "read ada l. - c", "read bob hidden d"]);
    }
}
