//! The names under which values are cached: the same on every node, so that a node can publish which have changed.

use std::fmt;

use convoke_core::{JobId, NodeId, WorkerId};

/// A group of values with one lifetime, which are cleared together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Job,
    Worker,
    Node,
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::Job, Kind::Worker, Kind::Node];

    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::Job => "job",
            Kind::Worker => "worker",
            Kind::Node => "node",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key<'a> {
    Job(JobId),
    /// The runs whose events a node records.
    JobsOf(&'a NodeId),
    Worker(&'a WorkerId),
    Workers,
    Node(&'a NodeId),
    Nodes,
    /// Everything: so much has changed that listing it would cost more than reading it again.
    Everything,
}

impl fmt::Display for Key<'_> {
    /// Without the prefix.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Job(id) => write!(f, "job:{id}"),
            Key::JobsOf(node) => write!(f, "jobs:follower:{node}"),
            Key::Worker(id) => write!(f, "worker:{id}"),
            Key::Workers => f.write_str("workers"),
            Key::Node(id) => write!(f, "coordinator:{id}"),
            Key::Nodes => f.write_str("coordinators"),
            Key::Everything => f.write_str("*"),
        }
    }
}

impl Key<'_> {
    pub fn text(&self, prefix: &str) -> String {
        format!("{prefix}:{self}")
    }

    pub const fn kind(&self) -> Option<Kind> {
        match self {
            Key::Job(_) => Some(Kind::Job),
            Key::Worker(_) | Key::Workers => Some(Kind::Worker),
            Key::JobsOf(_) | Key::Node(_) | Key::Nodes => Some(Kind::Node),
            Key::Everything => None,
        }
    }
}

/// Returns the kinds that a key from another node is about: none if the key is unknown.
pub fn kinds_of(prefix: &str, text: &str) -> &'static [Kind] {
    let Some(rest) = text.strip_prefix(prefix).and_then(|rest| rest.strip_prefix(':')) else { return &[] };
    match rest.split_once(':').map_or(rest, |(head, _)| head) {
        "job" => &[Kind::Job],
        "worker" | "workers" => &[Kind::Worker],
        "jobs" | "coordinator" | "coordinators" => &[Kind::Node],
        "*" => &Kind::ALL,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_named_as_promised_and_known_again_by_their_names() {
        let id = "0198c0de-0000-7000-8000-000000000001";
        let job: JobId = id.parse().expect("an id");
        let (worker, node) = (WorkerId::new("w:1").expect("a name"), NodeId::new("n-1").expect("a name"));
        for prefix in ["convoke", "orchestrix"] {
            for (key, expected) in [
                (Key::Job(job), format!("job:{id}")),
                (Key::JobsOf(&node), "jobs:follower:n-1".into()),
                (Key::Worker(&worker), "worker:w:1".into()),
                (Key::Workers, "workers".into()),
                (Key::Node(&node), "coordinator:n-1".into()),
                (Key::Nodes, "coordinators".into()),
            ] {
                assert_eq!(key.text(prefix), format!("{prefix}:{expected}"));
                assert_eq!(kinds_of(prefix, &key.text(prefix)), [key.kind().expect("a kind")]);
            }
            assert_eq!(kinds_of(prefix, &Key::Everything.text(prefix)), Kind::ALL);
        }
        for strange in ["", "convoke", "convoke:", "convoke:moon", "other:workers", "convokeworkers"] {
            assert_eq!(kinds_of("convoke", strange), [], "{strange}");
        }
    }
}
