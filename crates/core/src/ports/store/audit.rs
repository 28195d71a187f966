//! The record of operators' acts, and the values that all nodes share.

use async_trait::async_trait;
use jiff::Timestamp;

use super::fence::Fence;
use crate::audit::{Act, AuditPage, AuditQuery};
use crate::error::Result;

/// The record of operators' acts. No method changes an entry.
#[async_trait]
pub trait AuditStore: Send + Sync {
    /// Appends an act and returns the number of its entry, which is higher than every earlier one. Durable when it
    /// returns.
    async fn append_audit(&self, act: Act) -> Result<u64>;
    /// Returns the entries that match, the newest first: at most `query.limit`, and at least one if there is one.
    async fn audit(&self, query: &AuditQuery) -> Result<AuditPage>;
    /// Deletes entries of acts before `before`, the oldest first: at most `limit`. Returns how many were deleted.
    async fn expire_audit(&self, fence: Fence, before: Timestamp, limit: usize) -> Result<usize>;
}

/// Small values that all nodes share, each under a name: the key that signs sessions.
#[async_trait]
pub trait ValueStore: Send + Sync {
    /// Returns a value; `None` if there is none under this name.
    async fn value(&self, name: &str) -> Result<Option<Vec<u8>>>;
    /// Stores a value if the present one is `known` (`None`: there is none). Returns false and changes nothing
    /// otherwise: of several nodes that create a value at once, one does. Durable when it returns.
    async fn swap_value(&self, name: &str, known: Option<&[u8]>, value: &[u8]) -> Result<bool>;
}
