//! A shared cache for the nodes of one process.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use convoke_core::Result;
use convoke_core::ports::SharedCache;
use convoke_core::ports::cache::{Lookup, TICKET_LIFETIME, Ticket, VALUE_BYTES_MAX};
use parking_lot::Mutex;
use tokio::time::Instant;

/// Beyond this many keys, expired ones are removed.
const KEYS_MAX: usize = 10_000;

#[derive(Default)]
pub struct MemoryCache(Mutex<State>);

#[derive(Default)]
struct State {
    values: HashMap<String, (String, Instant)>,
    /// The number of the last time that each key was outdated, and when that was.
    outdated: HashMap<String, (u64, Instant)>,
    count: u64,
}

impl State {
    fn ticket(&self, key: &str) -> Ticket {
        Ticket(self.outdated.get(key).map_or(0, |(number, _)| *number).to_string())
    }
}

#[async_trait]
impl SharedCache for MemoryCache {
    async fn get(&self, key: &str) -> Result<Lookup> {
        let state = self.0.lock();
        let live = state.values.get(key).map(|(value, until)| (value, until.duration_since(Instant::now())));
        Ok(match live.filter(|(_, left)| !left.is_zero()) {
            Some((value, left)) => Lookup::Found { value: value.clone(), left },
            None => Lookup::Missing(state.ticket(key)),
        })
    }

    async fn put(&self, key: &str, value: &str, lifetime: Duration, ticket: &Ticket) -> Result<bool> {
        let mut state = self.0.lock();
        let now = Instant::now();
        let is_taken = state.values.get(key).is_some_and(|(_, until)| *until > now);
        if is_taken || state.ticket(key) != *ticket || value.len() > VALUE_BYTES_MAX {
            return Ok(false);
        }
        state.values.insert(key.to_owned(), (value.to_owned(), now + lifetime));
        Ok(true)
    }

    async fn outdate(&self, keys: &[String]) -> Result<()> {
        let mut state = self.0.lock();
        let (state, now) = (&mut *state, Instant::now());
        for key in keys {
            state.values.remove(key);
            state.count += 1;
            state.outdated.insert(key.clone(), (state.count, now));
        }
        if state.values.len() + state.outdated.len() > KEYS_MAX {
            state.values.retain(|_, (_, until)| *until > now);
            state.outdated.retain(|_, (_, at)| now.duration_since(*at) < 2 * TICKET_LIFETIME);
        }
        Ok(())
    }
}
