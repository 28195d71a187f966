//! A coordinator in the process of an application.

mod cluster;
mod mounted;
mod refusals;
mod single;

use std::time::Duration;

use convoke::coordinator::Settings;
use convoke::{Context, Job, Worker};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Serialize, Deserialize)]
struct Double(u64);

impl Job for Double {
    const TYPE: &'static str = "double";
    type Output = u64;
}

async fn double(_: Context, Double(number): Double) -> convoke::Result<u64> {
    Ok(number * 2)
}

/// A worker that runs until it is stopped.
struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<convoke::Result<()>>,
}

impl Running {
    fn start(worker: Worker) -> Running {
        let (stop, stopped) = oneshot::channel();
        let stopped = async { drop(stopped.await) };
        Running { stop, task: tokio::spawn(worker.run_until(stopped)) }
    }

    async fn stop(self) {
        self.stop.send(()).expect("it still runs");
        in_time("the worker's end", self.task).await.expect("it does not panic").expect("it leaves cleanly");
    }
}

/// Short times, so that what must pass does.
fn quick() -> Settings {
    let mut settings = Settings::default();
    settings.cluster.heartbeat_interval = Duration::from_millis(250);
    settings.cluster.dead_node_timeout = Duration::from_secs(2);
    settings.cluster.lease_duration = Duration::from_secs(2);
    settings.cluster.renew_interval = Duration::from_millis(500);
    settings.cluster.orphan_check_interval = Duration::from_millis(500);
    settings.cluster.handoff_ack_timeout = Duration::from_millis(500);
    settings.cluster.handoff_orphan_wait = Duration::from_secs(1);
    settings.cluster.handoff_hard_timeout = Duration::from_secs(6);
    settings.worker.heartbeat_interval = Duration::from_millis(250);
    settings.worker.stale_after = Duration::from_secs(3);
    settings
}

async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("{what} did not happen"))
}
