//! The limits of what a worker states about itself. They are here once, for both ways on which workers come: a gateway
//! returns the reason to the worker, the leader ignores a heartbeat on the bus that is out of range.

use std::collections::BTreeSet;

use super::{Heartbeat, Register};
use crate::error::Invalid;
use crate::jobs::wire::WorkerHeartbeat;
use crate::limits::{NAME_BYTES_MAX, WORKER_CONCURRENCY_MAX, WORKER_QUEUES_MAX};

impl Register {
    /// Checks the queues, the slots and the name.
    pub fn check(&self) -> Result<(), Invalid> {
        if self.queues.is_empty() || self.queues.len() > WORKER_QUEUES_MAX {
            let message = format!("expected 1 to {WORKER_QUEUES_MAX} queues, got {}", self.queues.len());
            return Err(Invalid::new("queues", message));
        }
        let mut seen = BTreeSet::new();
        if let Some(twice) = self.queues.iter().find(|queue| !seen.insert(*queue)) {
            return Err(Invalid::unprocessable(
                "queues",
                format!("expected each queue once, got {:?} twice", twice.as_str()),
            ));
        }
        if self.concurrency == 0 || self.concurrency > WORKER_CONCURRENCY_MAX {
            let message = format!("expected 1 to {WORKER_CONCURRENCY_MAX}, got {}", self.concurrency);
            return Err(Invalid::new("concurrency", message));
        }
        check_name(self.name.as_deref())
    }
}

impl Heartbeat {
    /// Checks the number of runs.
    pub fn check(&self) -> Result<(), Invalid> {
        check_runs("running", self.running.len())
    }
}

impl WorkerHeartbeat {
    /// Checks the queues, the slots, the name and the number of runs. Unlike a registration it may name no queue, no
    /// slot, and a queue twice: it shows that the worker is alive.
    pub fn check(&self) -> Result<(), Invalid> {
        if self.queues.len() > WORKER_QUEUES_MAX {
            let message = format!("expected at most {WORKER_QUEUES_MAX} queues, got {}", self.queues.len());
            return Err(Invalid::new("queues", message));
        }
        if self.slots() > WORKER_CONCURRENCY_MAX {
            let message = format!("expected at most {WORKER_CONCURRENCY_MAX}, got {}", self.slots());
            return Err(Invalid::new("concurrency", message));
        }
        check_name(self.name.as_deref())?;
        check_runs("executions", self.executions.as_ref().map_or(0, Vec::len))
    }
}

fn check_name(name: Option<&str>) -> Result<(), Invalid> {
    if name.is_some_and(|name| name.len() > NAME_BYTES_MAX) {
        return Err(Invalid::new("name", format!("expected at most {NAME_BYTES_MAX} bytes")));
    }
    Ok(())
}

fn check_runs(field: &'static str, count: usize) -> Result<(), Invalid> {
    if count > WORKER_CONCURRENCY_MAX as usize {
        return Err(Invalid::new(field, format!("expected at most {WORKER_CONCURRENCY_MAX} entries")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heartbeat_on_the_bus_is_as_limited_as_a_registration() {
        let heartbeat = |text: String| serde_json::from_str::<WorkerHeartbeat>(&text).expect("a heartbeat");
        heartbeat(r#"{"workerId": "w", "queues": []}"#.into()).check().expect("alive");
        let queues = serde_json::to_string(&vec!["q"; WORKER_QUEUES_MAX + 1]).expect("JSON");
        let name = "x".repeat(NAME_BYTES_MAX + 1);
        for (field, text) in [
            ("queues", format!(r#"{{"workerId": "w", "queues": {queues}}}"#)),
            ("concurrency", format!(r#"{{"workerId": "w", "queues": [], "running": {}, "free": 1}}"#, u32::MAX)),
            ("name", format!(r#"{{"workerId": "w", "queues": [], "name": "{name}"}}"#)),
        ] {
            let invalid = heartbeat(text).check().expect_err("out of range");
            assert!(invalid.to_string().contains(field), "{invalid}");
        }
    }
}
