//! How workers of any language are served: they register, poll for runs, report, beat and leave.
//!
//! A node remembers the [`sessions`] of the workers that speak to it; what must survive the node is in the store: that a
//! worker exists, when it was last heard of, which run it has. So a worker may turn to any node, and a node that was
//! restarted knows its workers again. Reports are committed before they are answered, and are fenced by their execution,
//! not by the session: also the late word of a worker that was declared dead is judged on its merits.

mod cancellations;
mod handout;
mod heartbeat;
mod link;
mod pace;
mod reclaim;
mod report;
mod sessions;

pub use cancellations::receive_cancellations;
pub use link::{leave_queues, runs_of};
pub use sessions::watch_sessions;

use self::pace::Pace;
use self::sessions::Sessions;
use super::hints::Hints;
use super::node::NodeBase;
use super::waiting::Waiters;

/// What a node remembers of the workers and clients that speak to it.
pub struct Gateway {
    pub sessions: Sessions,
    pub pace: Pace,
    pub hints: Hints,
    pub waiters: Waiters,
}

impl Gateway {
    pub fn new(base: &NodeBase) -> Self {
        Gateway {
            sessions: Sessions::default(),
            pace: Pace::new(base.settings.rate_limit.global),
            hints: Hints::default(),
            waiters: Waiters::default(),
        }
    }
}
