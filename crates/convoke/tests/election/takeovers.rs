//! Takeovers between electors and processes of s3db.js, at the default times of both, on a simulated bucket with 0 to 300 ms a request:
//! fifty for each latency in a full run. A referee checks every few milliseconds which ones believe to lead.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use convoke::Elector;
use convoke::election::Settings;
use convoke_adapters::s3::S3Leases;
use convoke_testkit::process::{S3Worker, S3WorkerSettings};
use convoke_testkit::scale::Scaled;
use convoke_testkit::sim_bucket::{SimBucket, SimClient};
use jiff::SignedDuration;
use parking_lot::Mutex;
use tokio_util::task::AbortOnDropHandle;

/// The pause between two checks of the referee.
const CHECK_PAUSE: Duration = Duration::from_millis(10);
/// Everything happens within this time.
const PATIENCE: Duration = Duration::from_secs(900);
/// For how long a leader is left alone: whoever else believes to lead has done so by then.
const DWELL: Duration = Duration::from_secs(20);
/// Processes of theirs.
const THEIRS: usize = 3;
/// Takeovers where ours contend with theirs, and where ours yield: fifty together in a full run.
const CONTENDED: Scaled<usize> = Scaled { quick: 12, full: 30 };
const YIELDED: Scaled<usize> = Scaled { quick: 6, full: 20 };

#[derive(Default)]
struct Present {
    ours: BTreeMap<String, (Elector, SimClient)>,
    theirs: BTreeMap<String, (S3Worker, SimClient)>,
}

/// The observations of the referee.
#[derive(Default)]
struct Record {
    /// Epochs in which ours acted, each with who did.
    ours: BTreeMap<u64, BTreeSet<String>>,
    /// Epochs in which theirs believed to lead.
    theirs: BTreeSet<u64>,
    /// Moments at which ours acted while another believed to lead.
    overlaps: Vec<String>,
}

struct Field {
    bucket: SimBucket,
    latency: Duration,
    yields: bool,
    present: Arc<Mutex<Present>>,
    record: Arc<Mutex<Record>>,
    names: usize,
    takeovers: usize,
    _referee: AbortOnDropHandle<()>,
}

impl Field {
    fn open(latency_ms: u64, yields: bool) -> Field {
        let (present, record) = (Arc::<Mutex<Present>>::default(), Arc::<Mutex<Record>>::default());
        let referee = tokio::spawn(check(present.clone(), record.clone()));
        Field {
            bucket: SimBucket::new(),
            latency: Duration::from_millis(latency_ms),
            yields,
            present,
            record,
            names: 0,
            takeovers: 0,
            _referee: AbortOnDropHandle::new(referee),
        }
    }

    fn next_name(&mut self, side: &str) -> String {
        self.names += 1;
        format!("{side}-{}", self.names)
    }

    fn start_theirs(&mut self) -> String {
        let id = self.next_name("theirs");
        let client = self.bucket.client(self.latency);
        let settings = S3WorkerSettings {
            folder: "plugin=coordinator/namespace=default".into(),
            worker_id: id.clone(),
            heartbeat: Duration::from_secs(5),
            jitter: Duration::from_secs(1),
            lease: Duration::from_secs(15),
            worker_timeout: Duration::from_secs(20),
            skew: SignedDuration::ZERO,
        };
        let worker = S3Worker::start(client.clone(), settings);
        self.present.lock().theirs.insert(id.clone(), (worker, client));
        id
    }

    async fn start_ours(&mut self) -> String {
        let id = self.next_name("ours");
        let client = self.bucket.client(self.latency);
        let leases = S3Leases::over(Arc::new(client.clone()), "", Arc::new(self.bucket.clone()));
        let settings = Settings { yield_to_foreign: self.yields, ..Settings::default() };
        let elector = Elector::over(Arc::new(leases)).id(&id).settings(settings).start().await.expect("starts");
        self.present.lock().ours.insert(id.clone(), (elector, client));
        id
    }

    /// As by SIGKILL.
    fn kill_theirs(&mut self) {
        self.present.lock().theirs.clear();
    }

    /// Ends a member of ours: cleanly, or as by a crash.
    async fn end_ours(&mut self, id: &str, is_crash: bool) {
        let (elector, client) = self.present.lock().ours.remove(id).expect("it runs");
        if is_crash {
            client.cut();
            drop(elector);
        } else {
            elector.stop().await;
        }
    }

    async fn until(&mut self, what: &str, is_so: impl Fn(&Present) -> bool) {
        let so = async {
            while !is_so(&self.present.lock()) {
                tokio::time::sleep(CHECK_PAUSE).await;
            }
        };
        tokio::time::timeout(PATIENCE, so).await.unwrap_or_else(|_| panic!("{what} did not happen"));
        self.takeovers += 1;
        tokio::time::sleep(DWELL).await;
    }

    async fn until_ours_lead(&mut self) {
        self.until("that ours lead", |present| present.ours.values().any(|(elector, _)| elector.is_leader())).await;
    }

    async fn until_theirs_lead(&mut self) {
        let leads = |present: &Present| present.theirs.values().any(|(worker, _)| worker.leads().is_some());
        self.until("that theirs lead", leads).await;
    }

    fn verify(&self, least: usize) {
        let record = self.record.lock();
        let shared: Vec<_> = record.ours.keys().filter(|epoch| record.theirs.contains(epoch)).collect();
        let twice: Vec<_> = record.ours.iter().filter(|(_, holders)| holders.len() > 1).collect();
        let at = self.latency;
        assert!(
            shared.is_empty(),
            "at {at:?}: {} of {} epochs are also theirs: {shared:?}",
            shared.len(),
            record.ours.len()
        );
        assert!(twice.is_empty(), "at {at:?}: {twice:?}");
        let overlaps = &record.overlaps;
        assert!(overlaps.is_empty(), "at {at:?}: {} checks, {:?}", overlaps.len(), &overlaps[..overlaps.len().min(5)]);
        assert!(self.takeovers >= least, "{} takeovers", self.takeovers);
    }
}

async fn check(present: Arc<Mutex<Present>>, record: Arc<Mutex<Record>>) {
    let begin = tokio::time::Instant::now();
    loop {
        {
            let (present, mut record) = (present.lock(), record.lock());
            let acting = present.ours.iter().filter_map(|(id, (elector, _))| Some((id, elector.term()?.epoch().0)));
            let acting: Vec<_> = acting.collect();
            let believing: Vec<_> =
                present.theirs.iter().filter_map(|(id, (worker, _))| Some((id, worker.leads()?))).collect();
            for (id, epoch) in &acting {
                record.ours.entry(*epoch).or_default().insert((*id).clone());
            }
            record.theirs.extend(believing.iter().map(|(_, epoch)| *epoch));
            if !acting.is_empty() && acting.len() + believing.len() > 1 {
                record.overlaps.push(format!("{:?}: {acting:?} and {believing:?}", begin.elapsed()));
            }
        }
        tokio::time::sleep(CHECK_PAUSE).await;
    }
}

/// Ours do not yield: they take over from living processes of theirs, are elected by them, leave and crash.
async fn contend(latency_ms: u64) {
    let mut field = Field::open(latency_ms, false);
    let takeovers = CONTENDED.get();
    (0..THEIRS).for_each(|_| drop(field.start_theirs()));
    field.until_theirs_lead().await;
    for round in 0..takeovers / 2 {
        let ours = field.start_ours().await;
        if round % 3 == 2 {
            // Theirs elect who started first: then that is ours.
            field.kill_theirs();
            (0..THEIRS).for_each(|_| drop(field.start_theirs()));
        }
        field.until_ours_lead().await;
        field.end_ours(&ours, round % 2 == 1).await;
        field.until_theirs_lead().await;
    }
    field.verify(takeovers);
}

/// Ours yield: they lead only after all of theirs are gone, and give way when one comes.
async fn give_way(latency_ms: u64) {
    let mut field = Field::open(latency_ms, true);
    field.start_ours().await;
    field.start_ours().await;
    field.until_ours_lead().await;
    let takeovers = YIELDED.get();
    for _ in 0..takeovers / 2 {
        field.start_theirs();
        field.until_theirs_lead().await;
        field.kill_theirs();
        field.until_ours_lead().await;
    }
    field.verify(takeovers);
}

macro_rules! at_latencies {
    ($($name:ident: $ms:literal),* $(,)?) => {$(
        #[tokio::test(start_paused = true)]
        async fn $name() {
            contend($ms).await;
            give_way($ms).await;
        }
    )*};
}

at_latencies! {
    no_epoch_of_ours_is_also_theirs_and_no_two_act_at_0_ms_a_request: 0,
    no_epoch_of_ours_is_also_theirs_and_no_two_act_at_50_ms_a_request: 50,
    no_epoch_of_ours_is_also_theirs_and_no_two_act_at_120_ms_a_request: 120,
    no_epoch_of_ours_is_also_theirs_and_no_two_act_at_300_ms_a_request: 300,
}

#[tokio::test(start_paused = true)]
async fn a_member_that_yields_lets_theirs_lead_on_and_is_not_elected_by_them() {
    let mut field = Field::open(50, true);
    field.start_theirs();
    field.until_theirs_lead().await;
    for _ in 0..3 {
        field.start_ours().await;
    }
    // Many leases of theirs, at the end of each of which they elect anew.
    for _ in 0..40 {
        tokio::time::sleep(Duration::from_secs(5)).await;
        let present = field.present.lock();
        assert!(present.theirs.values().all(|(worker, _)| worker.leads().is_some()), "theirs leads on");
        assert!(present.ours.values().all(|(elector, _)| !elector.is_leader()));
    }
    let follow = |present: &Present| {
        let mut ours = present.ours.values().map(|(elector, _)| elector);
        ours.all(|elector| elector.is_yielding() && elector.is_leader_of("theirs-1"))
    };
    field.until("that they yield and follow", follow).await;
}
