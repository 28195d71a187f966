//! What is shown to whoever scrapes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use parking_lot::Mutex;

use super::*;

#[derive(Default)]
struct Gauges(Mutex<BTreeMap<String, Arc<AtomicU64>>>);

impl Gauges {
    fn read(&self, name: &str) -> Option<f64> {
        self.0.lock().get(name).map(|gauge| f64::from_bits(gauge.load(Ordering::Relaxed)))
    }
}

impl Recorder for Gauges {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.0.lock().entry(key.name().to_owned()).or_default().clone())
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_term_is_over_is_not_shown_as_one_while_its_heartbeat_hangs() {
    let gauges = Gauges::default();
    let _recording = metrics::set_default_local_recorder(&gauges);
    let faulty = Arc::new(Faulty::over(memory()));
    let leases: Arc<dyn Leases> = faulty.clone();
    let a = elector(&leases, "a");
    let term = a.lead().await.expect("leads");
    assert_eq!((gauges.read("convoke_leader"), gauges.read("convoke_epoch")), (Some(1.0), Some(1.0)));
    faulty.hang();
    term.ended().await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(gauges.read("convoke_leader"), Some(0.0));
}
