//! The clients of a world: they enqueue at nodes and over the bus, cancel, run dead letters again, and keep a schedule.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use convoke_core::jobs::link::ClientLink;
use convoke_core::jobs::{JobSpec, ScheduleSpec, Status};
use convoke_core::ports::{Chance, Clock};
use convoke_core::{JobId, JobType, ScheduleName};
use convoke_runtime::jobs::BusClient;

use super::World;
use crate::fault::{NODES, STORY_MS};
use crate::history::Entry;
use crate::network::Service;
use crate::ports::{SimBus, SimLink, Way, now};
use crate::process::Process;

/// Jobs that are enqueued at nodes.
const BY_LINK: usize = 10;
/// Jobs that are enqueued over the bus.
const BY_BUS: usize = 6;

fn up_to(chance: &dyn Chance, most: u64) -> u64 {
    (chance.fraction() * most as f64) as u64
}

impl World {
    /// Starts the clients of the story.
    pub(super) fn start_clients(self: &Arc<Self>) {
        let client = |name: &str, place| Process::new(name.into(), place);
        for place in 0..2 {
            tokio::spawn(self.clone().enqueue_at_nodes(client(&format!("c{}", place + 1), place)));
        }
        tokio::spawn(self.clone().enqueue_over_the_bus(client("c3", 2)));
        tokio::spawn(self.clone().keep_schedule(client("c4", 0)));
    }

    fn client_link(&self, process: &Arc<Process>) -> SimLink {
        SimLink {
            network: self.network.clone(),
            process: process.clone(),
            directory: self.directory.clone(),
            store: self.store.clone(),
            node: AtomicUsize::new(process.place % NODES),
        }
    }

    fn spec(&self, chance: &dyn Chance) -> (JobId, JobSpec) {
        let id = JobId(chance.id(self.clock.now()));
        let spec = JobSpec::new(JobType::new("work").expect("a name")).with(|job| {
            job.max_retries = Some(2 + up_to(chance, 3) as u32);
            job.timeout = (chance.fraction() < 0.3).then(|| Duration::from_millis(400 + up_to(chance, 2_000)));
        });
        let delay = (chance.fraction() < 0.15).then(|| Duration::from_millis(up_to(chance, 1_500)));
        (id, JobSpec { id: Some(id), delay, ..spec })
    }

    async fn enqueue_at_nodes(self: Arc<Self>, process: Arc<Process>) {
        let chance = self.chance_of(&process.name);
        let link = self.client_link(&process);
        for _ in 0..BY_LINK / 2 {
            tokio::time::sleep(Duration::from_millis(up_to(&*chance, 2 * STORY_MS / BY_LINK as u64 * 2))).await;
            let (id, spec) = self.spec(&*chance);
            while link.enqueue(vec![spec.clone()]).await.is_err() {
                tokio::time::sleep(Duration::from_millis(150)).await;
            }
            self.acknowledged(&process, id, false);
            if chance.fraction() < 0.15 {
                tokio::time::sleep(Duration::from_millis(up_to(&*chance, 400))).await;
                let _ = link.cancel(id, None).await;
            }
            self.retry_dead_letter(&link).await;
        }
    }

    /// Runs a dead letter again, now and then.
    async fn retry_dead_letter(&self, link: &SimLink) {
        let is_dead = |job: &&convoke_core::jobs::Job| matches!(job.status, Status::Failed | Status::TimedOut);
        if let Some(job) = self.jobs().iter().find(is_dead)
            && link.retry(job.id).await.is_ok()
        {
            self.network.history.reach("dead letter run again");
        }
    }

    fn acknowledged(&self, process: &Arc<Process>, job: JobId, by_bus: bool) {
        self.network.note(process, || format!("enqueued {job}"));
        self.network.history.add(self.network.now_ms(), &process.name, Entry::Acknowledged { job, by_bus });
    }

    async fn enqueue_over_the_bus(self: Arc<Self>, process: Arc<Process>) {
        let chance = self.chance_of(&process.name);
        let way = Way { network: self.network.clone(), process: process.clone(), service: Service::Bus };
        let bus = Arc::new(SimBus { way, server: self.bus.clone() });
        let client = BusClient::new(bus, self.channels.clone(), self.clock.clone());
        for round in 0..BY_BUS {
            // The first one before any node reads the queue.
            let wait = if round == 0 { 0 } else { up_to(&*chance, 2 * STORY_MS / BY_BUS as u64) };
            tokio::time::sleep(Duration::from_millis(wait)).await;
            let (id, spec) = self.spec(&*chance);
            while client.enqueue(vec![spec.clone()]).await.is_err() {
                tokio::time::sleep(Duration::from_millis(150)).await;
            }
            self.acknowledged(&process, id, true);
        }
    }

    /// Puts a schedule, and puts it again at other nodes, whose clocks may be wrong.
    async fn keep_schedule(self: Arc<Self>, process: Arc<Process>) {
        let chance = self.chance_of(&process.name);
        let link = self.client_link(&process);
        let name = ScheduleName::new("each-second").expect("a name");
        let mut spec = ScheduleSpec::new(JobType::new("tick").expect("a name"));
        spec.cron = Some("* * * * * *".into());
        spec.missed = Some(convoke_core::jobs::schedule::Missed::All);
        spec.template.max_retries = Some(3);
        spec.overlap = Some(convoke_core::jobs::schedule::Overlap::Allow);
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_millis(300 + up_to(&*chance, 2_500))).await;
            link.node.store(up_to(&*chance, NODES as u64) as usize, std::sync::atomic::Ordering::Relaxed);
            // Another time, if no node can be reached now.
            let _ = link.put_schedule(&name, &spec).await;
        }
    }

    /// Ends the schedule, so that the world can end.
    pub(super) fn end_schedule(&self) {
        use convoke_core::ports::store::ScheduleStore;
        let name = ScheduleName::new("each-second").expect("a name");
        let _ = now(self.store.store.remove_schedule(&name));
    }
}
