//! An elector against minimal leases, with time that moves only on request.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::*;
use crate::election::{BreakerState, Policy};

mod conduct;
mod foreign;
mod heartbeats;
mod model;
mod world;

const SECOND: Duration = Duration::from_secs(1);

/// The clock and the leases of a test.
struct TestBench {
    start: Moment,
    now: Moment,
    roster: BTreeMap<String, Moment>,
    lease: Option<(String, Epoch, Moment)>,
    highest: Epoch,
    /// Whether another system wrote the lease.
    is_foreign: bool,
    down: bool,
    /// Carries out requests, but the replies are lost.
    mute: bool,
    /// The epoch that the store has sealed; none where it does not respond.
    sealed: Option<Epoch>,
    asked: Vec<Ask>,
}

impl TestBench {
    fn new() -> Self {
        let start = Moment::default();
        let (roster, lease, asked) = (BTreeMap::new(), None, Vec::new());
        TestBench {
            start,
            now: start,
            roster,
            lease,
            highest: Epoch(0),
            is_foreign: false,
            down: false,
            mute: false,
            sealed: Some(Epoch(0)),
            asked,
        }
    }

    fn time(&self) -> Now {
        Now { at: self.now, wall: Timestamp::UNIX_EPOCH + (self.now - self.start) }
    }

    fn elector(&self, me: &str, policy: Policy) -> Elector {
        let settings = Settings { policy, ..Settings::default() };
        Elector::new(me, settings, Some(SECOND / 2), self.time(), self.now)
    }

    fn present(&self) -> Option<Lease> {
        let (holder, epoch, expires) = self.lease.as_ref().filter(|(.., expires)| *expires > self.now)?;
        Some(Lease {
            holder: holder.clone(),
            epoch: *epoch,
            remaining: *expires - self.now,
            is_foreign: self.is_foreign,
        })
    }

    fn reply(&mut self, elector: &Elector, ask: Ask) -> Reply {
        self.asked.push(ask.clone());
        if self.down {
            return Reply::Failed;
        }
        let (me, ttl) = (elector.me().to_owned(), elector.settings().lease_timeout);
        let is_lock = elector.conduct().is_lock;
        let reply = match ask {
            Ask::Read => Reply::Read(self.present()),
            Ask::Enroll => {
                self.roster.insert(me, self.now + elector.enrolment());
                Reply::Done
            }
            Ask::Withdraw => {
                self.roster.remove(&me);
                Reply::Done
            }
            Ask::Roster => {
                let live = self.roster.iter().filter(|(_, expires)| **expires > self.now);
                Reply::Roster(live.map(|(name, _)| name.clone()).collect())
            }
            // The holder of a lock finds its own, and counts its terms itself.
            Ask::Elect { floor } if is_lock && self.present().is_none_or(|lock| lock.holder == me) => {
                self.lease = Some((me, floor.next(), self.now + ttl));
                Reply::Granted(self.present().expect("just made"))
            }
            Ask::Elect { floor } if !is_lock && self.present().is_none() => {
                let floor = if elector.conduct().seals { self.sealed.unwrap_or(floor) } else { floor };
                self.highest = self.highest.max(floor).next();
                self.lease = Some((me, self.highest, self.now + ttl));
                self.is_foreign = false;
                Reply::Granted(self.present().expect("just made"))
            }
            Ask::Renew { epoch } if self.present().is_some_and(|lease| lease.holder == me && lease.epoch == epoch) => {
                self.lease = Some((me, epoch, self.now + ttl));
                Reply::Granted(self.present().expect("just made"))
            }
            Ask::Elect { .. } | Ask::Renew { .. } => Reply::Refused,
            Ask::Seal { epoch } => match &mut self.sealed {
                Some(sealed) if *sealed < epoch => {
                    *sealed = epoch;
                    Reply::Done
                }
                _ => Reply::Failed,
            },
            Ask::Resign { holder, epoch } => {
                self.lease.take_if(|(present, held, _)| *present == holder && (is_lock || *held == epoch));
                Reply::Done
            }
        };
        if self.mute { Reply::Failed } else { reply }
    }

    fn converse(&mut self, elector: &mut Elector, round: Round) -> Vec<Ask> {
        self.asked.clear();
        let mut next = elector.begin(round, self.time());
        while let Some(ask) = next {
            let reply = self.reply(elector, ask);
            next = elector.on_reply(reply, self.now, self.time());
        }
        if round == Round::Heartbeat {
            elector.plan(self.now, self.now, 0.5);
        }
        self.asked.clone()
    }

    fn heartbeat(&mut self, elector: &mut Elector) -> Vec<Ask> {
        self.converse(elector, Round::Heartbeat)
    }

    fn check_lease(&mut self, elector: &mut Elector) -> Vec<Ask> {
        self.converse(elector, Round::LeaseCheck)
    }

    fn step_down(&mut self, elector: &mut Elector) {
        for ask in elector.step_down(self.time()) {
            self.reply(elector, ask);
        }
    }

    /// Runs the rounds that are due for this time.
    fn run(&mut self, elector: &mut Elector, duration: Duration) {
        let end = self.now + duration;
        loop {
            let (due, round) = elector.due(self.now);
            if due > end {
                break;
            }
            self.now = due.max(self.now);
            self.converse(elector, round);
            // A round that ends at once must not be repeated at the same time.
            self.pass(Duration::from_millis(1));
        }
        self.now = end.max(self.now);
    }

    /// Makes the backend lose its data.
    fn forget(&mut self) {
        (self.lease, self.highest, self.roster) = (None, Epoch(0), BTreeMap::new());
    }

    fn pass(&mut self, duration: Duration) {
        self.now = self.now + duration;
    }
}

fn is_of_leader(what: &ElectionEvent) -> bool {
    matches!(what, ElectionEvent::LeaderChanged { .. })
}

fn leads(elector: &Elector) -> Option<u64> {
    elector.term().map(|held| held.epoch.0)
}

#[test]
fn the_first_to_ask_leads_and_a_lower_newcomer_does_not_depose_it() {
    for policy in [Policy::FirstCome, Policy::LowestId] {
        let mut bench = TestBench::new();
        let (mut b, mut a) = (bench.elector("b", policy), bench.elector("a", policy));
        bench.heartbeat(&mut b);
        assert_eq!(leads(&b), Some(1));
        bench.heartbeat(&mut a);
        bench.pass(SECOND * 5);
        bench.heartbeat(&mut a);
        bench.heartbeat(&mut b);
        assert_eq!((leads(&a), leads(&b)), (None, Some(1)), "{policy}");
        assert_eq!(a.leader().map(|(leader, epoch, _)| (leader, epoch)), Some(("b", Epoch(1))));
    }
}

#[test]
fn of_those_present_the_lowest_id_stands_when_the_leader_is_gone() {
    let mut bench = TestBench::new();
    let [mut b, mut a, mut c] = ["b", "a", "c"].map(|me| bench.elector(me, Policy::LowestId));
    bench.heartbeat(&mut a);
    bench.heartbeat(&mut b);
    bench.heartbeat(&mut c);
    assert_eq!(leads(&a), Some(1));
    // It dies. It is enrolled for longer than its lease, but it is not waited for.
    bench.pass(SECOND * 14);
    bench.heartbeat(&mut b);
    bench.heartbeat(&mut c);
    bench.pass(SECOND);
    bench.check_lease(&mut c);
    assert_eq!(leads(&c), None, "not its turn");
    bench.check_lease(&mut b);
    assert_eq!(leads(&b), Some(2));
    let first = b.take_events();
    assert!(first.contains(&ElectionEvent::LeaderChanged {
        previous_leader: Some("a".into()),
        new_leader: Some("b".into()),
        epoch: Epoch(2)
    }));
}

#[test]
fn a_lower_id_that_does_not_take_its_chance_is_passed_over() {
    let mut bench = TestBench::new();
    let [mut a, mut b, mut c] = ["a", "b", "c"].map(|me| bench.elector(me, Policy::LowestId));
    bench.heartbeat(&mut a);
    bench.heartbeat(&mut b);
    bench.heartbeat(&mut c);
    // The leader resigns when the next candidate dies.
    bench.step_down(&mut a);
    bench.check_lease(&mut c);
    assert_eq!(leads(&c), None);
    let (turn, _) = c.due(bench.now + SECOND * 5);
    assert!(turn <= bench.now + SECOND * 6, "a heartbeat and its jitter");
    bench.pass(SECOND * 6);
    bench.check_lease(&mut c);
    assert_eq!(leads(&c), Some(2));
}

#[test]
fn who_steps_down_lets_another_lead_and_may_stand_again_later() {
    let mut bench = TestBench::new();
    let (mut a, mut b) = (bench.elector("a", Policy::FirstCome), bench.elector("b", Policy::FirstCome));
    bench.heartbeat(&mut a);
    bench.heartbeat(&mut b);
    bench.step_down(&mut a);
    assert_eq!(leads(&a), None);
    bench.check_lease(&mut a);
    assert_eq!(leads(&a), None, "it abstains");
    bench.check_lease(&mut b);
    assert_eq!(leads(&b), Some(2));
    bench.check_lease(&mut a);
    bench.step_down(&mut b);
    bench.check_lease(&mut a);
    assert_eq!(leads(&a), Some(3), "another led: it abstains no more");
}

#[test]
fn a_leader_alone_that_stepped_down_leads_again_after_a_lease() {
    let mut bench = TestBench::new();
    let mut a = bench.elector("a", Policy::LowestId);
    bench.heartbeat(&mut a);
    bench.step_down(&mut a);
    bench.pass(SECOND * 15);
    bench.heartbeat(&mut a);
    assert_eq!(leads(&a), Some(2));
}

#[test]
fn a_term_ends_before_its_lease_however_late_the_answers_come() {
    let mut bench = TestBench::new();
    let mut a = bench.elector("a", Policy::FirstCome);
    bench.heartbeat(&mut a);
    let held = a.term().expect("leads");
    assert_eq!(held.certain_until, bench.now + (SECOND * 15 - SECOND * 15 / 10));
    // The reply to the renewal is four seconds late: that time is not gained.
    bench.pass(SECOND * 5);
    let asked = bench.now;
    let ask = a.begin(Round::Heartbeat, bench.time()).expect("renews");
    let reply = bench.reply(&a, ask);
    bench.pass(SECOND * 4);
    a.on_reply(reply, asked, bench.time());
    assert_eq!(a.term().expect("leads").certain_until, asked + (SECOND * 15 - SECOND * 15 / 10));
    bench.pass(SECOND * 10);
    a.expire(bench.now);
    assert_eq!(leads(&a), None);
}

#[test]
fn a_renewal_that_is_heard_of_after_the_term_was_over_does_not_revive_it() {
    let mut bench = TestBench::new();
    let mut a = bench.elector("a", Policy::FirstCome);
    bench.heartbeat(&mut a);
    // The renewal is sent in time and granted; then the process is paused for longer than the first lease was certain.
    bench.pass(SECOND * 10);
    let asked = bench.now;
    let mut next = a.begin(Round::Heartbeat, bench.time());
    let reply = bench.reply(&a, next.expect("renews"));
    bench.pass(SECOND * 4);
    next = a.on_reply(reply, asked, bench.time());
    assert_eq!(leads(&a), None);
    while let Some(ask) = next {
        let reply = bench.reply(&a, ask);
        next = a.on_reply(reply, bench.now, bench.time());
    }
    assert_eq!(leads(&a), Some(2), "it resigned, and a new term begins");
}

#[test]
fn an_election_that_is_answered_too_late_is_given_back() {
    let mut bench = TestBench::new();
    let mut a = bench.elector("a", Policy::FirstCome);
    let mut next = a.begin(Round::Heartbeat, bench.time());
    while let Some(ask) = next {
        let asked = bench.now;
        let reply = bench.reply(&a, ask.clone());
        if matches!(ask, Ask::Elect { .. }) {
            bench.pass(SECOND * 14);
        }
        next = a.on_reply(reply, asked, bench.time());
    }
    assert_eq!(leads(&a), None);
    let resigned = Ask::Resign { holder: "a".into(), epoch: Epoch(1) };
    assert!(bench.asked.contains(&resigned), "{:?}", bench.asked);
    assert_eq!(bench.present(), None);
}

#[test]
fn an_election_whose_answer_was_lost_is_found_by_reading_back() {
    let mut bench = TestBench::new();
    let mut a = bench.elector("a", Policy::FirstCome);
    let mut next = a.begin(Round::Heartbeat, bench.time());
    while let Some(ask) = next {
        bench.mute = matches!(ask, Ask::Elect { .. });
        let reply = bench.reply(&a, ask);
        next = a.on_reply(reply, bench.now, bench.time());
    }
    assert_eq!(leads(&a), Some(1));
    assert_eq!(bench.asked[1..4], [Ask::Read, Ask::Elect { floor: Epoch(0) }, Ask::Read]);
}

#[test]
fn a_term_of_a_predecessor_with_the_same_name_is_not_taken_for_ones_own() {
    let mut bench = TestBench::new();
    let (mut before, mut after) =
        (bench.elector("pod-0", Policy::FirstCome), bench.elector("pod-0", Policy::FirstCome));
    bench.heartbeat(&mut before);
    bench.heartbeat(&mut after);
    assert_eq!(leads(&after), None);
    assert_eq!(after.leader(), None);
    assert!(!after.take_events().iter().any(is_of_leader), "nor published as such");
    bench.pass(SECOND * 15);
    bench.check_lease(&mut after);
    assert_eq!(leads(&after), Some(2));
}

#[test]
fn a_leader_that_fenced_itself_does_not_tell_of_itself_while_its_lease_lasts() {
    let mut bench = TestBench::new();
    let mut a = bench.elector("a", Policy::FirstCome);
    bench.heartbeat(&mut a);
    bench.pass(SECOND * 14);
    a.take_events();
    bench.heartbeat(&mut a);
    assert!(bench.present().is_some_and(|lease| lease.holder == "a"), "the lease outlasts the belief in it");
    assert_eq!((leads(&a), a.leader()), (None, None));
    let reported: Vec<_> = a.take_events().into_iter().filter(is_of_leader).collect();
    let lost = ElectionEvent::LeaderChanged { previous_leader: Some("a".into()), new_leader: None, epoch: Epoch(1) };
    assert_eq!(reported, [lost]);
}

#[test]
fn epochs_rise_although_the_backend_lost_all_it_knew() {
    let mut bench = TestBench::new();
    let (mut a, mut b) = (bench.elector("a", Policy::FirstCome), bench.elector("b", Policy::FirstCome));
    bench.highest = Epoch(41);
    bench.heartbeat(&mut a);
    bench.heartbeat(&mut b);
    bench.forget();
    bench.check_lease(&mut b);
    assert_eq!(leads(&b), Some(43), "a follower knows as much as the leader did");
}

#[test]
fn a_newcomer_to_a_backend_that_forgot_is_deposed_by_whoever_knows_better() {
    for policy in [Policy::FirstCome, Policy::LowestId] {
        let mut bench = TestBench::new();
        let [mut a, mut b, mut newcomer] = ["a", "b", "newcomer"].map(|me| bench.elector(me, policy));
        bench.highest = Epoch(3);
        bench.heartbeat(&mut a);
        bench.heartbeat(&mut b);
        bench.pass(SECOND);
        bench.forget();
        bench.heartbeat(&mut newcomer);
        assert_eq!(leads(&newcomer), Some(1));
        b.take_events();
        bench.check_lease(&mut b);
        assert_eq!(b.leader(), None, "not one whose number is an old one");
        assert_eq!(leads(&b), None, "as long as the newcomer may not know");
        assert_eq!(bench.present().map(|lease| (lease.holder, lease.epoch)), Some(("b".into(), Epoch(5))));
        bench.pass(SECOND * 4);
        bench.heartbeat(&mut newcomer);
        assert_eq!(leads(&newcomer), None);
        bench.heartbeat(&mut a);
        assert_eq!(a.leader().map(|(leader, epoch, _)| (leader, epoch)), Some(("b", Epoch(5))));
        bench.run(&mut b, SECOND * 15);
        assert_eq!(leads(&b), Some(5));
        let reported: Vec<_> = b.take_events().into_iter().filter(is_of_leader).collect();
        let expected = [(Some("a"), None, 4), (Some("a"), Some("b"), 5)].map(|(before, after, epoch)| {
            let [previous_leader, new_leader] = [before, after].map(|name| name.map(str::to_owned));
            ElectionEvent::LeaderChanged { previous_leader, new_leader, epoch: Epoch(epoch) }
        });
        assert_eq!(reported, expected);
    }
}

#[test]
fn a_number_that_is_given_twice_is_noticed_also_where_it_is_the_highest() {
    let mut bench = TestBench::new();
    let [mut a, mut newcomer] = ["a", "newcomer"].map(|me| bench.elector(me, Policy::FirstCome));
    bench.heartbeat(&mut a);
    bench.forget();
    bench.heartbeat(&mut newcomer);
    assert_eq!(leads(&newcomer), Some(1));
    bench.pass(SECOND * 5);
    bench.heartbeat(&mut a);
    bench.run(&mut a, SECOND * 15);
    assert_eq!(leads(&a), Some(2));
}

#[test]
fn whoever_ended_a_term_that_should_not_be_keeps_the_place_shut_although_it_leaves() {
    let mut bench = TestBench::new();
    let [mut a, mut newcomer] = ["a", "newcomer"].map(|me| bench.elector(me, Policy::FirstCome));
    bench.heartbeat(&mut a);
    bench.forget();
    bench.heartbeat(&mut newcomer);
    bench.pass(SECOND);
    bench.heartbeat(&mut a);
    bench.step_down(&mut a);
    assert_eq!(bench.present().map(|lease| lease.holder), Some("a".into()), "the newcomer may believe in its term");
    bench.run(&mut newcomer, SECOND * 20);
    assert_eq!(leads(&newcomer), Some(3));
}

#[test]
fn a_leader_whose_backend_is_away_fences_itself_and_the_breaker_opens_and_closes() {
    let mut bench = TestBench::new();
    let mut a = bench.elector("a", Policy::FirstCome);
    bench.heartbeat(&mut a);
    a.take_events();
    bench.down = true;
    let (mut skipped, mut names) = (0, Vec::new());
    for _ in 0..200 {
        let (due, round) = a.due(bench.now);
        bench.now = due.max(bench.now);
        if bench.now >= bench.start + SECOND * 120 {
            break;
        }
        skipped += u64::from(bench.converse(&mut a, round).is_empty());
        names.extend(a.take_events().iter().map(ElectionEvent::name));
    }
    assert_eq!(leads(&a), None);
    assert_eq!(a.metrics().heartbeats_skipped, skipped);
    let expected =
        ["circuitBreaker:open", "leader:changed", "workers:updated", "circuitBreaker:halfOpen", "circuitBreaker:open"];
    assert_eq!(&names[..5], expected, "{names:?}");
    bench.down = false;
    bench.pass(SECOND * 30);
    bench.heartbeat(&mut a);
    let back: Vec<_> = a.take_events().iter().map(ElectionEvent::name).collect();
    assert_eq!(back, ["circuitBreaker:halfOpen", "leader:changed", "workers:updated", "circuitBreaker:closed"]);
    assert_eq!(leads(&a), Some(2));
    assert_eq!(a.breaker().failure_count, 0);
}

#[test]
fn tasks_of_the_term_before_are_admitted_for_a_while() {
    let mut bench = TestBench::new();
    let (mut a, mut b) = (bench.elector("a", Policy::FirstCome), bench.elector("b", Policy::FirstCome));
    bench.heartbeat(&mut a);
    bench.heartbeat(&mut b);
    bench.step_down(&mut a);
    bench.check_lease(&mut b);
    assert!(b.admits(Epoch(2), bench.now) && b.admits(Epoch(1), bench.now));
    bench.pass(SECOND * 6);
    assert!(!b.admits(Epoch(1), bench.now));
    assert_eq!(b.metrics().epochs_refused, 1);
}
