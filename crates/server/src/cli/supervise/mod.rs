//! Runs commands of others so that nothing of a command outlives its purpose.
//!
//! A command never runs as a direct child of the process that wants it. Between the two is a *guard*: the same binary, started
//! under another name, connected by a socket, and with one command at a time. The guard is the subreaper of all that its command
//! starts, in whatever process group or session, so that it can kill the whole tree: if it is ordered to, if the command ends and
//! leaves processes behind, if a deadline passes, and if the socket closes because the process that started it died.
//!
//! If a guard is killed, its tree becomes the tree of the process that started the guard, which is a subreaper too and kills it. A
//! *bound* command is also killed by the kernel (parent-death signal), at once and even if that process is frozen. If both are killed
//! at the same moment, nothing but the parent-death signal is left.
//!
//! | user | supervises by |
//! | --- | --- |
//! | `convoke elect` | one [`GuardLink`] for each term, with the deadline of its lease and a bound command |
//! | `convoke worker run` | [`Commands`]: guards that are reused from run to run; bound with `--strict-supervision` |
//! | `convoke mesh serve` | the same, not bound |

mod child_tree;
mod commands;
mod guard;
mod guard_link;
mod messages;

pub use child_tree::ChildTree;
pub use commands::{Commands, RunningCommand};
pub use guard::{GuardArgs, exec_under_guard, run as run_guard};
pub use guard_link::{GuardLink, GuardOptions};
pub use messages::{Deadline, Ending, GuardEvent, Moment, Order};
