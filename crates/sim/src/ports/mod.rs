//! The ports of the simulated processes: the engines in memory, behind a network that can fail.
//!
//! An engine in memory never waits, so that a call is one step: either it is applied or it is not. What happens around that
//! step is decided by [`Fate`], which the [`Network`] draws for every call from the faults of the
//! moment. A call that is late is applied although its caller has given up, as a request that was on its way.

mod bus;
mod bus_readers;
mod leases;
mod link;
mod store;
mod store_server;

pub use bus::{BusServer, SimBus};
pub use leases::{LeaseServer, SimLeases};
pub use link::{Directory, SimLink};
pub use store::SimStore;
pub use store_server::StoreServer;

use std::sync::Arc;
use std::time::Duration;

use convoke_core::{Error, Result};
use futures_util::FutureExt;

use crate::network::{Fate, Network, Reply, Service};
use crate::process::Process;

/// How long a caller waits for the reply of a call whose reply never comes.
const PATIENCE: Duration = Duration::from_millis(800);

/// Calls that succeed all the time: a trace does not show them.
const ROUTINE: [&str; 12] = [
    "publish",
    "announce",
    "worker heartbeats",
    "node heartbeat",
    "enroll",
    "roster",
    "read the lease",
    "renew",
    "promote",
    "expire",
    "expire_audit",
    "trim",
];

/// A process's way to one service.
#[derive(Clone)]
pub struct Way {
    pub network: Arc<Network>,
    pub process: Arc<Process>,
    pub service: Service,
}

impl Way {
    /// Sends one call. `act` is applied at most once, and possibly after the caller has given up.
    pub async fn call<T: Send + 'static>(
        &self,
        what: &'static str,
        is_write: bool,
        act: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.process.running().await;
        let Fate { before, applies, is_late, reply, after } = self.network.fate(self.service, &self.process, is_write);
        if is_late {
            let (network, process) = (self.network.clone(), self.process.clone());
            tokio::spawn(async move {
                tokio::time::sleep(before).await;
                let result = act();
                network.note(&process, || format!("late {what} arrives: {}", shown(&result)));
            });
            tokio::time::sleep(PATIENCE).await;
            self.process.running().await;
            return Err(Error::unknown(self.service.name(), "no response"));
        }
        pause(before).await;
        // What is read and does not arrive has changed nothing.
        let result = if applies && (is_write || reply == Reply::Delivered) { Some(act()) } else { None };
        let went_well = matches!(result, Some(Ok(_))) && reply == Reply::Delivered;
        if !went_well || (is_write && !ROUTINE.contains(&what)) {
            let shown = result.as_ref().map_or("not applied".into(), shown);
            self.network.note(&self.process, || format!("{what}: {shown}{}", reply.suffix()));
        } else {
            self.network.step(&self.process);
        }
        pause(after).await;
        self.process.running().await;
        match (reply, result) {
            (Reply::Delivered, Some(result)) => result,
            (Reply::Unavailable, _) | (Reply::Delivered, None) => {
                Err(Error::unavailable(self.service.name(), "connection refused"))
            }
            (Reply::Lost, _) => Err(Error::unknown(self.service.name(), "connection reset")),
        }
    }
}

fn shown<T>(result: &Result<T>) -> String {
    match result {
        Ok(_) => "ok".into(),
        Err(error) => error.to_string(),
    }
}

/// A short wait costs no timer.
async fn pause(span: Duration) {
    if span.is_zero() {
        tokio::task::yield_now().await;
    } else {
        tokio::time::sleep(span).await;
    }
}

/// Returns the output of an engine in memory, which is there at once.
pub(crate) fn now<T>(call: impl Future<Output = T>) -> T {
    call.now_or_never().expect("an engine in memory never waits")
}
