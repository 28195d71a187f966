//! The names of the channels. `convoke` is the default prefix.

use uuid::Uuid;

use crate::ids::{JobId, NodeId, QueueName};

/// One of the two channels that a job has while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JobChannel {
    Status,
    Logs,
}

/// Channel names under one prefix.
#[derive(Debug, Clone)]
pub struct Channels {
    prefix: String,
}

impl Channels {
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

    /// Queue: jobs for one worker of `queue`.
    pub fn dispatch(&self, queue: &QueueName) -> String {
        format!("{}.job.dispatch.{queue}", self.prefix)
    }

    /// Whose jobs a channel carries, where it is one of [`Channels::dispatch`].
    pub fn queue_of(&self, name: &str) -> Option<QueueName> {
        let queue = name.strip_prefix(&self.prefix)?.strip_prefix(".job.dispatch.")?;
        QueueName::new(queue).ok()
    }

    /// Topic: every worker must see a cancellation.
    pub fn cancel(&self) -> String {
        format!("{}.job.cancel", self.prefix)
    }

    /// Queue, competing: who owns a dispatched job's events.
    pub fn assigned(&self) -> String {
        format!("{}.job.assigned", self.prefix)
    }

    /// Queue, read by the job's owner.
    pub fn status(&self, job: JobId) -> String {
        format!("{}.job.{job}.status", self.prefix)
    }

    /// Queue, read by the job's owner.
    pub fn logs(&self, job: JobId) -> String {
        format!("{}.job.{job}.logs", self.prefix)
    }

    /// What the names of all jobs' channels begin with; others' names do too.
    pub fn jobs(&self) -> String {
        format!("{}.job.", self.prefix)
    }

    /// Whose channel this is, and which, where it is a job's own.
    pub fn job_of(&self, name: &str) -> Option<(JobId, JobChannel)> {
        let rest = name.strip_prefix(&self.prefix)?.strip_prefix(".job.")?;
        let (id, kind) = rest.split_once('.')?;
        let channel = match kind {
            "status" => JobChannel::Status,
            "logs" => JobChannel::Logs,
            _ => return None,
        };
        // Only the form in which we write ids: another spelling of one would be another channel.
        let job: JobId = id.parse().ok()?;
        (id.len() == 36 && !id.bytes().any(|byte| byte.is_ascii_uppercase())).then_some((job, channel))
    }

    /// A channel's name without the prefix and without what there may be any number of: ids, queues, nodes. To count by.
    pub fn kind_of<'a>(&self, name: &'a str) -> &'a str {
        let kind = name.strip_prefix(&self.prefix).and_then(|rest| rest.strip_prefix('.')).unwrap_or(name);
        let is_one_of = |many: &&str| kind.strip_prefix(many).is_some_and(|rest| rest.starts_with('.'));
        match self.job_of(name) {
            Some((_, JobChannel::Status)) => "job.status",
            Some((_, JobChannel::Logs)) => "job.logs",
            None => ["job.dispatch", "job.handoff.ack"].into_iter().find(is_one_of).unwrap_or(kind),
        }
    }

    /// Both channels of each of `jobs`.
    pub fn of_jobs(&self, jobs: &[JobId]) -> Vec<String> {
        jobs.iter().flat_map(|job| [self.status(*job), self.logs(*job)]).collect()
    }

    /// Queue, competing: jobs that look for a new owner.
    pub fn handoff(&self) -> String {
        format!("{}.job.handoff", self.prefix)
    }

    /// Topic: a former owner waits here.
    pub fn handoff_ack(&self, node: &NodeId) -> String {
        format!("{}.job.handoff.ack.{node}", self.prefix)
    }

    pub fn worker_heartbeat(&self) -> String {
        format!("{}.worker.heartbeat", self.prefix)
    }

    pub fn coordinator_heartbeat(&self) -> String {
        format!("{}.coordinator.heartbeat", self.prefix)
    }

    /// Topic: asks a node to drain.
    pub fn drain(&self) -> String {
        format!("{}.coordinator.drain", self.prefix)
    }

    /// Topic: asks the node that coordinates shards what it knows of them.
    pub fn shards_ask(&self) -> String {
        format!("{}.shards.ask", self.prefix)
    }

    /// Topic: its reply to one question.
    pub fn shards_reply(&self, ask: Uuid) -> String {
        format!("{}.shards.reply.{}", self.prefix, ask.simple())
    }

    /// Topic: ids of jobs whose channels have something new.
    pub fn bell(&self) -> String {
        format!("{}.job.bell", self.prefix)
    }

    /// Topic: names of queues that have something new to dispatch. A hint to the leader.
    pub fn ready(&self) -> String {
        format!("{}.job.ready", self.prefix)
    }

    /// Topic: keys of what other nodes may have cached and that has changed.
    pub fn cache(&self) -> String {
        format!("{}.cache", self.prefix)
    }

    /// Topic: what a node wants to hear of from the others.
    pub fn interest(&self) -> String {
        format!("{}.interest", self.prefix)
    }

    /// Topic: jobs that have ended, of those that some node waits for.
    pub fn ended(&self) -> String {
        format!("{}.job.ended", self.prefix)
    }

    /// Topic: what happens on a node, while another one has somebody who watches.
    pub fn events(&self) -> String {
        format!("{}.events", self.prefix)
    }

    /// Topic: runs that a gateway handed out.
    pub fn taken(&self) -> String {
        format!("{}.job.taken", self.prefix)
    }

    /// Queue: what could not be read, with the reason.
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
                (channels.taken(), "job.taken"),
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
        assert_ne!(channels.handoff_ack(&NodeId::new("x").expect("a name")), channels.handoff());
    }
}
