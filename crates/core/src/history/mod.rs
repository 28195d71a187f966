//! The recent past of a fleet, for display: terms, slow renewals, refused writes, handoffs, drains, rebalances of shards
//! and the time series of jobs.
//!
//! Each node records what happens on it and shares its records with the other nodes, so that any node can show the
//! whole fleet, also after the death of the node that recorded them. Records are hints: one may be lost with its node,
//! and nothing is decided from them. They are kept in memory, bounded in count and in size; a node that starts receives
//! them from the others, and none are left once all nodes have stopped.

mod log;
mod series;

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

pub use log::{
    DRAINS_MAX, HANDOFFS_MAX, History, MOVES_MAX, REBALANCES_MAX, REFUSED_MAX, SERVICE_REBALANCES_MAX, SLOW_MAX,
    TERMS_MAX,
};
pub use series::{BUCKETS_MAX, Bucket, Counts, QUEUES_MAX, QueueTotal, STEP, Series, SeriesView, Slots};

use crate::ids::{Epoch, ExecutionId, JobId, NodeId, ServiceName, WorkerId};
use crate::jobs::handoff::AckCase;
use crate::jobs::wire::{HandoffReason, V1};
use crate::shards::{Shard, Version};

/// `history`: records of a node for the other nodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HistoryMessage {
    /// The version of the message.
    #[serde(default)]
    pub v: V1,
    /// The node that sends it.
    pub node_id: NodeId,
    /// Whether the node has just subscribed: the others are to send their records.
    #[serde(default)]
    pub asks: bool,
    /// Since when the sender knows everything, if it sends all its records. None: these are new records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The records. Unknown kinds are skipped when a message is decoded.
    #[serde(default, deserialize_with = "those_known")]
    pub records: Vec<Record>,
}

/// Decodes a list of records and skips unknown ones: a newer node may send kinds that this node does not know.
fn those_known<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Record>, D::Error> {
    let texts = Vec::<Box<RawValue>>::deserialize(deserializer)?;
    Ok(texts.iter().filter_map(|text| serde_json::from_str(text.get()).ok()).collect())
}

/// A record of the past.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum Record {
    /// A term began, ended, or its lease was renewed slowly.
    Term(TermRecord),
    /// The store refused a write.
    Refused(RefusedWrite),
    /// A run changed its owner, or did not find one.
    Handoff(HandoffRecord),
    /// A node drains.
    Drain(DrainRecord),
    /// Shards of a service were assigned anew.
    Rebalance(Rebalance),
    /// The counters of a node in one step of the time series.
    Bucket {
        /// The node that counted.
        node: NodeId,
        /// The counters.
        bucket: Bucket,
    },
}

impl Record {
    /// Returns whether `node` made the record, or would have made the same one.
    pub fn is_of(&self, node: &NodeId) -> bool {
        match self {
            Record::Term(term) => term.node == *node,
            Record::Refused(refused) => refused.node == *node,
            Record::Handoff(handoff) => handoff.from_node == *node || handoff.to_node.as_ref() == Some(node),
            Record::Drain(drain) => drain.node == *node,
            Record::Rebalance(rebalance) => rebalance.node == *node,
            Record::Bucket { node: counted_by, .. } => counted_by == node,
        }
    }

    /// Returns about how many bytes the record has as JSON.
    pub fn bytes(&self) -> usize {
        match self {
            Record::Term(term) => 256 + term.slow_renewals.len() * 96,
            Record::Refused(_) | Record::Handoff(_) | Record::Drain(_) => 512,
            Record::Rebalance(rebalance) => 512 + rebalance.moves.iter().map(ShardMove::bytes).sum::<usize>(),
            Record::Bucket { bucket, .. } => {
                256 + bucket.queues.keys().map(|queue| queue.as_str().len() + 64).sum::<usize>()
            }
        }
    }
}

/// A term of the leader.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Term))]
#[serde(rename_all = "camelCase")]
pub struct TermRecord {
    /// The number of the term.
    pub epoch: Epoch,
    /// The node that led.
    pub node: NodeId,
    /// When the term began, by the clock of the node that led; if `reported` is false, when another node first read the
    /// lease.
    pub began_at: Timestamp,
    /// When the term ended; null while it lasts.
    pub ended_at: Option<Timestamp>,
    /// Why the term ended; null while it lasts.
    pub ended_by: Option<TermEnd>,
    /// Renewals of the lease that took much longer than their interval, the oldest first: at most 32.
    pub slow_renewals: Vec<SlowRenewal>,
    /// Whether the node that led has reported the term. If not, or if its end is missing, other nodes know it from the
    /// lease.
    pub reported: bool,
}

/// Why a term ended. `stopped`: the node drained or stopped, and resigned. `resigned`: the node gave the lease up, because
/// it did not reach its bus or store, or because one of its tasks failed. `fenced`: a write or a renewal was refused,
/// because another node leads. `expired`: the lease was not renewed in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub enum TermEnd {
    /// The node drained or stopped, and resigned.
    Stopped,
    /// The node gave the lease up.
    Resigned,
    /// A write or a renewal was refused.
    Fenced,
    /// The lease was not renewed in time.
    Expired,
}

impl TermEnd {
    /// Returns the name, as in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            TermEnd::Stopped => "stopped",
            TermEnd::Resigned => "resigned",
            TermEnd::Fenced => "fenced",
            TermEnd::Expired => "expired",
        }
    }
}

/// A renewal of the lease that took much longer than its interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SlowRenewal {
    /// When it was complete.
    pub at: Timestamp,
    /// How long it took.
    #[cfg_attr(feature = "openapi", schema(value_type = String, example = "12s"))]
    #[serde(with = "crate::duration")]
    pub duration: Duration,
    /// The interval of renewals.
    #[cfg_attr(feature = "openapi", schema(value_type = String, example = "3s"))]
    #[serde(with = "crate::duration")]
    pub expected: Duration,
}

/// A write of a former owner that was refused.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RefusedWrite {
    /// When it was refused, by the clock of the node.
    pub at: Timestamp,
    /// The node whose write it was.
    pub node: NodeId,
    /// The kind of ownership that the writer had lost.
    pub fence: FenceKind,
    /// The refused write, such as `dispatch`.
    pub what: String,
    /// The writer: a node, or the worker that reported.
    pub by: String,
    /// The number that the write carried: an epoch, the id of a run, or the owner that it assumed.
    pub number: String,
    /// The number that it was compared with: the sealed epoch, the id of the present run, or the present owner; null if
    /// it is not known.
    pub against: Option<String>,
    /// The job whose run it was about.
    pub job_id: Option<JobId>,
}

/// The ownership that a writer had lost. `leader`: the leadership, by its epoch. `run`: the run of a job, by its execution id.
/// `owner`: the events of a run, by the node that records them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub enum FenceKind {
    /// The leadership, by its epoch.
    Leader,
    /// The run of a job, by its execution id.
    Run,
    /// The events of a run, by the node that records them.
    Owner,
}

impl FenceKind {
    /// Returns the name, as in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            FenceKind::Leader => "leader",
            FenceKind::Run => "run",
            FenceKind::Owner => "owner",
        }
    }
}

/// A run that changed its owner, or for which none was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = PastHandoff))]
#[serde(rename_all = "camelCase")]
pub struct HandoffRecord {
    /// When the run was taken, or left as an orphan.
    pub at: Timestamp,
    /// The job of the run.
    pub job_id: JobId,
    /// The run.
    pub execution_id: ExecutionId,
    /// The owner before.
    pub from_node: NodeId,
    /// The owner since then; null if no node took the run.
    pub to_node: Option<NodeId>,
    /// Why the run was offered.
    pub reason: HandoffReason,
    /// Which of the four cases of a handoff it was; null if the former owner was gone and waited for nothing.
    pub case: Option<AckCase>,
    /// How often the run was offered; null if the former owner was gone.
    pub tries: Option<u32>,
    /// From the first offer to the acknowledgement, or until the former owner stopped waiting; null if the former owner
    /// was gone.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, example = "35ms"))]
    #[serde(with = "crate::duration::option")]
    pub duration: Option<Duration>,
}

/// The drain of a node, and how far it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Drain))]
#[serde(rename_all = "camelCase")]
pub struct DrainRecord {
    /// The node.
    pub node: NodeId,
    /// When it began to offer its runs.
    pub began_at: Timestamp,
    /// The time of the other fields.
    pub at: Timestamp,
    /// How many runs it had to hand over.
    pub runs: u64,
    /// How many of them are neither taken nor ended, orphans included.
    pub open: u64,
    /// How many were left as orphans.
    pub orphans: u64,
    /// When all of it was done; null while it lasts. A node that dies meanwhile never sets it.
    pub ended_at: Option<Timestamp>,
}

/// A rebalance of the shards of a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Rebalance {
    /// The service.
    pub service: ServiceName,
    /// The version of the new assignment.
    pub version: Version,
    /// When the shards were assigned, by the clock of the node.
    pub at: Timestamp,
    /// The node that coordinated.
    pub node: NodeId,
    /// The number of shards of the service.
    pub shard_count: u32,
    /// Why the shards were assigned anew.
    pub causes: Vec<RebalanceCause>,
    /// The number of shards that moved.
    pub moved: u64,
    /// The shards that moved, in order. Empty if they are too many ranges to be kept: `cut` is true then.
    pub moves: Vec<ShardMove>,
    /// Whether `moves` was too long to be kept.
    pub cut: bool,
}

/// A change that made a service be rebalanced, and how often it happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RebalanceCause {
    /// The kind of the change.
    pub change: ShardChange,
    /// How often it happened since the last rebalance.
    pub count: u32,
}

/// A change of a service. `joined`, `left`, `dead`: a worker. `released`: a worker released shards that it was asked for.
/// `resized`: the number of shards differs. `takeover`: another node coordinates the shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub enum ShardChange {
    /// A worker registered.
    Joined,
    /// A worker left.
    Left,
    /// A worker was silent for too long.
    Dead,
    /// A worker released shards that it was asked for.
    Released,
    /// The number of shards differs.
    Resized,
    /// Another node coordinates the shards.
    Takeover,
}

impl ShardChange {
    /// Returns the name, as in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            ShardChange::Joined => "joined",
            ShardChange::Left => "left",
            ShardChange::Dead => "dead",
            ShardChange::Released => "released",
            ShardChange::Resized => "resized",
            ShardChange::Takeover => "takeover",
        }
    }
}

/// Consecutive shards that moved together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ShardMove {
    /// The first shard of the range.
    #[cfg_attr(feature = "openapi", schema(value_type = u32))]
    pub first: Shard,
    /// The last shard of the range.
    #[cfg_attr(feature = "openapi", schema(value_type = u32))]
    pub last: Shard,
    /// The worker before; null if there was none.
    pub from: Option<WorkerId>,
    /// The worker since then; null if there is none.
    pub to: Option<WorkerId>,
}

impl ShardMove {
    fn bytes(&self) -> usize {
        let name = |worker: &Option<WorkerId>| worker.as_ref().map_or(4, |worker| worker.as_str().len() + 2);
        48 + name(&self.from) + name(&self.to)
    }
}
