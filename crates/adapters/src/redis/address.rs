//! The address of Redis, parsed from a URL.
//!
//! `redis://[user:password@]host[:port][/db]`, `rediss://…` for TLS, and `redis+sentinel://[user:password@]host[:port],
//! host[:port],…/master[/db]` (`rediss+sentinel://…`) to ask Sentinels for the master's address; a Sentinel that
//! requires credentials receives the same. With TLS, `?ca=/path.pem` names the authority to trust instead of the public
//! ones, and `&cert=/path.pem&key=/path.pem` a client certificate. User and password may be percent-encoded.
//!
//! Errors never repeat the URL: it may hold a password.

use convoke_core::error::Invalid;

const REDIS_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;
const HOSTS_MAX: usize = 64;

#[derive(Clone, PartialEq, Eq)]
pub(super) struct Address {
    /// One server, or the Sentinels.
    pub hosts: Vec<(String, u16)>,
    /// The master's name at the Sentinels. `None` without Sentinels.
    pub master: Option<String>,
    pub user: Option<String>,
    pub password: Option<String>,
    pub db: i64,
    pub tls: Option<Tls>,
}

/// Paths of PEM files.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Tls {
    pub authority: Option<String>,
    pub certificate: Option<String>,
    pub key: Option<String>,
}

/// Returns an error about the URL that names its field.
fn wrong(field: &str, message: impl Into<String>) -> Invalid {
    Invalid::new(field, message)
}

impl Address {
    /// `field` is the setting that the URL came from, for error messages.
    pub(super) fn parse(field: &str, url: &str) -> Result<Self, Invalid> {
        let expected = "expected redis://, rediss://, redis+sentinel:// or rediss+sentinel://";
        let (scheme, rest) = url.split_once("://").ok_or_else(|| wrong(field, expected))?;
        let (tls, sentinel) = match scheme {
            "redis" => (false, false),
            "rediss" => (true, false),
            "redis+sentinel" => (false, true),
            "rediss+sentinel" => (true, true),
            _ => return Err(wrong(field, expected)),
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        // Split at the last `@`: an unencoded password may contain another.
        let (credentials, hosts) = match authority.rsplit_once('@') {
            Some((credentials, hosts)) => (Some(credentials), hosts),
            None => (None, authority),
        };
        let (user, password) = parse_credentials(field, credentials)?;
        let port = if sentinel { SENTINEL_PORT } else { REDIS_PORT };
        let hosts = parse_hosts(field, hosts, port)?;
        if !sentinel && hosts.len() > 1 {
            return Err(wrong(field, "expected one host; several are for redis+sentinel://"));
        }
        let (master, db) = if sentinel { parse_master(field, path)? } else { (None, path) };
        let db =
            match db.trim_end_matches('/') {
                "" => 0,
                number => number.parse().ok().filter(|db| *db >= 0).ok_or_else(|| {
                    wrong(field, "expected the number of a database after the host's slash, or nothing")
                })?,
            };
        let tls = parse_tls(field, tls, query)?;
        Ok(Address { hosts, master, user, password, db, tls })
    }
}

/// Returns the parts of an address that may be shown: hosts, ports, the master's name and the database. `None` if `url`
/// is not an address.
pub fn shown(url: &str) -> Option<String> {
    Address::parse("url", url).ok().map(|address| address.to_string())
}

impl std::fmt::Display for Address {
    /// Omits credentials and files.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.tls.is_some() { "rediss" } else { "redis" })?;
        f.write_str(if self.master.is_some() { "+sentinel://" } else { "://" })?;
        for (place, (host, port)) in self.hosts.iter().enumerate() {
            f.write_str(if place > 0 { "," } else { "" })?;
            if host.contains(':') { write!(f, "[{host}]:{port}")? } else { write!(f, "{host}:{port}")? }
        }
        if let Some(master) = &self.master {
            write!(f, "/{master}")?;
        }
        if self.db != 0 {
            write!(f, "/{}", self.db)?;
        }
        Ok(())
    }
}

fn parse_credentials(field: &str, text: Option<&str>) -> Result<(Option<String>, Option<String>), Invalid> {
    let Some(text) = text else { return Ok((None, None)) };
    let (user, password) = text.split_once(':').unwrap_or((text, ""));
    let decode = |text: &str| match text {
        "" => Ok(None),
        text => decode_percent(text)
            .map(Some)
            .ok_or_else(|| wrong(field, "expected percent-encoded UTF-8 as user and password")),
    };
    Ok((decode(user)?, decode(password)?))
}

fn parse_hosts(field: &str, text: &str, default_port: u16) -> Result<Vec<(String, u16)>, Invalid> {
    let hosts: Vec<_> = text.split(',').map(|host| parse_host(field, host, default_port)).collect::<Result<_, _>>()?;
    if hosts.len() > HOSTS_MAX {
        return Err(wrong(field, format!("expected at most {HOSTS_MAX} hosts")));
    }
    Ok(hosts)
}

fn parse_host(field: &str, text: &str, default_port: u16) -> Result<(String, u16), Invalid> {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, rest)) => (host, rest.strip_prefix(':')),
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    if host.is_empty() {
        return Err(wrong(field, "expected a host"));
    }
    let port = match port {
        None => default_port,
        Some(port) => port.parse().map_err(|_| wrong(field, "expected a port from 1 to 65535 after the host"))?,
    };
    Ok((host.to_owned(), port))
}

fn parse_master<'a>(field: &str, path: &'a str) -> Result<(Option<String>, &'a str), Invalid> {
    let (master, db) = path.split_once('/').unwrap_or((path, ""));
    let master = decode_percent(master).filter(|master| !master.is_empty());
    let master = master.ok_or_else(|| wrong(field, "expected the master's name after the Sentinels: …/mymaster"))?;
    Ok((Some(master), db))
}

fn parse_tls(field: &str, wanted: bool, query: &str) -> Result<Option<Tls>, Invalid> {
    let mut tls = Tls::default();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value =
            decode_percent(value).ok_or_else(|| wrong(field, format!("expected percent-encoded UTF-8 as {key}")))?;
        let place = match key {
            "ca" => &mut tls.authority,
            "cert" => &mut tls.certificate,
            "key" => &mut tls.key,
            // Not repeated: it could be the end of a password that contains a question mark.
            _ => return Err(wrong(field, "unknown parameter; expected ca, cert or key")),
        };
        *place = Some(value);
    }
    if tls.certificate.is_some() != tls.key.is_some() {
        return Err(wrong(field, "expected cert and key together"));
    }
    if !wanted && tls != Tls::default() {
        return Err(wrong(field, "ca, cert and key are for rediss:// and rediss+sentinel://"));
    }
    Ok(wanted.then_some(tls))
}

fn decode_percent(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.bytes());
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        let (high, low) = (digit(rest.next())?, digit(rest.next())?);
        bytes.push(u8::try_from(high * 16 + low).ok()?);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Address {
        Address::parse("bus.url", url).unwrap_or_else(|error| panic!("{url}: {error}"))
    }

    #[test]
    fn one_server_is_named_by_host_port_and_database() {
        let address = parse("redis://localhost");
        assert_eq!((address.hosts, address.db), (vec![("localhost".to_owned(), 6379)], 0));
        let address = parse("redis://me:p%40ss%2F@[::1]:7000/3");
        assert_eq!((address.hosts, address.db), (vec![("::1".to_owned(), 7000)], 3));
        assert_eq!((address.user.as_deref(), address.password.as_deref()), (Some("me"), Some("p@ss/")));
        let address = parse("redis://:secret@h/");
        assert_eq!((address.user, address.password.as_deref()), (None, Some("secret")));
        assert!(parse("redis://h").tls.is_none());
    }

    #[test]
    fn sentinels_are_many_and_know_the_master_by_name() {
        let address = parse("redis+sentinel://:secret@a:1,b,[::1]:3/main/2");
        let hosts = [("a", 1), ("b", 26379), ("::1", 3)].map(|(host, port)| (host.to_owned(), port));
        assert_eq!(address.hosts, hosts);
        assert_eq!((address.master.as_deref(), address.db), (Some("main"), 2));
    }

    #[test]
    fn tls_may_trust_an_authority_of_ones_own() {
        let tls = parse("rediss://h?ca=/etc/ca%20one.pem&cert=/c.pem&key=/k.pem").tls.expect("TLS");
        assert_eq!(tls.authority.as_deref(), Some("/etc/ca one.pem"));
        assert_eq!((tls.certificate.as_deref(), tls.key.as_deref()), (Some("/c.pem"), Some("/k.pem")));
        assert!(parse("rediss+sentinel://h/m").tls.is_some());
    }

    #[test]
    fn what_is_wrong_is_said_by_field_and_without_the_password() {
        let wrong = [
            "localhost:6379",
            "http://:hunter2@h",
            "redis://:hunter2@",
            "redis://:hunter2@h:port",
            "redis://:hunter2@h:70000",
            "redis://:hunter2@h/zero",
            "redis://:hunter2@h/-1",
            "redis://:hunter2@a,b",
            "redis://:%zzhunter2@h",
            "redis+sentinel://:hunter2@h",
            "redis+sentinel://:hunter2@h//1",
            "redis://h?hunter2=1",
            "redis://h?ca=/x",
            "rediss://h?cert=/x",
        ];
        for url in wrong {
            let error = Address::parse("bus.url", url).err().unwrap_or_else(|| panic!("{url} was taken"));
            assert_eq!(error.field, "bus.url", "{url}");
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
    }
}
