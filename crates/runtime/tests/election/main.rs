//! Electors over leases in memory, on a clock that the test moves.

mod campaign;
mod faulty;
mod gauges;
mod pace;
mod race;
mod resigned;
mod subscribers;
mod usurper;

use std::sync::Arc;
use std::time::Duration;

use convoke_adapters::memory::{MemoryLeases, SystemClock};
use convoke_core::election::{BreakerState, Policy, Settings};
use convoke_core::ports::Leases;
use convoke_core::ports::leases::Floor;
use convoke_core::{Epoch, Error};
use convoke_runtime::election::{Candidacy, Elector};
use faulty::Faulty;
use tokio::time::Instant;

fn settings() -> Settings {
    Settings { startup_jitter_max: Duration::ZERO, ..Settings::default() }
}

fn candidacy(leases: &Arc<dyn Leases>, id: &str) -> Candidacy {
    let (id, namespace, clock) = (id.to_owned(), "production".to_owned(), Arc::new(SystemClock));
    Candidacy { id, namespace, leases: leases.clone(), clock, settings: settings() }
}

fn elector(leases: &Arc<dyn Leases>, id: &str) -> Elector {
    Elector::start(candidacy(leases, id)).expect("starts")
}

fn memory() -> Arc<dyn Leases> {
    Arc::new(MemoryLeases::new())
}

#[tokio::test(start_paused = true)]
async fn one_leads_and_everybody_knows_who() {
    let leases = memory();
    let a = elector(&leases, "a");
    let term = a.lead().await.expect("nobody else stands");
    let b = elector(&leases, "b");
    let mut events = b.events();
    events.next().await.expect("receives the leader");
    assert!(a.is_leader() && a.is_leader_of("a") && b.is_leader_of("a") && !b.is_leader());
    assert_eq!(b.leader().as_deref(), Some("a"));
    assert_eq!((term.epoch(), b.epoch()), (Epoch(1), Epoch(1)));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(a.is_leader() && !term.is_over(), "it renews");
    assert_eq!(b.members().await.expect("roster"), ["a", "b"]);
    assert_eq!(b.known_members(), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn who_drops_the_last_handle_resigns_and_the_next_leads_within_a_second() {
    let leases = memory();
    let a = elector(&leases, "a");
    let term = a.lead().await.expect("leads");
    let b = elector(&leases, "b");
    tokio::time::sleep(Duration::from_secs(7)).await;
    let another_handle = a.clone();
    drop(a);
    tokio::time::sleep(Duration::from_secs(7)).await;
    assert!(another_handle.is_leader());
    let resigned = Instant::now();
    drop(another_handle);
    assert!(term.is_over(), "at once");
    let next = b.lead().await.expect("leads");
    assert!(resigned.elapsed() <= Duration::from_secs(1), "{:?}", resigned.elapsed());
    assert_eq!(next.epoch(), Epoch(2));
    assert_eq!(b.members().await.expect("roster"), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn who_resigns_remains_a_member_and_may_lead_again() {
    let leases = memory();
    let (a, b) = (elector(&leases, "a"), elector(&leases, "b"));
    let (first, second, term) = tokio::select! {
        Some(term) = a.lead() => (&a, &b, term),
        Some(term) = b.lead() => (&b, &a, term),
    };
    first.resign().await;
    assert!(term.is_over() && !first.is_leader());
    assert_eq!(second.lead().await.expect("leads").epoch(), Epoch(2));
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(second.members().await.expect("roster"), ["a", "b"]);
    second.resign().await;
    assert_eq!(first.lead().await.expect("leads").epoch(), Epoch(3));
}

#[tokio::test(start_paused = true)]
async fn a_term_that_its_user_ends_is_given_back() {
    let leases = memory();
    let a = elector(&leases, "a");
    let term = a.lead().await.expect("leads");
    let b = elector(&leases, "b");
    tokio::time::sleep(Duration::from_secs(6)).await;
    // As somebody does whose write was refused.
    term.end();
    assert!(!a.is_leader());
    assert_eq!(b.lead().await.expect("leads").epoch(), Epoch(2));
}

#[tokio::test(start_paused = true)]
async fn a_killed_leader_is_replaced_within_lease_and_heartbeat() {
    for policy in [Policy::FirstCome, Policy::LowestId] {
        let leases = memory();
        let faulty: Arc<Faulty> = Arc::new(Faulty::over(leases.clone()));
        let doomed: Arc<dyn Leases> = faulty.clone();
        let with_policy = |leases: &Arc<dyn Leases>, id: &str| {
            let candidacy = candidacy(leases, id);
            Elector::start(Candidacy { settings: Settings { policy, ..settings() }, ..candidacy }).expect("starts")
        };
        let a = with_policy(&doomed, "a");
        let term = a.lead().await.expect("leads");
        let [b, c] = ["b", "c"].map(|id| with_policy(&leases, id));
        tokio::time::sleep(Duration::from_secs(33)).await;
        let killed = Instant::now();
        faulty.cut();
        tokio::select! {
            Some(_) = b.lead() => {}
            Some(_) = c.lead() => {}
        }
        assert!(killed.elapsed() <= Duration::from_secs(15 + 5), "{policy}: {:?}", killed.elapsed());
        assert!(term.is_over() && !a.is_leader(), "it fenced itself before");
        if policy == Policy::LowestId {
            assert!(b.is_leader(), "of those present the lowest");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn namespaces_have_leaders_of_their_own() {
    let leases = memory();
    let a = elector(&leases, "a");
    let candidacy = candidacy(&leases, "b");
    let b = Elector::start(Candidacy { namespace: "staging".into(), ..candidacy }).expect("starts");
    let (production, staging) = tokio::join!(a.lead(), b.lead());
    assert_eq!((production.expect("leads").epoch(), staging.expect("leads").epoch()), (Epoch(1), Epoch(1)));
    assert_eq!(b.members().await.expect("roster"), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn an_outage_ends_the_term_opens_the_breaker_and_passes() {
    let faulty = Arc::new(Faulty::over(memory()));
    let leases: Arc<dyn Leases> = faulty.clone();
    let a = elector(&leases, "a");
    let term = a.lead().await.expect("leads");
    let mut events = a.events();
    faulty.cut();
    let worked = term.run(|_| std::future::pending::<()>()).await;
    assert!(worked.is_none());
    let mut names = Vec::new();
    while !names.contains(&"circuitBreaker:open") {
        names.push(events.next().await.expect("an event").name());
    }
    assert_eq!(a.breaker().state, BreakerState::Open);
    let asked = faulty.asked();
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(faulty.asked(), asked, "heartbeats are skipped");
    assert!(!a.is_leader() && a.leader().is_none());
    faulty.mend();
    let next = a.lead().await.expect("leads again");
    assert!(next.epoch() > term.epoch());
    // The round that elected it is still to be ended.
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!((a.breaker().state, a.breaker().trips), (BreakerState::Closed, 1));
}

#[tokio::test(start_paused = true)]
async fn answers_that_are_lost_cost_neither_the_place_nor_a_second_leader() {
    let faulty = Arc::new(Faulty::over(memory()));
    let leases: Arc<dyn Leases> = faulty.clone();
    faulty.lose_next("elect");
    let a = elector(&leases, "a");
    let term = a.lead().await.expect("finds its term by reading");
    for _ in 0..20 {
        faulty.lose_next("renew");
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    assert!(a.is_leader() && !term.is_over());
    assert_eq!(a.epoch(), Epoch(1));
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_hangs_is_not_waited_for_beyond_the_lease() {
    let faulty = Arc::new(Faulty::over(memory()));
    let leases: Arc<dyn Leases> = faulty.clone();
    let a = elector(&leases, "a");
    let term = a.lead().await.expect("leads");
    let began = Instant::now();
    faulty.hang();
    term.ended().await;
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    let mut events = a.events();
    while !matches!(events.next().await.expect("an event").name(), "circuitBreaker:open") {}
    faulty.mend();
    a.lead().await.expect("leads again");
}

#[tokio::test(start_paused = true)]
async fn a_stopped_elector_holds_nothing_and_says_no_more() {
    let leases = memory();
    let a = elector(&leases, "a");
    a.lead().await.expect("leads");
    let mut events = a.events();
    a.stop().await;
    assert_eq!(leases.read("production").await.expect("read"), None);
    assert!(leases.roster("production").await.expect("roster").is_empty());
    assert!(a.lead().await.is_none() && !a.is_leader());
    while events.next().await.is_some() {}
    assert!(a.events().next().await.is_none());
}

#[test]
fn an_elector_whose_runtime_ends_before_its_first_heartbeat_has_left() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let a = runtime.block_on(async { elector(&memory(), "a") });
    assert!(!a.downgrade().has_left());
    drop(runtime);
    assert!(a.downgrade().has_left(), "nobody waits for it in vain");
}

#[tokio::test(start_paused = true)]
async fn what_makes_no_sense_is_refused() {
    let leases = memory();
    for (candidacy, field) in [
        (Candidacy { id: String::new(), ..candidacy(&leases, "a") }, "id"),
        (Candidacy { namespace: "a\nb".into(), ..candidacy(&leases, "a") }, "namespace"),
        (
            Candidacy {
                settings: Settings { lease_timeout: Duration::from_secs(1), ..settings() },
                ..candidacy(&leases, "a")
            },
            "lease_timeout",
        ),
    ] {
        let Err(Error::Invalid(invalid)) = Elector::start(candidacy) else { panic!("{field} was accepted") };
        assert_eq!(invalid.field, field);
    }
}
