//! The campaign of a node for its cluster.

use convoke_adapters::memory::MemoryStore;
use convoke_core::NodeId;
use convoke_runtime::election::{Campaign, ElectionHealth, Leadership};
use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::*;

#[tokio::test(start_paused = true)]
async fn an_election_whose_answer_was_lost_is_given_back_and_not_waited_out() {
    let faulty = Arc::new(Faulty::over(memory()));
    let (_fitness, fit) = watch::channel(true);
    let (namespace, lease) = ("cluster", Duration::from_secs(600));
    let campaign = Campaign {
        namespace,
        candidate: NodeId::new("a").expect("a name"),
        leases: faulty.clone(),
        store: Arc::new(MemoryStore::new()),
        ttl: lease,
        renew_interval: lease / 3,
        view: watch::Sender::new(Leadership::default()),
        vacancy: Arc::new(Notify::new()),
        fit,
        election_health: Arc::new(ElectionHealth::new(
            namespace,
            &Settings::default(),
            Arc::new(SystemClock),
            Arc::new(|_| {}),
        )),
        outages: Arc::default(),
    };
    faulty.lose_next("elect");
    let (stop, (led, mut terms), began) = (CancellationToken::new(), mpsc::unbounded_channel(), Instant::now());
    let running = tokio::spawn(campaign.run(stop.clone(), move |term| {
        let led = led.clone();
        async move {
            // Fails only where the test is over.
            let _ = led.send(term.epoch());
            term.ended().await;
        }
    }));
    assert_eq!(terms.recv().await, Some(Epoch(2)));
    assert!(began.elapsed() < lease / 10, "{:?}", began.elapsed());
    stop.cancel();
    running.await.expect("does not panic");
    assert_eq!(faulty.read(namespace).await.expect("read"), None);
}
