//! Electors on S3, behind a proxy that does to requests what S3 may: what they cost, and what becomes of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use convoke::Elector;
use convoke::election::{BreakerState, Settings, Subscriber};
use convoke_adapters::s3::S3Leases;
use convoke_core::ports::Clock;
use convoke_testkit::process::{Fault, HttpProxy, HttpRequest, S3Server, eventually, wait_for_value};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

/// A clock that is wrong by so much.
struct Skewed(SignedDuration);

impl Clock for Skewed {
    fn now(&self) -> Timestamp {
        Timestamp::now() + self.0
    }
}

/// No heartbeat costs more, a listing included, whatever fails. Elections do.
const FOLLOWER_MAX: usize = 2;
const LEADER_MAX: usize = 3;

fn settings() -> Settings {
    let mut settings = Settings::default().with_ttl(Duration::from_secs(3));
    settings.heartbeat_interval = Duration::from_millis(200);
    settings.heartbeat_jitter = Duration::from_millis(50);
    settings.startup_jitter_max = Duration::from_millis(100);
    settings.circuit_breaker.failure_threshold = 3;
    settings.circuit_breaker.reset_timeout = Duration::from_millis(500);
    settings
}

/// An elector whose requests go through a proxy of its own.
pub struct ProxiedElector {
    pub proxy: HttpProxy,
    pub elector: Elector,
}

pub async fn seat(server: &S3Server, id: &str, skew: SignedDuration, settings: Settings) -> ProxiedElector {
    let proxy = HttpProxy::start(server.address()).await;
    let variables = S3Server::variables_for(proxy.address());
    let leases = S3Leases::connect(&server.url("elect"), variables, Arc::new(Skewed(skew))).await.expect("connects");
    let elector = Elector::over(Arc::new(leases)).id(id).settings(settings).start().await.expect("it starts");
    ProxiedElector { proxy, elector }
}

fn is_list(request: &HttpRequest) -> bool {
    request.method == "GET" && request.path.contains("list-type")
}

/// How many heartbeats were tried.
fn beats(elector: &Elector) -> u64 {
    let metrics = elector.metrics();
    metrics.heartbeat_count + metrics.heartbeat_failures
}

/// The requests of each heartbeat.
#[derive(Default)]
struct AskCounts {
    of_leader: BTreeMap<u64, Vec<HttpRequest>>,
    of_follower: BTreeMap<u64, Vec<HttpRequest>>,
}

impl AskCounts {
    /// Has a rule done to the requests of an elector, and keeps them by its heartbeats.
    fn of(
        seat: &ProxiedElector,
        rule: impl Fn(&HttpRequest) -> Fault + Send + Sync + 'static,
    ) -> Arc<Mutex<AskCounts>> {
        let (ask_counts, elector) = (Arc::<Mutex<AskCounts>>::default(), seat.elector.clone());
        let (kept, first) = (ask_counts.clone(), beats(&elector));
        seat.proxy.rule(move |request| {
            let (beat, leads) = (beats(&elector), elector.is_leader());
            let mut ask_counts = kept.lock();
            let page = if leads { &mut ask_counts.of_leader } else { &mut ask_counts.of_follower };
            // Of the first something may have come before.
            if beat > first {
                page.entry(beat).or_default().push(request.clone());
            }
            rule(request)
        });
        ask_counts
    }

    /// That no heartbeat cost more than it may, but for those that were elections. Gives how many there were, of a leader and
    /// of a follower.
    fn check(&self, fault: &str) -> (usize, usize) {
        let stands = |requests: &[HttpRequest]| requests.iter().any(|request| request.is_conditional);
        for (beat, requests) in &self.of_leader {
            assert!(requests.len() <= LEADER_MAX, "{fault}, beat {beat}: {requests:#?}");
        }
        let follows = || self.of_follower.iter().filter(|(_, requests)| !stands(requests));
        for (beat, requests) in follows() {
            assert!(requests.len() <= FOLLOWER_MAX, "{fault}, beat {beat}: {requests:#?}");
        }
        (self.of_leader.len(), follows().count())
    }
}

/// Returns the requests of so many heartbeats. Each begins with the lease: a leader's with its renewal, a follower's with a
/// look at it.
async fn heartbeats(seat: &ProxiedElector, beats: u64) -> Vec<Vec<HttpRequest>> {
    let counted = || seat.elector.metrics().heartbeat_count;
    seat.proxy.take_requests();
    let begin = counted();
    wait_for_value("some heartbeats", true, || async { counted() >= begin + beats }).await;
    let mut heartbeats: Vec<Vec<HttpRequest>> = Vec::new();
    for request in seat.proxy.take_requests() {
        if request.path.ends_with("/state.json") {
            heartbeats.push(Vec::new());
        }
        // Requests of a heartbeat that had begun before are left out.
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
    wait_for_value("a leader", true, || async { first.elector.is_leader() }).await;
    let second = seat(&server, "second", SignedDuration::ZERO, settings).await;
    wait_for_value("that both agree", Some("first".to_owned()), || async { second.elector.leader() }).await;
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

/// A second attempt is an attempt too.
#[tokio::test]
async fn no_heartbeat_costs_more_whatever_fails() {
    type Rule = fn(&HttpRequest, u32) -> Fault;
    fn is_state(request: &HttpRequest) -> bool {
        request.path.contains("state.json")
    }
    let rules: [(&str, Rule); 7] = [
        ("each second write of the lease is in another's way", |request, n| match n % 2 {
            0 if request.is_conditional => Fault::Refused(409),
            _ => Fault::None,
        }),
        ("two in three are", |request, n| match n % 3 {
            0 | 1 if request.is_conditional => Fault::Refused(409),
            _ => Fault::None,
        }),
        ("each second is done and not confirmed", |request, n| match n % 2 {
            0 if request.is_conditional => Fault::DoneWithStatus(500),
            _ => Fault::None,
        }),
        ("each second is refused", |request, n| match n % 2 {
            0 if request.is_conditional => Fault::Refused(500),
            _ => Fault::None,
        }),
        ("no list is given", |request, _| if is_list(request) { Fault::Refused(503) } else { Fault::None }),
        ("nobody is enrolled", |request, _| match request.method.as_str() {
            "PUT" if !is_state(request) => Fault::Refused(503),
            _ => Fault::None,
        }),
        ("each third request is refused", |_, n| if n % 3 == 0 { Fault::Refused(503) } else { Fault::None }),
    ];
    let server = S3Server::start().await;
    let seats = [
        seat(&server, "a", SignedDuration::ZERO, settings()).await,
        seat(&server, "b", SignedDuration::ZERO, settings()).await,
    ];
    wait_for_value("a leader", true, || async { seats.iter().any(|seat| seat.elector.is_leader()) }).await;
    for (fault, rule) in rules {
        let ledgers = seats.each_ref().map(|seat| {
            let (of_lease, others) = (AtomicU32::new(0), AtomicU32::new(0));
            AskCounts::of(seat, move |request| {
                let count = if request.is_conditional { &of_lease } else { &others };
                rule(request, count.fetch_add(1, Ordering::Relaxed))
            })
        });
        let checked = || async {
            let checked = ledgers.each_ref().map(|ask_counts| ask_counts.lock().check(fault));
            let (leads, follows) = checked.into_iter().fold((0, 0), |sum, (a, b)| (sum.0 + a, sum.1 + b));
            leads >= 12 && follows >= 12
        };
        wait_for_value("heartbeats of either kind", true, checked).await;
        seats.iter().for_each(|seat| seat.proxy.heal());
    }
}

/// A write that was given up and arrives after all changes what the next renewal expects to find.
#[tokio::test]
async fn a_renewal_that_arrives_late_costs_the_next_heartbeats_no_more() {
    let server = S3Server::start().await;
    let one = seat(&server, "one", SignedDuration::ZERO, settings()).await;
    wait_for_value("a leader", true, || async { one.elector.is_leader() }).await;
    let (epoch, failures) = (one.elector.epoch(), one.elector.metrics().heartbeat_failures);
    let is_held = AtomicBool::new(false);
    let ask_counts = AskCounts::of(&one, move |request| match request.is_conditional {
        true if !is_held.swap(true, Ordering::Relaxed) => Fault::Held,
        _ => Fault::None,
    });
    let failed = || async { one.elector.metrics().heartbeat_failures > failures };
    wait_for_value("that a renewal is given up", true, failed).await;
    one.proxy.release().await;
    let checked = || async { ask_counts.lock().check("late").0 >= 6 };
    wait_for_value("heartbeats after it", true, checked).await;
    assert_eq!((one.elector.is_leader(), one.elector.epoch()), (true, epoch), "it leads on");
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
    // On a thread of its own: it checks all the time.
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
        Fault::DoneWithStatus(500),
        Fault::Slow(Duration::from_millis(700)),
    ] {
        let leads = eventually("a leader", leader).await;
        let elector = &seats[leads].elector;
        assert!(elector.epoch().0 >= epoch, "epochs never fall");
        epoch = elector.epoch().0;
        let before = beats(elector);
        // Only writes are executed without a response; a refusal applies to every request.
        let only_writes = !matches!(fault, Fault::Refused(503));
        let rule = move |request: &HttpRequest| {
            if only_writes && request.method == "GET" { Fault::None } else { fault }
        };
        let ask_counts = AskCounts::of(&seats[leads], rule);
        if fault == Fault::Refused(503) {
            let trips = elector.breaker().trips;
            wait_for_value("that its breaker opens", true, || async { elector.breaker().trips > trips }).await;
            wait_for_value("that it leads no more", false, || async { elector.is_leader() }).await;
            wait_for_value("that the other leads", Some(1 - leads), leader).await;
            assert!(elector.metrics().heartbeats_skipped > 0, "an open breaker spares the server");
        } else {
            wait_for_value("some heartbeats", true, || async { beats(elector) >= before + 3 }).await;
        }
        ask_counts.lock().check(&format!("{fault:?}"));
        seats[leads].proxy.heal();
        wait_for_value("that its breaker closes", BreakerState::Closed, || async { elector.breaker().state }).await;
    }
    let leads = eventually("a leader at the end", leader).await;
    let name = Some(seats[leads].elector.id());
    wait_for_value("that both agree who", true, || async { seats.iter().all(|seat| seat.elector.leader() == name) })
        .await;
    stop.store(true, Ordering::Relaxed);
    watch.join().expect("it watched");
    assert!(!both.load(Ordering::Relaxed), "never two at a time");
}
