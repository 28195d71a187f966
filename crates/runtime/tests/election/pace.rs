//! When questions are asked.

use super::*;

fn started(faulty: &Arc<Faulty>, settings: Settings) -> Elector {
    let leases: Arc<dyn Leases> = faulty.clone();
    Elector::start(Candidacy { settings, ..candidacy(&leases, "a") }).expect("starts")
}

#[tokio::test(start_paused = true)]
async fn the_first_heartbeat_comes_at_a_random_time_within_the_startup_jitter() {
    let [least, most] = [20, 50].map(Duration::from_secs);
    let settings = Settings { startup_jitter_min: least, startup_jitter_max: most, ..Settings::default() };
    let mut waited = Vec::new();
    for _ in 0..20 {
        let (faulty, began) = (Arc::new(Faulty::over(memory())), Instant::now());
        let elector = started(&faulty, settings.clone());
        elector.lead().await.expect("leads");
        waited.push(faulty.times_of("enroll")[0] - began);
    }
    // tokio's timers are exact to the millisecond.
    assert!(waited.iter().all(|it| (least..=most + Duration::from_millis(2)).contains(it)), "{waited:?}");
    assert!(waited.iter().any(|it| *it != waited[0]), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn heartbeats_come_at_random_times_within_their_jitter() {
    let faulty = Arc::new(Faulty::over(memory()));
    let elector = started(&faulty, settings());
    elector.lead().await.expect("leads");
    tokio::time::sleep(Duration::from_secs(120)).await;
    let renewals = faulty.times_of("renew");
    let pauses: Vec<Duration> = renewals.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let (least, most) = (Duration::from_secs(5), Duration::from_millis(6_002));
    assert!(pauses.len() >= 18 && pauses.iter().all(|it| (least..=most).contains(it)), "{pauses:?}");
    assert!(pauses.iter().any(|it| *it != pauses[0]), "{pauses:?}");
}

#[tokio::test(start_paused = true)]
async fn a_leader_renews_in_time_although_nothing_else_is_answered() {
    let faulty = Arc::new(Faulty::over(memory()));
    let elector = started(&faulty, settings());
    let term = elector.lead().await.expect("leads");
    faulty.hang_on("enroll");
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert!(!term.is_over());
    assert_eq!((elector.breaker().state, elector.breaker().trips), (BreakerState::Closed, 0));
    let renewals = faulty.times_of("renew");
    let late = renewals.windows(2).map(|pair| pair[1] - pair[0]).max().expect("it renews");
    assert!(late <= Duration::from_millis(6_050), "{late:?}");
}
