//! The messages of peers and the faults that were injected, and whether they are consistent.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use convoke_testkit::invariants::{Account, Broken, CallObservations, calls_broken};

use super::message::{Begun, End, Footprint, PeerMessage};

/// The time that a request and its reply may take on a busy machine.
const SLACK: Duration = Duration::from_secs(4);
/// A peer checks its neighbours every half second. If that took longer than this, the machine had no time for it: a heartbeat that
/// is due after three quarters of a timeout may then come after all of it, through no fault of the mesh.
const STALL: Duration = Duration::from_millis(1_500);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Killed,
    Stopped,
}

#[derive(Debug, Default)]
pub struct Peer {
    pub instance: Option<u64>,
    pub ready_at: u64,
    /// How many tasks it had before it called anybody.
    pub tasks: usize,
    /// When it last got a response of Redis.
    pub seen_at: u64,
    /// When it should have asked, and did not.
    pub stalls: Vec<Span>,
    /// Its fault, and since when.
    pub fate: Option<(Fate, u64)>,
    pub quiet: Option<Footprint>,
    /// It has sent its last message.
    pub is_heard_out: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    pub from: u64,
    pub until: u64,
}

impl Span {
    fn meets(&self, other: Span) -> bool {
        self.from <= other.until && other.from <= self.until
    }
}

#[derive(Debug, Default)]
pub struct Record {
    pub peers: BTreeMap<u32, Peer>,
    calls: BTreeMap<u64, Call>,
    observations: CallObservations,
    /// From when connections were dropped until all were made anew.
    pub outages: Vec<Span>,
}

#[derive(Debug, Default)]
struct Call {
    begun: Option<Begun>,
    end: Option<End>,
    ran_at: Option<u32>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub begun: usize,
    pub answered: usize,
    pub failed: usize,
    pub timed_out: usize,
    /// No such instance, the link away, busy, stopped: by name.
    pub refused: BTreeMap<String, usize>,
    /// Its caller was killed.
    pub let_go: usize,
    /// Nothing that was done touched them.
    pub owed: usize,
    /// The part of them that took longer than a call waits.
    pub owed_by_heartbeats: usize,
    /// The part of them that got no reply.
    pub unpaid: Vec<String>,
}

/// The caller of a call.
fn caller(number: u64) -> u32 {
    (number >> 32) as u32
}

impl Record {
    pub fn add(&mut self, peer: u32, word: PeerMessage) {
        match word {
            PeerMessage::Ready { instance, tasks, at } => {
                let peer = self.peers.entry(peer).or_default();
                (peer.instance, peer.tasks, peer.ready_at) = (Some(instance), tasks, at);
            }
            PeerMessage::Sees { at } => {
                let peer = self.peers.entry(peer).or_default();
                if peer.seen_at > 0 && at - peer.seen_at > STALL.as_nanos() as u64 {
                    peer.stalls.push(Span { from: peer.seen_at, until: at });
                }
                peer.seen_at = at;
            }
            PeerMessage::Quiet(footprint) => self.peers.entry(peer).or_default().quiet = Some(footprint),
            PeerMessage::Begun { number, call } => {
                self.observations.begun(number);
                self.calls.entry(number).or_default().begun = Some(call);
            }
            PeerMessage::Ran { number } => {
                self.observations.ran(number);
                self.calls.entry(number).or_default().ran_at = Some(peer);
            }
            PeerMessage::Ended { number, end } => {
                self.observations.ended(number, account(&end));
                self.calls.entry(number).or_default().end = Some(end);
            }
        }
    }

    /// Returns the breaches.
    pub fn broken(&self) -> Vec<Broken> {
        for number in self.calls.keys().filter(|number| self.is_killed(caller(**number))) {
            self.observations.abandon(*number);
        }
        let mut broken = calls_broken(&self.observations);
        let wrong = self.calls.iter().filter_map(|(number, call)| {
            let what = format!("call {number} {}", self.complaint(*number, call)?);
            Some(Broken { invariant: "soak", what })
        });
        broken.extend(wrong);
        broken
    }

    fn is_killed(&self, peer: u32) -> bool {
        self.peers.get(&peer).and_then(|peer| peer.fate).is_some_and(|(fate, _)| fate == Fate::Killed)
    }

    fn complaint(&self, number: u64, call: &Call) -> Option<String> {
        let begun = call.begun?;
        if let Some(runner) = call.ran_at
            && self.peers.get(&runner).and_then(|peer| peer.instance).is_some_and(|instance| instance != begun.to)
        {
            return Some(format!("to instance {} ran at peer {runner}", begun.to));
        }
        match call.end.as_ref()? {
            end if matches_report(number, &begun, end) => None,
            end @ (End::Replied(_) | End::Failed(_)) => Some(format!("{begun:?} ended as {end:?}")),
            End::Otherwise(name) => {
                let may_be = ["RequestTimeout", "NoNode", "Unavailable", "Busy", "Stopped"];
                (!may_be.contains(&name.as_str())).then(|| format!("ended as {name}"))
            }
        }
    }

    pub fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        let instances: HashMap<u64, &Peer> =
            self.peers.values().filter_map(|peer| Some((peer.instance?, peer))).collect();
        for (number, call) in &self.calls {
            let Some(begun) = &call.begun else { continue };
            tally.begun += 1;
            match &call.end {
                None => tally.let_go += 1,
                Some(End::Replied(_)) => tally.answered += 1,
                Some(End::Failed(_)) => tally.failed += 1,
                Some(End::Otherwise(name)) if name == "RequestTimeout" => tally.timed_out += 1,
                Some(End::Otherwise(name)) => *tally.refused.entry(name.clone()).or_default() += 1,
            }
            let both = [self.peers.get(&caller(*number)), instances.get(&begun.to).copied()];
            if !self.is_undisturbed(begun, both) {
                continue;
            }
            tally.owed += 1;
            tally.owed_by_heartbeats += usize::from(begun.takes_ms > super::peer::TIMEOUT.as_millis() as u64);
            if !call.end.as_ref().is_some_and(|end| matches_report(*number, begun, end)) {
                tally.unpaid.push(format!("call {number}, {begun:?}, ran at {:?}: {:?}", call.ran_at, call.end));
            }
        }
        tally
    }

    /// Whether caller and callee were there, at work and connected, for as long as the call should take. How long it did take
    /// is no part of it: one that times out takes longest, and would always be found disturbed by something.
    fn is_undisturbed(&self, call: &Begun, both: [Option<&Peer>; 2]) -> bool {
        let due = Span { from: call.at, until: call.at + call.takes_ms * 1_000_000 + SLACK.as_nanos() as u64 };
        let is_there = |peer: &Peer| {
            let lived = peer.ready_at <= due.from && peer.fate.is_none_or(|(_, at)| due.until < at);
            lived && !peer.stalls.iter().any(|stall| stall.meets(due))
        };
        both.into_iter().all(|peer| peer.is_some_and(is_there)) && !self.outages.iter().any(|outage| outage.meets(due))
    }
}

/// Its own reply, or its own failure if it was to fail.
fn matches_report(number: u64, call: &Begun, end: &End) -> bool {
    match end {
        End::Replied(response) => !call.fails && *response == number,
        End::Failed(message) => call.fails && *message == number.to_string(),
        End::Otherwise(_) => false,
    }
}

/// Returns what an error promises about the handler.
fn account(end: &End) -> Account {
    match end {
        End::Replied(_) | End::Failed(_) => Account::Ran,
        End::Otherwise(name) => match name.as_str() {
            "NoNode" | "Unavailable" | "Busy" | "NoHandler" => Account::NothingRan,
            _ => Account::Unsure,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const CALL: u64 = 1 << 32;

    fn begun(at: u64) -> PeerMessage {
        PeerMessage::Begun { number: CALL, call: Begun { to: 20, takes_ms: 1_000, fails: false, at } }
    }

    fn ended(end: End) -> PeerMessage {
        PeerMessage::Ended { number: CALL, end }
    }

    fn otherwise(name: &str) -> PeerMessage {
        ended(End::Otherwise(name.into()))
    }

    /// Peer 1 is instance 10 and calls, peer 2 is instance 20.
    fn record(words: &[(u32, PeerMessage)]) -> Record {
        let mut record = Record::default();
        for peer in [1, 2] {
            record.add(peer, PeerMessage::Ready { instance: u64::from(peer) * 10, tasks: 8, at: SECOND });
        }
        words.iter().for_each(|(peer, word)| record.add(*peer, word.clone()));
        record
    }

    #[test]
    fn a_record_that_breaks_a_promise_cannot_stand() {
        let ran = || (2, PeerMessage::Ran { number: CALL });
        let answered = || (1, ended(End::Replied(CALL)));
        let call = || (1, begun(2 * SECOND));
        // In whatever order the messages arrive.
        for clean in
            [vec![call(), ran(), answered()], vec![ran(), call(), answered()], vec![call(), (1, otherwise("NoNode"))]]
        {
            assert_eq!(record(&clean).broken(), []);
        }
        for (broken, what) in [
            (vec![call(), ran()], "never ended"),
            (vec![call(), ran(), answered(), answered()], "ended twice"),
            (vec![call(), ran(), ran(), answered()], "ran twice"),
            (
                vec![call(), ran(), (1, PeerMessage::Ran { number: CALL }), (1, otherwise("Stopped"))],
                "ran twice, once elsewhere",
            ),
            (vec![call(), (1, PeerMessage::Ran { number: CALL }), answered()], "ran elsewhere"),
            (vec![call(), answered()], "a reply, and nothing ran"),
            (vec![call(), ran(), (1, otherwise("Unavailable"))], "ran, and its error denies it"),
            (vec![call(), ran(), (1, ended(End::Replied(7)))], "another call's reply"),
            (vec![call(), ran(), (1, ended(End::Failed(CALL.to_string())))], "failed, and was not to"),
            (vec![call(), ran(), (1, otherwise("BadReply"))], "an error that nothing here explains"),
        ] {
            assert!(!record(&broken).broken().is_empty(), "{what}");
        }
    }

    #[test]
    fn only_a_killed_caller_lets_go_of_a_call() {
        let mut record = record(&[(1, begun(2 * SECOND))]);
        for (caller, callee, count) in [(Fate::Killed, Fate::Stopped, 0), (Fate::Stopped, Fate::Killed, 1)] {
            for (peer, fate) in [(1, caller), (2, callee)] {
                record.peers.entry(peer).or_default().fate = Some((fate, 3 * SECOND));
            }
            record.observations = CallObservations::default();
            record.add(1, begun(2 * SECOND));
            assert_eq!(record.broken().len(), count);
        }
    }

    #[test]
    fn an_answer_is_owed_where_nothing_happened_to_either_until_it_was_due() {
        let tally = |change: fn(&mut Record)| {
            let mut record = record(&[(1, begun(10 * SECOND)), (1, otherwise("RequestTimeout"))]);
            change(&mut record);
            let tally = record.tally();
            (tally.owed, tally.unpaid.len())
        };
        fn fate(record: &mut Record, peer: u32, at: u64) {
            record.peers.entry(peer).or_default().fate = Some((Fate::Killed, at));
        }
        assert_eq!(tally(|_| ()), (1, 1));
        assert_eq!(tally(|record| fate(record, 2, 16 * SECOND)), (1, 1), "killed after it was due");
        assert_eq!(tally(|record| fate(record, 2, 12 * SECOND)), (0, 0));
        assert_eq!(tally(|record| fate(record, 1, 12 * SECOND)), (0, 0));
        assert_eq!(tally(|record| record.peers.entry(2).or_default().ready_at = 11 * SECOND), (0, 0));
        fn outage(record: &mut Record, from: u64, until: u64) {
            record.outages.push(Span { from: from * SECOND, until: until * SECOND });
        }
        assert_eq!(tally(|record| outage(record, 5, 9)), (1, 1));
        assert_eq!(tally(|record| outage(record, 5, 11)), (0, 0));
        assert_eq!(tally(|record| outage(record, 12, 20)), (0, 0));
        assert_eq!(tally(|record| outage(record, 16, 20)), (1, 1));
        fn looks(record: &mut Record, peer: u32, tenths: [u64; 3]) {
            tenths.into_iter().for_each(|tenth| record.add(peer, PeerMessage::Sees { at: tenth * SECOND / 10 }));
        }
        assert_eq!(tally(|record| looks(record, 2, [105, 115, 125])), (1, 1));
        assert_eq!(tally(|record| looks(record, 2, [105, 115, 135])), (0, 0), "the machine had no time for it");
        assert_eq!(tally(|record| looks(record, 1, [60, 80, 90])), (1, 1), "it was over before");
    }
}
