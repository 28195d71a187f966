//! Where a mesh is, and what its names begin with.
//!
//! The environment says both as the existing system reads it: `MESH_REDIS_HOST`, `_PORT`, `_PREFIX`, `_SENTINEL_HOST`,
//! `_SENTINEL_PORT` and `_SENTINEL_NAME`, each falling back to the same with `REDIS_` in place of `MESH_REDIS_`; where that
//! gives a Sentinel, it is asked, whatever hosts are named besides. The leader's lock has a prefix of its own,
//! `MUTEX_REDIS_PREFIX`, which falls back to `REDIS_PREFIX` and then to the mesh's. A variable that is empty is none.
//!
//! That system has the lock where `MUTEX_REDIS_…` says, we have it where the mesh is. Where the two differ, its instances and
//! ours would each have a leader: we say so in the log.

use convoke_core::Invalid;

const PREFIX: &str = "app";
const HOST: &str = "127.0.0.1";
const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;
const SENTINEL_NAME: &str = "mymaster";

#[derive(Clone, PartialEq, Eq)]
pub struct MeshAddress {
    pub(crate) url: String,
    pub(crate) prefix: String,
    pub(crate) lock_prefix: String,
    /// Where the existing system would have the lock, if not here.
    lock_elsewhere: Option<String>,
}

impl MeshAddress {
    /// An address, with names that begin with `app`.
    pub fn new(url: impl Into<String>) -> Self {
        MeshAddress { url: url.into(), prefix: PREFIX.into(), lock_prefix: PREFIX.into(), lock_elsewhere: None }
    }

    /// What all names begin with, the lock's included.
    pub fn prefix(self, prefix: impl Into<String>) -> Self {
        let prefix = prefix.into();
        MeshAddress { lock_prefix: prefix.clone(), prefix, ..self }
    }

    /// What the lock's name begins with.
    pub fn lock_prefix(self, prefix: impl Into<String>) -> Self {
        MeshAddress { lock_prefix: prefix.into(), ..self }
    }

    /// An address, with the prefixes that the environment has.
    pub fn with_env(url: impl Into<String>) -> Self {
        prefixed(url.into(), &from_process)
    }

    /// All from the environment.
    pub fn from_env() -> Result<Self, Invalid> {
        from_lookup(&from_process)
    }

    pub(crate) fn warn_of_another_lock(&self) {
        if let Some(lock) = &self.lock_elsewhere {
            tracing::warn!(
                mesh = self.url,
                lock,
                "MUTEX_REDIS_… or REDIS_… has the leader's lock elsewhere than the mesh: instances of MeshService look for it \
                 there, we have it here, and each side would have a leader"
            );
        }
    }
}

fn from_process(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

fn prefixed(url: String, lookup: Lookup<'_>) -> MeshAddress {
    let common = value(lookup, "REDIS_PREFIX");
    let prefix = value(lookup, "MESH_REDIS_PREFIX").or_else(|| common.clone()).unwrap_or_else(|| PREFIX.into());
    let lock_prefix = value(lookup, "MUTEX_REDIS_PREFIX").or(common).unwrap_or_else(|| prefix.clone());
    MeshAddress { url, prefix, lock_prefix, lock_elsewhere: None }
}

fn from_lookup(lookup: Lookup<'_>) -> Result<MeshAddress, Invalid> {
    let url = url_of("MESH_", lookup)?;
    // A port of the lock's that is none is for those to mend who use it.
    let lock_elsewhere = url_of("MUTEX_", lookup).ok().filter(|lock| *lock != url);
    Ok(MeshAddress { lock_elsewhere, ..prefixed(url, lookup) })
}

/// What the variables say that begin so, over those that do not.
fn url_of(purpose: &str, lookup: Lookup<'_>) -> Result<String, Invalid> {
    let variable = |name: &str| {
        let names = [format!("{purpose}REDIS_{name}"), format!("REDIS_{name}")];
        names.into_iter().find_map(|name| value(lookup, &name).map(|value| (name, value)))
    };
    let text = |name: &str, default: &str| variable(name).map_or_else(|| default.to_owned(), |(_, value)| value);
    match variable("SENTINEL_HOST") {
        Some((_, host)) => {
            let port = port(variable("SENTINEL_PORT"), SENTINEL_PORT)?;
            let name = text("SENTINEL_NAME", SENTINEL_NAME);
            Ok(format!("redis+sentinel://{}:{port}/{}", bracketed(&host), encoded(&name)))
        }
        None => Ok(format!("redis://{}:{}", bracketed(&text("HOST", HOST)), port(variable("PORT"), PORT)?)),
    }
}

fn value(lookup: Lookup<'_>, name: &str) -> Option<String> {
    lookup(name).filter(|value| !value.is_empty())
}

/// Of the variable that was found, and its text.
fn port(variable: Option<(String, String)>, default: u16) -> Result<u16, Invalid> {
    let Some((name, text)) = variable else { return Ok(default) };
    match text.parse() {
        Ok(port @ 1..) => Ok(port),
        Ok(_) | Err(_) => Err(Invalid::new(name, format!("expected a port from 1 to 65535, got {text:?}"))),
    }
}

fn bracketed(host: &str) -> String {
    if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host.to_owned() }
}

/// A master's name may have any characters; in a URL they are encoded.
fn encoded(name: &str) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
    let encode = |byte: u8| if is_plain(&byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    name.bytes().map(encode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<MeshAddress, Invalid> {
        let find =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        from_lookup(&find)
    }

    fn url(variables: &[(&str, &str)]) -> String {
        read(variables).expect("an address").url
    }

    fn prefixes(variables: &[(&str, &str)]) -> (String, String) {
        let address = read(variables).expect("an address");
        (address.prefix, address.lock_prefix)
    }

    #[test]
    fn host_and_port_fall_back_one_by_one() {
        assert_eq!(url(&[]), "redis://127.0.0.1:6379");
        assert_eq!(url(&[("REDIS_HOST", "r"), ("REDIS_PORT", "1")]), "redis://r:1");
        assert_eq!(url(&[("MESH_REDIS_HOST", "m"), ("REDIS_HOST", "r"), ("REDIS_PORT", "1")]), "redis://m:1");
        assert_eq!(url(&[("MESH_REDIS_HOST", ""), ("REDIS_HOST", "r"), ("MESH_REDIS_PORT", "2")]), "redis://r:2");
        assert_eq!(url(&[("REDIS_HOST", "::1"), ("REDIS_PORT", "1")]), "redis://[::1]:1");
    }

    #[test]
    fn sentinels_are_asked_where_one_is_named() {
        assert_eq!(url(&[("REDIS_SENTINEL_HOST", "s")]), "redis+sentinel://s:26379/mymaster");
        let all =
            [("MESH_REDIS_SENTINEL_HOST", "s"), ("REDIS_SENTINEL_PORT", "5"), ("MESH_REDIS_SENTINEL_NAME", "a/b")];
        assert_eq!(url(&all), "redis+sentinel://s:5/a%2Fb");
        let both = [("MESH_REDIS_HOST", "m"), ("REDIS_SENTINEL_HOST", "s")];
        assert_eq!(url(&both), "redis+sentinel://s:26379/mymaster", "one wins over any host");
    }

    #[test]
    fn prefixes_fall_back_to_the_common_one_and_then_to_app() {
        let pair = |prefix: &str, lock: &str| (prefix.to_owned(), lock.to_owned());
        assert_eq!(prefixes(&[]), pair("app", "app"));
        assert_eq!(prefixes(&[("REDIS_PREFIX", "r")]), pair("r", "r"));
        assert_eq!(prefixes(&[("MESH_REDIS_PREFIX", "m")]), pair("m", "m"));
        assert_eq!(prefixes(&[("MESH_REDIS_PREFIX", "m"), ("REDIS_PREFIX", "r")]), pair("m", "r"));
        assert_eq!(prefixes(&[("MUTEX_REDIS_PREFIX", "x"), ("REDIS_PREFIX", "r")]), pair("r", "x"));
        let told = MeshAddress::new("memory:").prefix("p");
        assert_eq!((told.prefix.as_str(), told.lock_prefix.as_str()), ("p", "p"));
        assert_eq!(told.lock_prefix("l").lock_prefix, "l");
    }

    #[test]
    fn a_port_that_is_none_is_named_with_the_variable_that_has_it() {
        for port in ["x", "0", "65536", "-1"] {
            for name in ["REDIS_PORT", "MESH_REDIS_PORT"] {
                let invalid = read(&[(name, port)]).err().expect(port);
                assert_eq!(invalid.field, name);
                assert!(invalid.message.ends_with(&format!("got {port:?}")), "{}", invalid.message);
            }
        }
    }

    #[test]
    fn a_lock_that_the_existing_system_has_elsewhere_is_known() {
        let elsewhere = |variables: &[(&str, &str)]| read(variables).expect("an address").lock_elsewhere;
        let same = [
            &[][..],
            &[("REDIS_HOST", "r"), ("REDIS_SENTINEL_HOST", "s")],
            &[("MESH_REDIS_HOST", "m"), ("MUTEX_REDIS_HOST", "m"), ("MUTEX_REDIS_PORT", "6379")],
            &[("MUTEX_REDIS_PREFIX", "x")],
            &[("MUTEX_REDIS_PORT", "none")],
        ];
        for variables in same {
            assert_eq!(elsewhere(variables), None, "{variables:?}");
        }
        assert_eq!(elsewhere(&[("MESH_REDIS_HOST", "m")]).as_deref(), Some("redis://127.0.0.1:6379"));
        assert_eq!(elsewhere(&[("MESH_REDIS_HOST", "m"), ("REDIS_HOST", "r")]).as_deref(), Some("redis://r:6379"));
        assert_eq!(elsewhere(&[("MUTEX_REDIS_PORT", "7")]).as_deref(), Some("redis://127.0.0.1:7"));
    }
}
