//! What a coordinator shows of itself.

use std::sync::Arc;
use std::time::Duration;

use super::{Coordinator, Member, Service};
use crate::ids::{ServiceName, WorkerId};
use crate::shards::{Shard, Strategy, Version};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceView {
    pub service: ServiceName,
    pub max_shard_count: u32,
    pub version: Version,
    pub strategy: Strategy,
    /// In order of their ids.
    pub workers: Vec<WorkerView>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerView {
    pub worker_id: WorkerId,
    pub shards: Arc<[Shard]>,
    /// What it was asked to let go of, and has not yet.
    pub revoking: Vec<Shard>,
    pub active: bool,
    pub handoff: bool,
    /// Since the term began.
    pub last_heartbeat: Duration,
}

/// A service in figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ServiceFigures {
    /// Those that live.
    pub workers: usize,
    /// The least and the most shards that one of them has.
    pub shards_min: usize,
    pub shards_max: usize,
    /// When the one that was silent longest last beat, since the term began.
    pub oldest_heartbeat: Option<Duration>,
}

impl Coordinator {
    pub fn figures(&self, service: &ServiceName) -> ServiceFigures {
        let members = self.services.get(service).into_iter().flat_map(|service| service.members.values());
        members.filter(|member| member.is_active).fold(ServiceFigures::default(), |figures, member| {
            let shards = member.granted.len();
            let is_first = figures.workers == 0;
            ServiceFigures {
                workers: figures.workers + 1,
                shards_min: if is_first { shards } else { figures.shards_min.min(shards) },
                shards_max: figures.shards_max.max(shards),
                oldest_heartbeat: figures.oldest_heartbeat.into_iter().chain([member.last_beat]).min(),
            }
        })
    }

    /// In order.
    pub fn service_names(&self) -> impl Iterator<Item = &ServiceName> {
        self.services.keys()
    }

    pub fn view(&self, service: &ServiceName) -> Option<ServiceView> {
        self.services.get_key_value(service).map(|(name, service)| self.view_of(name, service))
    }

    /// In order of their names.
    pub fn views(&self) -> impl Iterator<Item = ServiceView> {
        self.services.iter().map(|(name, service)| self.view_of(name, service))
    }

    fn view_of(&self, name: &ServiceName, service: &Service) -> ServiceView {
        let worker = |(worker_id, member): (&WorkerId, &Member)| WorkerView {
            worker_id: worker_id.clone(),
            shards: member.granted.clone(),
            revoking: member.revoking.iter().map(|it| it.shard).collect(),
            active: member.is_active,
            handoff: member.handoff,
            last_heartbeat: member.last_beat,
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
