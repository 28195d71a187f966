//! Serves workers of any language over HTTP: they register, poll for runs, report, send heartbeats and leave.
//!
//! A node keeps the [`sessions`] of its workers in memory; the state that must survive the node is in the store: that a
//! worker exists, its last sign of life, which run it has. So a worker may call any node, and a restarted node restores
//! its sessions. Reports are committed before the response, and are fenced by their execution, not by the session: a
//! late report of a worker that was declared dead is checked like any other.

mod cancellations;
mod handout;
mod heartbeat;
mod inbox;
mod link;
mod pace;
mod receive;
mod report;
mod sessions;

pub use cancellations::receive_cancellations;
pub use handout::release_runs;
pub use link::{ensure_known, runs_of};
pub use receive::{receive_runs, release_waiting};
pub use sessions::watch_sessions;

use self::inbox::Inbox;
use self::pace::Pace;
use self::sessions::Sessions;
use super::hints::Hints;
use super::node::NodeBase;
use super::waiting::Waiters;

/// The state of the workers and clients that are connected to this node.
pub struct Gateway {
    pub sessions: Sessions,
    pub inbox: Inbox,
    pub pace: Pace,
    pub hints: Hints,
    pub waiters: Waiters,
}

impl Gateway {
    pub fn new(base: &NodeBase) -> Self {
        Gateway {
            sessions: Sessions::default(),
            inbox: Inbox::default(),
            pace: Pace::new(base.settings.rate_limit.global),
            hints: Hints::default(),
            waiters: Waiters::default(),
        }
    }
}
