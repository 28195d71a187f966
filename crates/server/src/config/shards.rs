//! Who may speak to the shard coordinator.

use convoke::connect::ZmqSecurity;
use convoke::coordinator::ShardOptions;
use convoke_core::Error;
use convoke_core::error::Invalid;

use super::Shards;

const OFF: &str = "off";
const ANY: &str = "any";

impl Shards {
    /// `None` where there is no shard coordinator.
    fn listens(&self) -> Option<&str> {
        Some(self.bind.as_str()).filter(|bind| *bind != OFF)
    }

    /// Returns the options of the shard coordinator; `None` if it is off. Wrong keys are rejected also then.
    pub fn options(&self) -> Result<Option<ShardOptions>, Invalid> {
        let bind = self.listens().map_or(Shards::default().bind, str::to_owned);
        let mut options = ShardOptions { security: self.security()?, ..ShardOptions::new(bind) };
        options.settings.heartbeat_timeout = self.heartbeat_timeout;
        options.settings.check_interval = self.check_interval;
        options.settings.strategy = self.strategy;
        options.check()?;
        Ok(self.listens().map(|_| options))
    }

    /// What the coordinator asks of who connects.
    fn security(&self) -> Result<ZmqSecurity, Invalid> {
        match (self.plain.as_str(), self.curve.as_str()) {
            (OFF, OFF) => Ok(ZmqSecurity::Open),
            (OFF, secret) => self.curve(secret),
            (users, OFF) => plain(users),
            _ => Err(Invalid::senseless(
                "shards.plain",
                "expected \"off\" beside shards.curve: there is one or the other",
            )),
        }
    }

    fn curve(&self, secret: &str) -> Result<ZmqSecurity, Invalid> {
        let clients: Vec<&str> = match self.curve_clients.as_str() {
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
}

/// The text is not repeated in a message: it is a secret.
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

#[cfg(test)]
mod tests {
    use convoke::connect::ZmqKeys;

    use super::*;

    fn security(change: impl FnOnce(&mut Shards)) -> Result<ZmqSecurity, String> {
        let mut shards = Shards::default();
        change(&mut shards);
        shards.security().map_err(|invalid| invalid.to_string())
    }

    #[test]
    fn anybody_may_connect_unless_passwords_or_keys_are_set() {
        assert!(matches!(security(|_| {}), Ok(ZmqSecurity::Open)));
        let plain = security(|shards| shards.plain = "ann:secret, bob:other".into());
        assert!(matches!(plain, Ok(ZmqSecurity::Plain(users)) if users.len() == 2 && users[1].0 == "bob"));
        let (server, worker) = (ZmqKeys::generate(), ZmqKeys::generate());
        let curve = security(|shards| {
            shards.curve = server.secret_z85();
            shards.curve_clients = worker.public_z85();
        });
        assert!(matches!(curve, Ok(ZmqSecurity::Curve { allowed, .. }) if allowed.len() == 1));
    }

    #[test]
    fn a_refusal_names_the_key_and_repeats_no_secret() {
        let said = security(|shards| shards.plain = "ann:secret,bob".into()).expect_err("no password");
        assert!(said.starts_with("shards.plain: expected") && said.contains("entry 2"), "{said}");
        assert!(!said.contains("secret"), "{said}");
        let said = security(|shards| shards.curve = "tooshort".into()).expect_err("no key");
        assert!(said.starts_with("shards.curve: expected \"off\" or a key") && !said.contains("tooshort"), "{said}");
        let keys = ZmqKeys::generate();
        let said = security(|shards| {
            shards.curve = keys.secret_z85();
            shards.curve_clients = "somebody".into();
        });
        let said = said.expect_err("no key");
        assert!(said.starts_with("shards.curve_clients: expected \"any\"") && said.contains("somebody"), "{said}");
        let said = security(|shards| {
            shards.curve = keys.secret_z85();
            shards.plain = "a:b".into();
        });
        assert!(said.expect_err("both").starts_with("shards.plain: expected \"off\" beside shards.curve"));
    }
}
