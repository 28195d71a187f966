//! The view of a coordinator, for display.

use std::sync::Arc;
use std::time::Duration;

use super::{Coordinator, Member, Service};
use crate::ids::{ServiceName, WorkerId};
use crate::shards::{Shard, Strategy, Version};

/// A service and its workers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceView {
    /// The service.
    pub service: ServiceName,
    /// The number of its shards.
    pub max_shard_count: u32,
    /// The version of the present assignment.
    pub version: Version,
    /// How the shards are spread.
    pub strategy: Strategy,
    /// By id.
    pub workers: Vec<WorkerView>,
}

/// A worker of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerView {
    /// The worker.
    pub worker_id: WorkerId,
    /// Its assignment, in order.
    pub shards: Arc<[Shard]>,
    /// Shards that it was asked to release and still holds.
    pub revoking: Vec<Shard>,
    /// Shards that it should have and that another worker still holds.
    pub incoming: Vec<Shard>,
    /// Whether it is alive.
    pub active: bool,
    /// Whether it gets a revocation before it loses a shard, and time to stop.
    pub handoff: bool,
    /// The time of its last heartbeat, since the term began.
    pub last_heartbeat: Duration,
}

/// A service in figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ServiceFigures {
    /// The number of live workers.
    pub workers: usize,
    /// The fewest shards of a live worker.
    pub shards_min: usize,
    /// The most shards of a live worker.
    pub shards_max: usize,
    /// The oldest of the live workers' last heartbeats, since the term began.
    pub oldest_heartbeat: Option<Duration>,
}

/// Returns those of `target` that are not in `granted`; both are in order.
fn missing(target: &[Shard], granted: &[Shard]) -> Vec<Shard> {
    target.iter().copied().filter(|shard| granted.binary_search(shard).is_err()).collect()
}

impl Coordinator {
    /// Returns the figures of a service; zeros if it is unknown.
    pub fn figures(&self, service: &ServiceName) -> ServiceFigures {
        let members = self.services.get(service).into_iter().flat_map(|service| service.members.values());
        members.filter(|member| member.is_active).fold(ServiceFigures::default(), |figures, member| {
            let shards = member.granted.len();
            let is_first = figures.workers == 0;
            ServiceFigures {
                workers: figures.workers + 1,
                shards_min: if is_first { shards } else { figures.shards_min.min(shards) },
                shards_max: figures.shards_max.max(shards),
                oldest_heartbeat: figures.oldest_heartbeat.into_iter().chain([member.last_heartbeat]).min(),
            }
        })
    }

    /// Returns the names of all services, in order.
    pub fn service_names(&self) -> impl Iterator<Item = &ServiceName> {
        self.services.keys()
    }

    /// Returns the view of a service; `None` if it is unknown.
    pub fn view(&self, service: &ServiceName) -> Option<ServiceView> {
        self.services.get_key_value(service).map(|(name, service)| self.view_of(name, service))
    }

    /// Returns the views of all services, by name.
    pub fn views(&self) -> impl Iterator<Item = ServiceView> {
        self.services.iter().map(|(name, service)| self.view_of(name, service))
    }

    fn view_of(&self, name: &ServiceName, service: &Service) -> ServiceView {
        let worker = |(worker_id, member): (&WorkerId, &Member)| WorkerView {
            worker_id: worker_id.clone(),
            shards: member.granted.clone(),
            revoking: member.revoking.iter().map(|it| it.shard).collect(),
            incoming: missing(&member.target, &member.granted),
            active: member.is_active,
            handoff: member.handoff,
            last_heartbeat: member.last_heartbeat,
        };
        ServiceView {
            service: name.clone(),
            max_shard_count: service.shard_count,
            version: service.version,
            strategy: self.settings.strategy,
            workers: service.members.iter().map(worker).collect(),
        }
    }
}
