//! Records the fenced decisions of a process as lines of a history ([`convoke_core::decisions`]).
//!
//! A [`Recorder`] numbers the lines of one process; a [`DecisionSink`] keeps them, such as a [file](DecisionFile). The
//! wrappers [`RecordingStore`], [`RecordingLeases`] and [`RecordingBinding`] pass every call on unchanged and record the
//! ones that compare a fence, with their results. No rule knows of them, and a node without a history has none of them.
//!
//! Recording never fails an operation and never waits for a disk, with one exception: the few acts of operators whose
//! missing record would make a sound history look broken (redrive, purge) wait until their line is written.

mod file;
mod leases;
mod router;
mod store;
mod store_runs;

use std::sync::Arc;

use async_trait::async_trait;
use convoke_core::NodeId;
use convoke_core::decisions::{Decision, Outcome, What};
use convoke_core::ports::{Chance, Clock};
use parking_lot::Mutex;

pub use file::DecisionFile;
pub use leases::RecordingLeases;
pub use router::RecordingBinding;
pub use store::RecordingStore;

/// Keeps the lines of one process, in their order.
#[async_trait]
pub trait DecisionSink: Send + Sync {
    /// Takes lines without waiting. Lines that do not fit are dropped, and the sink writes a
    /// [`Gap`](convoke_core::decisions::What::Gap) in their place.
    fn write(&self, decisions: Vec<Decision>);
    /// Waits until all lines so far are where a killed process cannot lose them, or cannot be written.
    async fn written(&self);
}

/// Keeps lines in memory, for simulations and for a check in the same process.
#[derive(Debug, Default)]
pub struct DecisionLog(Mutex<Vec<Decision>>);

impl DecisionLog {
    /// Returns the lines so far, and forgets them.
    pub fn take(&self) -> Vec<Decision> {
        std::mem::take(&mut self.0.lock())
    }

    /// Returns the lines so far.
    pub fn lines(&self) -> Vec<Decision> {
        self.0.lock().clone()
    }
}

#[async_trait]
impl DecisionSink for DecisionLog {
    fn write(&self, decisions: Vec<Decision>) {
        self.0.lock().extend(decisions);
    }

    async fn written(&self) {}
}

/// Numbers the decisions of one process and passes them to a sink.
pub struct Recorder {
    node: NodeId,
    boot: u32,
    clock: Arc<dyn Clock>,
    sink: Arc<dyn DecisionSink>,
    /// The number of the last line.
    seq: Mutex<u64>,
}

impl Recorder {
    /// Creates the recorder of a process that starts now.
    pub fn new(node: NodeId, clock: Arc<dyn Clock>, chance: &dyn Chance, sink: Arc<dyn DecisionSink>) -> Arc<Self> {
        let boot = (chance.bits() >> 32) as u32;
        Arc::new(Recorder { node, boot, clock, sink, seq: Mutex::new(0) })
    }

    /// Returns the `since` of an operation that begins now.
    pub fn since(&self) -> u64 {
        *self.seq.lock()
    }

    /// Records what an operation that began at `since` has decided.
    pub fn record(&self, since: u64, mut decisions: Vec<Decision>) {
        if decisions.is_empty() {
            return;
        }
        let at = self.clock.now();
        // The lines of the sink are in the order of their numbers.
        let mut seq = self.seq.lock();
        for decision in &mut decisions {
            *seq += 1;
            (decision.at, decision.seq, decision.since) = (at, *seq, since);
            (decision.boot, decision.node) = (self.boot, self.node.clone());
        }
        self.sink.write(decisions);
    }

    /// Records one decision of an operation that began at `since`.
    pub fn record_one(&self, since: u64, decision: Decision) {
        self.record(since, vec![decision]);
    }

    /// Records that an operation is about to be requested, and waits until that is written.
    pub async fn announce(&self, decisions: Vec<Decision>) {
        self.record(self.since(), decisions);
        self.sink.written().await;
    }

    /// Returns the records of an operation that is requested now. If its caller stops waiting, they are recorded as
    /// [`Unknown`](Outcome::Unknown): the operation may be carried out.
    fn unfinished(&self, decisions: Vec<Decision>) -> Unfinished<'_> {
        Unfinished { recorder: self, since: self.since(), decisions }
    }

    /// Records the first line of the process. `lasting`: whether the store outlives it; `retention_s`: after how many
    /// seconds ended jobs may be deleted, at the earliest.
    pub fn begin(&self, lasting: Option<bool>, retention_s: Option<u64>) {
        let begin = Decision { lasting, retention_s, ..Decision::of(What::ProcessBegin, Outcome::Accepted) };
        self.record_one(self.since(), begin);
    }

    /// Records the last line of a process that stops cleanly, and waits until all lines are written.
    pub async fn end(&self) {
        self.record_one(self.since(), Decision::of(What::ProcessEnd, Outcome::Accepted));
        self.sink.written().await;
    }
}

/// The records of an operation whose result is not known yet.
struct Unfinished<'a> {
    recorder: &'a Recorder,
    since: u64,
    decisions: Vec<Decision>,
}

impl Unfinished<'_> {
    /// Records the decisions with their results.
    fn finish(mut self, set_results: impl FnOnce(&mut Vec<Decision>)) {
        let mut decisions = std::mem::take(&mut self.decisions);
        set_results(&mut decisions);
        self.recorder.record(self.since, decisions);
    }
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        let mut decisions = std::mem::take(&mut self.decisions);
        decisions.iter_mut().for_each(|decision| decision.outcome = Outcome::Unknown);
        self.recorder.record(self.since, decisions);
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    struct Still;

    impl Clock for Still {
        fn now(&self) -> Timestamp {
            Timestamp::UNIX_EPOCH
        }
    }

    impl Chance for Still {
        fn bits(&self) -> u64 {
            7 << 32
        }
    }

    fn recorder() -> (Arc<Recorder>, Arc<DecisionLog>) {
        let log = Arc::new(DecisionLog::default());
        (Recorder::new(NodeId::new("n").expect("a name"), Arc::new(Still), &Still, log.clone()), log)
    }

    #[tokio::test]
    async fn lines_are_numbered_on_and_know_what_ended_before_them() {
        let (recorder, log) = recorder();
        recorder.begin(Some(true), None);
        let since = recorder.since();
        recorder.record_one(recorder.since(), Decision::of(What::JobsPromote, Outcome::Accepted));
        recorder.record_one(since, Decision::of(What::JobsDispatch, Outcome::Fenced));
        recorder.end().await;
        let places: Vec<_> = log.take().iter().map(|it| (it.seq, it.since, it.boot, it.what)).collect();
        let expected = [
            (1, 0, 7, What::ProcessBegin),
            (2, 1, 7, What::JobsPromote),
            (3, 1, 7, What::JobsDispatch),
            (4, 3, 7, What::ProcessEnd),
        ];
        assert_eq!(places, expected);
    }

    #[test]
    fn an_operation_that_nobody_waits_for_any_more_is_recorded_as_unknown() {
        let (recorder, log) = recorder();
        drop(recorder.unfinished(vec![Decision::of(What::RunTake, Outcome::Accepted)]));
        recorder.unfinished(vec![Decision::of(What::RunTake, Outcome::Accepted)]).finish(|_| ());
        let outcomes: Vec<_> = log.lines().iter().map(|it| it.outcome).collect();
        assert_eq!(outcomes, [Outcome::Unknown, Outcome::Accepted]);
    }
}
