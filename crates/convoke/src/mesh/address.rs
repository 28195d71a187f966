//! The address of a mesh, and the prefix of its names.
//!
//! The environment sets both as the existing system reads them: `MESH_REDIS_HOST`, `_PORT`, `_PREFIX`,
//! `_SENTINEL_HOST`, `_SENTINEL_PORT` and `_SENTINEL_NAME`, each falling back to the same with `REDIS_` in place of
//! `MESH_REDIS_`. A Sentinel takes precedence over a host. The leader's lock has its own prefix, `MUTEX_REDIS_PREFIX`,
//! which falls back to `REDIS_PREFIX`. An empty variable counts as unset.
//!
//! Without these variables both prefixes are the `name` in the `package.json` of the working directory, if there is one, as in
//! the existing system. Without a name the mesh's prefix is `app`, and the lock's is the mesh's.
//!
//! The existing system keeps the lock at the address of `MUTEX_REDIS_…`, Convoke at the address of the mesh. If the two
//! differ, its instances and ours would each elect a leader: that is logged as a warning.

use std::io::{ErrorKind, Read as _};

use convoke_core::Invalid;
use convoke_core::ids::check_name;

const PREFIX: &str = "app";
const PACKAGE: &str = "package.json";
/// The size limit of `package.json`.
const PACKAGE_BYTES_MAX: u64 = 1 << 20;
const HOST: &str = "127.0.0.1";
const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;
const SENTINEL_NAME: &str = "mymaster";

/// The address of a mesh and the prefixes of its names.
#[derive(Clone, PartialEq, Eq)]
pub struct MeshAddress {
    pub(crate) url: String,
    pub(crate) prefix: String,
    pub(crate) lock_prefix: String,
    /// The address at which the existing system would keep the lock, if it is another.
    lock_elsewhere: Option<String>,
    /// Why the name in `package.json` is not used, if there is such a file.
    package_problem: Option<String>,
}

impl MeshAddress {
    /// Returns an address with the prefix `app`.
    pub fn new(url: impl Into<String>) -> Self {
        let (url, prefix, lock_prefix) = (url.into(), PREFIX.into(), PREFIX.into());
        MeshAddress { url, prefix, lock_prefix, lock_elsewhere: None, package_problem: None }
    }

    /// Sets the prefix of all names, including the lock's.
    pub fn prefix(self, prefix: impl Into<String>) -> Self {
        let prefix = prefix.into();
        MeshAddress { lock_prefix: prefix.clone(), prefix, package_problem: None, ..self }
    }

    /// Sets the prefix of the lock's name.
    pub fn lock_prefix(self, prefix: impl Into<String>) -> Self {
        MeshAddress { lock_prefix: prefix.into(), ..self }
    }

    /// Returns an address with the prefixes of the environment or of the `package.json` in the working directory.
    pub fn with_env(url: impl Into<String>) -> Self {
        prefixed(url.into(), &from_process, &package_name)
    }

    /// Reads the address and the prefixes from the environment; without variables, the prefixes come from
    /// `package.json`.
    pub fn from_env() -> Result<Self, Invalid> {
        from_lookup(&from_process, &package_name)
    }

    /// Returns why the name in `package.json` is not the prefix, if an error in the file prevents it.
    pub fn package_problem(&self) -> Option<&str> {
        self.package_problem.as_deref()
    }

    #[cfg(feature = "redis")]
    pub(crate) fn warn(&self) {
        if let Some(problem) = &self.package_problem {
            tracing::warn!(prefix = self.prefix, "{problem}");
        }
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
/// Reads the name of the package.
type Package<'a> = &'a dyn Fn() -> Result<Option<String>, String>;

/// Returns the name in the `package.json` of the working directory. `None` without a file or a name.
fn package_name() -> Result<Option<String>, String> {
    let mut text = String::new();
    let file = std::fs::File::open(PACKAGE);
    match file.and_then(|file| file.take(PACKAGE_BYTES_MAX + 1).read_to_string(&mut text)) {
        Ok(_) => name_in(&text),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{PACKAGE} cannot be read, its name is not used as the prefix: {error}")),
    }
}

fn name_in(text: &str) -> Result<Option<String>, String> {
    let refused = |why: String| Err(format!("{PACKAGE}: {why}; its name is not used as the prefix"));
    if text.len() as u64 > PACKAGE_BYTES_MAX {
        return refused(format!("expected at most {PACKAGE_BYTES_MAX} bytes"));
    }
    let package = match serde_json::from_str::<serde_json::Value>(text) {
        Ok(serde_json::Value::Object(package)) => package,
        Ok(_) => return refused("expected an object".into()),
        Err(error) => return refused(format!("expected JSON: {error}")),
    };
    match package.get("name") {
        None => Ok(None),
        Some(serde_json::Value::String(name)) if name.is_empty() => Ok(None),
        Some(serde_json::Value::String(name)) => match check_name("name", name) {
            Ok(()) => Ok(Some(name.clone())),
            Err(invalid) => refused(invalid.to_string()),
        },
        Some(other) => refused(format!("name: expected a string, got {other}")),
    }
}

fn prefixed(url: String, lookup: Lookup<'_>, package: Package<'_>) -> MeshAddress {
    let [mesh, lock, common] = ["MESH_REDIS_PREFIX", "MUTEX_REDIS_PREFIX", "REDIS_PREFIX"].map(|it| value(lookup, it));
    let is_named = common.is_some() || (mesh.is_some() && lock.is_some());
    let (common, package_problem) = match if is_named { Ok(None) } else { package() } {
        Ok(name) => (common.or(name), None),
        Err(problem) => (None, Some(problem)),
    };
    let prefix = mesh.or_else(|| common.clone()).unwrap_or_else(|| PREFIX.into());
    let lock_prefix = lock.or(common).unwrap_or_else(|| prefix.clone());
    MeshAddress { url, prefix, lock_prefix, lock_elsewhere: None, package_problem }
}

fn from_lookup(lookup: Lookup<'_>, package: Package<'_>) -> Result<MeshAddress, Invalid> {
    let url = url_of("MESH_", lookup)?;
    // An invalid port of the lock does not concern the mesh.
    let lock_elsewhere = url_of("MUTEX_", lookup).ok().filter(|lock| *lock != url);
    Ok(MeshAddress { lock_elsewhere, ..prefixed(url, lookup, package) })
}

/// Returns the URL of the variables with this prefix, which fall back to those without it.
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

/// Parses the port in the variable that was found.
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
        read_in(variables, Ok(None))
    }

    /// The working directory has this package.
    fn read_in(variables: &[(&str, &str)], package: Result<Option<String>, String>) -> Result<MeshAddress, Invalid> {
        let find =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        from_lookup(&find, &|| package.clone())
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
        let reported = MeshAddress::new("memory:").prefix("p");
        assert_eq!((reported.prefix.as_str(), reported.lock_prefix.as_str()), ("p", "p"));
        assert_eq!(reported.lock_prefix("l").lock_prefix, "l");
    }

    #[test]
    fn without_variables_the_name_of_the_package_is_the_prefix() {
        let prefixes = |variables: &[(&str, &str)]| {
            let address = read_in(variables, name_in(r#"{"name":"@acme/web","version":"1"}"#)).expect("an address");
            (address.prefix, address.lock_prefix)
        };
        let pair = |prefix: &str, lock: &str| (prefix.to_owned(), lock.to_owned());
        assert_eq!(prefixes(&[]), pair("@acme/web", "@acme/web"));
        assert_eq!(prefixes(&[("REDIS_PREFIX", "r")]), pair("r", "r"));
        assert_eq!(prefixes(&[("MESH_REDIS_PREFIX", "m")]), pair("m", "@acme/web"), "as in the existing system");
        assert_eq!(prefixes(&[("MUTEX_REDIS_PREFIX", "x")]), pair("@acme/web", "x"));
    }

    #[test]
    fn a_package_that_cannot_be_used_is_a_warning_and_no_prefix() {
        for text in ["", "{", "[]", r#"{"name":7}"#, r#"{"name":"a\u0000"}"#, &"x".repeat(2 << 20)] {
            let address = read_in(&[], name_in(text)).expect("an address");
            assert_eq!((address.prefix.as_str(), address.lock_prefix.as_str()), ("app", "app"));
            let problem = address.package_problem().expect("a problem");
            assert!(problem.starts_with("package.json") && problem.len() < 300, "{problem}");
            assert_eq!(read_in(&[("REDIS_PREFIX", "r")], name_in(text)).expect("it").package_problem(), None);
            assert_eq!(address.prefix("p").package_problem(), None, "nobody looked for it");
        }
        for text in ["{}", r#"{"name":""}"#] {
            assert_eq!(name_in(text), Ok(None));
        }
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
