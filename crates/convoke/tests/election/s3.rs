//! Electors on S3, behind a proxy that does to requests what S3 may: what they cost, and what becomes of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use convoke::Elector;
use convoke::election::{BreakerState, Settings, Subscriber};
use convoke_adapters::s3::S3Leases;
use convoke_core::ports::Clock;
use convoke_testkit::process::{Fault, HttpProxy, HttpRequest, S3Server, eventually, settle};
use jiff::{SignedDuration, Timestamp};

/// A clock that is wrong by so much.
struct Skewed(SignedDuration);

impl Clock for Skewed {
    fn now(&self) -> Timestamp {
        Timestamp::now() + self.0
    }
}

fn settings() -> Settings {
    let mut settings = Settings::default().with_ttl(Duration::from_secs(3));
    settings.heartbeat_interval = Duration::from_millis(200);
    settings.heartbeat_jitter = Duration::from_millis(50);
    settings.startup_jitter_max = Duration::from_millis(100);
    settings.breaker.failure_threshold = 3;
    settings.breaker.reset_timeout = Duration::from_millis(500);
    settings
}

/// An elector whose requests go through a proxy of its own.
struct Seat {
    proxy: HttpProxy,
    elector: Elector,
}

async fn seat(server: &S3Server, id: &str, skew: SignedDuration) -> Seat {
    let proxy = HttpProxy::start(server.address()).await;
    let variables = S3Server::variables_for(proxy.address());
    let leases = S3Leases::connect(&server.url("elect"), variables, Arc::new(Skewed(skew))).await.expect("connects");
    let elector = Elector::over(Arc::new(leases)).id(id).settings(settings()).start().await.expect("it starts");
    Seat { proxy, elector }
}

fn is_list(request: &HttpRequest) -> bool {
    request.method == "GET" && request.path.contains("list-type")
}

/// What so many heartbeats cost: listings, and all other requests.
async fn cost(seat: &Seat, beats: u64) -> (u64, u64, u64) {
    let counted = || seat.elector.metrics().heartbeat_count;
    // Between two heartbeats, so that what is counted is whole ones, give or take one.
    let before = counted();
    settle("a heartbeat", true, || async { counted() > before }).await;
    seat.proxy.take_requests();
    let begin = counted();
    settle("some heartbeats", true, || async { counted() >= begin + beats }).await;
    let (requests, beats) = (seat.proxy.take_requests(), counted() - begin);
    let lists = requests.iter().filter(|request| is_list(request)).count() as u64;
    (beats, lists, requests.len() as u64 - lists)
}

#[tokio::test]
async fn a_heartbeat_costs_two_requests_and_a_leaders_three_however_many_listen() {
    let server = S3Server::start().await;
    let first = seat(&server, "first", SignedDuration::ZERO).await;
    settle("a leader", true, || async { first.elector.is_leader() }).await;
    let second = seat(&server, "second", SignedDuration::ZERO).await;
    settle("that both agree", Some("first".to_owned()), || async { second.elector.leader() }).await;
    let works = Arc::new(AtomicU32::new(0));
    for (seat, n) in [&first, &second].into_iter().flat_map(|seat| (0..20).map(move |n| (seat, n))) {
        let works = works.clone();
        let subscriber = Subscriber::new(format!("part {n}")).every(Duration::from_millis(50), move |_| {
            works.fetch_add(1, Ordering::Relaxed);
            async {}
        });
        seat.elector.subscribe(subscriber);
    }
    let ((leads, leads_lists, leads_others), (follows, follows_lists, follows_others)) =
        tokio::join!(cost(&first, 15), cost(&second, 15));
    println!(
        "leader: {leads_others} and {leads_lists} listings in {leads} beats; follower: {follows_others} and {follows_lists} in {follows}"
    );
    assert!(works.load(Ordering::Relaxed) > 0, "those who listen work");
    assert!(leads_others <= 3 * (leads + 1), "{leads_others} requests in {leads} heartbeats of the leader");
    assert!(follows_others <= 2 * (follows + 1), "{follows_others} requests in {follows} heartbeats");
    assert!(leads_lists <= leads / 3 + 1 && follows_lists <= follows / 3 + 1, "{leads_lists}, {follows_lists}");
}

#[tokio::test]
async fn one_leads_through_every_fault_and_the_breaker_opens_and_closes() {
    let server = S3Server::start().await;
    // Clocks ten minutes apart.
    let seats = [
        seat(&server, "a", SignedDuration::from_mins(-5)).await,
        seat(&server, "b", SignedDuration::from_mins(5)).await,
    ];
    let watched = [seats[0].elector.clone(), seats[1].elector.clone()];
    let (both, stop) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (seen, ended) = (both.clone(), stop.clone());
    // On a thread of its own: it looks all the time.
    let watch = std::thread::spawn(move || {
        while !ended.load(Ordering::Relaxed) {
            if watched.iter().all(|elector| elector.is_leader()) {
                seen.store(true, Ordering::Relaxed);
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    });
    let leader = || async { seats.iter().position(|seat| seat.elector.is_leader()) };
    let mut epoch = 0;
    for fault in [
        Fault::Refused(503),
        Fault::DoneButSilent,
        Fault::Refused(409),
        Fault::DoneButAnswered(500),
        Fault::Slow(Duration::from_millis(700)),
    ] {
        let leads = eventually("a leader", leader).await;
        let elector = &seats[leads].elector;
        assert!(elector.epoch().0 >= epoch, "epochs never fall");
        epoch = elector.epoch().0;
        // Only writes meet what is done without being said; what is refused is refused whatever it is.
        let only_writes = !matches!(fault, Fault::Refused(503));
        seats[leads]
            .proxy
            .rule(move |request| if only_writes && request.method == "GET" { Fault::None } else { fault });
        if fault == Fault::Refused(503) {
            let trips = elector.breaker().trips;
            settle("that its breaker opens", true, || async { elector.breaker().trips > trips }).await;
            settle("that it leads no more", false, || async { elector.is_leader() }).await;
            settle("that the other leads", Some(1 - leads), leader).await;
            assert!(elector.metrics().heartbeats_skipped > 0, "an open breaker spares the server");
        } else {
            let tried = || {
                let metrics = elector.metrics();
                metrics.heartbeat_count + metrics.heartbeat_failures
            };
            let before = tried();
            settle("some heartbeats", true, || async { tried() >= before + 3 }).await;
        }
        seats[leads].proxy.heal();
        settle("that its breaker closes", BreakerState::Closed, || async { elector.breaker().state }).await;
    }
    let leads = eventually("a leader at the end", leader).await;
    let name = Some(seats[leads].elector.id());
    settle("that both agree who", true, || async { seats.iter().all(|seat| seat.elector.leader() == name) }).await;
    stop.store(true, Ordering::Relaxed);
    watch.join().expect("it watched");
    assert!(!both.load(Ordering::Relaxed), "never two at a time");
}
