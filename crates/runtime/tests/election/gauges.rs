//! The gauges of an election.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use convoke_adapters::memory::MemoryMesh;
use convoke_runtime::mesh::{Instance, Settings as MeshSettings};
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use parking_lot::Mutex;

use super::*;

#[derive(Default)]
struct Gauges(Mutex<BTreeMap<String, Arc<AtomicU64>>>);

impl Gauges {
    fn read(&self, name: &str) -> Option<f64> {
        self.read_of(name, "production")
    }

    /// Of quantiles the last that was registered.
    fn read_of(&self, name: &str, namespace: &str) -> Option<f64> {
        let gauges = self.0.lock();
        gauges.get(&format!("{name}/{namespace}")).map(|gauge| f64::from_bits(gauge.load(Ordering::Relaxed)))
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
        let namespace = key.labels().find(|label| label.key() == "namespace").map_or("", |label| label.value());
        Gauge::from_arc(self.0.lock().entry(format!("{}/{namespace}", key.name())).or_default().clone())
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

/// The gauges of a holder of leases, by the namespace of its metrics.
fn shown(gauges: &Gauges, namespace: &str) -> [Option<f64>; 3] {
    ["convoke_leader", "convoke_circuit_breaker_state", "convoke_election_heartbeat_seconds"]
        .map(|name| gauges.read_of(name, namespace))
}

#[tokio::test(start_paused = true)]
async fn every_holder_of_leases_shows_the_same_metrics() {
    let gauges = Gauges::default();
    let _recording = metrics::set_default_local_recorder(&gauges);
    let faulty = Arc::new(Faulty::over(memory()));
    faulty.slow(Duration::from_millis(20));
    let leases: Arc<dyn Leases> = faulty.clone();
    let elector = elector(&leases, "a");
    let campaign = campaign::Stage::start(faulty.clone(), Duration::from_secs(30));
    let mesh = Instance::new(Arc::new(MemoryMesh::shared("gauged")), "host", MeshSettings::default());
    mesh.start().await.expect("starts");
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(elector.is_leader() && mesh.is_leader());
    for namespace in ["production", "cluster", "mesh:gauged"] {
        let [leader, breaker, seconds] = shown(&gauges, namespace);
        assert_eq!((leader, breaker), (Some(1.0), Some(0.0)), "{namespace}");
        let is_slow = seconds.expect("it has beaten") >= 0.02;
        assert_eq!(is_slow, namespace != "mesh:gauged", "{namespace}: {seconds:?}");
    }
    assert_eq!(gauges.read_of("convoke_epoch", "mesh:gauged"), None, "a lock has no number");
    assert!(gauges.read_of("convoke_epoch", "cluster") == Some(1.0));
    // Three holders, one outage.
    faulty.cut();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!([shown(&gauges, "production")[0], shown(&gauges, "cluster")[0]], [Some(0.0); 2]);
    assert!([shown(&gauges, "production")[1], shown(&gauges, "cluster")[1]].iter().all(|open| *open >= Some(1.0)));
    mesh.stop().await;
    campaign.stop().await;
    assert_eq!(shown(&gauges, "mesh:gauged")[0], Some(0.0));
}
