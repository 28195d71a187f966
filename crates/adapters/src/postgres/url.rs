//! The parts of a `postgres://` URL that the driver does not read: the schema, and how the server is verified.
//!
//! `sslmode` is `disable`, `prefer` (the default), `require` (encrypted, any server), `verify-ca` or `verify-full`;
//! `sslrootcert` names a file of certificates to trust instead of the public authorities. `schema` is the schema of the
//! tables, created if it is missing; without it they are in the first schema of the `search_path`, which
//! `options=-csearch_path%3D…` can set. A password is never shown.

use std::path::PathBuf;
use std::time::Duration;

use convoke_core::Invalid;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long sent data may stay unacknowledged before the connection counts as broken.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(10);
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
const KEEPALIVE_RETRIES: u32 = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trust {
    /// No encryption, or no verification.
    Anyone,
    /// The certificate's chain must be valid, whatever its name.
    Chain,
    /// Chain and name.
    Full,
}

#[derive(Clone)]
pub(super) struct Address {
    pub(super) config: Config,
    pub(super) schema: Option<String>,
    pub(super) trust: Trust,
    pub(super) root_cert: Option<PathBuf>,
}

impl Address {
    pub(super) fn parse(field: &str, url: &str) -> Result<Address, Invalid> {
        let invalid = |message: String| Invalid::new(field, message);
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        if !base.starts_with("postgres://") && !base.starts_with("postgresql://") {
            return Err(invalid("expected postgres://[USER[:PASSWORD]@]HOST[:PORT]/DATABASE".into()));
        }
        let (mut schema, mut root_cert, mut trust, mut passed) = (None, None, None, Vec::new());
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            match key {
                "schema" => {
                    schema = Some(decode(value).filter(|name| is_schema_name(name)).ok_or_else(|| {
                        invalid(
                            "schema: expected the name of a schema, 1 to 63 bytes without control characters".into(),
                        )
                    })?)
                }
                "sslrootcert" => root_cert = decode(value).map(PathBuf::from),
                "sslmode" => {
                    trust = Some(ssl_mode(value).ok_or_else(|| {
                        invalid(format!(
                            "sslmode: expected disable, prefer, require, verify-ca or verify-full, got {value:?}"
                        ))
                    })?)
                }
                _ => passed.push(pair),
            }
        }
        let plain = if passed.is_empty() { base.to_owned() } else { format!("{base}?{}", passed.join("&")) };
        let mut config: Config = plain.parse().map_err(|error: tokio_postgres::Error| {
            // The cause names the part that is wrong, never the password.
            invalid(super::failure::in_words(&error))
        })?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(invalid("expected a host, as in postgres://HOST/DATABASE".into()));
        }
        let is_torn = |host: &Host| matches!(host, Host::Tcp(name) if name.contains('@'));
        if config.get_hosts().iter().any(is_torn) {
            // The driver ends the password at its first @. The host that it found is not shown: it contains the rest of
            // the password.
            return Err(invalid("expected one @, before the host: write one in a password as %40".into()));
        }
        let (mode, mut trust) = trust.unwrap_or((SslMode::Prefer, Trust::Anyone));
        if mode == SslMode::Require && trust == Trust::Anyone && root_cert.is_some() {
            // As in libpq: a root certificate implies its verification.
            trust = Trust::Chain;
        }
        config.ssl_mode(mode);
        harden(&mut config);
        Ok(Address { config, schema, trust, root_cert })
    }

    /// Returns the address for messages: hosts, ports and the database. No user, no password, no parameters.
    pub(super) fn shown(&self) -> String {
        let names = self.config.get_hosts().iter().map(|host| match host {
            Host::Tcp(name) => name.clone(),
            #[cfg(unix)]
            Host::Unix(path) => path.display().to_string(),
        });
        let mut hosts: Vec<String> = names.collect();
        if hosts.is_empty() {
            hosts = self.config.get_hostaddrs().iter().map(ToString::to_string).collect();
        }
        let ports = self.config.get_ports();
        let port = |place: usize| ports.get(place).or(ports.first()).copied().unwrap_or(5432);
        let bracketed = |host: &String| if host.contains(':') { format!("[{host}]") } else { host.clone() };
        let places = hosts.iter().enumerate().map(|(place, host)| format!("{}:{}", bracketed(host), port(place)));
        format!("{}/{}", places.collect::<Vec<_>>().join(","), self.config.get_dbname().unwrap_or(""))
    }

    /// Returns the same configuration with settings of the session added: `name=value` each.
    pub(super) fn session(&self, name: &str, settings: &[&str]) -> Config {
        let mut config = self.config.clone();
        let mut options = config.get_options().unwrap_or("").to_owned();
        if let Some(schema) = &self.schema {
            options.push_str(&format!(" -c search_path={}", escape_option(&quote(schema))));
        }
        for setting in settings {
            options.push_str(&format!(" -c {setting}"));
        }
        config.options(options.trim().to_owned());
        if config.get_application_name().is_none() {
            config.application_name(name);
        }
        config
    }
}

/// Returns the parts of an address that may be shown: hosts, ports and the database. `None` if `url` is not an address.
pub fn shown(url: &str) -> Option<String> {
    Address::parse("url", url).ok().map(|address| format!("postgres://{}", address.shown()))
}

/// Sets time limits, so that a partition is noticed and no request waits without end.
fn harden(config: &mut Config) {
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECT_TIMEOUT);
    }
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(TCP_USER_TIMEOUT);
    }
    config
        .keepalives_idle(KEEPALIVE_IDLE)
        .keepalives_interval(KEEPALIVE_INTERVAL)
        .keepalives_retries(KEEPALIVE_RETRIES);
}

fn ssl_mode(text: &str) -> Option<(SslMode, Trust)> {
    Some(match text {
        "disable" => (SslMode::Disable, Trust::Anyone),
        "prefer" => (SslMode::Prefer, Trust::Anyone),
        "require" => (SslMode::Require, Trust::Anyone),
        "verify-ca" => (SslMode::Require, Trust::Chain),
        "verify-full" => (SslMode::Require, Trust::Full),
        _ => return None,
    })
}

fn is_schema_name(name: &str) -> bool {
    (1..=63).contains(&name.len()) && !name.chars().any(char::is_control)
}

/// Quotes an identifier for SQL.
pub(super) fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Escapes spaces and backslashes within `options`.
fn escape_option(text: &str) -> String {
    text.replace('\\', "\\\\").replace(' ', "\\ ")
}

fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = [rest.next()?, rest.next()?];
        bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Address, Invalid> {
        Address::parse("store.url", url)
    }

    #[test]
    fn a_url_says_where_and_how() {
        let address = parse("postgres://u:secret@db:6000/app?schema=my%20jobs&sslmode=verify-full&application_name=x")
            .expect("a URL");
        assert_eq!((address.schema.as_deref(), address.trust), (Some("my jobs"), Trust::Full));
        assert_eq!(address.config.get_ssl_mode(), SslMode::Require);
        assert_eq!(address.config.get_application_name(), Some("x"));
        assert_eq!(address.shown(), "db:6000/app");
        let session = address.session("convoke", &["jit=off"]);
        assert_eq!(session.get_options(), Some("-c search_path=\"my\\ jobs\" -c jit=off"));
    }

    #[test]
    fn options_of_the_url_are_kept() {
        let address = parse("postgresql://h/d?options=-csearch_path%3Djobs").expect("a URL");
        assert_eq!(address.session("convoke", &["jit=off"]).get_options(), Some("-csearch_path=jobs -c jit=off"));
    }

    #[test]
    fn who_names_whom_to_trust_wants_it_checked() {
        let address = parse("postgres://h/d?sslmode=require&sslrootcert=%2Fetc%2Fca.pem").expect("a URL");
        assert_eq!((address.trust, address.root_cert), (Trust::Chain, Some("/etc/ca.pem".into())));
        assert_eq!(parse("postgres://h/d?sslmode=require").expect("a URL").trust, Trust::Anyone);
        assert_eq!(parse("postgres://h/d").expect("a URL").config.get_ssl_mode(), SslMode::Prefer);
    }

    #[test]
    fn what_is_wrong_is_named_and_the_password_is_not() {
        for (url, named) in [
            ("mysql://u:secret@h/d", "postgres://"),
            ("postgres://u:secret@h/d?sslmode=sometimes", "sslmode"),
            ("postgres://u:secret@h/d?schema=", "schema"),
            ("postgres://u:secret@h/d?schema=%zz", "schema"),
            ("postgres://u:secret@h/d?colour=red", "colour"),
            ("postgres://u:secret@h:port/d", "port"),
        ] {
            let refused = parse(url).err().expect(url);
            assert_eq!(refused.field, "store.url");
            assert!(refused.message.contains(named), "{refused}");
            assert!(!refused.to_string().contains("secret"), "{refused}");
        }
    }
}
