//! The shared cache in Redis: one string for each key.
//!
//! A value is `{"v":1,"value":…}`. For a minute, an outdated key holds a mark, `{"v":1,"outdated":"…"}` with a random
//! text; a lookup then returns the mark as its ticket. A key that does not exist has the empty ticket. Any other
//! content under the name of a key is foreign (leases use the same prefix) and is neither returned nor changed.

use std::time::Duration;

use async_trait::async_trait;
use convoke_core::ports::SharedCache;
use convoke_core::ports::cache::{Lookup, TICKET_LIFETIME, Ticket, VALUE_BYTES_MAX};
use convoke_core::{Error, Result};
use redis::Value;

use super::commands::Commands;
use super::dial::Dialer;
use super::entry::{number, text};
use super::failure::{Intent, malformed_reply};
use super::script;

const WHAT: &str = "cache";
const OURS: &str = r#"{"v":1,"#;
const VALUE: &str = r#"{"v":1,"value":"#;
const OUTDATED: &str = r#"{"v":1,"outdated":"#;
/// Longer than any ticket lives, its time in transit included.
const OUTDATED_FOR: Duration = Duration::from_secs(60);
const _: () = assert!(OUTDATED_FOR.as_secs() > 3 * TICKET_LIFETIME.as_secs());
/// Keys of one script: a long script would keep other clients waiting.
const KEYS_MAX: usize = 500;

pub struct RedisCache {
    commands: Commands,
}

impl RedisCache {
    /// Connects in the background: a process starts even if the cache is unavailable.
    pub fn open(url: &str) -> Result<Self> {
        Ok(RedisCache { commands: Commands::open_later(WHAT, Dialer::new("cache.url", url)?) })
    }

    async fn run(&self, script: &script::Script, keys: &[&str], args: &[&str]) -> Result<Value> {
        let args: Vec<&[u8]> = args.iter().map(|arg| arg.as_bytes()).collect();
        self.commands.run(Intent::Ask, script, keys, &args).await
    }
}

/// Returns the value of a key that holds a short string.
fn lookup(held: String, left: Option<i64>) -> Lookup {
    if held.starts_with(OUTDATED) {
        return Lookup::Missing(Ticket(held));
    }
    let value = held.strip_prefix(VALUE).and_then(|rest| rest.strip_suffix('}'));
    // Values written by the cache always expire.
    match (value, left.and_then(|left| u64::try_from(left).ok())) {
        (Some(value), Some(left)) => Lookup::Found { value: value.to_owned(), left: Duration::from_millis(left) },
        _ => Lookup::Foreign,
    }
}

#[async_trait]
impl SharedCache for RedisCache {
    fn address(&self) -> String {
        self.commands.address()
    }

    async fn get(&self, key: &str) -> Result<Lookup> {
        let bytes_max = (VALUE_BYTES_MAX + VALUE.len() + 1).to_string();
        match self.run(&script::CACHE_GET, &[key], &[&bytes_max]).await? {
            Value::Nil => Ok(Lookup::Missing(Ticket(String::new()))),
            Value::Int(_) => Ok(Lookup::Foreign),
            Value::Array(parts) => {
                let Ok([held, left]) = <[Value; 2]>::try_from(parts) else { return Ok(Lookup::Foreign) };
                let left = number(&left);
                // A value that is not text was not written by the cache.
                Ok(text(held).map_or(Lookup::Foreign, |held| lookup(held, left)))
            }
            other => Err(malformed_reply(WHAT, &other)),
        }
    }

    async fn put(&self, key: &str, value: &str, lifetime: Duration, ticket: &Ticket) -> Result<bool> {
        if value.len() > VALUE_BYTES_MAX || lifetime.as_millis() == 0 {
            return Ok(false);
        }
        let (value, lifetime) = (format!("{VALUE}{value}}}"), lifetime.as_millis().to_string());
        let stored = self.run(&script::CACHE_PUT, &[key], &[&ticket.0, &value, &lifetime]).await;
        match stored {
            Ok(stored) => Ok(number(&stored) == Some(1)),
            // The key is foreign by now.
            Err(Error::Conflict(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn outdate(&self, keys: &[String]) -> Result<()> {
        let mark = format!("{OUTDATED}\"{:032x}\"}}", rand::random::<u128>());
        let lifetime = OUTDATED_FOR.as_millis().to_string();
        for keys in keys.chunks(KEYS_MAX) {
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            self.run(&script::CACHE_OUTDATE, &keys, &[&mark, &lifetime, OURS]).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_this_cache_wrote_is_returned() {
        let found = Lookup::Found { value: r#"{"a":1}"#.into(), left: Duration::from_millis(5) };
        assert_eq!(lookup(r#"{"v":1,"value":{"a":1}}"#.into(), Some(5)), found);
        let mark = r#"{"v":1,"outdated":"00"}"#;
        assert_eq!(lookup(mark.into(), Some(5)), Lookup::Missing(Ticket(mark.into())));
        for (held, left) in [("", 5), ("7", 5), (r#"{"v":2,"value":1}"#, 5), (r#"{"v":1,"value":1}"#, -1)] {
            assert_eq!(lookup(held.into(), Some(left)), Lookup::Foreign, "{held}");
        }
    }
}
