//! Authorization of requests.
//!
//! On loopback every process of the machine may do everything, and no other machine may: a request from a web page
//! elsewhere is rejected by the `Host` and `Origin` that its browser sends. On any other address each request carries a
//! token with a role. The required role follows from the method and path, and a request that is not listed needs
//! `admin`: a route that is added and forgotten here is closed, not open.

use std::net::IpAddr;
use std::str::FromStr;

use http::header::{AUTHORIZATION, HOST, ORIGIN};
use http::{Extensions, HeaderMap, Method, Request};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

use super::error::ApiError;

/// How the server decides which requests to accept.
#[derive(Debug, Clone)]
pub enum Access {
    /// Open to this machine alone: for a server that listens on loopback.
    Loopback,
    /// Open to every machine that can reach it, because its operator has allowed it.
    Insecure,
    /// By token.
    Tokens(Tokens),
}

/// The address that a request comes from.
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub IpAddr);

impl Peer {
    fn is_local(self) -> bool {
        self.0.to_canonical().is_loopback()
    }
}

/// The paths that are open to all machines that can reach the server, with or without tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PublicPaths {
    /// `/health`, `/livez` and `/readyz`.
    pub health: bool,
    /// `/metrics`.
    pub metrics: bool,
}

impl PublicPaths {
    /// Returns whether nothing is public.
    pub fn is_none(self) -> bool {
        self == PublicPaths::default()
    }

    fn opens(self, method: &Method, path: &str) -> bool {
        let reads = method == Method::GET || method == Method::HEAD;
        reads
            && match path {
                "/health" | "/livez" | "/readyz" => self.health,
                "/metrics" => self.metrics,
                _ => false,
            }
    }
}

impl FromStr for PublicPaths {
    type Err = String;

    /// Parses `health,metrics`.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut paths = PublicPaths::default();
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            match word {
                "health" => paths.health = true,
                "metrics" => paths.metrics = true,
                _ => return Err(format!("expected health, metrics or both with a comma between, got {word:?}")),
            }
        }
        Ok(paths)
    }
}

/// The rules of access: [`Access`], and the public paths.
///
/// With public paths a server without tokens may listen beyond loopback. Everything else is then open only to requests
/// from its own machine.
#[derive(Debug, Clone)]
pub struct Policy {
    /// The rule for paths that are not public.
    pub access: Access,
    /// The public paths.
    pub public: PublicPaths,
    /// Names beside addresses and `localhost` that a server without tokens accepts in `Host`.
    pub hosts: Vec<String>,
}

impl From<Access> for Policy {
    fn from(access: Access) -> Self {
        Policy { access, public: PublicPaths::default(), hosts: Vec::new() }
    }
}

impl Policy {
    /// Accepts a request, or returns the reason for its rejection.
    pub fn check<B>(&self, request: &Request<B>) -> Result<(), ApiError> {
        if self.public.opens(request.method(), request.uri().path()) {
            return Ok(());
        }
        if !matches!(self.access, Access::Loopback) {
            return self.access.check(request);
        }
        match request.extensions().get::<Peer>() {
            Some(peer) if peer.is_local() => {}
            Some(_) => {
                let message = "without tokens only this machine may send this request; configure tokens (http.tokens)";
                return Err(ApiError::forbidden(message));
            }
            None => {
                let message = "without tokens only this machine may ask for this, and where a request comes from is \
                               not known here: serve the application with \
                               into_make_service_with_connect_info::<SocketAddr>(), or configure tokens";
                return Err(ApiError::forbidden(message));
            }
        }
        refuse_foreign_pages(request.headers(), request.uri().host(), &self.hosts)
    }

    /// Returns whether the caller may see details that a public page must not show.
    pub fn may_read(&self, headers: &HeaderMap, extensions: &Extensions) -> bool {
        match &self.access {
            Access::Loopback => extensions.get::<Peer>().is_some_and(|peer| peer.is_local()),
            access => access.may_read(headers),
        }
    }
}

/// The permission of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Every `GET`.
    Read,
    /// Reading, and to enqueue, cancel and retry jobs.
    Enqueue,
    /// The worker gateway.
    Worker,
    /// Everything.
    Admin,
}

impl Role {
    /// Every role.
    pub const ALL: [Role; 4] = [Role::Read, Role::Enqueue, Role::Worker, Role::Admin];

    /// Returns its name in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Role::Read => "read",
            Role::Enqueue => "enqueue",
            Role::Worker => "worker",
            Role::Admin => "admin",
        }
    }

    const fn may(self, needed: Role) -> bool {
        match self {
            Role::Admin => true,
            // A client that enqueues also reads the results.
            Role::Enqueue => matches!(needed, Role::Enqueue | Role::Read),
            Role::Read => matches!(needed, Role::Read),
            Role::Worker => matches!(needed, Role::Worker),
        }
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Role::ALL.into_iter().find(|role| role.as_str() == text);
        known.ok_or_else(|| format!("expected read, enqueue, worker or admin, got {text:?}"))
    }
}

/// Tokens by their hash: comparing hashes takes the same time however long or similar the tokens are.
#[derive(Clone)]
pub struct Tokens(Vec<([u8; 32], Role)>);

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tokens({})", self.0.len())
    }
}

impl Tokens {
    pub fn new<T: AsRef<str>>(tokens: impl IntoIterator<Item = (T, Role)>) -> Self {
        Tokens(tokens.into_iter().map(|(token, role)| (hash(token.as_ref().as_bytes()), role)).collect())
    }

    /// Compares with every token, so that the time reveals neither a match nor its place.
    fn role(&self, presented: &[u8]) -> Option<Role> {
        let presented = hash(presented);
        let (mut found, mut index) = (Choice::from(0), 0u64);
        for (at, (token, _)) in self.0.iter().enumerate() {
            let same = token.ct_eq(&presented);
            index.conditional_assign(&(at as u64), same);
            found |= same;
        }
        bool::from(found).then(|| self.0[index as usize].1)
    }
}

fn hash(token: &[u8]) -> [u8; 32] {
    Sha256::digest(token).into()
}

impl Access {
    /// Returns access by these tokens.
    pub fn tokens<T: AsRef<str>>(tokens: impl IntoIterator<Item = (T, Role)>) -> Self {
        Access::Tokens(Tokens::new(tokens))
    }

    /// Accepts a request, or returns the reason for its rejection.
    pub fn check<B>(&self, request: &Request<B>) -> Result<(), ApiError> {
        match self {
            Access::Insecure => Ok(()),
            Access::Loopback => refuse_foreign_pages(request.headers(), request.uri().host(), &[]),
            Access::Tokens(tokens) => {
                let Some(needed) = needed(request.method(), request.uri().path()) else { return Ok(()) };
                let role = self::role(tokens, request.headers())?;
                if role.may(needed) {
                    return Ok(());
                }
                let message =
                    format!("this needs a token of role {}, got one of role {}", needed.as_str(), role.as_str());
                Err(ApiError::forbidden(message))
            }
        }
    }

    /// Returns whether the caller may see details that a public page must not show.
    pub fn may_read(&self, headers: &HeaderMap) -> bool {
        match self {
            Access::Tokens(tokens) => role(tokens, headers).is_ok_and(|role| role.may(Role::Read)),
            Access::Loopback | Access::Insecure => true,
        }
    }
}

fn role(tokens: &Tokens, headers: &HeaderMap) -> Result<Role, ApiError> {
    let Some(header) = headers.get(AUTHORIZATION) else {
        return Err(ApiError::unauthorized("expected a token: Authorization: Bearer …"));
    };
    let (scheme, token) = header.as_bytes().split_at_checked(7).unwrap_or_default();
    if !scheme.eq_ignore_ascii_case(b"bearer ") {
        return Err(ApiError::unauthorized("expected Authorization: Bearer …, got another scheme"));
    }
    tokens
        .role(token.trim_ascii())
        .ok_or_else(|| ApiError::unauthorized("expected a token of the configuration, got an unknown one"))
}

/// Returns the role that a request needs; `None` if it is open to all.
fn needed(method: &Method, path: &str) -> Option<Role> {
    let reads = method == Method::GET || method == Method::HEAD;
    let public = matches!(path, "/" | "/livez" | "/readyz" | "/health" | "/openapi.json" | "/docs");
    if reads && (public || path.starts_with("/docs/")) {
        return None;
    }
    if path.starts_with("/v1/worker/") {
        return Some(Role::Worker);
    }
    if reads {
        return Some(Role::Read);
    }
    let of_jobs = path == "/v1/jobs" || path.starts_with("/v1/jobs/");
    Some(if method == Method::POST && of_jobs { Role::Enqueue } else { Role::Admin })
}

/// A foreign page reaches a loopback server in two ways: through a name of its own that resolves to this machine (its
/// `Host` is then that name), or by posting to this address blindly (its `Origin` is then foreign).
fn refuse_foreign_pages(headers: &HeaderMap, target: Option<&str>, names: &[String]) -> Result<(), ApiError> {
    let host = match (target, headers.get(HOST)) {
        (Some(host), _) => host,
        (None, Some(host)) => host.to_str().unwrap_or_default(),
        // HTTP/1.0, or written by hand: no browser omits both.
        (None, None) => return Ok(()),
    };
    let is_named = |name: &str| names.iter().any(|known| known.eq_ignore_ascii_case(name));
    if !is_local_name(host) && !is_named(name_of(host)) {
        let message = format!(
            "this server is open to its own machine only and takes no request for the host {host:?}; use an address or \
             localhost, allow the name (http.hosts), or configure tokens"
        );
        return Err(ApiError::forbidden(message));
    }
    let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
    let origin = origin.to_str().unwrap_or_default();
    if origin.split_once("://").is_some_and(|(_, authority)| authority.eq_ignore_ascii_case(host)) {
        return Ok(());
    }
    Err(ApiError::forbidden(format!("this server accepts no requests from a page of {origin:?}; configure tokens")))
}

/// Returns a host without its port.
fn name_of(host: &str) -> &str {
    match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.rsplit_once(':').filter(|(name, _)| !name.contains(':')).map_or(host, |(name, _)| name),
    }
}

fn is_local_name(host: &str) -> bool {
    let name = name_of(host);
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, path: &str, headers: &[(&str, &str)]) -> Request<()> {
        let builder = headers
            .iter()
            .fold(Request::builder().method(method).uri(path), |builder, (name, value)| builder.header(*name, *value));
        builder.body(()).expect("a request")
    }

    /// Marks a request as coming from this machine.
    fn from_here(mut request: Request<()>) -> Request<()> {
        request.extensions_mut().insert(Peer([127, 0, 0, 1].into()));
        request
    }

    fn by_tokens() -> Access {
        Access::tokens([("r", Role::Read), ("e", Role::Enqueue), ("w", Role::Worker), ("a", Role::Admin)])
    }

    #[test]
    fn each_role_may_do_its_own_and_admin_all() {
        let table = [
            ("GET", "/v1/jobs", "rea"),
            ("GET", "/metrics", "rea"),
            ("GET", "/v1/events", "rea"),
            ("HEAD", "/v1/jobs", "rea"),
            ("POST", "/v1/jobs", "ea"),
            ("POST", "/v1/jobs/batch", "ea"),
            ("POST", "/v1/jobs/0198/cancel", "ea"),
            ("POST", "/v1/worker/poll", "wa"),
            ("PATCH", "/v1/queues/q", "a"),
            ("DELETE", "/v1/queues/q", "a"),
            ("PUT", "/v1/schedules/s", "a"),
            ("DELETE", "/v1/schedules/s", "a"),
            ("POST", "/v1/dead-letters/purge", "a"),
            ("POST", "/v1/something-new", "a"),
            ("POST", "/v1/jobsomething", "a"),
        ];
        for (method, path, allowed) in table {
            for token in ["r", "e", "w", "a"] {
                let bearer = format!("Bearer {token}");
                let answer = by_tokens().check(&request(method, path, &[("authorization", &bearer)]));
                assert_eq!(answer.is_ok(), allowed.contains(token), "{token} {method} {path}: {answer:?}");
                assert!(answer.is_ok() || answer.is_err_and(|error| error.code == "forbidden"));
            }
            for headers in
                [&[][..], &[("authorization", "Bearer x")], &[("authorization", "Basic a")], &[("authorization", "")]]
            {
                let refused = by_tokens().check(&request(method, path, headers)).expect_err("no such token");
                assert_eq!(refused.code, "unauthorized", "{method} {path} {headers:?}");
            }
        }
    }

    #[test]
    fn probes_and_documentation_need_no_token() {
        for path in ["/", "/livez", "/readyz", "/health", "/openapi.json", "/docs", "/docs/index.html"] {
            assert_eq!(by_tokens().check(&request("GET", path, &[])), Ok(()), "{path}");
            assert!(by_tokens().check(&request("POST", path, &[])).is_err(), "{path}");
        }
    }

    #[test]
    fn a_loopback_server_knows_no_names_but_its_own() {
        for host in
            ["localhost", "localhost:3000", "127.0.0.1:3000", "[::1]:3000", "[::1]", "192.168.0.7:80", "LOCALHOST"]
        {
            assert_eq!(Access::Loopback.check(&request("GET", "/v1/jobs", &[("host", host)])), Ok(()), "{host}");
        }
        for host in
            ["evil.example", "evil.example:3000", "localhost.evil.example", "127.0.0.1.evil.example:3000", "", "[evil]"]
        {
            let refused = Access::Loopback.check(&request("GET", "/v1/jobs", &[("host", host)])).expect_err(host);
            assert_eq!(refused.code, "forbidden");
        }
    }

    #[test]
    fn public_paths_are_open_to_all_and_the_rest_to_this_machine() {
        let policy = Policy { public: "health, metrics".parse().expect("known"), ..Access::Loopback.into() };
        let from = |peer: Option<&str>, method, path| {
            let mut request = request(method, path, &[("host", "10.0.0.7:3000")]);
            let peer = peer.map(|peer| Peer(peer.parse().expect("an address")));
            peer.map(|peer| request.extensions_mut().insert(peer));
            policy.check(&request).is_ok()
        };
        for path in ["/health", "/livez", "/readyz", "/metrics"] {
            assert!(from(Some("10.0.0.9"), "GET", path) && from(None, "GET", path), "{path}");
            assert!(!from(Some("10.0.0.9"), "POST", path), "{path}");
        }
        for path in ["/", "/v1/jobs", "/openapi.json", "/healthy", "/metrics/"] {
            assert!(!from(Some("10.0.0.9"), "GET", path) && !from(None, "GET", path), "{path}");
            assert!(from(Some("127.0.0.1"), "GET", path) && from(Some("::ffff:127.0.0.1"), "GET", path), "{path}");
        }
        let health_only = Policy { public: "health".parse().expect("known"), ..by_tokens().into() };
        assert!(health_only.check(&request("GET", "/metrics", &[])).is_err());
        assert!("health,all".parse::<PublicPaths>().is_err());
    }

    #[test]
    fn names_that_are_allowed_are_accepted_in_host() {
        let policy = Policy { hosts: vec!["jobs.internal".into()], ..Access::Loopback.into() };
        for (host, allowed) in [("jobs.internal", true), ("Jobs.Internal:3000", true), ("evil.jobs.internal", false)] {
            let request = from_here(request("GET", "/v1/jobs", &[("host", host)]));
            assert_eq!(policy.check(&request).is_ok(), allowed, "{host}");
        }
        let post = |origin| from_here(request("POST", "/v1/jobs", &[("host", "jobs.internal"), ("origin", origin)]));
        assert!(policy.check(&post("https://jobs.internal")).is_ok() && policy.check(&post("https://evil")).is_err());
    }

    #[test]
    fn a_page_from_elsewhere_cannot_post_blindly() {
        let post = |origin| request("POST", "/v1/jobs", &[("host", "127.0.0.1:3000"), ("origin", origin)]);
        assert_eq!(Access::Loopback.check(&post("http://127.0.0.1:3000")), Ok(()));
        for origin in ["https://evil.example", "null", "http://127.0.0.1:8080", ""] {
            assert!(Access::Loopback.check(&post(origin)).is_err(), "{origin:?}");
        }
    }
}
