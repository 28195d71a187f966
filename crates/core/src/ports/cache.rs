//! A cache that the nodes of a cluster share.
//!
//! It holds what is shown: finished jobs and lists of workers and nodes. Nothing is decided from it, and everything in it can be
//! read from the store, so it may lose any entry at any time.
//!
//! A node that reads the store, is delayed, and puts what it read after another node has changed it would leave an outdated
//! value for all. So a value is put with the [`Ticket`] of the lookup that missed, and [`outdate`](SharedCache::outdate) makes all
//! tickets of a key void.

use std::time::Duration;

use async_trait::async_trait;

use crate::error::Result;

/// Upper bound of a value. A larger one is not put, and one that is found is not returned.
pub const VALUE_BYTES_MAX: usize = 1 << 20;
/// How long a ticket can be used. A key that was outdated is remembered for longer than that.
pub const TICKET_LIFETIME: Duration = Duration::from_secs(10);

#[async_trait]
pub trait SharedCache: Send + Sync {
    /// Where it is, for people to read and without credentials; empty if it is in this process.
    fn address(&self) -> String {
        String::new()
    }
    async fn get(&self, key: &str) -> Result<Lookup>;
    /// Stores a value for at most `lifetime`, unless the key was outdated or has got a value since the ticket was issued. Returns
    /// whether it was stored.
    async fn put(&self, key: &str, value: &str, lifetime: Duration, ticket: &Ticket) -> Result<bool>;
    /// Forgets the values of these keys, and makes the tickets that were issued for them void.
    async fn outdate(&self, keys: &[String]) -> Result<()>;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lookup {
    /// The value, and how long it still lives.
    Found { value: String, left: Duration },
    /// There is none. A value that is read from the store from now on can be put with this ticket.
    Missing(Ticket),
    /// Something that this cache did not write, or that is too large. It is left alone.
    Foreign,
}

/// Permission to put a value, as the adapter understands it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ticket(pub String);
