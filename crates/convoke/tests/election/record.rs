//! The messages of contenders, and whether they are consistent.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// A message of a contender.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerMessage {
    Ready {
        at: u64,
    },
    /// A lease that was asked for at that moment was granted.
    Grant {
        epoch: u64,
        at: u64,
    },
    /// It leads at that moment.
    Claim {
        epoch: u64,
        at: u64,
    },
    /// It gives its lease back, from that moment on.
    Resign {
        epoch: u64,
        at: u64,
    },
    /// The machine, or the backend, kept it waiting for so long, until that moment.
    Kept {
        ns: u64,
        at: u64,
    },
}

impl fmt::Display for PeerMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerMessage::Ready { at } => write!(f, "ready 0 {at}"),
            PeerMessage::Grant { epoch, at } => write!(f, "grant {epoch} {at}"),
            PeerMessage::Claim { epoch, at } => write!(f, "claim {epoch} {at}"),
            PeerMessage::Resign { epoch, at } => write!(f, "resign {epoch} {at}"),
            PeerMessage::Kept { ns, at } => write!(f, "kept {ns} {at}"),
        }
    }
}

impl PeerMessage {
    /// Of a line that begins with the speaker's process id. One without its end is none: its speaker was killed.
    pub fn read(line: &str) -> Option<(u32, PeerMessage)> {
        let mut parts = line.split(' ');
        let (pid, kind) = (parts.next()?.parse().ok()?, parts.next()?);
        let (epoch, at) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let word = match kind {
            _ if parts.next() != Some(".") => return None,
            "ready" => PeerMessage::Ready { at },
            "grant" => PeerMessage::Grant { epoch, at },
            "claim" => PeerMessage::Claim { epoch, at },
            "resign" => PeerMessage::Resign { epoch, at },
            "kept" => PeerMessage::Kept { ns: epoch, at },
            _ => return None,
        };
        Some((pid, word))
    }
}

/// All messages, in the order of each contender.
#[derive(Debug, Default)]
pub struct Record {
    words: Vec<(u32, PeerMessage)>,
}

impl Record {
    pub fn add(&mut self, pid: u32, word: PeerMessage) {
        self.words.push((pid, word));
    }

    pub fn claims(&self) -> impl Iterator<Item = (u32, u64, u64)> {
        self.words.iter().filter_map(|(pid, word)| match word {
            PeerMessage::Claim { epoch, at } => Some((*pid, *epoch, *at)),
            _ => None,
        })
    }

    /// For how long of that time a contender was kept waiting by what it cannot help.
    pub fn kept(&self, pid: u32, from: u64, to: u64) -> Duration {
        let mut spans: Vec<(u64, u64)> = (self.words.iter())
            .filter_map(|(speaker, word)| match word {
                PeerMessage::Kept { ns, at } if *speaker == pid => {
                    Some((at.saturating_sub(*ns).max(from), (*at).min(to)))
                }
                _ => None,
            })
            .collect();
        spans.sort_unstable();
        let (mut kept, mut seen) = (0, from);
        for (begin, end) in spans {
            kept += end.saturating_sub(begin.max(seen));
            seen = seen.max(end);
        }
        Duration::from_nanos(kept)
    }

    /// Returns the breaches.
    pub fn faults(&self, ttl: Duration) -> Vec<String> {
        let mut faults = self.two_holders();
        faults.extend(self.claims_outside_a_lease(ttl));
        faults.extend(self.epochs_that_fell());
        faults
    }

    fn two_holders(&self) -> Vec<String> {
        let mut holders: BTreeMap<u64, u32> = BTreeMap::new();
        let others = self.claims().filter(|(pid, epoch, _)| *holders.entry(*epoch).or_insert(*pid) != *pid);
        others.map(|(pid, epoch, at)| format!("{pid} claims epoch {epoch} of another at {at}")).collect()
    }

    fn claims_outside_a_lease(&self, ttl: Duration) -> Vec<String> {
        let (mut granted, mut resigned) = (BTreeMap::new(), BTreeMap::new());
        let mut faults = Vec::new();
        for (pid, word) in &self.words {
            match *word {
                PeerMessage::Grant { epoch, at } => {
                    let until: &mut u64 = granted.entry((pid, epoch)).or_default();
                    *until = (*until).max(at + ttl.as_nanos() as u64);
                }
                PeerMessage::Resign { epoch, at } => {
                    resigned.insert((pid, epoch), at);
                }
                PeerMessage::Claim { epoch, at } => {
                    let until = granted.get(&(pid, epoch)).copied().unwrap_or_default();
                    let given_back = resigned.get(&(pid, epoch)).copied().unwrap_or(u64::MAX);
                    if at >= until.min(given_back) {
                        faults.push(format!(
                            "{pid} claims epoch {epoch} at {at}, its lease ended at {until} or {given_back}"
                        ));
                    }
                }
                PeerMessage::Ready { .. } | PeerMessage::Kept { .. } => {}
            }
        }
        faults
    }

    fn epochs_that_fell(&self) -> Vec<String> {
        let mut claims: Vec<_> = self.claims().map(|(pid, epoch, at)| (at, epoch, pid)).collect();
        claims.sort_unstable();
        let falls = claims.windows(2).filter(|pair| pair[1].1 < pair[0].1);
        falls.map(|pair| format!("{:?} after {:?}", pair[1], pair[0])).collect()
    }
}

#[test]
fn what_keeps_a_contender_waiting_is_counted_once_and_within_the_time() {
    let kept = |ns, at| (1, PeerMessage::Kept { ns, at });
    let record = Record {
        words: vec![
            kept(50, 120),
            kept(20, 130),
            kept(10, 205),
            kept(9, 90),
            (2, PeerMessage::Kept { ns: 9, at: 150 }),
        ],
    };
    assert_eq!(record.kept(1, 100, 200), Duration::from_nanos(30 + 5));
    assert_eq!(record.kept(2, 100, 200), Duration::from_nanos(9));
}

#[test]
fn a_record_of_two_leaders_cannot_stand() {
    let ttl = Duration::from_nanos(100);
    let grant = |epoch, at| PeerMessage::Grant { epoch, at };
    let claim = |epoch, at| PeerMessage::Claim { epoch, at };
    let record = |words: &[(u32, PeerMessage)]| Record { words: words.to_vec() };
    let clean = [(1, grant(1, 0)), (1, claim(1, 50)), (2, grant(2, 101)), (2, claim(2, 102))];
    assert!(record(&clean).faults(ttl).is_empty());
    for (broken, what) in [
        (vec![(1, grant(1, 0)), (1, claim(1, 50)), (2, grant(1, 0)), (2, claim(1, 60))], "two of one epoch"),
        (vec![(1, grant(1, 0)), (1, claim(1, 100))], "after the lease"),
        (vec![(1, claim(1, 100))], "without a lease"),
        (
            vec![(1, grant(1, 0)), (1, PeerMessage::Resign { epoch: 1, at: 10 }), (1, claim(1, 20))],
            "after the resignation",
        ),
        (vec![(1, grant(1, 0)), (2, grant(2, 0)), (2, claim(2, 10)), (1, claim(1, 20))], "an older epoch"),
    ] {
        assert_eq!(record(&broken).faults(ttl).len(), 1, "{what}");
    }
}
