//! The record of operators' acts, and the values that all nodes share.

use async_trait::async_trait;
use convoke_core::Result;
use convoke_core::audit::{Act, AuditEntry, AuditPage, AuditQuery};
use convoke_core::election::Fence;
use convoke_core::limits::PAGE_MAX;
use convoke_core::ports::store::{AuditStore, ValueStore};
use jiff::Timestamp;

use super::MemoryStore;

#[async_trait]
impl AuditStore for MemoryStore {
    async fn append_audit(&self, act: Act) -> Result<u64> {
        let mut state = self.state();
        state.audit_seq += 1;
        let seq = state.audit_seq;
        state.audit.insert(seq, act);
        Ok(seq)
    }

    async fn audit(&self, query: &AuditQuery) -> Result<AuditPage> {
        let limit = query.limit.clamp(1, PAGE_MAX);
        let state = self.state();
        let newest = state.audit.range(..query.cursor.unwrap_or(u64::MAX)).rev();
        let entries = newest.map(|(seq, act)| AuditEntry { seq: *seq, act: act.clone() });
        Ok(AuditPage::of(entries.filter(|entry| query.admits(entry)).take(limit + 1).collect(), limit))
    }

    async fn expire_audit(&self, fence: Fence, before: Timestamp, limit: usize) -> Result<usize> {
        let mut state = self.fenced(fence, "expire_audit")?;
        let mut old: Vec<_> =
            state.audit.iter().filter(|(_, act)| act.at < before).map(|(seq, act)| (act.at, *seq)).collect();
        old.sort_unstable();
        old.truncate(limit);
        for (_, seq) in &old {
            state.audit.remove(seq);
        }
        Ok(old.len())
    }
}

#[async_trait]
impl ValueStore for MemoryStore {
    async fn value(&self, name: &str) -> Result<Option<Vec<u8>>> {
        Ok(self.state().values.get(name).cloned())
    }

    async fn swap_value(&self, name: &str, known: Option<&[u8]>, value: &[u8]) -> Result<bool> {
        let mut state = self.state();
        let is_known = state.values.get(name).map(Vec::as_slice) == known;
        if is_known {
            state.values.insert(name.to_owned(), value.to_vec());
        }
        Ok(is_known)
    }
}
