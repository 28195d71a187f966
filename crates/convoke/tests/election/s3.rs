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

/// No heartbeat costs more, a listing included; where something fails, none does one with another.
const FOLLOWER_MAX: usize = 2;
const LEADER_MAX: usize = 3;

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
pub struct Seat {
    pub proxy: HttpProxy,
    pub elector: Elector,
}

pub async fn seat(server: &S3Server, id: &str, skew: SignedDuration, settings: Settings) -> Seat {
    let proxy = HttpProxy::start(server.address()).await;
    let variables = S3Server::variables_for(proxy.address());
    let leases = S3Leases::connect(&server.url("elect"), variables, Arc::new(Skewed(skew))).await.expect("connects");
    let elector = Elector::over(Arc::new(leases)).id(id).settings(settings).start().await.expect("it starts");
    Seat { proxy, elector }
}

fn is_list(request: &HttpRequest) -> bool {
    request.method == "GET" && request.path.contains("list-type")
}

/// What each of so many heartbeats asked for. Each begins with the lease: a leader's with its renewal, a follower's with a
/// look at it.
async fn heartbeats(seat: &Seat, beats: u64) -> Vec<Vec<HttpRequest>> {
    let counted = || seat.elector.metrics().heartbeat_count;
    seat.proxy.take_requests();
    let begin = counted();
    settle("some heartbeats", true, || async { counted() >= begin + beats }).await;
    let mut heartbeats: Vec<Vec<HttpRequest>> = Vec::new();
    for request in seat.proxy.take_requests() {
        if request.path.ends_with("/state.json") {
            heartbeats.push(Vec::new());
        }
        // What belongs to one that had begun before is passed over.
        if let Some(last) = heartbeats.last_mut() {
            last.push(request);
        }
    }
    heartbeats
}

fn assert_cost(heartbeats: &[Vec<HttpRequest>], most: usize) {
    let dear = heartbeats.iter().find(|requests| requests.len() > most);
    assert!(dear.is_none(), "more than {most} requests in a heartbeat: {dear:#?}");
    let lists: usize = heartbeats.iter().flatten().filter(|request| is_list(request)).count();
    assert!((1..=heartbeats.len() / 3 + 1).contains(&lists), "{lists} listings in {} heartbeats", heartbeats.len());
}

#[tokio::test]
async fn a_heartbeat_costs_two_requests_and_a_leaders_three_however_many_listen() {
    costs_no_more_than_it_may(settings()).await;
}

#[tokio::test]
async fn a_heartbeat_costs_no_more_where_members_are_soon_given_up() {
    let settings = settings();
    let longest = settings.heartbeat_interval + settings.heartbeat_jitter;
    costs_no_more_than_it_may(Settings { worker_timeout: longest * 5 / 4, ..settings }).await;
}

async fn costs_no_more_than_it_may(settings: Settings) {
    let server = S3Server::start().await;
    let first = seat(&server, "first", SignedDuration::ZERO, settings.clone()).await;
    settle("a leader", true, || async { first.elector.is_leader() }).await;
    let second = seat(&server, "second", SignedDuration::ZERO, settings).await;
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
    let (leads, follows) = tokio::join!(heartbeats(&first, 15), heartbeats(&second, 15));
    assert!(works.load(Ordering::Relaxed) > 0, "those who listen work");
    assert_cost(&leads, LEADER_MAX);
    assert_cost(&follows, FOLLOWER_MAX);
    for seat in [&first, &second] {
        assert_eq!(seat.elector.members().await.expect("they are listed"), ["first", "second"]);
    }
}

#[tokio::test]
async fn one_leads_through_every_fault_and_the_breaker_opens_and_closes() {
    let server = S3Server::start().await;
    // Clocks ten minutes apart.
    let seats = [
        seat(&server, "a", SignedDuration::from_mins(-5), settings()).await,
        seat(&server, "b", SignedDuration::from_mins(5), settings()).await,
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
        let tried = || {
            let metrics = elector.metrics();
            metrics.heartbeat_count + metrics.heartbeat_failures
        };
        let before = tried();
        seats[leads].proxy.take_requests();
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
            settle("some heartbeats", true, || async { tried() >= before + 3 }).await;
        }
        let (cost, beats) = (seats[leads].proxy.take_requests().len() as u64, tried() - before);
        // One had begun before, and one is not over.
        assert!(cost <= LEADER_MAX as u64 * (beats + 1), "{fault:?}: {cost} requests in {beats} heartbeats");
        println!("{fault:?}: {cost} requests in {beats} heartbeats");
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
