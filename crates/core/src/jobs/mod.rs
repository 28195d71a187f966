//! Jobs: their states, their runs and the rules by which a coordinator dispatches, records, retries and schedules them.
//!
//! A job is one row for all its attempts. Each attempt is a run with an [`ExecutionId`](crate::ExecutionId) of its own,
//! and only reports of the present run can commit.
//!
//! | module | content |
//! | --- | --- |
//! | [`template`], [`spec`] | the definition of a job; how a request becomes a job |
//! | [`lifecycle`] | the states of a job and their order |
//! | [`fold`], [`run`], [`run_state`], [`run_log`] | events of a run become reports; their effect |
//! | [`dispatch`], [`priority`], [`window`], [`inboxes`], [`untaken`], [`readers`], [`fair_share`], [`rate_limit`] | which jobs are dispatched, and how many |
//! | [`schedule`], [`cron`] | when a schedule makes a job |
//! | [`retry`], [`deadline`], [`retention`] | when a run is retried or timed out, and when a job is deleted |
//! | [`handoff`], [`liveness`], [`unlisted`] | how a run changes its owner, which nodes are alive, which runs their workers have lost |
//! | [`link`], [`wire`], [`channels`], [`rejections`] | the messages of workers, clients and nodes |
//! | [`job`], [`queue`], [`filter`], [`listing`], [`error_group`], [`event`], [`hidden`] | jobs, queues and events as readers see them |

mod cadence;
pub mod channels;
mod cluster;
#[cfg(feature = "node")]
pub mod cron;
pub mod deadline;
pub mod dispatch;
pub mod error_group;
pub mod event;
pub mod fair_share;
#[cfg(feature = "node")]
pub mod filter;
pub mod fold;
pub mod handoff;
#[cfg(feature = "node")]
pub mod hidden;
pub mod inboxes;
pub mod job;
pub mod lifecycle;
pub mod link;
pub mod listing;
#[cfg(feature = "node")]
pub mod liveness;
pub mod priority;
pub mod queue;
pub mod rate_limit;
pub mod readers;
pub mod rejections;
pub mod retention;
pub mod retry;
pub mod run;
pub mod run_log;
#[cfg(feature = "node")]
pub mod run_state;
#[cfg(feature = "node")]
pub mod schedule;
pub mod spec;
pub mod template;
pub mod unlisted;
pub mod untaken;
pub mod window;
pub mod wire;

pub use cadence::{DayRule, Missed, Overlap};
pub use cluster::ClusterSettings;
pub use event::Event;
pub use fair_share::Turns;
#[cfg(feature = "node")]
pub use filter::JobFilter;
#[cfg(feature = "node")]
pub use hidden::HidePayloads;
pub use job::{Execution, ExecutionStatus, Job, LogLevel, LogLine, Ownership, Progress};
pub use lifecycle::{IllegalTransition, Status};
pub use priority::Priority;
pub use queue::{Queue, QueueCounts, QueuePatch, RateLimit};
pub use rate_limit::SlidingWindow;
pub use retry::{Jitter, RetryPolicy, RetrySettings};
pub use run::{Claim, Outcome, RunEnd, RunReport};
#[cfg(feature = "node")]
pub use schedule::{Schedule, ScheduleSpec};
pub use spec::{JobSpec, NewJob};
pub use template::{Documents, JobDefinition, JobTemplate, RunInput};
pub use window::Windows;
