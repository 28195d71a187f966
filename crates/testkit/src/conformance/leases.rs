//! Leases: rosters, terms, epochs that only rise.

use std::sync::Arc;
use std::time::Duration;

use convoke_core::ports::Leases;
use convoke_core::ports::leases::Floor;
use convoke_core::{Epoch, Error, Result};
use futures_util::future::join_all;

use super::Subject;
use crate::linear::{Act, Done, Stamp, is_linearizable};

/// As many clients of one backend as were asked for. Each has an adapter and connections of its own, as if it were a process
/// of its own: what one of them knows, or does one at a time, helps no other.
pub type Clients = Subject<[Arc<dyn Leases>]>;

/// Tests of leases. `$make` is an async function that gives so many [`Clients`](crate::conformance::leases::Clients) of a
/// backend where nothing was ever leased; `$advance` is one that lets a duration pass for the backend: it moves a paused clock,
/// or waits.
#[macro_export]
macro_rules! leases_conformance {
    ($make:expr, $advance:expr) => {
        $crate::conformance_tests!(
            async || $crate::conformance::leases::one(($make)(1).await),
            ($advance),
            (leases),
            [
                a_roster_has_its_members_in_order,
                a_member_that_is_not_refreshed_is_gone,
                nobody_leads_at_first,
                who_is_elected_leads,
                one_leads_at_a_time,
                a_renewed_term_goes_on,
                only_the_holder_renews_and_only_its_own_term,
                who_resigned_leads_no_more,
                only_the_holder_resigns_and_only_its_own_term,
                epochs_only_rise,
                an_epoch_is_above_its_floor,
                namespaces_are_apart,
                epochs_rise_after_all_was_forgotten,
                an_answer_that_never_came_is_found_by_reading_back,
                the_last_report_is_kept_where_reports_are_carried,
            ]
        );
        $crate::conformance_tests!(
            async || ($make)($crate::conformance::leases::CROWD).await,
            ($advance),
            (leases),
            [
                what_one_did_all_see,
                a_place_that_changed_hands_unseen_is_free_all_the_same,
                a_term_that_expired_is_over_for_all,
                a_race_lost_a_thousand_times_has_one_winner_each_time,
                what_many_clients_see_has_an_order,
                what_many_clients_see_of_terms_that_run_out_has_an_order,
            ]
        );
    };
}

/// How many clients there are where there are many.
pub const CROWD: usize = 20;
/// How often they lose, all together.
const LOST_MIN: usize = 1_000;
/// As many as a history can be checked with.
const WITNESSES: usize = 5;

/// The first of them, which keeps the rest.
pub fn one(clients: Clients) -> Subject<dyn Leases> {
    Subject::keeping(clients[0].clone(), clients)
}

/// Longer than any case takes.
const LONG: Duration = Duration::from_secs(600);
/// Short enough to wait for.
const SHORT: Duration = Duration::from_millis(300);
/// The time after which a short lease is over.
const OVER: Duration = Duration::from_millis(400);

fn assert_conflict<T: std::fmt::Debug>(result: Result<T>) {
    assert!(matches!(result, Err(Error::Conflict(_))), "expected a conflict, got {result:?}");
}

fn assert_fenced<T: std::fmt::Debug>(result: Result<T>) {
    assert!(matches!(result, Err(Error::Fenced { .. })), "expected a refusal by the fence, got {result:?}");
}

async fn elect(leases: &dyn Leases, candidate: &str, ttl: Duration) -> Epoch {
    leases.elect("ns", candidate, ttl, Floor::UNKNOWN).await.expect("nobody leads").epoch
}

/// Returns the leader and its term.
async fn leader(leases: &dyn Leases) -> Option<(String, Epoch)> {
    leases.read("ns").await.expect("read").map(|lease| (lease.holder, lease.epoch))
}

pub async fn a_roster_has_its_members_in_order(leases: &dyn Leases, _advance: impl AsyncFn(Duration)) {
    assert!(leases.roster("ns").await.expect("roster").is_empty());
    for member in ["b", "c", "a", "b"] {
        leases.enroll("ns", member, LONG).await.expect("enroll");
    }
    assert_eq!(leases.roster("ns").await.expect("roster"), ["a", "b", "c"]);
    leases.withdraw("ns", "b").await.expect("withdraw");
    leases.withdraw("ns", "nobody").await.expect("not an error");
    assert_eq!(leases.roster("ns").await.expect("roster"), ["a", "c"]);
    leases.ping().await.expect("ping");
}

pub async fn a_member_that_is_not_refreshed_is_gone(leases: &dyn Leases, advance: impl AsyncFn(Duration)) {
    leases.enroll("ns", "gone", SHORT).await.expect("enroll");
    leases.enroll("ns", "refreshed", SHORT).await.expect("enroll");
    leases.enroll("ns", "refreshed", LONG).await.expect("refresh");
    advance(OVER).await;
    assert_eq!(leases.roster("ns").await.expect("roster"), ["refreshed"]);
    leases.enroll("ns", "gone", LONG).await.expect("enroll");
    assert_eq!(leases.roster("ns").await.expect("roster"), ["gone", "refreshed"]);
}

pub async fn nobody_leads_at_first(leases: &dyn Leases, _advance: impl AsyncFn(Duration)) {
    leases.enroll("ns", "a", LONG).await.expect("enroll");
    assert_eq!(leader(leases).await, None);
}

pub async fn who_is_elected_leads(leases: &dyn Leases, _advance: impl AsyncFn(Duration)) {
    let lease = leases.elect("ns", "a", LONG, Floor::UNKNOWN).await.expect("nobody leads");
    assert_eq!(lease.holder, "a");
    assert!(lease.epoch > Epoch(0));
    assert!(lease.remaining <= LONG && lease.remaining > LONG / 2, "{:?}", lease.remaining);
    let read = leases.read("ns").await.expect("read").expect("somebody leads");
    assert_eq!((read.holder, read.epoch), (lease.holder, lease.epoch));
    assert!(read.remaining <= lease.remaining);
}

pub async fn one_leads_at_a_time(leases: &dyn Leases, _advance: impl AsyncFn(Duration)) {
    let epoch = elect(leases, "a", LONG).await;
    assert_conflict(leases.elect("ns", "b", LONG, Floor::UNKNOWN).await);
    assert_conflict(leases.elect("ns", "a", LONG, Floor::UNKNOWN).await);
    assert_conflict(leases.elect("ns", "b", LONG, Floor::Received(Epoch(99))).await);
    assert_eq!(leader(leases).await, Some(("a".into(), epoch)));
}

pub async fn what_one_did_all_see(clients: &[Arc<dyn Leases>], _advance: impl AsyncFn(Duration)) {
    let (last, others) = clients.split_last().expect("a crowd");
    let mut epoch = Epoch(0);
    for leases in others {
        let next = elect(&**leases, "a", LONG).await;
        assert!(next > epoch, "{next} after {epoch}");
        epoch = next;
        assert_eq!(leader(&**last).await, Some(("a".into(), epoch)));
        assert_conflict(last.elect("ns", "b", LONG, Floor::UNKNOWN).await);
        // A term belongs to whom it was given, not to the connection by which it was.
        last.renew("ns", "a", epoch, LONG).await.expect("a term that is not over");
        last.resign("ns", "a", epoch).await.expect("resign");
        assert_fenced(leases.renew("ns", "a", epoch, LONG).await);
        assert_eq!(leader(&**leases).await, None);
    }
}

/// A candidate is refused only if there is a leader, not because the term that it knew is no longer the last.
pub async fn a_place_that_changed_hands_unseen_is_free_all_the_same(
    clients: &[Arc<dyn Leases>],
    advance: impl AsyncFn(Duration),
) {
    let [a, b, ..] = clients else { panic!("a crowd") };
    let mut term = ("a", elect(&**a, "a", LONG).await);
    for (round, [one, other]) in [[b, a], [a, b], [b, a], [a, b]].into_iter().enumerate() {
        // One sees how the place becomes free, by resignation or because its time is over.
        if round % 2 == 0 {
            one.resign("ns", term.0, term.1).await.expect("resign");
        } else {
            one.renew("ns", term.0, term.1, SHORT).await.expect("a term that is not over");
            leader(&**other).await;
            advance(OVER).await;
        }
        assert_eq!(leader(&**one).await, None);
        // It does not see how the other takes it and gives it up.
        let unseen = elect(&**other, "b", LONG).await;
        other.resign("ns", "b", unseen).await.expect("resign");
        let next = elect(&**one, "a", LONG).await;
        assert!(next > unseen, "{next} after {unseen}");
        term = ("a", next);
    }
}

pub async fn a_term_that_expired_is_over_for_all(clients: &[Arc<dyn Leases>], advance: impl AsyncFn(Duration)) {
    let [a, b, ..] = clients else { panic!("a crowd") };
    let first = elect(&**a, "a", SHORT).await;
    // Where no clock is shared it counts from when it was seen.
    leader(&**b).await;
    advance(OVER).await;
    for leases in [a, b] {
        assert_eq!(leader(&**leases).await, None);
        assert_fenced(leases.renew("ns", "a", first, LONG).await);
        assert_eq!(leader(&**leases).await, None, "even if nobody else leads yet");
    }
    let second = elect(&**b, "b", LONG).await;
    for leases in [a, b] {
        assert_eq!(leader(&**leases).await, Some(("b".into(), second)));
        assert_fenced(leases.renew("ns", "a", first, LONG).await);
    }
}

pub async fn a_renewed_term_goes_on(leases: &dyn Leases, advance: impl AsyncFn(Duration)) {
    let short = Duration::from_secs(2);
    let epoch = elect(leases, "a", short).await;
    let renewed = leases.renew("ns", "a", epoch, LONG).await.expect("its own term");
    assert_eq!((renewed.holder.as_str(), renewed.epoch), ("a", epoch));
    assert!(renewed.remaining > short);
    advance(short + OVER).await;
    assert_eq!(leader(leases).await, Some(("a".into(), epoch)));
    assert_conflict(leases.elect("ns", "b", LONG, Floor::UNKNOWN).await);
}

pub async fn only_the_holder_renews_and_only_its_own_term(leases: &dyn Leases, _advance: impl AsyncFn(Duration)) {
    assert_fenced(leases.renew("ns", "a", Epoch(1), LONG).await);
    let epoch = elect(leases, "a", LONG).await;
    assert_fenced(leases.renew("ns", "b", epoch, LONG).await);
    assert_fenced(leases.renew("ns", "a", Epoch(epoch.0 - 1), LONG).await);
    assert_fenced(leases.renew("ns", "a", epoch.next(), LONG).await);
    leases.renew("ns", "a", epoch, LONG).await.expect("its own term");
}

pub async fn who_resigned_leads_no_more(leases: &dyn Leases, _advance: impl AsyncFn(Duration)) {
    let epoch = elect(leases, "a", LONG).await;
    leases.resign("ns", "a", epoch).await.expect("resign");
    assert_eq!(leader(leases).await, None);
    assert_fenced(leases.renew("ns", "a", epoch, LONG).await);
    leases.resign("ns", "a", epoch).await.expect("not an error where it is over");
    elect(leases, "b", LONG).await;
}

pub async fn only_the_holder_resigns_and_only_its_own_term(leases: &dyn Leases, _advance: impl AsyncFn(Duration)) {
    let first = elect(leases, "a", LONG).await;
    leases.resign("ns", "a", first).await.expect("resign");
    let second = elect(leases, "a", LONG).await;
    leases.resign("ns", "a", first).await.expect("not an error where it is over");
    leases.resign("ns", "b", second).await.expect("not an error where it is another's");
    assert_eq!(leader(leases).await, Some(("a".into(), second)));
}

pub async fn epochs_only_rise(leases: &dyn Leases, advance: impl AsyncFn(Duration)) {
    let mut last = Epoch(0);
    for round in 0..6 {
        let expires = round % 3 == 0;
        let epoch = elect(leases, ["a", "b"][round % 2], if expires { SHORT } else { LONG }).await;
        assert!(epoch > last, "{epoch} after {last}");
        last = epoch;
        if expires {
            advance(OVER).await;
        } else {
            leases.resign("ns", ["a", "b"][round % 2], epoch).await.expect("resign");
        }
    }
}

pub async fn an_epoch_is_above_its_floor(leases: &dyn Leases, _advance: impl AsyncFn(Duration)) {
    let sealed = leases.elect("sealed", "a", LONG, Floor::Sealed(Epoch(41))).await.expect("nobody leads").epoch;
    assert_eq!(sealed, Epoch(42), "the number after the last that anybody acted on");
    let high = leases.elect("ns", "a", LONG, Floor::Received(Epoch(41))).await.expect("nobody leads").epoch;
    assert!(high > Epoch(41));
    leases.resign("ns", "a", high).await.expect("resign");
    assert!(elect(leases, "b", LONG).await > high, "a lower floor does not lower it");
}

pub async fn the_last_report_is_kept_where_reports_are_carried(leases: &dyn Leases, _advance: impl AsyncFn(Duration)) {
    assert_eq!(leases.published("ns").await.expect("published"), None);
    elect(leases, "a", LONG).await;
    for report in [r#"{"member":"a","n":1}"#, r#"{"member":"a","n":2}"#] {
        leases.publish("ns", report).await.expect("publish");
        // Where requests are paid for it is written with this one.
        leases.enroll("ns", "a", LONG).await.expect("enroll");
        let kept = leases.carries_reports().then(|| report.to_owned());
        assert_eq!(leases.published("ns").await.expect("published"), kept);
    }
    assert_eq!(leases.published("other").await.expect("published"), None);
}

pub async fn namespaces_are_apart(leases: &dyn Leases, _advance: impl AsyncFn(Duration)) {
    let epoch = elect(leases, "a", LONG).await;
    leases.enroll("ns", "a", LONG).await.expect("enroll");
    assert!(leases.read("other").await.expect("read").is_none());
    assert!(leases.roster("other").await.expect("roster").is_empty());
    let other = leases.elect("other", "b", LONG, Floor::UNKNOWN).await.expect("nobody leads there").epoch;
    leases.resign("other", "b", other).await.expect("resign");
    assert_eq!(leader(leases).await, Some(("a".into(), epoch)));
}

/// A lost election is not an error to report: it differs from every other error.
pub async fn a_race_lost_a_thousand_times_has_one_winner_each_time(
    clients: &[Arc<dyn Leases>],
    _advance: impl AsyncFn(Duration),
) {
    let candidates: Vec<String> = (0..clients.len()).map(|n| format!("candidate-{n}")).collect();
    let (mut lost, mut last) = (0, None);
    for round in 0.. {
        if lost >= LOST_MIN {
            break;
        }
        // Every other time all know that the place is free, and race with nothing but their claims.
        if round % 2 == 1 {
            let seen = join_all(clients.iter().map(|leases| leader(&**leases))).await;
            assert!(seen.iter().all(Option::is_none), "{seen:?}");
        }
        let racing = clients.iter().zip(&candidates);
        let racing = racing.map(|(leases, candidate)| leases.elect("ns", candidate, LONG, Floor::UNKNOWN));
        let mut won = Vec::new();
        for result in join_all(racing).await {
            match result {
                Ok(lease) => won.push(lease),
                Err(Error::Conflict(_)) => lost += 1,
                Err(error) => panic!("a lost race is a conflict, not: {error}"),
            }
        }
        let [lease] = &won[..] else { panic!("not one winner: {won:?}") };
        assert_eq!(lease.epoch, last.map_or(lease.epoch, Epoch::next), "none was skipped, none was given twice");
        last = Some(lease.epoch);
        // By another each time, so that no winner knows more than the rest.
        let witness = &clients[round % clients.len()];
        assert_eq!(leader(&**witness).await, Some((lease.holder.clone(), lease.epoch)));
        witness.resign("ns", &lease.holder, lease.epoch).await.expect("resign");
    }
}

/// A namespace where nothing was ever leased is what is left of one whose backend lost its data.
pub async fn epochs_rise_after_all_was_forgotten(leases: &dyn Leases, advance: impl AsyncFn(Duration)) {
    let mut floor = Epoch(0);
    for _ in 0..3 {
        let epoch = leases.elect("ns", "a", LONG, Floor::Received(floor)).await.expect("nobody leads").epoch;
        leases.resign("ns", "a", epoch).await.expect("resign");
        floor = epoch;
    }
    let after = leases.elect("forgotten", "b", SHORT, Floor::Received(floor)).await.expect("nobody leads").epoch;
    assert!(after > floor, "{after} after {floor}");
    advance(OVER).await;
    let later = leases.elect("forgotten", "a", LONG, Floor::UNKNOWN).await.expect("nobody leads").epoch;
    assert!(later > after, "what was minted once is known from then on: {later} after {after}");
}

/// A caller that gave up waiting may have been elected all the same, or may yet be; a read shows it, with a whole term.
pub async fn an_answer_that_never_came_is_found_by_reading_back(leases: &dyn Leases, _advance: impl AsyncFn(Duration)) {
    let mut last = Epoch(0);
    for round in 0..12_u64 {
        let elect = leases.elect("ns", "a", LONG, Floor::Received(last));
        // Given up at all stages: before it was sent, while it is on its way, after the response.
        let _ = tokio::time::timeout(Duration::from_micros(round * round * 20), elect).await;
        let held = loop {
            if let Some((holder, epoch)) = leader(leases).await {
                assert_eq!(holder, "a");
                break epoch;
            }
            match leases.elect("ns", "a", LONG, Floor::Received(last)).await {
                Ok(lease) => break lease.epoch,
                Err(Error::Conflict(_)) => {}
                Err(error) => panic!("{error}"),
            }
        };
        assert!(held > last, "{held} after {last}");
        leases.renew("ns", "a", held, LONG).await.expect("the term that is read is its own");
        leases.resign("ns", "a", held).await.expect("resign");
        last = held;
        // A request that was still on its way may have arrived after the resignation.
        if let Some((_, late)) = leader(leases).await {
            leases.resign("ns", "a", late).await.expect("resign");
            last = late;
        }
    }
}

pub async fn what_many_clients_see_has_an_order(clients: &[Arc<dyn Leases>], _advance: impl AsyncFn(Duration)) {
    for round in 0..3 {
        let namespace = format!("history-{round}");
        let lives = clients.iter().take(WITNESSES).enumerate().map(async |(n, leases)| {
            let mut client = Client::new(&**leases, &namespace, n, LONG);
            for step in 0..36 {
                // Each client in another order, so that all kinds meet; what it renews and resigns is its own or another's.
                match (step * 7 + n * 3) % 6 {
                    0 | 1 => client.elect().await,
                    2 => client.renew().await,
                    3 => client.resign().await,
                    _ => {
                        if let Some(seen) = client.read().await {
                            client.known = seen;
                        }
                    }
                }
            }
            client.done
        });
        let history = join_all(lives).await;
        let acts: usize = history.iter().map(Vec::len).sum();
        assert!(elections(&history) > 5 && acts > 100, "too little happened");
        assert!(is_linearizable(&history), "no order explains {history:#?}");
    }
}

/// Nobody resigns here: each term but the last has run out. The holder of one renews it, or waits for too long.
pub async fn what_many_clients_see_of_terms_that_run_out_has_an_order(
    clients: &[Arc<dyn Leases>],
    advance: impl AsyncFn(Duration),
) {
    let ttl = Duration::from_millis(80);
    for round in 0..3 {
        let (namespace, advance) = (format!("history-{round}"), &advance);
        let lives = clients.iter().take(WITNESSES).enumerate().map(async |(n, leases)| {
            let mut client = Client::new(&**leases, &namespace, n, ttl);
            for step in 0..28 {
                match (step * 5 + n * 3) % 7 {
                    0 | 1 => client.elect().await,
                    2 => client.renew().await,
                    3 => advance(ttl / 2).await,
                    4 => advance(ttl * 5 / 4).await,
                    _ => _ = client.read().await,
                }
            }
            client.done
        });
        let history = join_all(lives).await;
        assert!(elections(&history) > 1, "nothing ran out");
        assert!(is_linearizable(&history), "no order explains {history:#?}");
    }
}

fn elections(history: &[Vec<Done>]) -> usize {
    history.iter().flatten().filter(|done| matches!(done.act, Act::Elect { elected: Some(_), .. })).count()
}

/// How often a client tries to renew what others renew and resign at the same time.
const RENEWALS_MAX: u32 = 20;

/// A client that takes down what it did and saw.
struct Client<'a> {
    leases: &'a dyn Leases,
    namespace: &'a str,
    me: String,
    ttl: Duration,
    /// The term that it renews and resigns.
    known: (String, Epoch),
    done: Vec<Done>,
}

impl<'a> Client<'a> {
    fn new(leases: &'a dyn Leases, namespace: &'a str, n: usize, ttl: Duration) -> Self {
        let me = format!("client-{n}");
        Client { leases, namespace, ttl, known: (me.clone(), Epoch(1)), me, done: Vec::new() }
    }

    async fn record(&mut self, asked: Stamp, act: Act) {
        self.done.push(Done { asked, returned: Stamp::now(), act });
        tokio::task::yield_now().await;
    }

    async fn elect(&mut self) {
        let asked = Stamp::now();
        let elected = match self.leases.elect(self.namespace, &self.me, self.ttl, Floor::UNKNOWN).await {
            Ok(lease) => Some(lease.epoch),
            Err(Error::Conflict(_)) => None,
            Err(error) => panic!("elect: {error}"),
        };
        self.record(asked, Act::Elect { candidate: self.me.clone(), ttl: self.ttl, elected }).await;
        if let Some(epoch) = elected {
            self.known = (self.me.clone(), epoch);
        }
    }

    async fn renew(&mut self) {
        let (asked, (holder, epoch)) = (Stamp::now(), self.known.clone());
        let mut tries = 1;
        let renewed = loop {
            match self.leases.renew(self.namespace, &holder, epoch, self.ttl).await {
                Ok(_) => break true,
                Err(Error::Fenced { .. }) => break false,
                // Where requests are paid for, one that others were in the way of is left to the next heartbeat.
                Err(Error::Unavailable { .. })
                    if self.leases.lease_check_interval().is_none() && tries < RENEWALS_MAX =>
                {
                    tries += 1;
                }
                Err(error) => panic!("renew: {error}"),
            }
        };
        self.record(asked, Act::Renew { holder, epoch, ttl: self.ttl, renewed }).await;
    }

    async fn resign(&mut self) {
        let (asked, (holder, epoch)) = (Stamp::now(), self.known.clone());
        self.leases.resign(self.namespace, &holder, epoch).await.expect("resign");
        self.record(asked, Act::Resign { holder, epoch }).await;
    }

    async fn read(&mut self) -> Option<(String, Epoch)> {
        let asked = Stamp::now();
        let seen = self.leases.read(self.namespace).await.expect("read").map(|lease| (lease.holder, lease.epoch));
        self.record(asked, Act::Read { seen: seen.clone() }).await;
        seen
    }
}
