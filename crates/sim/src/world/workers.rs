//! The workers of a world: the real one, over the gateway or over the bus, with handlers that take their time and fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use convoke_core::jobs::link::WorkerLink;
use convoke_core::{QueueName, WorkerId};
use convoke_runtime::jobs::worker::{BusLink, BusLinkSettings, Context, Failure, Handlers, Settings, Shutdown, Worker};
use tokio::task::AbortHandle;

use super::{World, mixed, nodes};
use crate::fault::{BUS_WORKER, NODES};
use crate::network::Service;
use crate::ports::{SimBus, SimLink, Way};
use crate::process::Process;

/// The worker at a place, if one runs there.
#[derive(Default)]
pub struct WorkerSlot {
    running: Option<(Arc<Process>, AbortHandle)>,
    /// How many have run there. Each has an id of its own.
    lives: usize,
}

/// The queue of all jobs.
pub fn queue() -> QueueName {
    QueueName::new("default").expect("a name")
}

impl World {
    /// Starts the worker at a place, unless one runs there.
    pub(super) fn start_worker(self: &Arc<Self>, place: usize) {
        let mut slots = self.workers.lock();
        if slots[place].running.is_some() {
            return;
        }
        slots[place].lives += 1;
        let process = Process::new(format!("w{}", place + 1).into(), place);
        self.network.note(&process, || "starts".into());
        let id = WorkerId::new(format!("w{}-{}", place + 1, slots[place].lives)).expect("a name");
        let settings = Settings {
            id: Some(id),
            queues: vec![queue()],
            concurrency: 2,
            shutdown_grace: Duration::from_millis(500),
            poll_wait: Duration::from_secs(1),
            ..Settings::default()
        };
        let worker = Worker::new(self.link(place, &process), self.clock.clone(), settings, self.handlers());
        let running = tokio::spawn(async move {
            // It ends when it is killed, or when a node asks it to drain.
            let _ = worker.run(Shutdown::default()).await;
        });
        slots[place].running = Some((process, running.abort_handle()));
    }

    fn link(&self, place: usize, process: &Arc<Process>) -> Arc<dyn WorkerLink> {
        let (network, process) = (self.network.clone(), process.clone());
        if place == BUS_WORKER {
            let way = Way { network, process, service: Service::Bus };
            let bus = Arc::new(SimBus { way, server: self.bus.clone() });
            let settings = nodes::settings().worker;
            let settings =
                BusLinkSettings { heartbeat_interval: settings.heartbeat_interval, stale_after: settings.stale_after };
            return Arc::new(BusLink::new(bus, self.channels.clone(), self.clock.clone(), settings));
        }
        Arc::new(SimLink {
            network,
            process,
            directory: self.directory.clone(),
            store: self.store.clone(),
            node: AtomicUsize::new(place % NODES),
        })
    }

    pub(super) fn worker_process(&self, place: usize) -> Option<Arc<Process>> {
        self.workers.lock()[place].running.as_ref().map(|(process, _)| process.clone())
    }

    pub(super) fn kill_worker(&self, place: usize) {
        let Some((process, running)) = self.workers.lock()[place].running.take() else { return };
        self.network.note(&process, || "is killed".into());
        process.kill();
        running.abort();
    }

    /// Starts workers anew that ended by themselves.
    pub(super) fn replace_ended_workers(self: &Arc<Self>) {
        for place in 0..crate::fault::WORKERS {
            let has_ended = self.workers.lock()[place].running.as_ref().is_some_and(|(_, it)| it.is_finished());
            if has_ended {
                self.workers.lock()[place].running = None;
                self.start_worker(place);
            }
        }
    }

    fn handlers(self: &Arc<Self>) -> Handlers {
        let mut handlers = Handlers::default();
        let world = Arc::downgrade(self);
        handlers.otherwise(move |context, _| {
            let world = world.clone();
            Box::pin(async move {
                let Some(world) = world.upgrade() else { return Ok(None) };
                world.handle(context).await
            })
        });
        handlers
    }

    /// What a run does follows from its id, so that it is the same whoever runs it when.
    async fn handle(&self, context: Context) -> Result<Option<convoke_core::Json>, Failure> {
        let drawn = mixed(self.seed, &context.execution_id().to_string());
        let is_healed = self.is_healed.load(Ordering::Relaxed);
        let span = match drawn % 10 {
            _ if is_healed => drawn % 50,
            0..=4 => drawn % 60,
            5..=8 => drawn % 900,
            _ => 1_500 + drawn % 3_000,
        };
        if drawn.is_multiple_of(7) {
            // Not worth an error: the run is over.
            let _ = context.progress(50, "half").await;
        }
        tokio::select! {
            biased;
            () = context.cancelled() => return Err(Failure::new("stopped")),
            () = tokio::time::sleep(Duration::from_millis(span)) => {}
        }
        match (drawn >> 8) % 12 {
            _ if is_healed => Ok(None),
            0 | 1 => Err(Failure::new("no")),
            2 => Err(Failure::permanent("never")),
            _ => Ok(None),
        }
    }
}
