//! Sessions of browsers: a token is exchanged for a cookie.
//!
//! A cookie names its token and its expiry, and is signed by a key that is in the store, so that every node accepts it
//! and no node keeps a list of sessions. The role and the name are those of the token as it is configured now: a session
//! ends if its token is removed from the configuration, if its time is over, or if the key is replaced. A node reads the
//! key again every [`KEY_FRESH_FOR`].
//!
//! | bytes of a cookie | |
//! | --- | --- |
//! | 1 | the version of this format |
//! | 16 | the token: its hash, hashed again with the key |
//! | 8 | the expiry, in seconds since 1970 |
//! | 8 | a random number, so that no two sessions are the same |
//! | 32 | the signature of all these, HMAC-SHA256 |

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use convoke_core::ports::Store;
use convoke_core::{Error, Result};
use hmac::{Hmac, KeyInit, Mac};
use http::HeaderMap;
use http::header::COOKIE;
use jiff::Timestamp;
use parking_lot::RwLock;
use sha2::Sha256;
use subtle::ConstantTimeEq;
use tokio::time::Instant;

use super::logins::LoginLimit;
use super::token::{KnownToken, Tokens};

/// The name of the cookie.
pub const COOKIE_NAME: &str = "convoke_session";
/// The name of the key in the store.
const KEY_NAME: &str = "session-key";
const KEY_BYTES: usize = 32;
/// How long a node uses the key before it reads it again.
const KEY_FRESH_FOR: Duration = Duration::from_secs(60);
/// The shortest time between two reads: a request with any cookie causes one.
const READ_PAUSE: Duration = Duration::from_secs(1);
const VERSION: u8 = 1;
const TOKEN_BYTES: usize = 16;
const SIGNED_BYTES: usize = 1 + TOKEN_BYTES + 8 + 8;
const COOKIE_BYTES: usize = SIGNED_BYTES + 32;

/// The key that signs sessions and the tokens of forms.
#[derive(Clone, Copy)]
pub struct SessionKey([u8; KEY_BYTES]);

/// The signed part of a cookie.
pub type SessionId = [u8; SIGNED_BYTES];

impl SessionKey {
    /// Returns the signature of a text. A signature for one purpose is never one for another.
    fn mac(&self, purpose: &str, text: &[u8]) -> [u8; 32] {
        // HMAC takes keys of every length.
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.0) else { unreachable!("a key of any length") };
        mac.update(purpose.as_bytes());
        mac.update(b"\0");
        mac.update(text);
        mac.finalize().into_bytes().into()
    }

    fn token_id(&self, token: &KnownToken) -> [u8; TOKEN_BYTES] {
        let mut id = [0; TOKEN_BYTES];
        id.copy_from_slice(&self.mac("token", &token.hash)[..TOKEN_BYTES]);
        id
    }

    /// Returns the cookie of a new session.
    pub fn issue(&self, token: &KnownToken, expires_at: Timestamp) -> String {
        let mut cookie = Vec::with_capacity(COOKIE_BYTES);
        cookie.push(VERSION);
        cookie.extend(self.token_id(token));
        cookie.extend(expires_at.as_second().to_be_bytes());
        cookie.extend(rand::random::<[u8; 8]>());
        let signature = self.mac("session", &cookie);
        cookie.extend(signature);
        URL_SAFE_NO_PAD.encode(cookie)
    }

    /// Returns the token of a session that is valid now.
    pub fn verify<'t>(&self, cookie: &str, tokens: &'t Tokens, now: Timestamp) -> Option<(&'t KnownToken, SessionId)> {
        let cookie = URL_SAFE_NO_PAD.decode(cookie).ok().filter(|cookie| cookie.len() == COOKIE_BYTES)?;
        let (signed, signature) = cookie.split_at(SIGNED_BYTES);
        if !bool::from(self.mac("session", signed).ct_eq(signature)) || signed[0] != VERSION {
            return None;
        }
        let id: SessionId = signed.try_into().ok()?;
        let expires_at = i64::from_be_bytes(id[1 + TOKEN_BYTES..][..8].try_into().ok()?);
        if now.as_second() >= expires_at {
            return None;
        }
        let token = tokens.find_by(|token| self.token_id(token).ct_eq(&id[1..=TOKEN_BYTES]))?;
        Some((token, id))
    }

    /// Returns the token that the forms of a session carry; without a session, of every page of this cluster.
    pub fn csrf(&self, session: Option<&SessionId>) -> String {
        URL_SAFE_NO_PAD.encode(self.mac("csrf", session.map_or(b"open", |id| id)))
    }
}

/// The key as this node knows it, and the limit of failed logins.
#[derive(Default)]
pub struct Sessions {
    known: RwLock<Option<Known>>,
    /// Held while the key is read, so that one request reads it for all.
    reading: tokio::sync::Mutex<()>,
    pub(crate) logins: LoginLimit,
}

#[derive(Clone, Copy)]
struct Known {
    key: Option<SessionKey>,
    /// When the store is asked again.
    until: Instant,
}

impl Sessions {
    /// Returns the key; `None` if no node has made one.
    pub async fn key(&self, store: &dyn Store) -> Result<Option<SessionKey>> {
        if let Some(key) = self.fresh() {
            return Ok(key);
        }
        let _reading = self.reading.lock().await;
        match self.fresh() {
            Some(key) => Ok(key),
            None => self.read(store).await,
        }
    }

    /// Returns the key, and makes it if there is none.
    pub async fn key_or_new(&self, store: &dyn Store) -> Result<SessionKey> {
        if let Some(key) = self.key(store).await? {
            return Ok(key);
        }
        let _reading = self.reading.lock().await;
        let key = SessionKey(rand::random());
        // Of several nodes one stores its key, and all use that.
        store.swap_value(KEY_NAME, None, &key.0).await?;
        let stored = self.read(store).await?;
        stored.ok_or_else(|| Error::unavailable("store", format!("its value {KEY_NAME:?} is not a key: delete it")))
    }

    /// Replaces the key: every session ends, here at once and on other nodes within [`KEY_FRESH_FOR`].
    pub async fn replace_key(&self, store: &dyn Store) -> Result<()> {
        let _reading = self.reading.lock().await;
        let key = SessionKey(rand::random());
        let known = store.value(KEY_NAME).await?;
        if !store.swap_value(KEY_NAME, known.as_deref(), &key.0).await? {
            return Err(Error::Conflict("the key of sessions was replaced by another request meanwhile".into()));
        }
        self.read(store).await.map(drop)
    }

    fn fresh(&self) -> Option<Option<SessionKey>> {
        self.known.read().filter(|known| Instant::now() < known.until).map(|known| known.key)
    }

    async fn read(&self, store: &dyn Store) -> Result<Option<SessionKey>> {
        let read = store.value(KEY_NAME).await;
        let before = self.known.read().and_then(|known| known.key);
        let (key, fresh_for) = match read {
            Ok(value) => match value.and_then(|value| value.try_into().ok()).map(SessionKey) {
                Some(key) => (Some(key), KEY_FRESH_FOR),
                None => (None, READ_PAUSE),
            },
            // While the store is away, the key that was read last is used.
            Err(_) if before.is_some() => (before, READ_PAUSE),
            Err(error) => return Err(error),
        };
        *self.known.write() = Some(Known { key, until: Instant::now() + fresh_for });
        Ok(key)
    }
}

/// Returns the cookie of a session in a request.
pub fn cookie(headers: &HeaderMap) -> Option<&str> {
    let pairs = headers.get_all(COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    let pairs = pairs.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.filter(|(name, _)| *name == COOKIE_NAME).map(|(_, value)| value).next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Role;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("in range")
    }

    #[test]
    fn a_session_is_valid_until_its_time_for_its_token_and_key_alone() {
        let (tokens, others) = (Tokens::new([("a", Role::Read), ("b", Role::Admin)]), Tokens::new([("a", Role::Read)]));
        let key = SessionKey([7; KEY_BYTES]);
        let token = tokens.find(b"b").expect("known");
        let cookie = key.issue(token, at(100));
        let verified = |key: &SessionKey, tokens, cookie: &str, now| {
            key.verify(cookie, tokens, at(now)).map(|(token, _)| token.role)
        };
        assert_eq!(verified(&key, &tokens, &cookie, 99), Some(Role::Admin));
        assert_eq!(verified(&key, &tokens, &cookie, 100), None, "its time is over");
        assert_eq!(verified(&key, &others, &cookie, 99), None, "its token is gone");
        assert_eq!(verified(&SessionKey([8; KEY_BYTES]), &tokens, &cookie, 99), None, "another key");
        assert_ne!(cookie, key.issue(token, at(100)), "no two sessions are the same");
    }

    #[test]
    fn no_byte_of_a_cookie_can_be_changed() {
        let tokens = Tokens::new([("a", Role::Read)]);
        let key = SessionKey([7; KEY_BYTES]);
        let cookie = key.issue(tokens.find(b"a").expect("known"), at(100));
        let bytes = URL_SAFE_NO_PAD.decode(&cookie).expect("encoded");
        assert_eq!(bytes.len(), COOKIE_BYTES);
        for place in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[place] ^= 1;
            assert!(key.verify(&URL_SAFE_NO_PAD.encode(changed), &tokens, at(1)).is_none(), "{place}");
        }
        for garbage in ["", "x", "=", &cookie[1..], &format!("{cookie}A"), "ü"] {
            assert!(key.verify(garbage, &tokens, at(1)).is_none(), "{garbage}");
        }
    }

    #[test]
    fn the_cookie_is_found_among_others() {
        let mut headers = HeaderMap::new();
        headers.append(COOKIE, "a=1; b=2".parse().expect("a header"));
        assert_eq!(cookie(&headers), None);
        headers.append(COOKIE, "xconvoke_session=no;convoke_session=yes; c=3".parse().expect("a header"));
        assert_eq!(cookie(&headers), Some("yes"));
    }
}
