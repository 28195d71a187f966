//! The names of the channels. `convoke` is the default prefix.

use uuid::Uuid;

use crate::ids::{JobId, NodeId, QueueName};

/// One of the two channels that a job has while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JobChannel {
    /// Reports of the run: started, progress, its end.
    Status,
    /// Log lines of the run.
    Logs,
}

/// Channel names under one prefix. The doc of each method states the kind of the channel and what it carries.
#[derive(Debug, Clone)]
pub struct Channels {
    prefix: String,
}

impl Channels {
    /// Names channels under `prefix`.
    pub fn new(prefix: impl Into<String>) -> Self {
        Channels { prefix: prefix.into() }
    }

    /// Returns the channel of a kind of which there is only one, as [`kind_of`](Self::kind_of) names it.
    pub fn named(&self, kind: &str) -> String {
        format!("{}.{kind}", self.prefix)
    }

    /// Queue: jobs that an application enqueues without HTTP.
    pub fn enqueue(&self) -> String {
        format!("{}.job.enqueue", self.prefix)
    }

    /// Queue: runs of `queue`, each for one worker.
    pub fn dispatch(&self, queue: &QueueName) -> String {
        format!("{}.job.dispatch.{queue}", self.prefix)
    }

    /// Returns the queue of a channel named by [`Channels::dispatch`]; `None` for any other channel.
    pub fn queue_of(&self, name: &str) -> Option<QueueName> {
        let queue = name.strip_prefix(&self.prefix)?.strip_prefix(".job.dispatch.")?;
        QueueName::new(queue).ok()
    }

    /// Topic: cancellations, to every worker.
    pub fn cancel(&self) -> String {
        format!("{}.job.cancel", self.prefix)
    }

    /// Queue with competing readers: dispatched runs that need an owner.
    pub fn assigned(&self) -> String {
        format!("{}.job.assigned", self.prefix)
    }

    /// Queue: reports of the job's run, read by its owner.
    pub fn status(&self, job: JobId) -> String {
        format!("{}.job.{job}.status", self.prefix)
    }

    /// Queue: log lines of the job's run, read by its owner.
    pub fn logs(&self, job: JobId) -> String {
        format!("{}.job.{job}.logs", self.prefix)
    }

    /// Returns the prefix of the channels of all jobs, which some other channels have as well.
    pub fn jobs(&self) -> String {
        format!("{}.job.", self.prefix)
    }

    /// Returns the job and the kind of a channel of one job; `None` for any other channel.
    pub fn job_of(&self, name: &str) -> Option<(JobId, JobChannel)> {
        let rest = name.strip_prefix(&self.prefix)?.strip_prefix(".job.")?;
        let (id, kind) = rest.split_once('.')?;
        let channel = match kind {
            "status" => JobChannel::Status,
            "logs" => JobChannel::Logs,
            _ => return None,
        };
        // Only the canonical form of an id: another spelling is another channel.
        let job: JobId = id.parse().ok()?;
        (id.len() == 36 && !id.bytes().any(|byte| byte.is_ascii_uppercase())).then_some((job, channel))
    }

    /// Returns the name of a channel without prefix, ids, queues and nodes: a label with few values, for metrics.
    pub fn kind_of<'a>(&self, name: &'a str) -> &'a str {
        let kind = name.strip_prefix(&self.prefix).and_then(|rest| rest.strip_prefix('.')).unwrap_or(name);
        let is_one_of = |many: &&str| kind.strip_prefix(many).is_some_and(|rest| rest.starts_with('.'));
        match self.job_of(name) {
            Some((_, JobChannel::Status)) => "job.status",
            Some((_, JobChannel::Logs)) => "job.logs",
            None => ["job.dispatch", "job.handoff.ack", "job.inbox"].into_iter().find(is_one_of).unwrap_or(kind),
        }
    }

    /// Returns both channels of each of `jobs`.
    pub fn of_jobs(&self, jobs: &[JobId]) -> Vec<String> {
        jobs.iter().flat_map(|job| [self.status(*job), self.logs(*job)]).collect()
    }

    /// Queue with competing readers: runs that are offered to a new owner.
    pub fn handoff(&self) -> String {
        format!("{}.job.handoff", self.prefix)
    }

    /// Topic: acknowledgements of offers, to the node that made them.
    pub fn handoff_ack(&self, node: &NodeId) -> String {
        format!("{}.job.handoff.ack.{node}", self.prefix)
    }

    /// Topic: heartbeats of workers, to the leader.
    pub fn worker_heartbeat(&self) -> String {
        format!("{}.worker.heartbeat", self.prefix)
    }

    /// Topic: heartbeats of nodes, to the other nodes and to bus workers.
    pub fn coordinator_heartbeat(&self) -> String {
        format!("{}.coordinator.heartbeat", self.prefix)
    }

    /// Topic: requests to a node to drain.
    pub fn drain(&self) -> String {
        format!("{}.coordinator.drain", self.prefix)
    }

    /// Topic: requests for the state of shards, to the node that coordinates them.
    pub fn shards_ask(&self) -> String {
        format!("{}.shards.ask", self.prefix)
    }

    /// Topic: the reply to one such request.
    pub fn shards_reply(&self, ask: Uuid) -> String {
        format!("{}.shards.reply.{}", self.prefix, ask.simple())
    }

    /// Topic: ids of jobs with new entries on their channels.
    pub fn bell(&self) -> String {
        format!("{}.job.bell", self.prefix)
    }

    /// Topic: names of queues with new pending jobs. A hint to the leader.
    pub fn ready(&self) -> String {
        format!("{}.job.ready", self.prefix)
    }

    /// Topic: cache keys whose values have changed.
    pub fn cache(&self) -> String {
        format!("{}.cache", self.prefix)
    }

    /// Topic: the events and jobs that a node subscribes to.
    pub fn interest(&self) -> String {
        format!("{}.interest", self.prefix)
    }

    /// Topic: jobs that have ended and that some node waits for.
    pub fn ended(&self) -> String {
        format!("{}.job.ended", self.prefix)
    }

    /// Topic: events of a node, sent while another node has watchers.
    pub fn events(&self) -> String {
        format!("{}.events", self.prefix)
    }

    /// Topic: records of the recent past, which nodes share for display.
    pub fn history(&self) -> String {
        format!("{}.history", self.prefix)
    }

    /// Queue: runs for the workers of `node`'s gateway.
    pub fn inbox(&self, node: &NodeId) -> String {
        format!("{}.job.inbox.{node}", self.prefix)
    }

    /// Returns the node of a channel named by [`Channels::inbox`]; `None` for any other channel.
    pub fn inbox_of(&self, name: &str) -> Option<NodeId> {
        let node = name.strip_prefix(&self.prefix)?.strip_prefix(".job.inbox.")?;
        NodeId::new(node).ok()
    }

    /// Queue: messages that could not be decoded, with the reason.
    pub fn poison(&self) -> String {
        format!("{}.poison", self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_are_named_as_promised() {
        let id = "0198c0de-0000-7000-8000-000000000001";
        let job: JobId = id.parse().expect("an id");
        let (queue, node) = (QueueName::new("email").expect("a name"), NodeId::new("node-1").expect("a name"));
        for prefix in ["convoke", "orchestrix"] {
            let channels = Channels::new(prefix);
            let names = [
                (channels.enqueue(), "job.enqueue"),
                (channels.dispatch(&queue), "job.dispatch.email"),
                (channels.cancel(), "job.cancel"),
                (channels.assigned(), "job.assigned"),
                (channels.status(job), "job.0198c0de-0000-7000-8000-000000000001.status"),
                (channels.logs(job), "job.0198c0de-0000-7000-8000-000000000001.logs"),
                (channels.handoff(), "job.handoff"),
                (channels.handoff_ack(&node), "job.handoff.ack.node-1"),
                (channels.worker_heartbeat(), "worker.heartbeat"),
                (channels.coordinator_heartbeat(), "coordinator.heartbeat"),
                (channels.drain(), "coordinator.drain"),
                (channels.shards_ask(), "shards.ask"),
                (channels.shards_reply(job.0), "shards.reply.0198c0de000070008000000000000001"),
                (channels.bell(), "job.bell"),
                (channels.ready(), "job.ready"),
                (channels.cache(), "cache"),
                (channels.interest(), "interest"),
                (channels.ended(), "job.ended"),
                (channels.events(), "events"),
                (channels.history(), "history"),
                (channels.inbox(&node), "job.inbox.node-1"),
                (channels.poison(), "poison"),
            ];
            for (name, expected) in names {
                assert_eq!(name, format!("{prefix}.{expected}"));
            }
        }
    }

    #[test]
    fn a_jobs_channels_tell_whose_they_are() {
        let id = "0198c0de-0000-7000-8000-00000000000a";
        let job: JobId = id.parse().expect("an id");
        let channels = Channels::new("convoke");
        assert_eq!(channels.job_of(&channels.status(job)), Some((job, JobChannel::Status)));
        assert_eq!(channels.job_of(&channels.logs(job)), Some((job, JobChannel::Logs)));
        let others = [
            channels.enqueue(),
            channels.bell(),
            channels.status(job).to_uppercase(),
            format!("convoke.job.{}.status", id.to_uppercase()),
            format!("convoke.job.{}.status", id.replace('-', "")),
            format!("convoke.job.{id}.progress"),
            format!("convoke.job.{id}"),
            format!("other.job.{id}.status"),
            format!("convoke.job.dispatch.{id}.status"),
            String::new(),
        ];
        for name in others {
            assert_eq!(channels.job_of(&name), None, "{name}");
        }
    }

    #[test]
    fn what_is_counted_by_channel_is_counted_by_few() {
        let job: JobId = "0198c0de-0000-7000-8000-00000000000a".parse().expect("an id");
        let (queue, node) = (QueueName::new("a.b").expect("a name"), NodeId::new("n-1").expect("a name"));
        for prefix in ["convoke", "a.b"] {
            let channels = Channels::new(prefix);
            let kinds = [
                (channels.enqueue(), "job.enqueue"),
                (channels.worker_heartbeat(), "worker.heartbeat"),
                (channels.bell(), "job.bell"),
                (channels.handoff(), "job.handoff"),
                (channels.handoff_ack(&node), "job.handoff.ack"),
                (channels.inbox(&node), "job.inbox"),
                (channels.dispatch(&queue), "job.dispatch"),
                (channels.status(job), "job.status"),
                (channels.logs(job), "job.logs"),
                ("job.dispatch".into(), "job.dispatch"),
            ];
            for (name, expected) in kinds {
                assert_eq!(channels.kind_of(&name), expected);
            }
        }
    }

    #[test]
    fn no_queue_can_take_the_name_of_another_channel() {
        let channels = Channels::new("convoke");
        for name in ["enqueue", "../assigned", "a.b", "dispatch.email"] {
            let queue = QueueName::new(name).expect("a name");
            assert!(channels.dispatch(&queue).starts_with("convoke.job.dispatch."));
            assert_eq!(channels.queue_of(&channels.dispatch(&queue)), Some(queue));
        }
        for name in ["convoke.job.dispatch.", "convoke.job.enqueue", "other.job.dispatch.email", ""] {
            assert_eq!(channels.queue_of(name), None, "{name}");
        }
        let node = NodeId::new("a.b").expect("a name");
        assert_eq!(channels.inbox_of(&channels.inbox(&node)), Some(node));
        assert_eq!(channels.inbox_of("convoke.job.dispatch.email"), None);
        assert_ne!(channels.handoff_ack(&NodeId::new("x").expect("a name")), channels.handoff());
    }
}
