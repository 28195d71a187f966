use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use convoke_core::Epoch;
use metrics::{Counter, Gauge, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use parking_lot::Mutex;

use super::*;
use crate::jobs::node::fixture;

/// Counters and the number of samples of histograms, by metric and duty.
#[derive(Default)]
struct Counts(Mutex<BTreeMap<(String, String), Arc<AtomicU64>>>);

impl Counts {
    fn entry(&self, key: &Key) -> Arc<AtomicU64> {
        let duty = key.labels().find(|label| label.key() == "duty").map(|label| label.value().to_owned());
        self.0.lock().entry((key.name().to_owned(), duty.unwrap_or_default())).or_default().clone()
    }

    fn read(&self, metric: &str, duty: &str) -> Option<u64> {
        let counts = self.0.lock();
        counts.get(&(metric.to_owned(), duty.to_owned())).map(|count| count.load(Ordering::SeqCst))
    }
}

struct Samples(Arc<AtomicU64>);

impl HistogramFn for Samples {
    fn record(&self, _: f64) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Recorder for Counts {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.entry(key))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(Arc::new(Samples(self.entry(key))))
    }
}

const RESTARTS: &str = "convoke_duty_restarts_total";
const SECONDS: &str = "convoke_duty_seconds";

fn every_second() -> Every {
    Every { text: "every second", interval: |_| Duration::from_secs(1) }
}

#[tokio::test(start_paused = true)]
async fn the_pass_of_a_leader_is_dropped_where_it_waits_once_its_lease_is_up() {
    static WRITES: AtomicUsize = AtomicUsize::new(0);
    async fn writes_to_a_slow_store(_: Arc<LeaderState>, mut run: DutyRun<Every>) -> Result<()> {
        while run.next().await {
            for _ in 0..10 {
                WRITES.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_secs(25)).await;
            }
        }
        Ok(())
    }
    let leader = Arc::new(fixture::leader(fixture::node().await, Epoch(1)).await);
    let duty = Duty::leader("slow", every_second(), writes_to_a_slow_store, "", "");
    duty.lead(leader.clone()).await;
    assert!(leader.term.is_over());
    assert_eq!(WRITES.load(Ordering::SeqCst), 3, "those that began within the minute of its lease");
}

#[tokio::test(start_paused = true)]
async fn a_duty_that_panics_starts_again_and_is_counted() {
    static STARTS: AtomicUsize = AtomicUsize::new(0);
    async fn panics_twice(_: Arc<Node>, mut run: DutyRun<Every>) -> Result<()> {
        let start = STARTS.fetch_add(1, Ordering::SeqCst);
        while run.next().await {
            assert!(start >= 2, "the start of number {start} fails");
        }
        Ok(())
    }
    let counts = Counts::default();
    let _recording = metrics::set_default_local_recorder(&counts);
    let duty = Duty::node("panics_twice", every_second(), panics_twice, "", "");
    assert_eq!(duty.scope(), Scope::Node);
    telemetry::describe_duties(std::slice::from_ref(&duty));
    assert_eq!(counts.read(RESTARTS, "panics_twice"), Some(0), "it is shown before anything fails");
    let stop = CancellationToken::new();
    let running = duty.keep_running(fixture::node().await, stop.clone());
    let stopping = async {
        tokio::time::sleep(Duration::from_secs(10)).await;
        stop.cancel();
    };
    tokio::join!(running, stopping);
    assert_eq!(STARTS.load(Ordering::SeqCst), 3);
    assert_eq!(counts.read(RESTARTS, "panics_twice"), Some(2));
}

#[tokio::test(start_paused = true)]
async fn a_duty_that_goes_on_failing_starts_again_ever_less_often_until_it_is_stopped() {
    static STARTS: AtomicUsize = AtomicUsize::new(0);
    async fn fails(_: Arc<Node>, _: DutyRun<WokenBy>) -> Result<()> {
        STARTS.fetch_add(1, Ordering::SeqCst);
        Err(Error::unavailable("bus", "away"))
    }
    let stop = CancellationToken::new();
    let duty = Duty::competing("fails", WokenBy("nothing"), fails, "", "");
    let running = duty.keep_running(fixture::node().await, stop.clone());
    let stopping = async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        stop.cancel();
    };
    tokio::join!(running, stopping);
    // After 0.1, 0.2, 0.4 … 25.6 s, together 51.1 s.
    assert_eq!(STARTS.load(Ordering::SeqCst), 10);
}

#[tokio::test(start_paused = true)]
async fn a_duty_that_has_nothing_to_do_is_not_started_again() {
    async fn idle(_: Arc<Node>, _: DutyRun<WokenBy>) -> Result<()> {
        Ok(())
    }
    let counts = Counts::default();
    let _recording = metrics::set_default_local_recorder(&counts);
    let duty = Duty::node("idle", WokenBy("nothing"), idle, "", "");
    duty.keep_running(fixture::node().await, CancellationToken::new()).await;
    assert_eq!(counts.read(RESTARTS, "idle"), None);
}

#[tokio::test(start_paused = true)]
async fn a_duty_of_the_leader_that_panics_ends_the_term_and_is_counted() {
    async fn panics(_: Arc<LeaderState>, mut run: DutyRun<Every>) -> Result<()> {
        run.next().await;
        panic!("as it must");
    }
    let counts = Counts::default();
    let _recording = metrics::set_default_local_recorder(&counts);
    let duty = Duty::leader("panics", every_second(), panics, "", "");
    assert_eq!(duty.scope(), Scope::Leader);
    let leader = Arc::new(fixture::leader(fixture::node().await, Epoch(1)).await);
    duty.lead(leader.clone()).await;
    assert!(leader.term.is_over());
    assert_eq!(counts.read(RESTARTS, "panics"), Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_duty_from_outside_that_panics_before_it_runs_ends_the_term_too() {
    fn panics(_: Term, _: EventSink, _: RecordSink) -> std::future::Ready<()> {
        panic!("as it must");
    }
    let duty = Duty::of_leader("outside", "nothing", "", panics);
    let leader = Arc::new(fixture::leader(fixture::node().await, Epoch(1)).await);
    duty.lead(leader.clone()).await;
    assert!(leader.term.is_over());
}

#[tokio::test(start_paused = true)]
async fn the_time_of_every_pass_is_recorded() {
    async fn works(_: Arc<Node>, mut run: DutyRun<Every>) -> Result<()> {
        while run.next().await {}
        Ok(())
    }
    let counts = Counts::default();
    let _recording = metrics::set_default_local_recorder(&counts);
    let stop = CancellationToken::new();
    let duty = Duty::node("works", every_second(), works, "", "");
    let running = duty.keep_running(fixture::node().await, stop.clone());
    let stopping = async {
        tokio::time::sleep(Duration::from_millis(5_500)).await;
        stop.cancel();
    };
    tokio::join!(running, stopping);
    assert_eq!(counts.read(SECONDS, "works"), Some(5));
}
