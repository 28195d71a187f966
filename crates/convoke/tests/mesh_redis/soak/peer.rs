//! A process with one instance and many lanes, each of which makes one call after the other to whomever it sees.
//!
//! SIGUSR1 makes it finish: its lanes end, and it reports when nothing is left. SIGTERM makes it leave.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use convoke::mesh::{MeshAddress, MeshSettings};
use convoke::{InstanceId, Mesh, MeshError, Request};
use convoke_testkit::process::{eventually, monotonic_ns, wait_for_value};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::message::{Begun, End, Footprint, PeerMessage, RefereeLink};
use crate::stage::*;

const LANES: u64 = 200;
pub const TIMEOUT: Duration = Duration::from_secs(10);
const GRACE: Duration = Duration::from_millis(500);
/// How often it asks who is there. Those that were killed are seen for a while longer, and called.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
const REFUSED_PAUSE_MS_MAX: u64 = 200;

pub struct Orders {
    pub url: String,
    pub peer: u32,
    pub verifier: String,
}

impl Orders {
    pub fn read() -> Option<Orders> {
        let get = |name: &str| std::env::var(format!("PEER_{name}")).ok();
        Some(Orders { url: get("URL")?, peer: get("NUMBER")?.parse().ok()?, verifier: get("JUDGE")? })
    }

    pub fn write(&self) -> Vec<(String, String)> {
        let pairs = [("URL", self.url.clone()), ("NUMBER", self.peer.to_string()), ("JUDGE", self.verifier.clone())];
        pairs.map(|(name, value)| (format!("PEER_{name}"), value)).into()
    }
}

/// A request that differs from every other.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Numbered {
    number: u64,
    takes_ms: u64,
    fails: bool,
}

impl Request for Numbered {
    const TYPE: &'static str = "numbered";
    type Response = u64;
}

struct Peer {
    number: u32,
    line: Arc<RefereeLink>,
    mesh: Mesh,
    seen: Mutex<Vec<InstanceId>>,
    calls: AtomicU64,
    is_over: AtomicBool,
    /// How many bytes were resident, at each check.
    sizes: Mutex<Vec<u64>>,
    began: Instant,
}

/// One thread: fifty of these share the machine.
#[tokio::main(flavor = "current_thread")]
pub async fn run(orders: Orders) {
    let [finish, leave] =
        [SignalKind::user_defined1(), SignalKind::terminate()].map(|kind| signal(kind).expect("installed"));
    let line = Arc::new(RefereeLink::open(orders.peer, &orders.verifier));
    let mesh = join(&orders.url, line.clone()).await;
    let peer = Arc::new(Peer {
        number: orders.peer,
        line,
        mesh,
        seen: Mutex::default(),
        calls: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
        sizes: Mutex::default(),
        began: Instant::now(),
    });
    eventually("it sees somebody", async || peer.look().await.then_some(())).await;
    let (instance, tasks, at) = (peer.mesh.instance_id().0, tasks(), monotonic_ns());
    peer.line.send(&PeerMessage::Ready { instance, tasks, at });
    tokio::select! {
        () = peer.live(finish, leave) => {}
        () = peer.look_around() => {}
    }
}

async fn join(url: &str, line: Arc<RefereeLink>) -> Mesh {
    let heartbeat_interval = Duration::from_millis(500);
    let settings = MeshSettings { heartbeat_interval, request_timeout: TIMEOUT, stop_grace: GRACE, ..quick() };
    // Redis may drop a connection while it is made, and a start may fail: whoever starts an instance tries again.
    let address = MeshAddress::new(url);
    let mesh = eventually("it connects", async || Mesh::at(&address, KEY).await.ok()).await;
    let mesh = mesh.settings(settings).on(move |request: Numbered| {
        line.send(&PeerMessage::Ran { number: request.number });
        async move {
            tokio::time::sleep(Duration::from_millis(request.takes_ms)).await;
            if request.fails { Err(request.number.to_string().into()) } else { Ok(request.number) }
        }
    });
    eventually("it starts", async || mesh.start().await.ok()).await
}

impl Peer {
    async fn live(self: &Arc<Self>, mut finish: Signal, mut leave: Signal) {
        let mut lanes: JoinSet<()> = JoinSet::new();
        for lane in 0..LANES {
            let dice = Dice(u64::from(self.number) * 1_000 + lane);
            lanes.spawn(self.clone().call_without_pause(dice));
        }
        let is_asked_to_leave = tokio::select! {
            _ = leave.recv() => true,
            _ = finish.recv() => false,
        };
        if is_asked_to_leave {
            self.mesh.stop().await;
        }
        self.is_over.store(true, Ordering::Relaxed);
        while let Some(lane) = lanes.join_next().await {
            lane.expect("no lane panics");
        }
        // Others may call still, and handlers of those that were killed run to their end.
        let left = async || (self.mesh.calls_open(), self.mesh.handlers_running());
        wait_for_value("open calls and running handlers", (0, 0), left).await;
        self.line.send(&PeerMessage::Quiet(self.footprint()));
        if !is_asked_to_leave {
            leave.recv().await;
            self.mesh.stop().await;
        }
    }

    async fn call_without_pause(self: Arc<Self>, mut dice: Dice) {
        let has_left = || self.mesh.instance_id() == InstanceId::NOBODY;
        while !self.is_over.load(Ordering::Relaxed) && !has_left() {
            let to = {
                let seen = self.seen.lock();
                seen[dice.roll(seen.len() as u64) as usize]
            };
            let kind = dice.roll(20);
            // Most take a while, so that many are under way at once without the processor being the bottleneck; some take
            // longer than a call waits, and live by heartbeats.
            let takes_ms = match kind {
                0..16 => dice.roll(8_000),
                16..18 => 9_000 + dice.roll(4_000),
                _ => 0,
            };
            if !self.call(to, takes_ms, kind == 19).await {
                // A call that failed at once would be made again at once, and leave the others no time.
                tokio::time::sleep(Duration::from_millis(dice.roll(REFUSED_PAUSE_MS_MAX))).await;
            }
        }
    }

    /// Whether a handler had replied, or had enough time.
    async fn call(&self, to: InstanceId, takes_ms: u64, fails: bool) -> bool {
        let number = u64::from(self.number) << 32 | self.calls.fetch_add(1, Ordering::Relaxed);
        let call = Begun { to: to.0, takes_ms, fails, at: monotonic_ns() };
        self.line.send(&PeerMessage::Begun { number, call });
        let response = self.mesh.invoke(to, Numbered { number, takes_ms, fails }).await;
        let is_refused = !matches!(response, Ok(_) | Err(MeshError::Handler { .. } | MeshError::RequestTimeout { .. }));
        let end = match response {
            Ok(response) => End::Replied(response),
            Err(MeshError::Handler { message, .. }) => End::Failed(message),
            Err(error) => End::Otherwise(error.name().to_owned()),
        };
        self.line.send(&PeerMessage::Ended { number, end });
        !is_refused
    }

    /// For ever.
    async fn look_around(&self) {
        loop {
            tokio::time::sleep(LOOK_INTERVAL).await;
            self.look().await;
            self.sizes.lock().push(resident_bytes());
        }
    }

    async fn look(&self) -> bool {
        let at = monotonic_ns();
        match self.mesh.nodes().await {
            Ok(nodes) if !nodes.is_empty() => {
                *self.seen.lock() = nodes.into_iter().map(|node| node.instance_id).collect();
                self.line.send(&PeerMessage::Sees { at });
                true
            }
            _ => false,
        }
    }

    fn footprint(&self) -> Footprint {
        let sizes = self.sizes.lock();
        let (early_bytes, late_bytes) = (sizes.get(sizes.len() / 3).copied().unwrap_or_default(), resident_bytes());
        let life_ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        Footprint { tasks: tasks(), early_bytes, late_bytes, life_ms }
    }
}

fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("this process has a size");
    let pages: u64 = text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number of pages");
    pages * rustix::param::page_size() as u64
}
