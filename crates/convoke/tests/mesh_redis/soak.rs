//! Many instances call each other without a pause while they are killed, stopped and started and Redis drops connections.
//!
//! Checked: every call ends, once, with its own answer or an error that fits; no handler runs twice for one request; and
//! when all is quiet, no call is open, no handler runs and the memory has not grown.
//!
//! `CONVOKE_SOAK_SECONDS` makes it longer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use convoke::mesh::{MeshAddress, MeshSettings};
use convoke::{InstanceId, Mesh, MeshError, Request};
use convoke_testkit::process::{RedisServer, eventually};
use futures_util::FutureExt;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::stage::*;

const INSTANCES: usize = 50;
const LANES: usize = 200;
const SECONDS: u64 = 30;
const TIMEOUT: Duration = Duration::from_secs(10);
const GRACE: Duration = Duration::from_millis(500);
/// What the memory may have grown by between the first third and the end: calls that leaked would be hundreds of times that.
const GROWTH_BYTES_MAX: u64 = 64 << 20;

/// A request that can be told from every other.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Numbered {
    number: u64,
    sleep_ms: u64,
    fails: bool,
}

impl Request for Numbered {
    const TYPE: &'static str = "numbered";
    type Response = u64;
}

#[derive(Default)]
struct Ledger {
    begun: AtomicU64,
    answered: AtomicU64,
    failed: AtomicU64,
    timed_out: AtomicU64,
    /// No such instance, the link away, busy, stopped.
    refused: AtomicU64,
    /// Whoever made it was killed.
    let_go: AtomicU64,
    /// How often each ran.
    runs: Mutex<Vec<u8>>,
    is_over: AtomicBool,
}

impl Ledger {
    fn ran(&self, number: u64) {
        let mut runs = self.runs.lock();
        let place = usize::try_from(number).expect("a count");
        if runs.len() <= place {
            runs.resize(place + 1, 0);
        }
        runs[place] += 1;
    }

    fn count(&self, counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn ended(&self) -> u64 {
        let counters = [&self.answered, &self.failed, &self.timed_out, &self.refused, &self.let_go];
        counters.into_iter().map(|counter| counter.load(Ordering::Relaxed)).sum()
    }
}

/// A call that was begun; let go of unless it is said to have ended.
struct Begun<'a>(&'a Ledger, bool);

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        if !self.1 {
            self.0.count(&self.0.let_go);
        }
    }
}

struct Member {
    mesh: Mesh,
    lanes: JoinSet<()>,
}

impl Member {
    async fn stop(mut self) {
        self.mesh.stop().await;
        self.finish().await;
    }

    /// Nothing is said to anybody: whoever held it lets go of it, and that is all.
    async fn kill(mut self) {
        self.lanes.abort_all();
        while let Some(lane) = self.lanes.join_next().await {
            assert!(lane.is_ok() || lane.is_err_and(|error| error.is_cancelled()), "no lane panics");
        }
    }

    async fn finish(&mut self) {
        while let Some(lane) = self.lanes.join_next().await {
            lane.expect("no lane panics");
        }
    }
}

struct Fleet {
    server: RedisServer,
    ledger: Arc<Ledger>,
    /// Whom to call; some of them are gone.
    known: Arc<Mutex<Vec<InstanceId>>>,
}

impl Fleet {
    async fn member(self: Arc<Self>, seed: u64) -> Member {
        let counted = self.ledger.clone();
        let settings = MeshSettings { request_timeout: TIMEOUT, stop_grace: GRACE, ..quick() };
        // Redis may drop a connection while it is made, and a start may fail: whoever starts an instance tries again.
        let address = MeshAddress::new(self.server.url());
        let mesh = eventually("it connects", async || Mesh::at(&address, KEY).await.ok()).await;
        let mesh = mesh.settings(settings).on(move |request: Numbered| {
            counted.ran(request.number);
            async move {
                tokio::time::sleep(Duration::from_millis(request.sleep_ms)).await;
                if request.fails { Err("told to".into()) } else { Ok(request.number) }
            }
        });
        let mesh = eventually("it starts", async || mesh.start().await.ok()).await;
        self.known.lock().push(mesh.instance_id());
        let mut lanes = JoinSet::new();
        for lane in 0..LANES as u64 {
            let dice = Dice(seed * 1_000 + lane);
            lanes.spawn(call_without_pause(mesh.clone(), self.ledger.clone(), self.known.clone(), dice));
        }
        Member { mesh, lanes }
    }
}

async fn call_without_pause(mesh: Mesh, ledger: Arc<Ledger>, known: Arc<Mutex<Vec<InstanceId>>>, mut dice: Dice) {
    while !ledger.is_over.load(Ordering::Relaxed) {
        let to = {
            let known = known.lock();
            known[dice.roll(known.len() as u64) as usize]
        };
        let number = ledger.begun.fetch_add(1, Ordering::Relaxed);
        let kind = dice.roll(20);
        // Most take a while, so that many are under way at once without the processor being the bottleneck; some take
        // longer than a call waits, and live by heartbeats.
        let sleep_ms = match kind {
            0..16 => dice.roll(6_000),
            16..18 => 8_000 + dice.roll(4_000),
            _ => 0,
        };
        let request = Numbered { number, sleep_ms, fails: kind == 19 };
        let mut begun = Begun(&ledger, false);
        let answer = mesh.invoke(to, request).await;
        begun.1 = true;
        let counter = match answer {
            Ok(answer) => {
                assert_eq!(answer, number, "another call's answer");
                assert_ne!(kind, 19, "it was told to fail");
                &ledger.answered
            }
            Err(MeshError::Handler { message, .. }) => {
                assert_eq!((kind, message.as_str()), (19, "told to"));
                &ledger.failed
            }
            Err(MeshError::RequestTimeout { .. }) => &ledger.timed_out,
            Err(MeshError::NoNode { .. } | MeshError::Unavailable { .. } | MeshError::Busy { .. }) => &ledger.refused,
            Err(MeshError::Stopped { .. }) => &ledger.refused,
            Err(other) => panic!("{other}"),
        };
        let is_refused = std::ptr::eq(counter, &ledger.refused);
        ledger.count(counter);
        if mesh.instance_id() == InstanceId::NOBODY {
            return;
        }
        // A call that failed at once would be made again at once, and leave the others no time.
        if is_refused {
            tokio::time::sleep(Duration::from_millis(dice.roll(200))).await;
        }
    }
}

fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * 4_096
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_ends_once_while_instances_and_connections_come_and_go() {
    let seconds = std::env::var("CONVOKE_SOAK_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(SECONDS);
    let fleet = Fleet { server: RedisServer::start().await, ledger: Arc::default(), known: Arc::default() };
    let fleet = Arc::new(fleet);
    let mut probe = probe(&fleet.server).await;
    let mut dice = Dice(11);
    let mut starts: JoinSet<Member> = (0..INSTANCES as u64).map(|seed| fleet.clone().member(seed)).collect();
    let mut members = vec![starts.join_next().await.expect("one of many").expect("no start panics")];
    let (started, length) = (Instant::now(), Duration::from_secs(seconds));
    let (mut round, mut replaced, mut early, mut endings) = (0_u64, 0_usize, 0, JoinSet::new());
    while started.elapsed() < length {
        tokio::time::sleep(Duration::from_millis(300)).await;
        round += 1;
        while let Some(member) = starts.try_join_next() {
            members.push(member.expect("no start panics"));
        }
        if members.len() < INSTANCES / 2 {
            continue;
        }
        replaced += 1;
        let member = members.swap_remove(dice.roll(members.len() as u64) as usize);
        endings.spawn(if replaced % 2 == 0 { member.stop().boxed() } else { member.kill().boxed() });
        starts.spawn(fleet.clone().member(1_000 + round));
        if replaced.is_multiple_of(12) {
            drop_connections(&mut probe).await;
        }
        let excess = fleet.known.lock().len().saturating_sub(2 * INSTANCES);
        fleet.known.lock().drain(..excess);
        if early == 0 && started.elapsed() > length / 3 {
            early = resident_bytes();
        }
    }
    fleet.ledger.is_over.store(true, Ordering::Relaxed);
    members.extend(starts.join_all().await);
    endings.join_all().await;
    for member in &mut members {
        member.finish().await;
    }
    conclude(&fleet.ledger, &members, replaced, early).await;
}

async fn conclude(ledger: &Ledger, members: &[Member], replaced: usize, early: u64) {
    let begun = ledger.begun.load(Ordering::Relaxed);
    assert_eq!(ledger.ended(), begun, "every call ends once");
    assert!(ledger.runs.lock().iter().all(|runs| *runs <= 1), "a handler ran twice for one request");
    let open = || members.iter().map(|member| member.mesh.calls_open()).sum::<usize>();
    assert_eq!(open(), 0, "the tables are empty");
    let running = || members.iter().map(|member| member.mesh.handlers_running()).sum::<usize>();
    eventually("no handler runs", async || (running() == 0).then_some(())).await;
    let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let late = resident_bytes();
    println!(
        "{begun} calls by {} instances: {} answered, {} failed as told, {} timed out, {} refused, {} let go; {} MiB at a third, {} MiB at the end",
        members.len() + replaced,
        load(&ledger.answered),
        load(&ledger.failed),
        load(&ledger.timed_out),
        load(&ledger.refused),
        load(&ledger.let_go),
        early >> 20,
        late >> 20,
    );
    // How many depends on the machine; that there are some on what is tested.
    let seen = [&ledger.answered, &ledger.failed, &ledger.refused, &ledger.let_go];
    assert!(replaced > 0 && seen.into_iter().all(|counter| load(counter) > 0), "not all of it happened");
    assert!(late < early + GROWTH_BYTES_MAX, "the memory grew from {early} to {late} bytes");
}
