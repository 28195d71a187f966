//! Starts peers, injects faults, and checks their messages.

use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use convoke::InstanceId;
use convoke_testkit::invariants::holds;
use convoke_testkit::process::{Launch, Program, RedisServer, Signal, eventually, monotonic_ns};
use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::message;
use super::peer::Orders;
use super::record::{Fate, Peer, Record, Span, Tally};
use crate::stage::*;

const PEERS: usize = 50;
const ROUND: Duration = Duration::from_millis(300);
/// In the first part of each cycle connections are dropped, again and again; in the rest of it not, so that there is time
/// for calls that nothing disturbs.
const CYCLE: Duration = Duration::from_secs(30);
const STORM: Duration = Duration::from_secs(12);
const DROP_INTERVAL: Duration = Duration::from_secs(2);
/// A younger process is still filling its tables after a third of its life.
const LIFE_MS_MIN: u64 = 15_000;
/// Limit of a process's growth between a third of its life and its end. It makes some forty calls a second and serves
/// as many: if each left a kilobyte behind, who lives through it all would have grown by twice that. Where nothing is left
/// behind, what the allocator keeps of a rush is less than half of it.
const GROWTH_BYTES_MAX: u64 = 1 << 20;
const SHOWN_MAX: usize = 20;

struct Verifier {
    server: RedisServer,
    probe: MultiplexedConnection,
    address: String,
    record: Arc<Mutex<Record>>,
    peers: Vec<(u32, Program)>,
    started: u32,
    endings: JoinSet<(u32, Fate, ExitStatus)>,
    dice: Dice,
}

pub async fn soak(length: Duration) {
    let mut verifier = Verifier::open().await;
    for _ in 0..PEERS {
        verifier.start();
    }
    verifier.all_are_whole(0).await;
    let (began, mut dropped) = (Instant::now(), Instant::now());
    while began.elapsed() < length {
        let is_stormy = began.elapsed().as_millis() % CYCLE.as_millis() < STORM.as_millis();
        tokio::time::sleep(ROUND).await;
        verifier.replace_one();
        if is_stormy && dropped.elapsed() >= DROP_INTERVAL {
            verifier.drop_connections().await;
            dropped = Instant::now();
        }
    }
    verifier.all_are_whole(0).await;
    verifier.finish().await;
    conclude(&verifier.record.lock());
}

impl Verifier {
    async fn open() -> Verifier {
        let server = RedisServer::start().await;
        let probe = probe(&server).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let record = Arc::new(Mutex::new(Record::default()));
        tokio::spawn(listen(listener, record.clone()));
        let (peers, endings, dice) = (Vec::new(), JoinSet::new(), Dice(11));
        Verifier { server, probe, address, record, peers, started: 0, endings, dice }
    }

    fn start(&mut self) {
        self.started += 1;
        let orders = Orders { url: self.server.url(), peer: self.started, verifier: self.address.clone() };
        let program = Program::start(&Launch {
            name: format!("peer {}", self.started),
            binary: std::env::current_exe().expect("this test has a file"),
            args: ["--exact", "soak::a_peer_does_as_it_is_told", "--nocapture"].map(Into::into).into(),
            env: orders.write(),
            directory: std::env::temp_dir(),
        });
        self.peers.push((self.started, program));
    }

    /// Ends one, by a kill or by asking, and starts another. Not where too few are left to call each other: a machine may
    /// take long to start them.
    fn replace_one(&mut self) {
        let ready: Vec<usize> = {
            let record = self.record.lock();
            let is_ready = |peer| record.peers.get(peer).is_some_and(|peer| peer.instance.is_some());
            (0..self.peers.len()).filter(|place| is_ready(&self.peers[*place].0)).collect()
        };
        if ready.len() < PEERS / 2 {
            return;
        }
        let place = ready[self.dice.roll(ready.len() as u64) as usize];
        let fate = if self.dice.roll(2) == 0 { Fate::Killed } else { Fate::Stopped };
        self.end(place, fate);
        self.start();
    }

    fn end(&mut self, place: usize, fate: Fate) {
        let (peer, mut program) = self.peers.swap_remove(place);
        assert!(!program.has_ended(), "peer {peer} ended by itself");
        // Recorded before it happens: all its effects on calls come later.
        self.record.lock().peers.entry(peer).or_default().fate = Some((fate, monotonic_ns()));
        program.signal(if fate == Fate::Killed { Signal::KILL } else { Signal::TERM });
        self.endings.spawn(async move { (peer, fate, program.wait().await) });
    }

    async fn drop_connections(&mut self) {
        let from = monotonic_ns();
        drop_connections(&mut self.probe).await;
        self.all_are_whole(monotonic_ns()).await;
        self.record.lock().outages.push(Span { from, until: monotonic_ns() });
    }

    /// Until every peer has joined, is listening, and got a response to a request after that moment. Observed and not assumed: so
    /// that a call that is made now has a way there and back, however busy the machine is.
    async fn all_are_whole(&mut self, since: u64) {
        let are_whole = || {
            let is_there = |peer: &Peer| peer.instance.filter(|_| peer.seen_at > since).map(InstanceId);
            let joined = self.peers.iter_mut().map(|(peer, program)| printed(&self.record, *peer, program, is_there));
            let (instances, mut probe): (Option<Vec<_>>, _) = (joined.collect(), self.probe.clone());
            async move { listeners(&mut probe, &instances?).await.iter().all(|count| *count == 1).then_some(()) }
        };
        eventually("every peer is there, and connected", are_whole).await;
    }

    /// They call no more, finish, and leave when all have finished: nobody is called who has left.
    async fn finish(&mut self) {
        for (_, program) in &self.peers {
            program.signal(Signal::USR1);
        }
        for (peer, program) in &mut self.peers {
            let is_quiet = || std::future::ready(printed(&self.record, *peer, program, |peer| peer.quiet));
            eventually("a peer is quiet", is_quiet).await;
        }
        while let Some(last) = self.peers.len().checked_sub(1) {
            self.end(last, Fate::Stopped);
        }
        while let Some(ending) = self.endings.join_next().await {
            let (peer, fate, status) = ending.expect("it was waited for");
            assert!(fate == Fate::Killed || status.success(), "peer {peer} failed: {status}");
        }
        let are_heard_out = async || self.record.lock().peers.values().all(|peer| peer.is_heard_out).then_some(());
        eventually("all their messages are received", are_heard_out).await;
    }
}

/// Returns the record of a peer that must be alive.
fn printed<T>(
    record: &Mutex<Record>,
    peer: u32,
    program: &mut Program,
    what: impl FnOnce(&Peer) -> Option<T>,
) -> Option<T> {
    assert!(!program.has_ended(), "peer {peer} ended by itself");
    record.lock().peers.get(&peer).and_then(what)
}

async fn listen(listener: TcpListener, record: Arc<Mutex<Record>>) {
    while let Ok((line, _)) = listener.accept().await {
        tokio::spawn(receive(line, record.clone()));
    }
}

async fn receive(line: TcpStream, record: Arc<Mutex<Record>>) {
    let (mut words, mut text, mut speaker) = (BufReader::with_capacity(1 << 16, line), Vec::new(), None);
    // A connection that breaks is not read to its end, and the end of the test shows that.
    while words.read_until(b'\n', &mut text).await.expect("a line ends, and does not break") > 0 {
        // The last line of a killed peer may be incomplete.
        if text.last() != Some(&b'\n') {
            break;
        }
        let (peer, word) = message::read(&text).expect("a whole line is a message");
        speaker = Some(peer);
        record.lock().add(peer, word);
        text.clear();
    }
    if let Some(peer) = speaker {
        record.lock().peers.entry(peer).or_default().is_heard_out = true;
    }
}

fn conclude(record: &Record) {
    let tally = record.tally();
    let Tally { begun, answered, failed, timed_out, refused, let_go, owed, owed_by_heartbeats, unpaid } = &tally;
    println!(
        "{begun} calls by {} processes through {} outages: {answered} got replies, {failed} failed as planned, {timed_out} timed \
         out, {} refused {refused:?}, {let_go} abandoned; {owed} were undisturbed, of which {owed_by_heartbeats} lived by \
         heartbeats and {} got no reply",
        record.peers.len(),
        record.outages.len(),
        refused.values().sum::<usize>(),
        unpaid.len(),
    );
    holds(&record.broken());
    // How many depends on the machine; that there are some on what is tested.
    let seen = [record.outages.len(), *answered, *failed, refused.len(), *let_go, *owed_by_heartbeats];
    assert!(seen.into_iter().all(|count| count > 0), "not all of it happened");
    // It is one in four, or in five beside a compiler: a machine that has no time for its processes disturbs them too.
    assert!(*owed >= begun / 20, "too few calls were undisturbed");
    assert!(unpaid.is_empty(), "nothing disturbed these:\n{}", unpaid[..unpaid.len().min(SHOWN_MAX)].join("\n"));
    nothing_is_left(record);
}

/// Of those that were quiet in the end.
fn nothing_is_left(record: &Record) {
    // A peer that starts during an outage has fewer for a while; peers that started before the first outage have them all.
    let tasks_max = record.peers.values().map(|peer| peer.tasks).max().unwrap_or_default();
    let quiet: Vec<_> = record.peers.iter().filter_map(|(peer, it)| Some((peer, it.quiet?))).collect();
    for (peer, left) in &quiet {
        assert!(left.tasks <= tasks_max, "peer {peer} has {} tasks left, and needs {tasks_max}", left.tasks);
    }
    let grown_up = quiet.iter().filter(|(_, left)| left.life_ms >= LIFE_MS_MIN);
    let growths: Vec<_> = grown_up.map(|(peer, it)| (it.late_bytes.saturating_sub(it.early_bytes), *peer)).collect();
    let (most, peer) = growths.iter().max().expect("some lived long enough");
    println!("of {} processes, {peer} grew most, by {} KiB", growths.len(), most >> 10);
    assert!(*most < GROWTH_BYTES_MAX, "the memory of peer {peer} grew by {most} bytes");
}
