//! Who runs this work, when, and what if it dies.
//!
//! A job is one row for all its attempts; each attempt is a run with an [`ExecutionId`](crate::ExecutionId) of its own, and
//! only the current one can commit. [`lifecycle`] has the states and what may follow each; [`run`] what a worker can report
//! of a run and [`run_state`] what a report changes; [`template`] has a job's definition, [`spec`] how a request becomes a job. The rest are the rules a coordinator applies: when to retry, whom to
//! serve first, when a schedule is due, how much a queue may take, how a job changes its owner.

pub mod channels;
mod cluster;
pub mod cron;
pub mod deadline;
pub mod dispatch;
pub mod event;
pub mod fair_share;
pub mod handoff;
pub mod job;
pub mod lifecycle;
pub mod link;
pub mod listing;
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
pub mod run_state;
pub mod schedule;
pub mod spec;
pub mod template;
pub mod untaken;
pub mod window;
pub mod wire;

pub use cluster::ClusterSettings;
pub use event::Event;
pub use fair_share::Turns;
pub use job::{Execution, ExecutionStatus, Job, LogLevel, LogLine, Ownership, Progress};
pub use lifecycle::{IllegalTransition, Status};
pub use priority::Priority;
pub use queue::{Queue, QueueCounts, QueuePatch, RateLimit};
pub use rate_limit::SlidingWindow;
pub use retry::{Jitter, RetryPolicy, RetrySettings};
pub use run::{Claim, Outcome, RunEnd, RunReport};
pub use schedule::{Schedule, ScheduleSpec};
pub use spec::{JobSpec, NewJob};
pub use template::{Documents, JobDefinition, JobTemplate, RunInput};
pub use window::Windows;
