//! Starts contenders, injects faults, and checks their messages.

use std::ops::Range;
use std::time::Duration;

use convoke::election::Policy;
use convoke_testkit::process::{Launch, PATIENCE, Program, Signal, monotonic_ns};
use convoke_testkit::scale::Scaled;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::contender::{HEARTBEAT, Orders, TTL};
use super::record::{PeerMessage, Record};

const CONTENDERS: usize = 5;
/// Every kind of round comes once in five.
const ROUNDS: Scaled<usize> = Scaled { quick: 15, full: 50 };
/// A longer wait for the machine or the backend is a fault.
const KEPT_MAX: Duration = Duration::from_secs(5);

struct Field {
    backend: Backend,
    policy: Policy,
    referee: String,
    contenders: Vec<Program>,
    names: usize,
    received: UnboundedReceiver<(u32, PeerMessage)>,
    record: Record,
    rng: StdRng,
}

/// Where the leases are, and what a process must know to reach them.
pub struct Backend {
    pub url: String,
    pub env: Vec<(String, String)>,
}

impl From<String> for Backend {
    fn from(url: String) -> Self {
        Backend { url, env: Vec::new() }
    }
}

/// The contest on one backend; `extra` is what it may take longer.
pub async fn contest(backend: Backend, policy: Policy, extra: Duration) {
    let seed = std::env::var("CONTEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_26);
    println!("CONTEST_SEED={seed}");
    let mut field = Field::open(backend, policy, seed).await;
    let (mut after_kill, mut after_resignation) = (Vec::new(), Vec::new());
    field.leader_after(0).await;
    for round in 0..ROUNDS.get() {
        let took = field.round(round).await;
        match took {
            Some((Fate::Killed, took)) => after_kill.push(took),
            Some((Fate::Resigned, took)) => after_resignation.push(took),
            None => {}
        }
    }
    let faults = field.record.faults(TTL);
    assert!(faults.is_empty(), "seed {seed}: {} faults, first {:?}", faults.len(), &faults[..faults.len().min(5)]);
    let claims = field.record.claims().count();
    println!("{claims} claims, up to epoch {:?}", field.record.claims().map(|(_, epoch, _)| epoch).max());
    verify("a kill", after_kill, TTL + HEARTBEAT + extra);
    verify("a resignation", after_resignation, Duration::from_secs(1) + extra);
}

fn verify(what: &str, mut took: Vec<Duration>, bound: Duration) {
    took.sort_unstable();
    let (Some(median), Some(longest)) = (took.get(took.len() / 2), took.last()) else {
        panic!("no round had {what}");
    };
    println!("a leader after {what}: median {median:?}, longest {longest:?} of {}", took.len());
    assert!(*longest <= bound, "after {what}, promised within {bound:?}: {took:?}");
}

enum Fate {
    Killed,
    Resigned,
}

impl Field {
    async fn open(backend: Backend, policy: Policy, seed: u64) -> Field {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let referee = listener.local_addr().expect("an address").to_string();
        let (words, received) = unbounded_channel();
        tokio::spawn(listen(listener, words));
        let (record, rng) = (Record::default(), StdRng::seed_from_u64(seed));
        let mut field = Field { backend, policy, referee, contenders: Vec::new(), names: 0, received, record, rng };
        for i in 0..CONTENDERS {
            field.names += 1;
            let contender = field.start(format!("contender-{i}"));
            field.contenders.push(contender);
        }
        field
    }

    fn start(&self, id: String) -> Program {
        let (url, referee, policy) = (self.backend.url.clone(), self.referee.clone(), self.policy.to_string());
        Program::start(&Launch {
            name: id.clone(),
            binary: std::env::current_exe().expect("this test has a file"),
            args: ["--exact", "a_contender_does_as_it_is_told", "--nocapture"].map(Into::into).into(),
            env: [Orders { url, id, referee, policy }.write(), self.backend.env.clone()].concat(),
            directory: std::env::temp_dir(),
        })
    }

    /// One thing happens to one of them, at a random moment.
    async fn round(&mut self, round: usize) -> Option<(Fate, Duration)> {
        tokio::time::sleep(Duration::from_millis(self.rng.random_range(0..150))).await;
        let (leader, epoch) = self.leader_after(0).await;
        // Mostly the leader: what happens to others must change nothing, and is soon seen not to.
        let victim = if self.rng.random_bool(0.8) { leader } else { self.rng.random_range(0..CONTENDERS) };
        let since = monotonic_ns();
        let fate = match round % 5 {
            0 => {
                self.contenders[victim].kill().await;
                self.replace(victim);
                Some(Fate::Killed)
            }
            1 => {
                self.contenders[victim].signal(Signal::USR1);
                Some(Fate::Resigned)
            }
            2 => {
                self.contenders[victim].signal(Signal::TERM);
                self.contenders[victim].wait().await;
                self.replace(victim);
                Some(Fate::Resigned)
            }
            // Longer than its lease, then not.
            3 => self.pause(victim, TTL, 100..400).await,
            _ => self.pause(victim, Duration::ZERO, 20..300).await,
        };
        let fate = fate.filter(|_| victim == leader)?;
        let (successor, first) = self.first_claim_after(epoch).await;
        // A busy machine may delay any process; the successor reports how long.
        let (took, kept) =
            (Duration::from_nanos(first.saturating_sub(since)), self.record.kept(successor, since, first));
        assert!(kept < KEPT_MAX, "no machine is as busy as that: {took:?}, of which {kept:?} waiting");
        Some((fate, took.saturating_sub(kept)))
    }

    async fn pause(&mut self, victim: usize, least: Duration, more_ms: Range<u64>) -> Option<Fate> {
        let duration = least + Duration::from_millis(self.rng.random_range(more_ms));
        self.contenders[victim].signal(Signal::STOP);
        tokio::time::sleep(duration).await;
        self.contenders[victim].signal(Signal::CONT);
        None
    }

    /// Another process: under the same name, as a supervisor would restart it, or under a new one.
    fn replace(&mut self, victim: usize) {
        self.names += 1;
        let same = self.rng.random_bool(0.5);
        let id = if same { format!("contender-{victim}") } else { format!("contender-{victim}-{}", self.names) };
        self.contenders[victim] = self.start(id);
    }

    /// Returns the contender that claims to lead now, for an epoch above that.
    async fn leader_after(&mut self, epoch: u64) -> (usize, u64) {
        let since = monotonic_ns();
        loop {
            let (pid, word) = self.receive().await;
            if let PeerMessage::Claim { epoch: claimed, at } = word
                && claimed > epoch
                && at >= since
                && let Some(i) = self.contenders.iter().position(|contender| contender.pid() == pid)
            {
                return (i, claimed);
            }
        }
    }

    /// Returns the first contender to claim an epoch above that, and the time.
    async fn first_claim_after(&mut self, epoch: u64) -> (u32, u64) {
        let (_, next) = self.leader_after(epoch).await;
        let claims = self.record.claims().filter(|(_, claimed, _)| (epoch + 1..=next).contains(claimed));
        let first = claims.min_by_key(|(.., at)| *at).expect("one was just received");
        (first.0, first.2)
    }

    async fn receive(&mut self) -> (u32, PeerMessage) {
        let received = tokio::time::timeout(PATIENCE, self.received.recv()).await;
        let (pid, word) = received.expect("somebody leads, sooner or later").expect("the listener goes on");
        self.record.add(pid, word);
        (pid, word)
    }
}

async fn listen(listener: TcpListener, words: UnboundedSender<(u32, PeerMessage)>) {
    while let Ok((line, _)) = listener.accept().await {
        let words = words.clone();
        tokio::spawn(async move {
            let mut lines = BufReader::new(line).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                // A killed process may leave half a line.
                if let Some(word) = PeerMessage::read(&line) {
                    let _ = words.send(word);
                }
            }
        });
    }
}
