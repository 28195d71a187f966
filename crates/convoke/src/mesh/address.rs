//! Where a mesh is, and what its names begin with.
//!
//! The environment says both as the existing system reads it: `MESH_REDIS_HOST`, `_PORT`, `_PREFIX`, `_SENTINEL_HOST`,
//! `_SENTINEL_PORT` and `_SENTINEL_NAME`, each falling back to the same with `REDIS_` in place of `MESH_REDIS_`. The leader's
//! lock has a prefix of its own, `MUTEX_REDIS_PREFIX`, which falls back to `REDIS_PREFIX` and then to the mesh's. A variable
//! that is empty is none.

use convoke_core::Invalid;

const PREFIX: &str = "app";
const HOST: &str = "127.0.0.1";
const SENTINEL_NAME: &str = "mymaster";

#[derive(Clone, PartialEq, Eq)]
pub struct MeshAddress {
    pub(crate) url: String,
    pub(crate) prefix: String,
    pub(crate) lock_prefix: String,
}

impl MeshAddress {
    /// An address, with names that begin with `app`.
    pub fn new(url: impl Into<String>) -> Self {
        MeshAddress { url: url.into(), prefix: PREFIX.into(), lock_prefix: PREFIX.into() }
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
}

fn from_process(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

fn prefixed(url: String, lookup: Lookup<'_>) -> MeshAddress {
    let common = value(lookup, "REDIS_PREFIX");
    let prefix = value(lookup, "MESH_REDIS_PREFIX").or_else(|| common.clone()).unwrap_or_else(|| PREFIX.into());
    let lock_prefix = value(lookup, "MUTEX_REDIS_PREFIX").or(common).unwrap_or_else(|| prefix.clone());
    MeshAddress { url, prefix, lock_prefix }
}

fn from_lookup(lookup: Lookup<'_>) -> Result<MeshAddress, Invalid> {
    let own = |name: &str| value(lookup, &format!("MESH_REDIS_{name}"));
    let either = |name: &str| own(name).or_else(|| value(lookup, &format!("REDIS_{name}")));
    // Whoever names a host for the mesh alone does not mean the Sentinels of everything else.
    let sentinel = if own("HOST").is_some() { own("SENTINEL_HOST") } else { either("SENTINEL_HOST") };
    let url = match sentinel {
        Some(host) => {
            let port = port("SENTINEL_PORT", either("SENTINEL_PORT"))?;
            let name = either("SENTINEL_NAME").unwrap_or_else(|| SENTINEL_NAME.into());
            format!("redis+sentinel://{}{port}/{}", bracketed(&host), encoded(&name))
        }
        None => {
            let host = either("HOST").unwrap_or_else(|| HOST.into());
            format!("redis://{}{}", bracketed(&host), port("PORT", either("PORT"))?)
        }
    };
    Ok(prefixed(url, lookup))
}

fn value(lookup: Lookup<'_>, name: &str) -> Option<String> {
    lookup(name).filter(|value| !value.is_empty())
}

fn port(name: &str, text: Option<String>) -> Result<String, Invalid> {
    match text.map(|text| text.parse::<u16>().map_err(|_| text)) {
        None => Ok(String::new()),
        Some(Ok(port @ 1..)) => Ok(format!(":{port}")),
        Some(Ok(_) | Err(_)) => Err(Invalid::new(
            format!("MESH_REDIS_{name}"),
            "expected a port from 1 to 65535, there or in the variable it falls back to",
        )),
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
        assert_eq!(url(&[]), "redis://127.0.0.1");
        assert_eq!(url(&[("REDIS_HOST", "r"), ("REDIS_PORT", "1")]), "redis://r:1");
        assert_eq!(url(&[("MESH_REDIS_HOST", "m"), ("REDIS_HOST", "r"), ("REDIS_PORT", "1")]), "redis://m:1");
        assert_eq!(url(&[("MESH_REDIS_HOST", ""), ("REDIS_HOST", "r"), ("MESH_REDIS_PORT", "2")]), "redis://r:2");
        assert_eq!(url(&[("REDIS_HOST", "::1"), ("REDIS_PORT", "1")]), "redis://[::1]:1");
    }

    #[test]
    fn sentinels_are_asked_where_one_is_named() {
        assert_eq!(url(&[("REDIS_SENTINEL_HOST", "s")]), "redis+sentinel://s/mymaster");
        let all =
            [("MESH_REDIS_SENTINEL_HOST", "s"), ("REDIS_SENTINEL_PORT", "5"), ("MESH_REDIS_SENTINEL_NAME", "a/b")];
        assert_eq!(url(&all), "redis+sentinel://s:5/a%2Fb");
        assert_eq!(url(&[("MESH_REDIS_HOST", "m"), ("REDIS_SENTINEL_HOST", "s")]), "redis://m");
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
    fn a_port_that_is_none_is_named() {
        for port in ["x", "0", "65536", "-1"] {
            assert_eq!(read(&[("REDIS_PORT", port)]).err().expect(port).field, "MESH_REDIS_PORT");
        }
    }
}
