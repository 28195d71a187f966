//! The leases of a world, and a process's way to them.
//!
//! The server records until when it has granted each epoch, by which a check finds a leader that acts for longer.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use convoke_adapters::memory::MemoryLeases;
use convoke_core::ports::Leases;
use convoke_core::ports::leases::{Floor, Lease};
use convoke_core::{Epoch, Result};
use parking_lot::Mutex;

use super::{Way, now};
use crate::history::Entry;
use crate::network::Network;

/// The leases themselves.
pub struct LeaseServer {
    current: Mutex<Arc<MemoryLeases>>,
    network: Arc<Network>,
}

impl LeaseServer {
    pub fn new(network: Arc<Network>) -> Arc<Self> {
        Arc::new(LeaseServer { current: Mutex::default(), network })
    }

    /// Loses all that it had, epochs included.
    pub fn forget(&self) {
        *self.current.lock() = Arc::new(MemoryLeases::new());
        self.network.history.leases_forgotten();
    }

    fn current(&self) -> Arc<MemoryLeases> {
        self.current.lock().clone()
    }

    fn granted(&self, by: &Arc<str>, lease: &Lease, is_new: bool) {
        let at_ms = self.network.now_ms();
        let until_ms = at_ms + lease.remaining.as_millis() as u64;
        self.network.history.add(at_ms, by, Entry::Granted { epoch: lease.epoch.0, until_ms, is_new });
    }
}

/// A process's way to the leases.
pub struct SimLeases {
    pub way: Way,
    pub server: Arc<LeaseServer>,
}

impl SimLeases {
    async fn call<T: Send + 'static>(
        &self,
        what: &'static str,
        act: impl FnOnce(&LeaseServer, &MemoryLeases, &Arc<str>) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (server, by) = (self.server.clone(), self.way.process.name.clone());
        self.way.call(what, true, move || act(&server, &server.current(), &by)).await
    }
}

#[async_trait]
impl Leases for SimLeases {
    async fn enroll(&self, namespace: &str, member: &str, ttl: Duration) -> Result<()> {
        let (namespace, member) = (namespace.to_owned(), member.to_owned());
        self.call("enroll", move |_, leases, _| now(leases.enroll(&namespace, &member, ttl))).await
    }

    async fn withdraw(&self, namespace: &str, member: &str) -> Result<()> {
        let (namespace, member) = (namespace.to_owned(), member.to_owned());
        self.call("withdraw", move |_, leases, _| now(leases.withdraw(&namespace, &member))).await
    }

    async fn roster(&self, namespace: &str) -> Result<Vec<String>> {
        let namespace = namespace.to_owned();
        self.call("roster", move |_, leases, _| now(leases.roster(&namespace))).await
    }

    async fn read(&self, namespace: &str) -> Result<Option<Lease>> {
        let namespace = namespace.to_owned();
        self.call("read the lease", move |_, leases, _| now(leases.read(&namespace))).await
    }

    async fn elect(&self, namespace: &str, candidate: &str, ttl: Duration, floor: Floor) -> Result<Lease> {
        let (namespace, candidate) = (namespace.to_owned(), candidate.to_owned());
        self.call("elect", move |server, leases, by| {
            let lease = now(leases.elect(&namespace, &candidate, ttl, floor));
            match &lease {
                Ok(lease) => server.granted(by, lease, true),
                Err(_) => server.network.history.reach("election refused: another leads"),
            }
            lease
        })
        .await
    }

    async fn renew(&self, namespace: &str, holder: &str, epoch: Epoch, ttl: Duration) -> Result<Lease> {
        let (namespace, holder) = (namespace.to_owned(), holder.to_owned());
        self.call("renew", move |server, leases, by| {
            let lease = now(leases.renew(&namespace, &holder, epoch, ttl));
            match &lease {
                Ok(lease) => server.granted(by, lease, false),
                Err(_) => server.network.history.reach("renewal refused"),
            }
            lease
        })
        .await
    }

    async fn resign(&self, namespace: &str, holder: &str, epoch: Epoch) -> Result<()> {
        let (namespace, holder) = (namespace.to_owned(), holder.to_owned());
        self.call("resign", move |server, leases, by| {
            let result = now(leases.resign(&namespace, &holder, epoch));
            server.network.history.add(server.network.now_ms(), by, Entry::Resigned { epoch: epoch.0 });
            result
        })
        .await
    }

    async fn ping(&self) -> Result<()> {
        self.call("ping", |_, leases, _| now(leases.ping())).await
    }
}
