//! Many who want the same place at the same time.

use std::time::Duration;

use convoke_runtime::election::{Candidacy, Elector};
use futures_util::future::select_all;

use super::*;

const CONTENDERS: usize = 20;

#[tokio::test(start_paused = true)]
async fn losing_the_race_a_thousand_times_leaves_one_leader_and_shows_no_error() {
    let faulty = Arc::new(Faulty::over(memory()));
    // Long enough that many see the place vacant before one has taken it.
    faulty.slow(Duration::from_millis(300));
    let leases: Arc<dyn Leases> = faulty;
    let electors: Vec<Elector> = (0..CONTENDERS).map(|i| elector(&leases, &format!("c-{i:02}"))).collect();
    let (mut last, mut lost) = (Epoch(0), 0);
    while lost < 1_000 {
        let (term, leader, _) = select_all(electors.iter().map(|one| Box::pin(one.lead()))).await;
        let term = term.expect("nobody stopped");
        assert!(term.epoch() > last, "{} after {last}", term.epoch());
        last = term.epoch();
        assert!(last < Epoch(1_000), "only {lost} elections were lost");
        assert_eq!(electors.iter().filter(|one| one.is_leader()).count(), 1);
        electors[leader].resign().await;
        lost = electors.iter().map(|one| one.metrics().election_count).sum::<u64>() - last.0;
    }
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(electors.iter().filter(|one| one.is_leader()).count(), 1);
    for one in &electors {
        let (metrics, breaker) = (one.metrics(), one.breaker());
        assert_eq!((metrics.heartbeat_failures, breaker.failure_count, breaker.trips), (0, 0, 0));
        assert!(one.leader().is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn a_fleet_that_starts_at_once_elects_one() {
    let leases = memory();
    let start = |i: usize| {
        let candidacy = candidacy(&leases, &format!("c-{i:02}"));
        let settings = Settings { policy: Policy::LowestId, ..settings() };
        Elector::start(Candidacy { settings, ..candidacy }).expect("starts")
    };
    let electors: Vec<Elector> = (0..CONTENDERS).map(start).collect();
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(electors.iter().filter(|one| one.is_leader()).count(), 1);
    let leader = electors[0].leader();
    assert!(electors.iter().all(|one| one.leader() == leader && one.epoch() == Epoch(1)));
}
