//! Leases: rosters, terms, epochs that only rise.

use std::time::Duration;

use convoke_core::ports::Leases;
use convoke_core::{Epoch, Error, Result};
use futures_util::future::join_all;

use crate::linear::{Act, Done, is_linearizable};

/// Tests of leases. `$make` is an async function that gives a [`Subject<dyn Leases>`](crate::conformance::Subject) where
/// nothing was ever leased; `$advance` is one that lets a duration pass for the backend: it moves a paused clock, or waits.
#[macro_export]
macro_rules! leases_conformance {
    ($make:expr, $advance:expr) => {
        $crate::conformance_tests!(
            $make,
            ($advance),
            (leases),
            [
                a_roster_has_its_members_in_order,
                a_member_that_is_not_refreshed_is_gone,
                nobody_leads_at_first,
                who_is_elected_leads,
                one_leads_at_a_time,
                a_term_that_expired_is_over,
                a_renewed_term_goes_on,
                only_the_holder_renews_and_only_its_own_term,
                who_resigned_leads_no_more,
                only_the_holder_resigns_and_only_its_own_term,
                epochs_only_rise,
                an_epoch_is_above_its_floor,
                namespaces_are_apart,
                of_many_candidates_one_is_elected,
                of_a_thousand_attempts_one_succeeds,
                epochs_rise_after_all_was_forgotten,
                an_answer_that_never_came_is_found_by_reading_back,
                a_resigned_place_is_given_to_one_of_many,
                what_many_clients_see_has_an_order,
            ]
        );
    };
}

/// Longer than any case takes.
const LONG: Duration = Duration::from_secs(600);
/// Short enough to wait for.
const SHORT: Duration = Duration::from_millis(300);
/// What must pass for a short lease to be over.
const OVER: Duration = Duration::from_millis(400);

fn assert_conflict<T: std::fmt::Debug>(answer: Result<T>) {
    assert!(matches!(answer, Err(Error::Conflict(_))), "expected a conflict, got {answer:?}");
}

fn assert_fenced<T: std::fmt::Debug>(answer: Result<T>) {
    assert!(matches!(answer, Err(Error::Fenced { .. })), "expected a refusal by the fence, got {answer:?}");
}

async fn elect(leases: &dyn Leases, candidate: &str, ttl: Duration) -> Epoch {
    leases.elect("ns", candidate, ttl, Epoch(0)).await.expect("nobody leads").epoch
}

/// Who leads, for which term.
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
    let lease = leases.elect("ns", "a", LONG, Epoch(0)).await.expect("nobody leads");
    assert_eq!(lease.holder, "a");
    assert!(lease.epoch > Epoch(0));
    assert!(lease.remaining <= LONG && lease.remaining > LONG / 2, "{:?}", lease.remaining);
    let read = leases.read("ns").await.expect("read").expect("somebody leads");
    assert_eq!((read.holder, read.epoch), (lease.holder, lease.epoch));
    assert!(read.remaining <= lease.remaining);
}

pub async fn one_leads_at_a_time(leases: &dyn Leases, _advance: impl AsyncFn(Duration)) {
    let epoch = elect(leases, "a", LONG).await;
    assert_conflict(leases.elect("ns", "b", LONG, Epoch(0)).await);
    assert_conflict(leases.elect("ns", "a", LONG, Epoch(0)).await);
    assert_conflict(leases.elect("ns", "b", LONG, Epoch(99)).await);
    assert_eq!(leader(leases).await, Some(("a".into(), epoch)));
}

pub async fn a_term_that_expired_is_over(leases: &dyn Leases, advance: impl AsyncFn(Duration)) {
    let first = elect(leases, "a", SHORT).await;
    advance(OVER).await;
    assert_eq!(leader(leases).await, None);
    assert_fenced(leases.renew("ns", "a", first, LONG).await);
    assert_eq!(leader(leases).await, None, "even if nobody else leads yet");
    let second = elect(leases, "b", LONG).await;
    assert_eq!(leader(leases).await, Some(("b".into(), second)));
    assert_fenced(leases.renew("ns", "a", first, LONG).await);
}

pub async fn a_renewed_term_goes_on(leases: &dyn Leases, advance: impl AsyncFn(Duration)) {
    let short = Duration::from_secs(2);
    let epoch = elect(leases, "a", short).await;
    let renewed = leases.renew("ns", "a", epoch, LONG).await.expect("its own term");
    assert_eq!((renewed.holder.as_str(), renewed.epoch), ("a", epoch));
    assert!(renewed.remaining > short);
    advance(short + OVER).await;
    assert_eq!(leader(leases).await, Some(("a".into(), epoch)));
    assert_conflict(leases.elect("ns", "b", LONG, Epoch(0)).await);
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
    let high = leases.elect("ns", "a", LONG, Epoch(41)).await.expect("nobody leads").epoch;
    assert!(high > Epoch(41));
    leases.resign("ns", "a", high).await.expect("resign");
    assert!(elect(leases, "b", LONG).await > high, "a lower floor does not lower it");
}

pub async fn namespaces_are_apart(leases: &dyn Leases, _advance: impl AsyncFn(Duration)) {
    let epoch = elect(leases, "a", LONG).await;
    leases.enroll("ns", "a", LONG).await.expect("enroll");
    assert!(leases.read("other").await.expect("read").is_none());
    assert!(leases.roster("other").await.expect("roster").is_empty());
    let other = leases.elect("other", "b", LONG, Epoch(0)).await.expect("nobody leads there").epoch;
    leases.resign("other", "b", other).await.expect("resign");
    assert_eq!(leader(leases).await, Some(("a".into(), epoch)));
}

pub async fn of_many_candidates_one_is_elected(leases: &dyn Leases, _advance: impl AsyncFn(Duration)) {
    let candidates = ["a", "b", "c", "d"];
    let [a, b, c, d] = candidates.map(|candidate| leases.elect("ns", candidate, LONG, Epoch(0)));
    let answers = tokio::join!(a, b, c, d);
    let elected: Vec<_> = [answers.0, answers.1, answers.2, answers.3].into_iter().flatten().collect();
    assert_eq!(elected.len(), 1);
    assert_eq!(leader(leases).await, Some((elected[0].holder.clone(), elected[0].epoch)));
}

/// Losing is no error that anybody need see: it is told apart from every other.
pub async fn of_a_thousand_attempts_one_succeeds(leases: &dyn Leases, _advance: impl AsyncFn(Duration)) {
    let candidates: Vec<String> = (0..20).map(|i| format!("candidate-{i}")).collect();
    let contend = async |candidate: &str| {
        let mut won = Vec::new();
        for _ in 0..50 {
            match leases.elect("ns", candidate, LONG, Epoch(0)).await {
                Ok(lease) => won.push(lease),
                Err(Error::Conflict(_)) => {}
                Err(error) => panic!("a lost race is a conflict, not: {error}"),
            }
        }
        won
    };
    let won = join_all(candidates.iter().map(|candidate| contend(candidate))).await.concat();
    assert_eq!(won.len(), 1, "{won:?}");
    assert_eq!(leader(leases).await, Some((won[0].holder.clone(), won[0].epoch)));
}

/// A namespace where nothing was ever leased is what is left of one whose backend lost its data.
pub async fn epochs_rise_after_all_was_forgotten(leases: &dyn Leases, advance: impl AsyncFn(Duration)) {
    let mut floor = Epoch(0);
    for _ in 0..3 {
        let epoch = leases.elect("ns", "a", LONG, floor).await.expect("nobody leads").epoch;
        leases.resign("ns", "a", epoch).await.expect("resign");
        floor = epoch;
    }
    let after = leases.elect("forgotten", "b", SHORT, floor).await.expect("nobody leads").epoch;
    assert!(after > floor, "{after} after {floor}");
    advance(OVER).await;
    let later = leases.elect("forgotten", "a", LONG, Epoch(0)).await.expect("nobody leads").epoch;
    assert!(later > after, "what was minted once is known from then on: {later} after {after}");
}

/// Whoever gave up waiting may have been elected all the same, or may yet be; a read tells, and the term it shows is whole.
pub async fn an_answer_that_never_came_is_found_by_reading_back(leases: &dyn Leases, _advance: impl AsyncFn(Duration)) {
    let mut last = Epoch(0);
    for round in 0..12_u64 {
        let elect = leases.elect("ns", "a", LONG, last);
        // Given up at all stages: before it was sent, while it is on its way, after it was answered.
        let _ = tokio::time::timeout(Duration::from_micros(round * round * 20), elect).await;
        let held = loop {
            if let Some((holder, epoch)) = leader(leases).await {
                assert_eq!(holder, "a");
                break epoch;
            }
            match leases.elect("ns", "a", LONG, last).await {
                Ok(lease) => break lease.epoch,
                Err(Error::Conflict(_)) => {}
                Err(error) => panic!("{error}"),
            }
        };
        assert!(held > last, "{held} after {last}");
        leases.renew("ns", "a", held, LONG).await.expect("the term that is read is its own");
        leases.resign("ns", "a", held).await.expect("resign");
        last = held;
        // One that was still on its way may have come after the resignation.
        if let Some((_, late)) = leader(leases).await {
            leases.resign("ns", "a", late).await.expect("resign");
            last = late;
        }
    }
}

pub async fn a_resigned_place_is_given_to_one_of_many(leases: &dyn Leases, _advance: impl AsyncFn(Duration)) {
    let candidates: Vec<String> = (0..10).map(|i| format!("candidate-{i}")).collect();
    let (mut holder, mut epoch) = ("first".to_owned(), elect(leases, "first", LONG).await);
    for _ in 0..10 {
        leases.resign("ns", &holder, epoch).await.expect("resign");
        let elections = candidates.iter().map(|candidate| leases.elect("ns", candidate, LONG, Epoch(0)));
        let won: Vec<_> = join_all(elections).await.into_iter().flatten().collect();
        assert_eq!(won.len(), 1, "{won:?}");
        assert!(won[0].epoch > epoch);
        (holder, epoch) = (won[0].holder.clone(), won[0].epoch);
    }
}

pub async fn what_many_clients_see_has_an_order(leases: &dyn Leases, _advance: impl AsyncFn(Duration)) {
    for round in 0..3 {
        let namespace = format!("history-{round}");
        let history = join_all((0..5).map(|client| live(leases, &namespace, client))).await;
        let acts: usize = history.iter().map(Vec::len).sum();
        let elected = history.iter().flatten().filter(|done| matches!(done.act, Act::Elect { elected: Some(_), .. }));
        assert!(elected.count() > 5 && acts > 100, "too little happened");
        assert!(is_linearizable(&history), "no order explains {history:#?}");
    }
}

/// What one client does and sees: it reads, stands, renews what it saw, its own or another's, and resigns.
async fn live(leases: &dyn Leases, namespace: &str, client: usize) -> Vec<Done> {
    let me = format!("client-{client}");
    let (mut done, mut known) = (Vec::new(), (me.clone(), Epoch(1)));
    for step in 0..36 {
        // Each client in another order, so that all kinds meet.
        let wish = match (step * 7 + client * 3) % 6 {
            0 | 1 => Act::Elect { candidate: me.clone(), floor: Epoch(0), elected: None },
            2 => Act::Renew { holder: known.0.clone(), epoch: known.1, renewed: false },
            3 => Act::Resign { holder: known.0.clone(), epoch: known.1 },
            _ => Act::Read { seen: None },
        };
        let asked = std::time::Instant::now();
        let act = match wish {
            Act::Elect { candidate, floor, .. } => {
                let elected = match leases.elect(namespace, &candidate, LONG, floor).await {
                    Ok(lease) => Some(lease.epoch),
                    Err(Error::Conflict(_)) => None,
                    Err(error) => panic!("elect: {error}"),
                };
                known = elected.map_or(known, |epoch| (candidate.clone(), epoch));
                Act::Elect { candidate, floor, elected }
            }
            Act::Renew { holder, epoch, .. } => {
                let renewed = match leases.renew(namespace, &holder, epoch, LONG).await {
                    Ok(_) => true,
                    Err(Error::Fenced { .. }) => false,
                    Err(error) => panic!("renew: {error}"),
                };
                Act::Renew { holder, epoch, renewed }
            }
            Act::Resign { holder, epoch } => {
                leases.resign(namespace, &holder, epoch).await.expect("resign");
                Act::Resign { holder, epoch }
            }
            Act::Read { .. } => {
                let lease = leases.read(namespace).await.expect("read");
                let seen = lease.map(|lease| (lease.holder, lease.epoch));
                known = seen.clone().unwrap_or(known);
                Act::Read { seen }
            }
        };
        done.push(Done { asked, answered: std::time::Instant::now(), act });
        tokio::task::yield_now().await;
    }
    done
}
