//! The pages. Each module has the handlers of one page, and the data of its template.

pub mod activity;
pub mod bulk;
pub mod cluster;
pub mod dead_letters;
pub mod edit_schedule;
pub mod elections;
pub mod error;
pub mod job;
pub mod jobs;
pub mod login;
pub mod mesh;
pub mod new_job;
pub mod overview;
pub mod queues;
pub mod schedules;
pub mod shards;
pub mod workers;
