//! A node that leaves, and the acknowledgements of the runs that it offers: the four branches, on the wire.
//!
//! The only other node is a puppet, so that the test decides whether each acknowledgement is sent, late or missing.

use std::process::ExitStatus;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use convoke_core::jobs::Ownership;
use convoke_testkit::process::{Chronicler, Fleet, Handling, Plan, Puppet, eventually};
use serde_json::{Value, json};

const RUNS: usize = 5;
const LEAVING: &str = "node-1";
const OTHER: &str = "puppet";
const HARD_TIMEOUT: Duration = Duration::from_secs(6);

struct Scene {
    fleet: Fleet,
    chronicler: Chronicler,
    puppet: Puppet,
}

impl Scene {
    /// One node that owns runs which do not end, and a puppet that takes what `takes` selects.
    async fn open(settings: &[(&str, &str)], takes: impl Fn(&Value) -> bool + Send + Sync + 'static) -> Scene {
        let builder = Fleet::builder(env!("CARGO_BIN_EXE_convoke")).size(1);
        let mut fleet = settings.iter().fold(builder, |builder, (key, value)| builder.set(key, value)).start().await;
        let chronicler = fleet.chronicler().await;
        fleet.start_worker(0, Plan::new("holder", "held", |_| Handling::Hold)).await;
        for _ in 0..RUNS {
            fleet
                .any()
                .post("/v1/jobs", json!({ "type": "hold", "queue": "held" }))
                .await
                .expect("a response")
                .expect(201);
        }
        // Owned from the dispatch on; a run that no worker had taken would not be handed over but released.
        eventually("runs that the node owns and its worker has", || async {
            let rows = chronicler.rows().await;
            let owned = rows.values().filter(|row| row.in_flight() && row.owned_by() == Some(LEAVING)).count();
            let page = fleet.any().get("/v1/jobs?queue=held").await.expect("a response").expect(200);
            let jobs = page["jobs"].as_array().expect("a list");
            let held = jobs.iter().filter(|job| !job["workerId"].is_null()).count();
            (owned == RUNS && held == RUNS).then_some(())
        })
        .await;
        let puppet = fleet.puppet(OTHER, takes).await;
        Scene { fleet, chronicler, puppet }
    }

    async fn terminate(&mut self) -> ExitStatus {
        self.fleet.terminate(0).await
    }

    /// Every run is where it should be, and is still the run that it was.
    async fn assert_owned(&self, owner: &str, ownership: Ownership) {
        let rows = self.chronicler.rows().await;
        assert_eq!(rows.len(), RUNS);
        for (job, row) in rows {
            let is = (row.owner.as_deref(), row.ownership, row.attempt, row.in_flight());
            assert_eq!(is, (Some(owner), ownership, 1, true), "job {job}");
        }
    }

    fn tries_max(&self) -> u64 {
        self.puppet.offers().iter().filter_map(|offer| offer["tries"].as_u64()).max().expect("offers")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_it_goes_once_each_run_is_acknowledged() {
    let mut scene = Scene::open(&[], |_| true).await;
    assert_eq!(scene.terminate().await.code(), Some(0));
    scene.assert_owned(OTHER, Ownership::Owned).await;
    let offers = scene.puppet.offers();
    assert!(offers.iter().all(|offer| offer["fromNode"] == LEAVING && offer["reason"] == "shutdown"), "{offers:?}");
    assert_eq!((offers.len(), scene.tries_max()), (RUNS, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn b_it_offers_again_what_nobody_acknowledged() {
    let mut scene = Scene::open(&[], |offer| offer["tries"] == 2).await;
    assert_eq!(scene.terminate().await.code(), Some(0));
    scene.assert_owned(OTHER, Ownership::Owned).await;
    assert_eq!(scene.puppet.offers().len(), 2 * RUNS);
}

#[tokio::test(flavor = "multi_thread")]
async fn c_what_is_never_acknowledged_is_left_as_an_orphan_and_it_says_so() {
    let mut scene = Scene::open(&[], |_| false).await;
    assert_eq!(scene.terminate().await.code(), Some(1));
    scene.assert_owned(LEAVING, Ownership::OrphanPending).await;
    assert_eq!(scene.tries_max(), 4, "offered once and then as often again as is set by default");
    // The next leader finds them.
    let next = scene.fleet.join("node-2").await;
    drop(scene.puppet);
    eventually("a node that takes the orphans", || async {
        let rows = scene.chronicler.rows().await;
        rows.values().all(|row| row.owned_by() != Some(LEAVING)).then_some(())
    })
    .await;
    assert_eq!(scene.fleet.leader().await, next);
}

/// It sees that a node is dead before it would offer again; and would it go on to offer, it would be gone before the hard
/// timeout, with nobody left to wait for.
const WATCHFUL: [(&str, &str); 3] =
    [("cluster.dead_node_timeout", "1s"), ("cluster.handoff_ack_timeout", "2s"), ("cluster.handoff_max_retries", "1")];

#[tokio::test(flavor = "multi_thread")]
async fn d_when_all_others_die_it_waits_until_the_hard_timeout() {
    let mut scene = Scene::open(&WATCHFUL, |_| false).await;
    let began = Instant::now();
    let Scene { fleet, puppet, .. } = &mut scene;
    let (status, ()) = tokio::join!(fleet.terminate(0), dies_once_asked(puppet));
    assert_eq!(status.code(), Some(1));
    assert!(began.elapsed() >= HARD_TIMEOUT, "it went before its time");
    scene.assert_owned(LEAVING, Ownership::OrphanPending).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d_when_one_comes_back_in_time_it_hands_over_after_all() {
    let asked = AtomicUsize::new(0);
    // The first offer of each goes unheard; after it has come back it takes whatever it is offered.
    let [dead, ack, retries] = WATCHFUL;
    let settings = [dead, ack, retries, ("cluster.handoff_hard_timeout", "30s")];
    let mut scene = Scene::open(&settings, move |_| asked.fetch_add(1, Ordering::SeqCst) >= RUNS).await;
    let Scene { fleet, puppet, .. } = &mut scene;
    let back = async {
        dies_once_asked(puppet).await;
        // Dead for longer than all offers together would have been waited for, which is the fault itself.
        tokio::time::sleep(Duration::from_secs(6)).await;
        puppet.revive();
    };
    let (status, ()) = tokio::join!(fleet.terminate(0), back);
    assert_eq!(status.code(), Some(0));
    scene.assert_owned(OTHER, Ownership::Owned).await;
}

async fn dies_once_asked(puppet: &Puppet) {
    eventually("the offers", || async { (puppet.offers().len() >= RUNS).then_some(()) }).await;
    puppet.play_dead();
}
