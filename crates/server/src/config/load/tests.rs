use std::time::Duration;

use super::super::{Payloads, Token};
use super::*;
use convoke_http::Role;

struct Given {
    load: Load,
    directory: tempfile::TempDir,
}

/// A directory without a file, an environment without variables, a command line without flags.
fn given() -> Given {
    let directory = tempfile::tempdir().expect("a directory");
    let load = Load { directory: directory.path().to_owned(), ..Load::default() };
    Given { load, directory }
}

impl Given {
    fn file(self, text: &str) -> Self {
        std::fs::write(self.directory.path().join(DEFAULT_FILE), text).expect("written");
        self
    }

    fn variable(mut self, name: &str, text: &str) -> Self {
        self.load.variables.insert(name.into(), text.into());
        self
    }

    fn flag(mut self, flag: &'static str, key: &'static str, value: &str) -> Self {
        self.load.flags.set(flag, key, Some(value));
        self
    }

    fn config(&self) -> Config {
        self.load.config().expect("valid")
    }

    fn refusal(&self) -> String {
        let directory = self.directory.path().display().to_string();
        format!("{:#}", self.load.config().expect_err("refused")).replace(&directory, "")
    }
}

#[test]
fn without_anything_the_defaults_stand() {
    assert_eq!(given().config(), Config::default());
}

#[test]
fn a_flag_beats_the_environment_beats_the_file_beats_the_default() {
    let file = given().file("[store]\nurl = \"sqlite:file.db\"\n[bus]\nprefix = \"file\"\n[node]\nid = \"file\"\n");
    let environment = file.variable("CONVOKE_STORE__URL", "sqlite:env.db").variable("CONVOKE_BUS__PREFIX", "env");
    let all = environment.flag("--store", "store.url", "sqlite:flag.db");
    let config = all.config();
    assert_eq!(config.coordinator.store.url, "sqlite:flag.db");
    assert_eq!(config.coordinator.bus.prefix, "env");
    assert_eq!(config.node.id.as_deref(), Some("file"));
    assert_eq!(config.coordinator.bus.url, None);
}

#[test]
fn every_key_can_be_set_by_its_variable() {
    let keys = Keys::new().expect("keys");
    for key in keys.names().filter(|key| *key != "http.tokens") {
        let default = keys.default_of(key).expect("known");
        let text = match default {
            Value::String(_, text) => text.clone(),
            Value::Num(_, number) => number.to_u128().map_or_else(|| format!("{:?}", 2.0), |whole| whole.to_string()),
            Value::Bool(_, value) => value.to_string(),
            Value::Array(..) => "a.example,b.example".into(),
            _ => "memory:".into(),
        };
        let variable = format!("CONVOKE_{}", key.replace('.', "__").to_uppercase());
        given().variable(&variable, &text).config();
    }
}

#[test]
fn text_from_the_environment_becomes_what_the_key_takes() {
    let config = given()
        .variable("CONVOKE_NODE__ID", "123")
        .variable("CONVOKE_RETRY__MULTIPLIER", "3")
        .variable("CONVOKE_CLUSTER__REBALANCE", "false")
        .variable("CONVOKE_CHANNELS__BATCH_SIZE", "7")
        .variable("CONVOKE_ELECTION__CIRCUIT_BREAKER__RESET_TIMEOUT", "1m30s")
        .variable("CONVOKE_HTTP__TOKENS", "admin:abc, worker:x:y")
        .config();
    assert_eq!(config.node.id.as_deref(), Some("123"));
    assert_eq!(config.coordinator.retry.multiplier, 3.0);
    assert!(!config.coordinator.cluster.rebalance);
    assert_eq!(config.coordinator.channels.batch_size, 7);
    assert_eq!(config.coordinator.election.circuit_breaker.reset_timeout, Duration::from_secs(90));
    let token = |token: &str, role| Token { token: token.into(), role, name: None, payloads: Payloads::Shown };
    assert_eq!(config.http.tokens, [token("abc", Role::Admin), token("x:y", Role::Worker)]);
}

#[test]
fn tokens_come_from_the_file_as_tables() {
    let config = given().file("[[http.tokens]]\ntoken = \"abc\"\nrole = \"enqueue\"\n").config();
    assert_eq!(
        config.http.tokens,
        [Token { token: "abc".into(), role: Role::Enqueue, name: None, payloads: Payloads::Shown }]
    );
    let message = given().file("[[http.tokens]]\ntoken = \"abc\"\nrole = \"root\"\n").refusal();
    assert!(message.contains("http.tokens") && message.contains("read, enqueue, worker, admin"), "{message}");
}

#[test]
fn an_unknown_key_is_refused_wherever_it_comes_from() {
    let message = given().file("[store]\nuri = \"memory:\"\n").refusal();
    assert_eq!(message, r#"/convoke.toml: unknown key "store.uri", expected in section "store" one of url"#);
    let message = given().file("[nodes]\nid = \"a\"\n").refusal();
    assert!(
        message.contains(r#"unknown key "nodes.id", expected one in the sections bus, cache, channels"#),
        "{message}"
    );
    let message = given().variable("CONVOKE_STORE__URI", "memory:").refusal();
    assert_eq!(message, r#"CONVOKE_STORE__URI: unknown key "store.uri", expected in section "store" one of url"#);
}

#[test]
fn a_variable_without_two_underscores_is_none_of_ours() {
    given().variable("CONVOKE_SERVER", "http://x").variable("CONVOKE_TOKEN", "x").variable("HOME", "/").config();
}

#[test]
fn a_bad_value_is_named_with_its_key_and_its_source() {
    let message = given().variable("CONVOKE_CLUSTER__HEARTBEAT_INTERVAL", "10").refusal();
    assert!(message.starts_with("cluster.heartbeat_interval: expected a duration such as"), "{message}");
    assert!(
        message.contains(r#"got "10""#) && message.ends_with("(set by CONVOKE_CLUSTER__HEARTBEAT_INTERVAL)"),
        "{message}"
    );
    let message = given().file("[cluster]\nheartbeat_interval = 10\n").refusal();
    assert_eq!(
        message,
        "cluster.heartbeat_interval: expected a duration such as \"10s\", got 10 (set in /convoke.toml)"
    );
    let message = given().variable("CONVOKE_CHANNELS__BATCH_SIZE", "many").refusal();
    assert!(message.starts_with("channels.batch_size: expected ") && message.contains("\"many\""), "{message}");
    let message = given().variable("CONVOKE_RETRY__JITTER", "some").refusal();
    assert!(message.contains("retry.jitter: expected one of full, none, got \"some\""), "{message}");
    let message = given().flag("--http", "http.bind", "here").refusal();
    assert!(
        message.starts_with("http.bind: expected \"host:port\"") && message.ends_with("(set by --http)"),
        "{message}"
    );
}

#[test]
fn a_rate_limit_is_a_number_and_a_window_or_none() {
    let set =
        |text| given().variable("CONVOKE_RATE_LIMIT__GLOBAL", "none").variable("CONVOKE_RATE_LIMIT__DEFAULT", text);
    let limits = set("1000/1s").config().coordinator.rate_limit;
    assert_eq!(limits.default.map(|limit| limit.to_string()).as_deref(), Some("1000/1s"));
    assert_eq!(limits.global, None);
    let expected = r#"expected a number and a duration such as 100/1s, or none, got "many""#;
    assert_eq!(set("many").refusal(), format!("rate_limit.default: {expected} (set by CONVOKE_RATE_LIMIT__DEFAULT)"));
    assert!(set("0/1s").refusal().starts_with("rate_limit.default: expected 1 to"));
    let message = given().file("[rate_limit]\nglobal = 5\n").refusal();
    assert_eq!(message, "rate_limit.global: expected a string, got 5 (set in /convoke.toml)");
}

#[test]
fn a_file_that_is_named_must_be_there_and_be_toml() {
    let mut missing = given();
    missing.load.file = Some(missing.directory.path().join("other.toml"));
    assert!(missing.refusal().contains("--config /other.toml: cannot read the file"), "{}", missing.refusal());
    let message = given().file("[store\n").refusal();
    assert!(message.contains("convoke.toml"), "{message}");
}

#[test]
fn variables_of_older_deployments_are_honoured_below_our_own() {
    let older = given()
        .file("[http]\nbind = \"0.0.0.0:3000\"\ninsecure = true\n")
        .variable("PORT", "8080")
        .variable("SHARD_COORDINATOR_BIND_HOST", "tcp://0.0.0.0")
        .variable("SHARD_COORDINATOR_BIND_PORT", "6000")
        .variable("HEARTBEAT_TIMEOUT_SECONDS", "20")
        .variable("HEARTBEAT_CHECK_INTERVAL_SECONDS", "0.5");
    let config = older.config();
    assert_eq!(config.http.bind, "0.0.0.0:8080");
    assert_eq!(config.shards.bind, "tcp://0.0.0.0:6000");
    assert_eq!(config.shards.heartbeat_timeout, Duration::from_secs(20));
    assert_eq!(config.shards.check_interval, Duration::from_millis(500));
    let ours = older.variable("CONVOKE_HTTP__BIND", "127.0.0.1:1").variable("CONVOKE_SHARDS__HEARTBEAT_TIMEOUT", "1s");
    assert_eq!(ours.config().http.bind, "127.0.0.1:1");
    assert_eq!(ours.config().shards.heartbeat_timeout, Duration::from_secs(1));
    let message = given().variable("PORT", "http").refusal();
    assert_eq!(message, "PORT: expected a port from 0 to 65535, got \"http\"");
}

#[test]
fn a_port_listens_on_all_addresses_for_what_is_public() {
    let bind = |given: Given| given.config().http.bind;
    assert_eq!(bind(given().variable("PORT", "8080").variable("HOST", "box")), "127.0.0.1:8080");
    let public = || given().variable("CONVOKE_HTTP__PUBLIC", "health,metrics");
    assert_eq!(bind(public()), "127.0.0.1:3000", "nobody asked to be reached");
    assert_eq!(bind(public().variable("PORT", "8080")), "0.0.0.0:8080");
    assert_eq!(bind(public().variable("HOST", "10.0.0.7")), "10.0.0.7:3000");
    assert_eq!(bind(public().variable("PORT", "8080").variable("CONVOKE_HTTP__BIND", "[::1]:1")), "[::1]:1");
    let hosts = given().variable("CONVOKE_HTTP__HOSTS", "jobs, jobs.internal").config().http.hosts;
    assert_eq!(hosts, ["jobs", "jobs.internal"]);
}
