//! How workers of any language are served: they register, poll for runs, report, beat and leave.
//!
//! A node remembers the [`sessions`] of the workers that speak to it; what must survive the node is in the store: that a
//! worker exists, when it was last heard of, which run it has. So a worker may turn to any node, and a node that was
//! restarted knows its workers again. Reports are committed before they are answered, and are fenced by their execution,
//! not by the session: also the late word of a worker that was declared dead is judged on its merits.

mod handout;
mod heartbeat;
mod link;
mod pace;
mod reclaim;
mod report;
mod sessions;

pub use link::{leave_queues, runs_of};
pub use pace::Pace;
pub use sessions::{Sessions, watch_sessions};
