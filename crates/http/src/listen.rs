//! Opens a server's port, and decides which requests it accepts.
//!
//! On loopback the port is open to its own machine. On any other address it needs tokens, public paths or the
//! operator's consent; without them it is not opened. Every address that the name resolves to is checked.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use convoke_core::{Invalid, duration};
use tokio::net::TcpListener;

use super::{Access, Policy, PublicPaths, SESSION_TTL, Token};

/// Bounds of `http.session_ttl`.
const SESSION_TTL_MIN: Duration = Duration::from_secs(1);
const SESSION_TTL_MAX: Duration = Duration::from_secs(400 * 24 * 3600);

/// The rules of access to the HTTP API.
#[derive(Clone)]
pub struct AccessOptions {
    /// Tokens and their roles. If there are any, every request but those for probes and documentation carries one.
    pub tokens: Vec<Token>,
    /// Paths that are open to all machines that can reach the server.
    pub public: PublicPaths,
    /// Names beside addresses and `localhost` that a server without tokens accepts in `Host`.
    pub hosts: Vec<String>,
    /// Every client that can reach the server may do everything.
    pub insecure: bool,
    /// How long a session of a browser lasts.
    pub session_ttl: Duration,
}

impl Default for AccessOptions {
    fn default() -> Self {
        AccessOptions {
            tokens: Vec::new(),
            public: PublicPaths::default(),
            hosts: Vec::new(),
            insecure: false,
            session_ttl: SESSION_TTL,
        }
    }
}

impl fmt::Debug for AccessOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AccessOptions { tokens, public, hosts, insecure, session_ttl } = self;
        let mut shown = f.debug_struct("AccessOptions");
        shown.field("tokens", &tokens.len()).field("public", public).field("hosts", hosts).field("insecure", insecure);
        shown.field("session_ttl", session_ttl).finish()
    }
}

impl AccessOptions {
    /// Rejects tokens and names that no request could carry. Errors name the key of the configuration.
    pub fn check(&self) -> Result<(), Invalid> {
        for (index, name) in self.hosts.iter().enumerate() {
            if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)) {
                let message = format!("expected a host name without a port, such as \"jobs.internal\", got {name:?}");
                return Err(Invalid::new(format!("http.hosts[{index}]"), message));
            }
        }
        for (index, token) in self.tokens.iter().enumerate() {
            token.check(index)?;
        }
        if !(SESSION_TTL_MIN..=SESSION_TTL_MAX).contains(&self.session_ttl) {
            let [min, max, got] = [SESSION_TTL_MIN, SESSION_TTL_MAX, self.session_ttl].map(duration::format);
            return Err(Invalid::new("http.session_ttl", format!("expected {min} to {max}, got {got:?}")));
        }
        Ok(())
    }

    /// Returns the policy of a server that listens on `addresses`; `None` if it may not. Without addresses the policy
    /// is that of routes inside another server: they are open to its own machine, unless there are tokens or consent.
    pub fn policy(&self, addresses: &[SocketAddr]) -> Option<Policy> {
        let access = if !self.tokens.is_empty() {
            Access::tokens(self.tokens.iter().cloned())
        } else if self.insecure {
            Access::Insecure
        } else if !self.public.is_none() || addresses.iter().all(|address| address.ip().is_loopback()) {
            // Everything that is not public is closed to other machines.
            Access::Loopback
        } else {
            return None;
        };
        Some(Policy { access, public: self.public, hosts: self.hosts.clone(), session_ttl: self.session_ttl })
    }
}

/// The reasons why a server does not listen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// The host has no address.
    #[error("{bind:?} does not resolve: {source}")]
    Unresolved {
        /// The address as configured.
        bind: String,
        /// The resolver's error.
        source: io::Error,
    },
    /// The address can be reached from other machines, and there are no tokens.
    #[error(
        "refusing to listen on {bind} without tokens, because every client that can reach it could do everything: \
         set tokens, listen on loopback, make only probes and metrics public, or allow it as insecure"
    )]
    NoTokens {
        /// The address as configured.
        bind: String,
    },
    /// Another process, or another part of this one, listens there.
    #[error("{bind} is in use by another process: stop it, or listen on another address")]
    InUse {
        /// The address as configured.
        bind: String,
    },
    /// The operating system rejected it for another reason.
    #[error("cannot listen on {bind}: {source}")]
    Rejected {
        /// The address as configured.
        bind: String,
        /// The operating system's error.
        source: io::Error,
    },
}

/// An open port with its rules of access.
pub struct GuardedListener {
    /// The port.
    pub listener: TcpListener,
    /// The rules of access.
    pub policy: Policy,
}

impl GuardedListener {
    /// Listens on `host:port`, if `options` allow it there. Port 0 takes a free one.
    pub async fn bind(bind: &str, options: &AccessOptions) -> Result<GuardedListener, ListenError> {
        let addresses = resolve(bind).await?;
        let policy = options.policy(&addresses).ok_or_else(|| ListenError::NoTokens { bind: bind.to_owned() })?;
        let listener = TcpListener::bind(&*addresses).await.map_err(|source| match source.kind() {
            io::ErrorKind::AddrInUse => ListenError::InUse { bind: bind.to_owned() },
            _ => ListenError::Rejected { bind: bind.to_owned(), source },
        })?;
        Ok(GuardedListener { listener, policy })
    }
}

/// Returns every address that `host:port` resolves to: at least one.
pub async fn resolve(bind: &str) -> Result<Vec<SocketAddr>, ListenError> {
    let unresolved = |source| ListenError::Unresolved { bind: bind.to_owned(), source };
    let addresses: Vec<_> = tokio::net::lookup_host(bind).await.map_err(unresolved)?.collect();
    if addresses.is_empty() {
        return Err(unresolved(io::Error::other("the name has no address")));
    }
    Ok(addresses)
}

/// Splits `host:port`; the host may be a name, an IPv4 address, or an IPv6 one in brackets.
pub fn host_and_port(text: &str) -> Result<(&str, u16), String> {
    let expected = || format!("expected \"host:port\" such as \"127.0.0.1:3000\", got {text:?}");
    let (host, port) = text.rsplit_once(':').ok_or_else(expected)?;
    let bare_ipv6 = host.contains(':') && !(host.starts_with('[') && host.ends_with(']'));
    if host.is_empty() || bare_ipv6 || host.contains(|c: char| c.is_whitespace() || c == '/') {
        return Err(expected());
    }
    Ok((host, port.parse().map_err(|_| expected())?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Role;

    fn listening(bind: &str, change: impl FnOnce(&mut AccessOptions)) -> Option<Access> {
        let mut options = AccessOptions::default();
        change(&mut options);
        options.policy(&[bind.parse().expect("an address")]).map(|policy| policy.access)
    }

    #[test]
    fn loopback_is_open_and_elsewhere_needs_tokens_or_consent() {
        assert!(matches!(listening("127.0.0.1:0", |_| {}), Some(Access::Loopback)));
        assert!(matches!(listening("[::1]:0", |_| {}), Some(Access::Loopback)));
        assert!(matches!(listening("0.0.0.0:0", |options| options.insecure = true), Some(Access::Insecure)));
        let token = || Token::from(("x", Role::Admin));
        let access = listening("0.0.0.0:0", |options| options.tokens.push(token()));
        assert!(matches!(access, Some(Access::Tokens(_))));
        let access = listening("127.0.0.1:0", |options| options.tokens.push(token()));
        assert!(matches!(access, Some(Access::Tokens(_))));
        assert!(listening("0.0.0.0:0", |_| {}).is_none());
    }

    #[test]
    fn with_public_paths_no_token_is_wanted_and_the_rest_is_closed_to_others() {
        let public = "health,metrics".parse().expect("known");
        let options = AccessOptions { public, hosts: vec!["jobs".into()], ..AccessOptions::default() };
        let policy = options.policy(&["0.0.0.0:3000".parse().expect("an address")]).expect("allowed");
        assert!(matches!(policy.access, Access::Loopback));
        assert!(policy.public.health && policy.public.metrics);
        assert_eq!(policy.hosts, ["jobs"]);
    }

    #[test]
    fn what_is_printed_of_the_options_holds_no_token() {
        let options = AccessOptions { tokens: vec![("hush", Role::Admin).into()], ..AccessOptions::default() };
        assert!(!format!("{options:?}").contains("hush"));
    }

    #[test]
    fn an_address_is_a_host_and_a_port() {
        for good in ["127.0.0.1:0", "[::1]:3000", "localhost:65535", "0.0.0.0:80"] {
            host_and_port(good).expect(good);
        }
        for bad in ["", "3000", ":3000", "::1:3000", "host:", "host:65536", "http://host:80", "a b:1"] {
            host_and_port(bad).expect_err(bad);
        }
    }

    #[tokio::test]
    async fn a_port_that_is_taken_or_open_to_others_is_refused_by_name() {
        let taken = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let bind = taken.local_addr().expect("an address").to_string();
        let refused = GuardedListener::bind(&bind, &AccessOptions::default()).await;
        assert!(matches!(refused.err(), Some(ListenError::InUse { bind: at }) if at == bind));
        let refused = GuardedListener::bind("0.0.0.0:0", &AccessOptions::default()).await;
        let error = refused.err().expect("refused").to_string();
        assert!(error.starts_with("refusing to listen on 0.0.0.0:0 without tokens"), "{error}");
        let refused = GuardedListener::bind("no-such-host.invalid:1", &AccessOptions::default()).await;
        assert!(matches!(refused.err(), Some(ListenError::Unresolved { .. })));
    }
}
