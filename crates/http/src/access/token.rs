//! The tokens of the configuration.

use std::fmt;
use std::sync::Arc;

use convoke_core::Invalid;
use convoke_core::limits::NAME_BYTES_MAX;
use sha2::{Digest, Sha256};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

use super::role::Role;

/// A token of the configuration: the secret, what its bearer may do, and the name under which its acts are recorded.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// The secret.
    pub token: String,
    /// The permission.
    pub role: Role,
    /// The name of its bearer in the audit. Without one: the role and the token's place in the configuration.
    pub name: Option<String>,
    /// Whether arguments, results, errors and logs are hidden from its bearer.
    pub payloads_hidden: bool,
}

impl<T: Into<String>> From<(T, Role)> for Token {
    fn from((token, role): (T, Role)) -> Self {
        Token { token: token.into(), role, name: None, payloads_hidden: false }
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Token { token: _, role, name, payloads_hidden } = self;
        let mut shown = f.debug_struct("Token");
        shown.field("role", role).field("name", name).field("payloads_hidden", payloads_hidden).finish_non_exhaustive()
    }
}

impl Token {
    /// Rejects a token that no request could carry, and a name that could be mistaken. `index` is its place.
    pub(crate) fn check(&self, index: usize) -> Result<(), Invalid> {
        let reject = |key: &str, message: String| Err(Invalid::new(format!("http.tokens[{index}].{key}"), message));
        if self.token.is_empty() || !self.token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return reject("token", "expected printable ASCII characters without spaces".into());
        }
        if let Some(name) = &self.name
            && (name.trim().is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control))
        {
            let message = format!("expected 1 to {NAME_BYTES_MAX} bytes without control characters, got {name:?}");
            return reject("name", message);
        }
        if self.payloads_hidden && self.role == Role::Worker {
            return reject("payloads", "expected \"shown\" for the role worker: it needs the arguments".into());
        }
        Ok(())
    }
}

/// A token as the server keeps it: by its hash, since comparing hashes takes the same time however long or similar the
/// tokens are.
#[derive(Clone)]
pub(crate) struct KnownToken {
    pub hash: [u8; 32],
    pub name: Arc<str>,
    pub role: Role,
    pub payloads_hidden: bool,
}

/// The tokens of the configuration.
#[derive(Clone)]
pub struct Tokens(Vec<KnownToken>);

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokens({})", self.0.len())
    }
}

impl Tokens {
    pub(crate) fn new<T: Into<Token>>(tokens: impl IntoIterator<Item = T>) -> Self {
        let known = (1..).zip(tokens.into_iter().map(Into::into)).map(|(place, token): (usize, Token)| KnownToken {
            hash: hash(token.token.as_bytes()),
            name: token.name.unwrap_or_else(|| format!("{}-{place}", token.role.as_str())).into(),
            role: token.role,
            payloads_hidden: token.payloads_hidden,
        });
        Tokens(known.collect())
    }

    /// Compares with every token, so that the time reveals neither a match nor its place.
    pub(crate) fn find(&self, presented: &[u8]) -> Option<&KnownToken> {
        let presented = hash(presented);
        self.find_by(|token| token.hash.ct_eq(&presented))
    }

    /// Returns the last token for which `is_same` holds. Compares every token.
    pub(crate) fn find_by(&self, is_same: impl Fn(&KnownToken) -> Choice) -> Option<&KnownToken> {
        let (mut found, mut index) = (Choice::from(0), 0u64);
        for (at, token) in self.0.iter().enumerate() {
            let same = is_same(token);
            index.conditional_assign(&(at as u64), same);
            found |= same;
        }
        if bool::from(found) { self.0.get(index as usize) } else { None }
    }
}

fn hash(token: &[u8]) -> [u8; 32] {
    Sha256::digest(token).into()
}
