//! The shard coordinator of a node: its address, and the credentials that workers need.

use std::sync::Arc;

use convoke_core::ports::RouterBinding;
use convoke_core::shards::Settings as ShardSettings;
use convoke_core::shards::settings::{ANY, OFF};
use convoke_core::{Error, Invalid, NodeId, duration};
use convoke_http::{Shards, host_and_port, resolve};
use convoke_runtime::decisions::{Recorder, RecordingBinding};
use convoke_runtime::jobs::{Duty, Ports};
use convoke_runtime::shards::{ShardsDuty, ShardsRelay};

use crate::connect::{self, Addresses, ZmqSecurity};
use crate::error::Result;

/// Rejects settings that cannot work, with the name of the key, even if shards are off.
pub fn check_shards(settings: &ShardSettings) -> Result<(), Invalid> {
    security(settings)?;
    if settings.is_on() && !matches!(settings.bind.strip_prefix("tcp://").map(host_and_port), Some(Ok(_))) {
        let message = format!("expected \"tcp://host:port\" or \"off\", got {:?}", settings.bind);
        return Err(Invalid::new("shards.bind", message));
    }
    duration::check_positive([
        ("shards.check_interval", settings.check_interval),
        ("shards.heartbeat_timeout", settings.heartbeat_timeout),
    ])
}

/// Returns the credentials that workers must present.
fn security(settings: &ShardSettings) -> Result<ZmqSecurity, Invalid> {
    match (&*settings.plain, &*settings.curve) {
        (OFF, OFF) => Ok(ZmqSecurity::Open),
        (OFF, secret) => curve(settings, secret),
        (users, OFF) => plain(users),
        _ => Err(Invalid::unprocessable(
            "shards.plain",
            "expected \"off\" beside shards.curve: there is one or the other",
        )),
    }
}

fn curve(settings: &ShardSettings, secret: &str) -> Result<ZmqSecurity, Invalid> {
    let clients: Vec<&str> = match settings.curve_clients.as_str() {
        ANY => Vec::new(),
        keys => keys.split(',').map(str::trim).collect(),
    };
    ZmqSecurity::curve(secret, &clients).map_err(|error| match error {
        Error::Invalid(invalid) if invalid.field == "curve.allowed" => {
            Invalid::new("shards.curve_clients", format!("expected \"any\" or public keys: {}", invalid.message))
        }
        Error::Invalid(invalid) => {
            Invalid::new("shards.curve", format!("expected \"off\" or a key: {}", invalid.message))
        }
        error => Invalid::new("shards.curve", error.to_string()),
    })
}

/// The text is a secret, so messages do not repeat it.
fn plain(users: &str) -> Result<ZmqSecurity, Invalid> {
    let wrong = |nth: usize| {
        let expected = "expected \"off\" or \"user:password,user:password\", each of printable ASCII without spaces";
        Invalid::new("shards.plain", format!("{expected}; entry {nth} is neither"))
    };
    let is_word = |text: &str| (1..=255).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    let users = users.split(',').map(str::trim).enumerate().map(|(index, entry)| {
        let pair = entry.split_once(':').filter(|(user, password)| is_word(user) && is_word(password));
        pair.map(|(user, password)| (user.to_owned(), password.to_owned())).ok_or_else(|| wrong(index + 1))
    });
    Ok(ZmqSecurity::Plain(users.collect::<Result<_, _>>()?))
}

/// Prepares the duty of the node that leads, and its view for the HTTP API.
pub(super) async fn prepare(
    settings: &ShardSettings,
    addresses: Addresses<'_>,
    node: &NodeId,
    ports: &Ports,
    recorder: Option<&Arc<Recorder>>,
) -> Result<(Shards, Duty)> {
    let ShardSettings { bind, required, .. } = settings;
    let security = security(settings)?;
    let is_encrypted = matches!(security, ZmqSecurity::Curve { .. });
    if *required && !is_encrypted && !is_local(bind).await? {
        tracing::warn!(
            bind,
            "shard workers can connect from other machines, and their messages are not encrypted: set shards.curve \
             (`convoke shards keys` makes keys)"
        );
    }
    let binding = connect::shard_router(bind, security).map_err(|error| match error {
        convoke_core::Error::Invalid(invalid) => Invalid::new("shards.bind", invalid.to_string()).into(),
        error => error,
    })?;
    let binding: Arc<dyn RouterBinding> = match recorder {
        Some(recorder) => RecordingBinding::new(binding, recorder.clone()),
        None => binding,
    };
    let mut duty = ShardsDuty::new(binding, settings.clone(), epochs_last(addresses), ports.clock.clone());
    if ports.store.is_lasting() {
        duty = duty.listing_workers(ports.store.clone());
    }
    let relay = ShardsRelay::new(node.clone(), ports.bus.clone(), addresses.bus_prefix, duty.view());
    Ok((Shards { view: duty.view(), relay: Arc::new(relay), is_wanted: *required }, Arc::new(duty).into()))
}

/// Returns whether epochs count terms and outlive this process: they are sealed in the store, or kept by durable
/// leases. A Redis derives them from its clock if no store seals them.
fn epochs_last(addresses: Addresses<'_>) -> bool {
    let leases = addresses.leases.unwrap_or(addresses.bus);
    let may_lose = |url: &str| connect::is_in_memory(url) || url.starts_with("redis");
    !connect::is_in_memory(addresses.store) || !may_lose(leases)
}

async fn is_local(bind: &str) -> Result<bool> {
    let address = bind.strip_prefix("tcp://").unwrap_or(bind);
    if address.starts_with('*') {
        return Ok(false);
    }
    Ok(resolve(address).await?.iter().all(|address| address.ip().is_loopback()))
}

#[cfg(test)]
mod tests {
    use crate::connect::ZmqKeys;

    use super::*;

    fn security(change: impl FnOnce(&mut ShardSettings)) -> Result<ZmqSecurity, String> {
        let mut shards = ShardSettings::default();
        change(&mut shards);
        super::security(&shards).map_err(|invalid| invalid.to_string())
    }

    #[test]
    fn anybody_may_connect_unless_passwords_or_keys_are_set() {
        assert!(matches!(security(|_| {}), Ok(ZmqSecurity::Open)));
        let plain = security(|shards| shards.plain = "ann:secret, bob:other".into());
        assert!(matches!(plain, Ok(ZmqSecurity::Plain(users)) if users.len() == 2 && users[1].0 == "bob"));
        let (server, worker) = (ZmqKeys::generate(), ZmqKeys::generate());
        let curve = security(|shards| {
            shards.curve = server.secret_z85().into();
            shards.curve_clients = worker.public_z85();
        });
        assert!(matches!(curve, Ok(ZmqSecurity::Curve { allowed, .. }) if allowed.len() == 1));
    }

    #[test]
    fn a_refusal_names_the_key_and_repeats_no_secret() {
        let error = security(|shards| shards.plain = "ann:secret,bob".into()).expect_err("no password");
        assert!(error.starts_with("shards.plain: expected") && error.contains("entry 2"), "{error}");
        assert!(!error.contains("secret"), "{error}");
        let error = security(|shards| shards.curve = "tooshort".into()).expect_err("no key");
        assert!(error.starts_with("shards.curve: expected \"off\" or a key") && !error.contains("tooshort"), "{error}");
        let keys = ZmqKeys::generate();
        let error = security(|shards| {
            shards.curve = keys.secret_z85().into();
            shards.curve_clients = "somebody".into();
        });
        let error = error.expect_err("no key");
        assert!(error.starts_with("shards.curve_clients: expected \"any\"") && error.contains("somebody"), "{error}");
        let error = security(|shards| {
            shards.curve = keys.secret_z85().into();
            shards.plain = "a:b".into();
        });
        assert!(error.expect_err("both").starts_with("shards.plain: expected \"off\" beside shards.curve"));
    }
}
