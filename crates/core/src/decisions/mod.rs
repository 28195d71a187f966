//! Decisions: one record for each operation that compared a fence, as a line of JSON.
//!
//! A node that keeps a history (`--history FILE`) writes a line for each of its fenced operations: who, what, the number
//! before and after, accepted or why not. Clients and workers can write what they received, and an export of the store what
//! it holds. [`verify`](crate::verify) checks the lines of any number of processes against the invariants.
//!
//! A line has no payload and a bounded size. It names its process (`node` and `boot`, which is new with every start) and
//! its place in it: `seq` is the number of the line, `since` that of the last line that was complete when the operation
//! began. So an operation whose `since` is at least the `seq` of another began after that other had ended. Nothing else
//! orders lines: `at` is the process's own clock, for people.
//!
//! A history has no end that one can rely on: a process that is killed loses its last lines. If lines were lost otherwise,
//! because the disk was full or the process was faster than the disk, a [`What::Gap`] shows it.

mod outcome;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::ids::{Epoch, ExecutionId, JobId, JobType, NodeId, QueueName, ScheduleName, ServiceName, WorkerId};
use crate::jobs::{ExecutionStatus, Status};

pub use outcome::Outcome;

/// The version of the format that this program writes and reads.
pub const FORMAT: u32 = 1;
/// Bytes of one line. Longer ones are not decisions.
pub const LINE_BYTES_MAX: usize = 8 << 10;

/// The kind of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub enum What {
    /// A process began to write: its first line.
    #[default]
    #[serde(rename = "process.begin")]
    ProcessBegin,
    /// A process stopped cleanly: its last line. Without it the process was killed, or still runs.
    #[serde(rename = "process.end")]
    ProcessEnd,
    /// Lines are missing here: `count` of them, if known.
    #[serde(rename = "gap")]
    Gap,
    /// A candidate requested the lease of a namespace.
    #[serde(rename = "lease.elect")]
    LeaseElect,
    /// A leader requested to prolong its lease.
    #[serde(rename = "lease.renew")]
    LeaseRenew,
    /// A leader ended its term.
    #[serde(rename = "lease.resign")]
    LeaseResign,
    /// A candidate raised the sealed epoch of the store to `after`.
    #[serde(rename = "epoch.seal")]
    EpochSeal,
    /// A process read the sealed epoch: `after`.
    #[serde(rename = "epoch.read")]
    EpochRead,
    /// A job was stored, by a client's request.
    #[serde(rename = "jobs.enqueue")]
    JobsEnqueue,
    /// A live job was ended as cancelled, with its `run` if one was in flight.
    #[serde(rename = "jobs.cancel")]
    JobsCancel,
    /// An ended job was made pending again. Written before and after.
    #[serde(rename = "jobs.redrive")]
    JobsRedrive,
    /// A job was deleted by a client's request. Written before and after.
    #[serde(rename = "jobs.purge")]
    JobsPurge,
    /// The leader made due jobs pending.
    #[serde(rename = "jobs.promote")]
    JobsPromote,
    /// The leader gave a job to a run; `after` is the node that owns it, if it was addressed to one.
    #[serde(rename = "jobs.dispatch")]
    JobsDispatch,
    /// The leader made the job of a schedule's tick.
    #[serde(rename = "jobs.tick")]
    JobsTick,
    /// The leader marked ended jobs as cleaned.
    #[serde(rename = "jobs.clean")]
    JobsClean,
    /// The leader deleted ended jobs whose retention has passed.
    #[serde(rename = "jobs.expire")]
    JobsExpire,
    /// A node became the owner of a run, or confirmed it: `after`, by `claim`.
    #[serde(rename = "run.claim")]
    RunClaim,
    /// A node recorded how a run ended.
    #[serde(rename = "run.report")]
    RunReport,
    /// The leader ended a run on its own authority.
    #[serde(rename = "run.end")]
    RunEnd,
    /// The owner `before` offers a run to other nodes.
    #[serde(rename = "run.offer")]
    RunOffer,
    /// The owner `before` keeps a run that it had offered.
    #[serde(rename = "run.keep")]
    RunKeep,
    /// The owner `before` found no other node for a run.
    #[serde(rename = "run.orphan")]
    RunOrphan,
    /// A node took a run over: from `before` to `after`.
    #[serde(rename = "run.take")]
    RunTake,
    /// A leader changed a registry: workers, nodes, shard workers, the audit.
    #[serde(rename = "registry.change")]
    RegistryChange,
    /// The coordinator of shards sent a worker its shards, under the version `after`.
    #[serde(rename = "shard.grant")]
    ShardGrant,
    /// A client's enqueue was acknowledged.
    #[serde(rename = "client.enqueued")]
    ClientEnqueued,
    /// A worker received a run.
    #[serde(rename = "client.ran")]
    ClientRan,
    /// A worker's report of an end was accepted or rejected.
    #[serde(rename = "client.reported")]
    ClientReported,
    /// A client read that a job had ended.
    #[serde(rename = "client.ended")]
    ClientEnded,
    /// An export of a store begins.
    #[serde(rename = "store.begin")]
    StoreBegin,
    /// A job as the store has it.
    #[serde(rename = "store.job")]
    StoreJob,
    /// A run of a job as the store has it.
    #[serde(rename = "store.run")]
    StoreRun,
    /// The epoch of the store's leader, as it is shown: `after`.
    #[serde(rename = "store.epoch")]
    StoreEpoch,
    /// The export is complete: it had `count` jobs.
    #[serde(rename = "store.end")]
    StoreEnd,
    /// A kind that this version does not know.
    #[serde(other, rename = "other")]
    Other,
}

impl What {
    /// Returns whether it is a write that only a leader may make: it carries an epoch.
    pub const fn is_leaders(self) -> bool {
        matches!(
            self,
            What::JobsPromote
                | What::JobsDispatch
                | What::JobsTick
                | What::JobsClean
                | What::JobsExpire
                | What::RunEnd
                | What::RegistryChange
        )
    }
}

/// A number or a name that an operation changed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Mark {
    /// An epoch or a version.
    Number(u64),
    /// A node, or the holder of a lease.
    Name(NodeId),
}

impl Mark {
    /// Returns the number, if it is one.
    pub fn number(&self) -> Option<u64> {
        match self {
            Mark::Number(number) => Some(*number),
            Mark::Name(_) => None,
        }
    }

    /// Returns the name, if it is one.
    pub fn name(&self) -> Option<&NodeId> {
        match self {
            Mark::Number(_) => None,
            Mark::Name(name) => Some(name),
        }
    }
}

impl From<Epoch> for Mark {
    fn from(epoch: Epoch) -> Self {
        Mark::Number(epoch.0)
    }
}

impl From<&NodeId> for Mark {
    fn from(node: &NodeId) -> Self {
        Mark::Name(node.clone())
    }
}

/// How a report claims its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ClaimKind {
    /// The node replaces any owner.
    Take,
    /// The report counts only if no other node owns the run.
    IfFree,
}

/// One line of a history. Absent fields do not apply to its kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Decision {
    /// The version of the format.
    pub v: u32,
    /// When the operation ended, by the clock of the process.
    pub at: Timestamp,
    /// The process: a node's id, or the name of a client.
    pub node: NodeId,
    /// A number that every start of the process draws anew.
    pub boot: u32,
    /// The number of the line within the boot, from 1 and without a gap.
    pub seq: u64,
    /// The number of the last line that was complete when the operation began.
    pub since: u64,
    /// The kind of the operation.
    pub what: What,
    /// The result of the operation.
    #[serde(default, skip_serializing_if = "Outcome::is_accepted")]
    pub outcome: Outcome,
    /// The fence of a leader's write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<Epoch>,
    /// The number or name before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Mark>,
    /// The number or name after.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Mark>,
    /// The job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// The run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<ExecutionId>,
    /// The number of the run's attempt; of a job in an export: how many of its attempts counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// How many attempts the job may have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts_max: Option<u32>,
    /// The status of the job afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// How the run ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<ExecutionStatus>,
    /// How the report claims the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<ClaimKind>,
    /// The worker of a run or of shards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerId>,
    /// The type of the job.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub job_type: Option<JobType>,
    /// The queue of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueName>,
    /// The schedule that made the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<ScheduleName>,
    /// The tick of the schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tick: Option<Timestamp>,
    /// The namespace of a lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<NodeId>,
    /// The service of shards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceName>,
    /// Ranges of shards, the first and the last of each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shards: Vec<(u32, u32)>,
    /// How many lines are missing, or how many jobs were changed or exported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Of a process that begins: whether its store outlives it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lasting: Option<bool>,
    /// Of a process that begins: after how many seconds ended jobs may be deleted, at the earliest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention_s: Option<u64>,
}

impl Decision {
    /// Returns a decision of this kind and outcome. The process that records it sets who, when and its place.
    pub fn of(what: What, outcome: Outcome) -> Self {
        Decision { outcome, ..Decision::blank(what) }
    }

    fn blank(what: What) -> Self {
        Decision {
            v: FORMAT,
            at: Timestamp::UNIX_EPOCH,
            node: NodeId::unread(),
            boot: 0,
            seq: 0,
            since: 0,
            what,
            outcome: Outcome::Accepted,
            epoch: None,
            before: None,
            after: None,
            job: None,
            run: None,
            attempt: None,
            attempts_max: None,
            status: None,
            end: None,
            claim: None,
            worker: None,
            job_type: None,
            queue: None,
            schedule: None,
            tick: None,
            namespace: None,
            service: None,
            shards: Vec::new(),
            count: None,
            lasting: None,
            retention_s: None,
        }
    }

    /// Returns whether the operation was carried out.
    pub fn is_accepted(&self) -> bool {
        self.outcome == Outcome::Accepted
    }

    /// Returns whether the operation may have been carried out.
    pub fn may_have_happened(&self) -> bool {
        matches!(self.outcome, Outcome::Accepted | Outcome::Asked | Outcome::Unknown)
    }

    /// Appends the line, with its end.
    pub fn write_line(&self, out: &mut Vec<u8>) {
        // Writing to memory does not fail, and neither does the encoding of these types.
        if serde_json::to_writer(&mut *out, self).is_ok() {
            out.push(b'\n');
        }
    }

    /// Reads a line.
    pub fn read_line(text: &str) -> Result<Decision, String> {
        if text.len() > LINE_BYTES_MAX {
            return Err(format!("expected a line of at most {LINE_BYTES_MAX} bytes, got {}", text.len()));
        }
        let decision: Decision = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if decision.v != FORMAT {
            return Err(format!("expected version {FORMAT} of the format, got {}", decision.v));
        }
        Ok(decision)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_short_and_is_read_back_as_it_was_written() {
        let mut decision = Decision::of(What::JobsDispatch, Outcome::Accepted);
        decision.node = NodeId::new("n1").expect("a name");
        decision.epoch = Some(Epoch(7));
        decision.after = Some(Mark::from(&decision.node));
        let mut line = Vec::new();
        decision.write_line(&mut line);
        let line = String::from_utf8(line).expect("UTF-8");
        assert_eq!(
            line,
            "{\"v\":1,\"at\":\"1970-01-01T00:00:00Z\",\"node\":\"n1\",\"boot\":0,\"seq\":0,\"since\":0,\
             \"what\":\"jobs.dispatch\",\"epoch\":7,\"after\":\"n1\"}\n"
        );
        assert_eq!(Decision::read_line(line.trim_end()), Ok(decision));
    }

    #[test]
    fn a_refusal_is_in_the_line() {
        let mut line = Vec::new();
        Decision { node: NodeId::new("n").expect("a name"), ..Decision::of(What::EpochSeal, Outcome::Fenced) }
            .write_line(&mut line);
        let line = String::from_utf8(line).expect("UTF-8");
        assert!(line.contains("\"outcome\":\"fenced\""), "{line}");
        assert_eq!(Decision::read_line(line.trim_end()).map(|it| it.outcome), Ok(Outcome::Fenced));
    }

    #[test]
    fn a_kind_that_is_not_known_is_read_and_another_version_is_not() {
        let line =
            r#"{"v":1,"at":"2026-01-01T00:00:00Z","node":"n","boot":1,"seq":1,"since":0,"what":"moon.phase","x":1}"#;
        assert_eq!(Decision::read_line(line).map(|it| it.what), Ok(What::Other));
        let refused = Decision::read_line(&line.replace("\"v\":1", "\"v\":2")).expect_err("another version");
        assert_eq!(refused, "expected version 1 of the format, got 2");
        assert!(Decision::read_line("{\"v\":1").is_err() && Decision::read_line("").is_err());
    }
}
