//! A cache that the nodes of a cluster share.
//!
//! It holds data for display: finished jobs and lists of workers and nodes. No decision depends on it, and all of it
//! can be read from the store, so it may lose any entry at any time.
//!
//! A node that reads the store, is delayed, and puts its value after another node has changed it would leave an
//! outdated value for all. So a value is put with the [`Ticket`] of the lookup that missed, and
//! [`outdate`](SharedCache::outdate) invalidates all tickets of a key.

use std::time::Duration;

use async_trait::async_trait;

use crate::error::Result;

/// Upper bound of a value. A larger one is not stored, and not returned.
pub const VALUE_BYTES_MAX: usize = 1 << 20;
/// How long a ticket can be used. An outdated key is remembered for longer than that.
pub const TICKET_LIFETIME: Duration = Duration::from_secs(10);

/// A cache with values by key.
#[async_trait]
pub trait SharedCache: Send + Sync {
    /// Returns the backend's address for display, without credentials; empty if it is in this process.
    fn address(&self) -> String {
        String::new()
    }
    /// Reads a key.
    async fn get(&self, key: &str) -> Result<Lookup>;
    /// Stores a value for at most `lifetime`, unless the key was outdated or got a value since the ticket was issued.
    /// Returns whether it was stored.
    async fn put(&self, key: &str, value: &str, lifetime: Duration, ticket: &Ticket) -> Result<bool>;
    /// Deletes the values of these keys, and invalidates the tickets that were issued for them.
    async fn outdate(&self, keys: &[String]) -> Result<()>;
}

/// The result of a lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lookup {
    /// The key has a value.
    Found {
        /// The value as it was put.
        value: String,
        /// The time until it expires.
        left: Duration,
    },
    /// The key has no value. A value that is read from the store after this lookup can be put with the ticket.
    Missing(Ticket),
    /// The key holds a value that this cache did not write, or that is too large. It is not changed.
    Foreign,
}

/// Permission to put a value, in a form that only the adapter reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ticket(pub String);
