//! The functions by which a test server moves time: it knows which workers are connected, and when everything that is
//! due has to be read.

use convoke_core::{ExecutionId, Result, WorkerId};

use super::coordinator::Coordinator;
use super::gateway;

impl Coordinator {
    /// Records a sign of life of these workers, at once for those that this node knows. Virtual time may pass faster
    /// than a worker can send its heartbeats.
    pub async fn keep_workers_alive(&self, workers: &[WorkerId]) -> Result<()> {
        let sessions = &self.node().gateway.sessions;
        let unknown: Vec<&WorkerId> = workers.iter().filter(|worker| !sessions.see(worker)).collect();
        for worker in unknown {
            match gateway::ensure_known(self.node(), worker).await {
                // It has left meanwhile, or was declared dead.
                Err(convoke_core::Error::NotFound { .. }) => {}
                known => known?,
            }
        }
        Ok(())
    }

    /// Expects heartbeats of these workers: their polls do not count as such any more.
    pub fn expect_heartbeats(&self, workers: &[WorkerId]) {
        self.node().gateway.sessions.expect_heartbeats(workers);
    }

    /// Returns the worker that polled for a run. The store knows it only of runs that last.
    pub fn worker_of(&self, execution: &ExecutionId) -> Option<WorkerId> {
        self.node().gateway.sessions.worker_of(execution)
    }

    /// Starts the next pass of every duty that runs at an interval.
    pub fn look_now(&self) {
        self.node().run_now.send_modify(|requests| *requests += 1);
    }
}
