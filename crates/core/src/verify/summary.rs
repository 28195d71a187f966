//! What a check has seen, in numbers: so that an empty history does not look like a proof.

use serde::Serialize;

/// The numbers of a history.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// The lines that were read.
    pub lines: u64,
    /// Those that record an operation.
    pub decisions: u64,
    /// Operations that were rejected, or could not be carried out.
    pub refused: u64,
    /// The processes that wrote them.
    pub processes: u64,
    /// How often these were started.
    pub starts: u64,
    /// Starts without a clean end: killed, or still running. Their last lines may be missing.
    pub killed: u64,
    /// Terms of leadership that were sealed.
    pub epochs: u64,
    /// The jobs that lines are about.
    pub jobs: u64,
    /// The runs that lines are about.
    pub runs: u64,
    /// Enqueues that clients saw acknowledged.
    pub acknowledged: u64,
    /// Jobs in exports of the store.
    pub exported: u64,
    /// Grants of shards.
    pub grants: u64,
    /// Starts of processes in whose lines something is missing.
    pub gaps: u64,
    /// Nodes that lines name and that have no history here.
    pub missing_nodes: u64,
    /// Incomplete lines, which killed processes leave.
    pub torn: u64,
}
