//! Authentication of peers: none, by a password (PLAIN), or by the server's key (CURVE).
//!
//! PLAIN authenticates a worker and encrypts nothing. CURVE encrypts, and authenticates both sides to each other if the
//! server has a list of its workers' keys. Keys are written in Z85, 40 characters. `Debug` never shows a secret.

use std::fmt;

use convoke_core::error::{Invalid, Result};
use omq_tokio::{CurveKeypair, CurvePublicKey, CurveSecretKey, CurveServerOptions, MechanismPeerInfo, Options};
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

/// The authentication that a coordinator requires.
#[derive(Clone, Default)]
pub enum ZmqSecurity {
    #[default]
    Open,
    /// User names and their passwords. An empty list rejects every worker.
    Plain(Vec<(String, String)>),
    /// The server's keys and, if the list is not empty, the only workers that are accepted.
    Curve { keys: ZmqKeys, allowed: Vec<CurvePublicKey> },
}

/// The credentials of a worker.
#[derive(Clone, Default)]
pub enum ZmqCredentials {
    #[default]
    Open,
    Plain {
        user: String,
        password: String,
    },
    Curve {
        keys: ZmqKeys,
        server: CurvePublicKey,
    },
}

/// A pair of CURVE keys; the public one is derived from the secret one.
#[derive(Clone)]
pub struct ZmqKeys(CurveKeypair);

impl ZmqKeys {
    pub fn generate() -> ZmqKeys {
        ZmqKeys(CurveKeypair::generate())
    }

    /// Reads the secret key in Z85.
    pub fn from_secret(z85: &str) -> Result<ZmqKeys> {
        // The wrong key may differ from the right one in one character, and is not repeated.
        let secret = CurveSecretKey::from_z85(z85)
            .map_err(|_| Invalid::new("curve.secretKey", "expected a secret key of 40 characters in Z85"))?;
        let public = secret.derive_public();
        Ok(ZmqKeys(CurveKeypair { public, secret }))
    }

    pub fn secret_z85(&self) -> String {
        self.0.secret.to_z85()
    }

    pub fn public_z85(&self) -> String {
        self.0.public.to_z85()
    }
}

impl fmt::Debug for ZmqKeys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("ZmqKeys").field(&self.public_z85()).finish()
    }
}

fn public_key(field: &str, z85: &str) -> Result<CurvePublicKey> {
    let wrong = || Invalid::new(field, format!("expected a public key of 40 characters in Z85, got {z85:?}"));
    Ok(CurvePublicKey::from_z85(z85).map_err(|_| wrong())?)
}

impl ZmqSecurity {
    /// Takes the server's secret key and the public keys of the accepted workers; an empty list accepts all.
    pub fn curve(secret: &str, allowed: &[impl AsRef<str>]) -> Result<ZmqSecurity> {
        let allowed = allowed.iter().map(|key| public_key("curve.allowed", key.as_ref())).collect::<Result<_>>()?;
        Ok(ZmqSecurity::Curve { keys: ZmqKeys::from_secret(secret)?, allowed })
    }

    pub fn is_open(&self) -> bool {
        matches!(self, ZmqSecurity::Open)
    }

    pub(super) fn secure(&self, options: Options) -> Options {
        match self {
            ZmqSecurity::Open => options,
            ZmqSecurity::Plain(users) => {
                let known: Vec<_> = users.iter().map(|(user, password)| fingerprint(user, password)).collect();
                options.plain_server(move |peer| is_known(&known, peer))
            }
            ZmqSecurity::Curve { keys, allowed } => {
                let mut server = CurveServerOptions::new();
                if !allowed.is_empty() {
                    let allowed = allowed.clone();
                    server =
                        server.authenticator(move |peer| allowed.iter().any(|key| key.as_bytes() == &peer.public_key));
                }
                options.curve_server_with_options(keys.0.clone(), server)
            }
        }
    }
}

impl ZmqCredentials {
    /// Takes a worker's own secret key, and the public key of the coordinator that it trusts.
    pub fn curve(secret: &str, server: &str) -> Result<ZmqCredentials> {
        let server = public_key("curve.serverKey", server)?;
        Ok(ZmqCredentials::Curve { keys: ZmqKeys::from_secret(secret)?, server })
    }

    pub(super) fn secure(&self, options: Options) -> Options {
        match self {
            ZmqCredentials::Open => options,
            ZmqCredentials::Plain { user, password } => options.plain_client(user, password),
            ZmqCredentials::Curve { keys, server } => options.curve_client(keys.0.clone(), *server),
        }
    }

    /// Rejects credentials on which the library would panic.
    pub(super) fn check(&self) -> Result<()> {
        let ZmqCredentials::Plain { user, password } = self else { return Ok(()) };
        for (field, value) in [("plain.user", user), ("plain.password", password)] {
            if value.len() > 255 || !value.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(Invalid::new(field, "expected at most 255 printable ASCII characters, no space").into());
            }
        }
        Ok(())
    }
}

/// Of equal length for all, so that a comparison reveals nothing about either.
fn fingerprint(user: &str, password: &str) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update((user.len() as u64).to_le_bytes());
    hash.update(user);
    hash.update(password);
    hash.finalize().into()
}

/// Compares with every one of them, so that the time does not depend on the match.
fn is_known(known: &[[u8; 32]], peer: &MechanismPeerInfo) -> bool {
    let (Some(user), Some(password)) = (&peer.username, &peer.password) else { return false };
    let shown = fingerprint(user, password);
    known.iter().fold(Choice::from(0), |found, one| found | one.ct_eq(&shown)).into()
}

impl fmt::Debug for ZmqSecurity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ZmqSecurity::Open => formatter.write_str("Open"),
            ZmqSecurity::Plain(users) => write!(formatter, "Plain({} users)", users.len()),
            ZmqSecurity::Curve { keys, allowed } => write!(formatter, "Curve({keys:?}, {} allowed)", allowed.len()),
        }
    }
}

impl fmt::Debug for ZmqCredentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ZmqCredentials::Open => formatter.write_str("Open"),
            ZmqCredentials::Plain { user, .. } => write!(formatter, "Plain({user:?})"),
            ZmqCredentials::Curve { keys, .. } => write!(formatter, "Curve({keys:?})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use convoke_core::error::Error;

    use super::*;

    #[test]
    fn keys_come_back_from_their_secret_and_do_not_show_it() {
        let keys = ZmqKeys::generate();
        let again = ZmqKeys::from_secret(&keys.secret_z85()).expect("what it wrote itself");
        assert_eq!(keys.public_z85(), again.public_z85());
        let security = ZmqSecurity::curve(&keys.secret_z85(), &[keys.public_z85()]).expect("both are keys");
        assert!(!format!("{security:?} {keys:?}").contains(&keys.secret_z85()));
        let credentials = ZmqCredentials::Plain { user: "u".into(), password: "hidden".into() };
        assert!(
            !format!("{credentials:?} {:?}", ZmqSecurity::Plain(vec![("u".into(), "hidden".into())]))
                .contains("hidden")
        );
    }

    #[test]
    fn a_key_that_is_none_is_named_but_a_secret_is_not_repeated() {
        let keys = ZmqKeys::generate();
        let error = ZmqSecurity::curve(&keys.secret_z85(), &["short"]).expect_err("no key").to_string();
        assert!(error.contains("curve.allowed") && error.contains("short"), "{error}");
        let error = ZmqKeys::from_secret("nearly").expect_err("no key");
        assert!(matches!(error, Error::Invalid(_)) && !error.to_string().contains("nearly"), "{error}");
    }
}
