//! The keys and channels of a mesh in Redis: those of the existing system, whose instances may be in the same mesh.

use std::fmt::Write;

use convoke_core::mesh::InstanceId;

/// Digits of the largest number.
const NUMBER_BYTES_MAX: usize = 20;

#[derive(Debug, Clone)]
pub(super) struct Keys {
    /// The name of the mesh.
    pub mesh: String,
    pub counter: String,
    pub heartbeats: String,
    pub hostnames: String,
    pub lock: String,
    pub broadcast: String,
    /// Prefix of an instance's channel.
    pub channel_prefix: String,
    /// Prefix of the key that holds the token of a number's owner. The existing system has no such key.
    pub bearer_prefix: String,
    /// Prefix of the key that holds the figures of an instance. The existing system has no such key.
    pub figures_prefix: String,
}

impl Keys {
    pub(super) fn new(prefix: &str, lock_prefix: &str, key: &str) -> Self {
        let mesh = format!("{prefix}:mesh:{key}");
        Keys {
            mesh: key.to_owned(),
            counter: format!("{mesh}:next_id"),
            heartbeats: format!("{mesh}:heartbeats"),
            hostnames: format!("{mesh}:nodes"),
            lock: format!("{lock_prefix}:leader:mesh:{key}"),
            broadcast: format!("{mesh}:broadcast"),
            channel_prefix: format!("{mesh}:node:"),
            bearer_prefix: format!("{mesh}:bearer:"),
            figures_prefix: format!("{mesh}:figures:"),
        }
    }

    pub(super) fn bearer(&self, id: InstanceId) -> String {
        format!("{}{id}", self.bearer_prefix)
    }

    pub(super) fn figures(&self, id: InstanceId) -> String {
        format!("{}{id}", self.figures_prefix)
    }

    pub(super) fn channel(&self, id: InstanceId) -> String {
        let mut channel = String::with_capacity(self.channel_prefix.len() + NUMBER_BYTES_MAX);
        channel.push_str(&self.channel_prefix);
        write!(channel, "{id}").expect("a string takes everything");
        channel
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_existing_system() {
        let keys = Keys::new("app", "locks", "my-app");
        assert_eq!(keys.counter, "app:mesh:my-app:next_id");
        assert_eq!(keys.heartbeats, "app:mesh:my-app:heartbeats");
        assert_eq!(keys.hostnames, "app:mesh:my-app:nodes");
        assert_eq!(keys.channel(InstanceId(7)), "app:mesh:my-app:node:7");
        assert_eq!(keys.bearer(InstanceId(7)), "app:mesh:my-app:bearer:7", "unknown to the existing system");
        assert_eq!(keys.figures(InstanceId(7)), "app:mesh:my-app:figures:7", "unknown to the existing system");
        assert_eq!(keys.broadcast, "app:mesh:my-app:broadcast");
        assert_eq!(keys.lock, "locks:leader:mesh:my-app");
    }
}
