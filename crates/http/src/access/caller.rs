//! The caller of a request: who it is, what it may do, and what it may see.
//!
//! The check of access puts the caller into the request's extensions; handlers, pages and the audit read it there.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use convoke_core::jobs::HidePayloads;
use http::Extensions;
use http::request::Parts;

use super::role::Role;
use super::token::KnownToken;
use crate::error::ApiError;

/// How a caller was identified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identity {
    /// By a token in `Authorization`.
    Token,
    /// By the cookie of a session.
    Session,
    /// By nothing: the server has no tokens.
    Open,
}

/// The caller of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The name of the token, or `local`, or `anonymous`.
    pub name: Arc<str>,
    /// Its permissions.
    pub role: Role,
    /// Whether arguments, results, errors and logs are hidden from it.
    pub payloads_hidden: bool,
    /// How it was identified.
    pub identity: Identity,
}

impl Caller {
    /// The caller on a server without tokens that is open to its own machine.
    pub fn local() -> Self {
        Caller { name: "local".into(), role: Role::Admin, payloads_hidden: false, identity: Identity::Open }
    }

    /// The caller on a server without tokens that is open to all.
    pub fn anonymous() -> Self {
        Caller { name: "anonymous".into(), ..Caller::local() }
    }

    pub(crate) fn of_token(token: &KnownToken, identity: Identity) -> Self {
        Caller { name: token.name.clone(), role: token.role, payloads_hidden: token.payloads_hidden, identity }
    }

    /// Returns the caller of a request; `None` if the path is open to all and the request has no identity.
    pub fn of(extensions: &Extensions) -> Option<&Caller> {
        extensions.get()
    }

    /// Returns whether a request may see details that a page for all must not show.
    pub fn may_read(extensions: &Extensions) -> bool {
        Caller::of(extensions).is_some_and(|caller| caller.role.may(Role::Read))
    }

    /// Rejects the caller if its role does not allow a request that needs `needed`.
    pub fn check(&self, needed: Role) -> Result<(), ApiError> {
        if self.role.may(needed) {
            return Ok(());
        }
        let (needed, role) = (needed.as_str(), self.role.as_str());
        Err(ApiError::forbidden(format!("this needs a token of role {needed}, got one of role {role}")))
    }

    /// Returns what the caller may see of a value.
    pub fn shown<T: HidePayloads>(&self, mut value: T) -> T {
        if self.payloads_hidden {
            value.hide_payloads();
        }
        value
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        Caller::of(&parts.extensions).cloned().ok_or_else(|| ApiError::unauthorized("expected a token"))
    }
}
