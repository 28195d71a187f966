//! A test server: a coordinator in memory whose time stands still until the test moves it.
//!
//! ```
//! use std::time::Duration;
//! use convoke::testing::Server;
//! # use convoke::{Context, Job};
//! # #[derive(serde::Serialize, serde::Deserialize)]
//! # struct Remind { who: String }
//! # impl Job for Remind { const TYPE: &'static str = "remind"; type Output = (); }
//! # async fn remind(_: Context, _: Remind) -> convoke::Result<()> { Ok(()) }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> convoke::Result<()> {
//! let server = Server::start().await?;
//! let _worker = server.work(|worker| worker.queues(["default"]).handle(remind)).await?;
//! let job = server.client().enqueue(Remind { who: "Ada".into() }).delay(Duration::from_secs(86_400)).await?;
//! server.run_until_idle().await?;
//! assert!(job.job().await?.status.is_live(), "its time has not come");
//! server.advance(Duration::from_secs(86_400)).await?;
//! job.wait().await?;
//! # Ok(())
//! # }
//! ```
//!
//! | thing | is in |
//! | --- | --- |
//! | jobs, schedules, retries, timeouts, leases, retention | virtual time: it moves by [`Server::advance`] only |
//! | handlers, workers, clients, the waits of their requests | real time |
//!
//! The guide *Testing* has the rules. `convoke test-server` is the same for other languages.

mod bridge;
mod clock;
mod faults;
mod link;
mod presence;
mod routes;
mod server;
mod shared;
mod timeline;

use std::time::Duration;

pub use faults::FaultState;
pub use server::{Advanced, Server, ServerBuilder, WorkerGuard};

/// How long, in real time, runs are waited for if the caller does not set it.
const PATIENCE: Duration = Duration::from_secs(10);
