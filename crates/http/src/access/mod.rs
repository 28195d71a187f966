//! Authorization of requests.
//!
//! On loopback every process of the machine may do everything, and no other machine may: a request from a web page
//! elsewhere is rejected by the `Host` and `Origin` that its browser sends. On any other address each request carries a
//! token with a role, or the cookie of a session that was made by one. The required role follows from the method and
//! path ([`role`]).
//!
//! [`guard`] is the one place that decides: it identifies the [`Caller`], compares the role, and checks that forms come
//! from a page of this server.

mod caller;
mod csrf;
mod foreign;
mod guard;
mod logins;
mod role;
mod session;
mod token;

use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderMap, Method, Request};

pub use caller::{Caller, Identity};
pub(crate) use csrf::CsrfToken;
pub(crate) use foreign::refuse_foreign_forms;
use foreign::refuse_foreign_pages;
pub(crate) use guard::admit;
pub use role::Role;
pub(crate) use role::{Area, is_read};
pub(crate) use session::{COOKIE_NAME, Sessions};
pub use token::{Token, Tokens};

use super::error::ApiError;

/// How long a session lasts, unless configured.
pub const SESSION_TTL: Duration = Duration::from_secs(12 * 3600);

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
    /// How long a session of a browser lasts.
    pub session_ttl: Duration,
}

impl From<Access> for Policy {
    fn from(access: Access) -> Self {
        Policy { access, public: PublicPaths::default(), hosts: Vec::new(), session_ttl: SESSION_TTL }
    }
}

impl Policy {
    /// Returns the role that a request needs; `None` if it is open to all.
    fn needed<B>(&self, request: &Request<B>) -> Option<Role> {
        let (method, path) = (request.method(), request.uri().path());
        if self.public.opens(method, path) { None } else { role::needed(method, path) }
    }

    /// Returns who sends a request, by everything but a session; `None` if the request has no token.
    fn identify<B>(&self, request: &Request<B>) -> Result<Option<Caller>, ApiError> {
        if !matches!(self.access, Access::Loopback) {
            return self.access.identify(request);
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
        refuse_foreign_pages(request.headers(), request.uri().host(), &self.hosts)?;
        Ok(Some(Caller::local()))
    }

    /// Accepts a request without a session, or returns the reason for its rejection.
    #[cfg(test)]
    fn check<B>(&self, request: &Request<B>) -> Result<(), ApiError> {
        if self.public.opens(request.method(), request.uri().path()) {
            return Ok(());
        }
        match self.access {
            Access::Loopback => self.identify(request).map(drop),
            _ => self.access.check(request),
        }
    }
}

impl Access {
    /// Returns access by these tokens.
    pub fn tokens<T: Into<Token>>(tokens: impl IntoIterator<Item = T>) -> Self {
        Access::Tokens(Tokens::new(tokens))
    }

    /// Accepts a request by its token, or returns the reason for its rejection.
    pub fn check<B>(&self, request: &Request<B>) -> Result<(), ApiError> {
        match (self, role::needed(request.method(), request.uri().path())) {
            (Access::Tokens(_), None) => Ok(()),
            (Access::Tokens(_), Some(needed)) => match self.identify(request)? {
                Some(caller) => caller.check(needed),
                None => Err(no_token()),
            },
            _ => self.identify(request).map(drop),
        }
    }

    fn identify<B>(&self, request: &Request<B>) -> Result<Option<Caller>, ApiError> {
        match self {
            Access::Insecure => Ok(Some(Caller::anonymous())),
            Access::Loopback => {
                refuse_foreign_pages(request.headers(), request.uri().host(), &[])?;
                Ok(Some(Caller::local()))
            }
            Access::Tokens(tokens) => by_token(tokens, request.headers()),
        }
    }
}

fn no_token() -> ApiError {
    ApiError::unauthorized("expected a token: Authorization: Bearer …")
}

fn by_token(tokens: &Tokens, headers: &HeaderMap) -> Result<Option<Caller>, ApiError> {
    let Some(header) = headers.get(AUTHORIZATION) else { return Ok(None) };
    let (scheme, token) = header.as_bytes().split_at_checked(7).unwrap_or_default();
    if !scheme.eq_ignore_ascii_case(b"bearer ") {
        return Err(ApiError::unauthorized("expected Authorization: Bearer …, got another scheme"));
    }
    let known = tokens
        .find(token.trim_ascii())
        .ok_or_else(|| ApiError::unauthorized("expected a token of the configuration, got an unknown one"))?;
    Ok(Some(Caller::of_token(known, Identity::Token)))
}

#[cfg(test)]
mod tests;
