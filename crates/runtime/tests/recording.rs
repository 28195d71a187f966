//! The recording wrappers change nothing: they pass the suites of their ports. And whatever a sound store does in these suites,
//! nothing is found in the history of it.

use std::sync::Arc;

use convoke_adapters::memory::{MemoryLeases, MemoryStore, SystemChance, SystemClock};
use convoke_core::NodeId;
use convoke_core::decisions::What;
use convoke_core::ports::{Leases, Store};
use convoke_core::verify::{Expectations, History};
use convoke_runtime::decisions::{DecisionLog, Recorder, RecordingLeases, RecordingStore};
use convoke_testkit::conformance::Subject;
use convoke_testkit::conformance::leases::Clients;

/// Checks the history when a test ends.
struct Checked(Arc<DecisionLog>);

impl Drop for Checked {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let lines = self.0.take();
        let is_clean = |it: &History| it.check(Expectations::default()).violations.is_empty();
        let mut history = History::default();
        history.extend("test", lines.iter().cloned());
        assert!(is_clean(&history), "{:#?}\n{lines:#?}", history.check(Expectations::default()).violations);
        // Each line is one that a file would have.
        for line in &lines {
            let mut text = Vec::new();
            line.write_line(&mut text);
            let text = String::from_utf8(text).expect("UTF-8");
            assert_eq!(convoke_core::decisions::Decision::read_line(text.trim_end()).as_ref(), Ok(line));
        }
        assert_eq!(lines.first().map(|line| line.what), Some(What::ProcessBegin));
    }
}

fn recorder() -> (Arc<Recorder>, Checked) {
    let log = Arc::new(DecisionLog::default());
    let node = NodeId::new("n").expect("a name");
    let recorder = Recorder::new(node, Arc::new(SystemClock), &SystemChance, log.clone());
    // The suites let jobs expire at once, and store others under their ids.
    recorder.begin(Some(true), Some(0));
    (recorder, Checked(log))
}

mod store {
    use super::*;

    async fn fresh() -> Subject<dyn Store> {
        let (recorder, checked) = recorder();
        Subject::keeping(RecordingStore::new(Arc::new(MemoryStore::new()), recorder), checked)
    }

    convoke_testkit::store_conformance!(fresh);
}

mod leases {
    use super::*;

    async fn fresh(count: usize) -> Clients {
        tokio::time::pause();
        let (recorder, checked) = recorder();
        let leases: Arc<dyn Leases> = RecordingLeases::new(Arc::new(MemoryLeases::new()), recorder);
        Subject::keeping(vec![leases; count].into(), checked)
    }

    convoke_testkit::leases_conformance!(fresh, tokio::time::advance);
    convoke_testkit::resignations_conformance!(fresh, tokio::time::advance);
}
