//! The history of a node: the file that its fenced decisions are written to.

use std::path::Path;
use std::sync::Arc;

use convoke_core::{Invalid, NodeId};
use convoke_runtime::decisions::{DecisionFile, Recorder, RecordingLeases, RecordingStore};
use convoke_runtime::jobs::{Ports, RetentionSettings};

/// Opens the file. An error names the key and the path.
pub(super) fn open(path: &Path) -> Result<DecisionFile, Invalid> {
    DecisionFile::open(path).map_err(|error| {
        let message = format!("expected a file that can be written, {} cannot be: {error}", path.display());
        Invalid::new("node.history", message)
    })
}

/// Wraps the ports whose calls compare fences, and begins the history.
pub(super) fn record(file: DecisionFile, id: &NodeId, ports: &mut Ports, kept: &RetentionSettings) -> Arc<Recorder> {
    let recorder = Recorder::new(id.clone(), ports.clock.clone(), &*ports.chance, Arc::new(file));
    let shortest = kept.completed.min(kept.cancelled).min(kept.dead);
    recorder.begin(Some(ports.store.is_lasting()), Some(shortest.as_secs()));
    ports.store = RecordingStore::new(ports.store.clone(), recorder.clone());
    ports.leases = RecordingLeases::new(ports.leases.clone(), recorder.clone());
    recorder
}
