//! A world: three nodes, three workers and their clients on one store, one bus and one set of leases, in one thread.
//!
//! A world has two phases. In the story, jobs come in while the faults of the plan happen. Then everything is healed, every
//! process is started again, and each job must end and each channel be closed within [`HEALED_MS_MAX`]. Time is tokio's, and
//! paused: it passes when nobody has anything left to do.

mod clients;
mod clock;
mod director;
mod nodes;
mod workers;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use convoke_adapters::memory::SeededChance;
use convoke_core::JobId;
use convoke_core::jobs::Job;
use convoke_core::jobs::channels::Channels;
use convoke_core::ports::store::{JobQuery, JobStore};
use convoke_core::ports::{Bus, Chance};
use parking_lot::Mutex;

use crate::fault::{Fault, NODES, WORKERS};
use crate::history::Record;
use crate::network::Network;
use crate::ports::{BusServer, Directory, LeaseServer, StoreServer, now};
use crate::trace::Trace;
use clock::SimClock;
use nodes::NodeSlot;
use workers::WorkerSlot;

/// How long a healed world may take until everything has ended.
pub const HEALED_MS_MAX: u64 = 60_000;
/// How often a healed world is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// The prefix of the bus's channels.
const PREFIX: &str = "convoke";

/// What is left of a world when it has ended.
pub struct Ended {
    pub records: Vec<Record>,
    /// The jobs that the store has.
    pub jobs: Vec<Job>,
    /// The runs of each of these jobs.
    pub runs: Vec<Vec<convoke_core::jobs::Execution>>,
    /// Channels that are open although their jobs have ended.
    pub open_channels: Vec<String>,
    /// Enqueues that the bus was allowed to lose.
    pub excused: std::collections::BTreeSet<JobId>,
    pub panics: Vec<String>,
    pub reached: std::collections::BTreeMap<&'static str, u64>,
    pub trace: Trace,
    /// How long it took in virtual time.
    pub took_ms: u64,
}

/// Everything that the processes of a world share.
pub struct World {
    pub(crate) network: Arc<Network>,
    pub(crate) store: Arc<StoreServer>,
    pub(crate) bus: Arc<BusServer>,
    pub(crate) leases: Arc<LeaseServer>,
    pub(crate) directory: Arc<Directory>,
    pub(crate) channels: Channels,
    pub(crate) clocks: [Arc<SimClock>; NODES],
    /// The clock of workers and clients.
    pub(crate) clock: Arc<SimClock>,
    nodes: Mutex<[NodeSlot; NODES]>,
    workers: Mutex<[WorkerSlot; WORKERS]>,
    pub(crate) is_healed: AtomicBool,
    seed: u64,
}

impl World {
    /// Lives through the plan of a seed.
    pub async fn live(seed: u64, faults: &[Fault], trace: Trace) -> Ended {
        let network = Network::new(mixed(seed, "network"), trace);
        let chance: Arc<dyn Chance> = Arc::new(SeededChance::new(mixed(seed, "machine")));
        let clock = Arc::new(SimClock::new());
        let _replaced = convoke_runtime::machine::replace(clock.clone(), chance);
        let channels = Channels::new(PREFIX);
        let world = Arc::new(World {
            store: StoreServer::new(network.clone()),
            bus: BusServer::new(network.clone(), channels.enqueue()),
            leases: LeaseServer::new(network.clone()),
            directory: Arc::default(),
            clocks: std::array::from_fn(|_| Arc::new(SimClock::new())),
            clock,
            nodes: Mutex::default(),
            workers: Mutex::default(),
            is_healed: AtomicBool::new(false),
            channels,
            network,
            seed,
        });
        world.live_story(faults).await;
        let open_channels = world.heal_and_wait().await;
        world.end(open_channels)
    }

    pub(crate) fn chance_of(&self, name: &str) -> Arc<dyn Chance> {
        Arc::new(SeededChance::new(mixed(self.seed, name)))
    }

    /// Waits until all jobs have ended and their channels are closed. Returns those that are still open in the end.
    async fn heal_and_wait(self: &Arc<Self>) -> Vec<String> {
        self.heal().await;
        let deadline = self.network.now_ms() + HEALED_MS_MAX;
        loop {
            tokio::time::sleep(LOOK_INTERVAL).await;
            let is_over = self.jobs().iter().all(|job| !job.status.is_live());
            let open = if is_over { self.open_channels() } else { Vec::new() };
            if (is_over && open.is_empty() && !self.has_unread_enqueues()) || self.network.now_ms() > deadline {
                return open;
            }
        }
    }

    fn has_unread_enqueues(&self) -> bool {
        let backlog = self.bus.bus();
        now(backlog.queues(&self.channels.enqueue())).is_ok_and(|queues| !queues.is_empty())
    }

    fn open_channels(&self) -> Vec<String> {
        let queues = now(self.bus.bus().queues(PREFIX)).unwrap_or_default();
        queues.into_iter().filter(|queue| self.channels.job_of(queue).is_some()).collect()
    }

    fn jobs(&self) -> Vec<Job> {
        let mut jobs = Vec::new();
        let mut query = JobQuery { limit: convoke_core::limits::PAGE_MAX, ..JobQuery::default() };
        while let Ok(page) = now(self.store.store.list(query.clone())) {
            jobs.extend(page.jobs);
            query.cursor = page.next_cursor;
            if query.cursor.is_none() {
                break;
            }
        }
        jobs
    }

    fn end(&self, open_channels: Vec<String>) -> Ended {
        let history = &self.network.history;
        let jobs = self.jobs();
        let runs =
            |job: &Job| now(self.store.store.history(job.id, 0, 1_000)).map(|page| page.runs).unwrap_or_default();
        let records = history.read(<[Record]>::to_vec);
        let acknowledged = records.iter().filter_map(|record| match record.what {
            crate::history::Entry::Acknowledged { job, .. } => Some(job),
            _ => None,
        });
        Ended {
            excused: acknowledged.filter(|job| history.is_excused(job)).collect(),
            runs: jobs.iter().map(runs).collect(),
            jobs,
            records,
            open_channels,
            panics: history.panics(),
            reached: history.reached(),
            trace: self.network.take_trace(),
            took_ms: self.network.now_ms(),
        }
    }
}

/// Returns a seed for one of the parts of a world.
fn mixed(seed: u64, part: &str) -> u64 {
    let mut mixed = seed ^ 0x9e37_79b9_7f4a_7c15;
    for byte in part.bytes() {
        mixed = (mixed ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3).rotate_left(23);
    }
    mixed
}
