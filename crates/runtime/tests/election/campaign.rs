//! The campaign of a node for its cluster.

use convoke_adapters::memory::MemoryStore;
use convoke_core::NodeId;
use convoke_core::ports::store::EpochStore;
use convoke_runtime::election::{Campaign, CampaignOptions, ElectionHealth, Leadership, Term};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::*;

const NAMESPACE: &str = "cluster";

/// A campaign, and what it does with its terms.
pub struct Stage {
    pub store: Arc<MemoryStore>,
    pub fitness: watch::Sender<bool>,
    pub view: watch::Receiver<Leadership>,
    pub election_health: Arc<ElectionHealth>,
    terms: mpsc::UnboundedReceiver<Term>,
    stop: CancellationToken,
    running: JoinHandle<()>,
}

impl Stage {
    pub fn start(leases: Arc<dyn Leases>, lease: Duration) -> Stage {
        Stage::start_with(leases, lease, Duration::ZERO)
    }

    /// Its tasks take `farewell` to end.
    pub fn start_with(leases: Arc<dyn Leases>, lease: Duration, farewell: Duration) -> Stage {
        let (fitness, fit) = watch::channel(true);
        let (view, seen) = watch::channel(Leadership::default());
        let store = Arc::new(MemoryStore::new());
        let campaign = Campaign::new(CampaignOptions {
            namespace: NAMESPACE,
            candidate: NodeId::new("a").expect("a name"),
            leases,
            store: store.clone(),
            clock: Arc::new(SystemClock),
            ttl: lease,
            renew_interval: lease / 3,
            settings: Settings::default(),
            view,
            vacancy: Arc::new(Notify::new()),
            fit,
            publish_event: Arc::new(|_| {}),
            outages: Arc::default(),
        });
        let (election_health, stop, (led, terms)) =
            (campaign.election_health(), CancellationToken::new(), mpsc::unbounded_channel());
        let running = tokio::spawn(campaign.run(stop.clone(), move |term| {
            let led = led.clone();
            async move {
                // Fails only where the test is over.
                let _ = led.send(term.clone());
                term.ended().await;
                tokio::time::sleep(farewell).await;
            }
        }));
        Stage { store, fitness, view: seen, election_health, terms, stop, running }
    }

    pub async fn lead(&mut self) -> Term {
        self.terms.recv().await.expect("it leads")
    }

    pub async fn stop(self) {
        self.stop.cancel();
        self.running.await.expect("does not panic");
    }
}

#[tokio::test(start_paused = true)]
async fn an_election_whose_answer_was_lost_is_given_back_and_not_waited_out() {
    let faulty = Arc::new(Faulty::over(memory()));
    let lease = Duration::from_secs(600);
    faulty.lose_next("elect");
    let (mut stage, began) = (Stage::start(faulty.clone(), lease), Instant::now());
    assert_eq!(stage.lead().await.epoch(), Epoch(2));
    assert!(began.elapsed() < lease / 10, "{:?}", began.elapsed());
    stage.stop().await;
    assert_eq!(faulty.read(NAMESPACE).await.expect("read"), None);
}

#[tokio::test(start_paused = true)]
async fn a_term_is_sealed_and_shown_before_anything_acts_on_it() {
    let mut stage = Stage::start(memory(), Duration::from_secs(30));
    let term = stage.lead().await;
    assert_eq!((term.fence().epoch(), stage.store.sealed().await.expect("read")), (Epoch(1), Epoch(1)));
    let view = stage.view.borrow().clone();
    assert!(view.is_me && view.epoch == Epoch(1) && view.until == Some(term.certain_until()), "{view:?}");
    assert_eq!(stage.election_health.leases_respond(), Some(true));
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert!(!term.is_over());
    let metrics = stage.election_health.metrics();
    assert_eq!((metrics.election_count, metrics.leader_changes, metrics.heartbeat_failures), (1, 1, 0));
    assert!(metrics.heartbeat_count >= 29, "{metrics:?}");
    stage.stop().await;
}

#[tokio::test(start_paused = true)]
async fn no_term_begins_before_the_tasks_of_the_one_before_have_ended() {
    let leases = memory();
    let farewell = Duration::from_secs(7);
    let mut stage = Stage::start_with(leases.clone(), Duration::from_secs(30), farewell);
    let term = stage.lead().await;
    let ended = Instant::now();
    // As a task does whose write was rejected.
    term.end();
    tokio::time::sleep(farewell / 2).await;
    assert!(stage.view.borrow().is_me, "it is the leader until its tasks have ended");
    assert!(leases.read(NAMESPACE).await.expect("read").is_some(), "and does not resign before");
    assert_eq!(stage.lead().await.epoch(), Epoch(2));
    let passed = ended.elapsed();
    assert!(passed >= farewell && passed < farewell + Duration::from_secs(1), "it stands again soon: {passed:?}");
    stage.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_cannot_do_a_leader_s_work_resigns_and_stands_once_it_can() {
    let leases = memory();
    let mut stage = Stage::start(leases.clone(), Duration::from_secs(30));
    let term = stage.lead().await;
    stage.fitness.send_replace(false);
    term.ended().await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(leases.read(NAMESPACE).await.expect("read"), None);
    assert!(stage.view.borrow().leader.is_none());
    let fit = Instant::now();
    stage.fitness.send_replace(true);
    assert_eq!(stage.lead().await.epoch(), Epoch(2));
    assert!(fit.elapsed() < Duration::from_secs(1), "{:?}", fit.elapsed());
    stage.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_the_leases_ends_the_term_and_passes_within_a_renewal() {
    let faulty = Arc::new(Faulty::over(memory()));
    let mut stage = Stage::start(faulty.clone(), Duration::from_secs(30));
    let (term, began) = (stage.lead().await, Instant::now());
    faulty.cut();
    term.ended().await;
    assert!(began.elapsed() <= Duration::from_secs(27), "{:?}", began.elapsed());
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(
        (stage.election_health.breaker().state, stage.election_health.leases_respond()),
        (BreakerState::Open, Some(false))
    );
    let asked = faulty.asked();
    tokio::time::sleep(Duration::from_secs(25)).await;
    assert!(faulty.asked() - asked <= 1, "an open breaker keeps it from asking");
    faulty.mend();
    assert_eq!(stage.lead().await.epoch(), Epoch(2));
    stage.stop().await;
}
