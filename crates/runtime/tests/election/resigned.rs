//! Candidates after a leader has resigned.

use super::campaign::Stage;
use super::*;

/// A follower that reads the lease with its heartbeats only, if it is not notified.
fn follower(leases: &Arc<dyn Leases>, id: &str) -> (Elector, Arc<Faulty>) {
    let faulty = Arc::new(Faulty::over(leases.clone()).unread_between_heartbeats());
    let leases: Arc<dyn Leases> = faulty.clone();
    (elector(&leases, id), faulty)
}

#[tokio::test(start_paused = true)]
async fn a_candidate_that_is_notified_leads_before_its_next_heartbeat() {
    let leases = memory();
    let a = elector(&leases, "a");
    a.lead().await.expect("leads");
    let (b, faulty) = follower(&leases, "b");
    tokio::time::sleep(Duration::from_secs(7)).await;
    let (resigned, reads) = (Instant::now(), faulty.times_of("read").len());
    a.stop().await;
    b.lead().await.expect("leads");
    assert!(resigned.elapsed() <= Duration::from_millis(50), "{:?}", resigned.elapsed());
    assert_eq!(faulty.times_of("read").len(), reads + 1);
}

#[tokio::test(start_paused = true)]
async fn many_candidates_that_are_notified_read_once_each_and_most_of_them_do_not_stand() {
    const MANY: usize = 50;
    let leases = memory();
    let a = elector(&leases, "a");
    a.lead().await.expect("leads");
    let followers: Vec<_> = (0..MANY).map(|number| follower(&leases, &format!("follower-{number}"))).collect();
    tokio::time::sleep(Duration::from_secs(12)).await;
    let count = |verb: &str| followers.iter().map(|(_, faulty)| faulty.times_of(verb).len()).sum::<usize>();
    let (resigned, reads, elections) = (Instant::now(), count("read"), count("elect"));
    a.resign().await;
    let leading = followers.iter().map(|(elector, _)| Box::pin(elector.lead()));
    futures_util::future::select_all(leading).await.0.expect("one leads");
    assert!(resigned.elapsed() <= Duration::from_millis(50), "{:?}", resigned.elapsed());
    tokio::time::sleep(Duration::from_millis(60)).await;
    // A heartbeat may fall into this time.
    let reads = count("read") - reads;
    assert!((MANY..=MANY * 2).contains(&reads), "{reads} reads");
    let elections = count("elect") - elections;
    assert!((1..=MANY / 5).contains(&elections), "{elections} of {MANY} stood");
}

#[tokio::test(start_paused = true)]
async fn notices_without_end_neither_make_a_candidate_read_without_end_nor_stop_its_heartbeats() {
    let leases = memory();
    let a = elector(&leases, "a");
    a.lead().await.expect("leads");
    let faulty = Arc::new(Faulty::over(leases.clone()).flooding());
    let flooded: Arc<dyn Leases> = faulty.clone();
    let b = elector(&flooded, "b");
    tokio::time::sleep(Duration::from_secs(60)).await;
    let reads = faulty.times_of("read").len();
    assert!(reads <= 60 * 50 + 20, "{reads} reads in a minute");
    assert!(faulty.times_of("enroll").len() >= 9, "{:?}", faulty.times_of("enroll"));
    a.stop().await;
    b.lead().await.expect("leads");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(b.is_leader(), "it renews");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_notified_leads_before_its_next_heartbeat() {
    let (leases, lease) = (memory(), Duration::from_secs(600));
    let other = leases.elect("cluster", "other", lease, Floor::UNKNOWN).await.expect("nobody leads");
    let mut stage = Stage::start(leases.clone(), lease);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let resigned = Instant::now();
    leases.resign("cluster", "other", other.epoch).await.expect("resign");
    assert_eq!(stage.lead().await.epoch(), other.epoch.next());
    assert!(resigned.elapsed() <= Duration::from_millis(50), "{:?}", resigned.elapsed());
    stage.stop().await;
}
