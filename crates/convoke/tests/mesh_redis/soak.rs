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
use convoke_testkit::invariants::{CallLedger, calls_hold};
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
struct Tally {
    calls: CallLedger,
    answered: AtomicU64,
    failed: AtomicU64,
    timed_out: AtomicU64,
    /// No such instance, the link away, busy, stopped.
    refused: AtomicU64,
    /// Whoever made it was killed.
    let_go: AtomicU64,
    is_over: AtomicBool,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// A call that was begun. Dropped, it has ended; let go of, unless it is said how.
struct Begun<'a> {
    tally: &'a Tally,
    number: u64,
    how: Option<&'a AtomicU64>,
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.tally.calls.ended(self.number);
        count(self.how.unwrap_or(&self.tally.let_go));
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
    tally: Arc<Tally>,
    /// Whom to call; some of them are gone.
    known: Arc<Mutex<Vec<InstanceId>>>,
}

impl Fleet {
    async fn member(self: Arc<Self>, seed: u64) -> Member {
        let counted = self.tally.clone();
        let settings = MeshSettings { request_timeout: TIMEOUT, stop_grace: GRACE, ..quick() };
        // Redis may drop a connection while it is made, and a start may fail: whoever starts an instance tries again.
        let address = MeshAddress::new(self.server.url());
        let mesh = eventually("it connects", async || Mesh::at(&address, KEY).await.ok()).await;
        let mesh = mesh.settings(settings).on(move |request: Numbered| {
            counted.calls.ran(request.number);
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
            lanes.spawn(call_without_pause(mesh.clone(), self.tally.clone(), self.known.clone(), dice));
        }
        Member { mesh, lanes }
    }
}

async fn call_without_pause(mesh: Mesh, tally: Arc<Tally>, known: Arc<Mutex<Vec<InstanceId>>>, mut dice: Dice) {
    while !tally.is_over.load(Ordering::Relaxed) {
        let to = {
            let known = known.lock();
            known[dice.roll(known.len() as u64) as usize]
        };
        let number = tally.calls.begin();
        let mut begun = Begun { tally: &tally, number, how: None };
        let kind = dice.roll(20);
        // Most take a while, so that many are under way at once without the processor being the bottleneck; some take
        // longer than a call waits, and live by heartbeats.
        let sleep_ms = match kind {
            0..16 => dice.roll(6_000),
            16..18 => 8_000 + dice.roll(4_000),
            _ => 0,
        };
        let request = Numbered { number, sleep_ms, fails: kind == 19 };
        let answer = mesh.invoke(to, request).await;
        let counter = match answer {
            Ok(answer) => {
                assert_eq!(answer, number, "another call's answer");
                assert_ne!(kind, 19, "it was told to fail");
                &tally.answered
            }
            Err(MeshError::Handler { message, .. }) => {
                assert_eq!((kind, message.as_str()), (19, "told to"));
                &tally.failed
            }
            Err(MeshError::RequestTimeout { .. }) => &tally.timed_out,
            Err(MeshError::NoNode { .. } | MeshError::Unavailable { .. } | MeshError::Busy { .. }) => &tally.refused,
            Err(MeshError::Stopped { .. }) => &tally.refused,
            Err(other) => panic!("{other}"),
        };
        begun.how = Some(counter);
        drop(begun);
        let is_refused = std::ptr::eq(counter, &tally.refused);
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
    let fleet = Fleet { server: RedisServer::start().await, tally: Arc::default(), known: Arc::default() };
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
        let excess = fleet.known.lock().len().saturating_sub(INSTANCES + INSTANCES / 4);
        fleet.known.lock().drain(..excess);
        if early == 0 && started.elapsed() > length / 3 {
            early = resident_bytes();
        }
    }
    fleet.tally.is_over.store(true, Ordering::Relaxed);
    members.extend(starts.join_all().await);
    endings.join_all().await;
    for member in &mut members {
        member.finish().await;
    }
    conclude(&fleet.tally, &members, replaced, early).await;
}

async fn conclude(tally: &Tally, members: &[Member], replaced: usize, early: u64) {
    calls_hold(&tally.calls);
    let begun = tally.calls.calls().len();
    let open = || members.iter().map(|member| member.mesh.calls_open()).sum::<usize>();
    assert_eq!(open(), 0, "the tables are empty");
    let running = || members.iter().map(|member| member.mesh.handlers_running()).sum::<usize>();
    eventually("no handler runs", async || (running() == 0).then_some(())).await;
    let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let late = resident_bytes();
    println!(
        "{begun} calls by {} instances: {} answered, {} failed as told, {} timed out, {} refused, {} let go; {} MiB at a third, {} MiB at the end",
        members.len() + replaced,
        load(&tally.answered),
        load(&tally.failed),
        load(&tally.timed_out),
        load(&tally.refused),
        load(&tally.let_go),
        early >> 20,
        late >> 20,
    );
    // How many depends on the machine; that there are some on what is tested.
    let seen = [&tally.answered, &tally.failed, &tally.refused, &tally.let_go];
    assert!(replaced > 0 && seen.into_iter().all(|counter| load(counter) > 0), "not all of it happened");
    assert!(late < early + GROWTH_BYTES_MAX, "the memory grew from {early} to {late} bytes");
}
