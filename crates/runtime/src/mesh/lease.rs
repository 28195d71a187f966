//! The leader of a mesh: the holder of the mesh's lock, which removes dead instances.
//!
//! The lock is a uuid that is new for every run. The driver that holds all leases ([`crate::election`]) holds it: the
//! time counts from the moment before the request, on a clock that also runs while the machine sleeps, and the holder
//! stops acting on the lock a little before it expires. A slow reply cannot extend it, and an instance that was paused
//! or suspended knows at once that it may have lost it. The lock also fences the registry.
//!
//! On Redis the lock is that of the existing system: a key with a value and a TTL, without an epoch. Epochs are counted
//! here, for this process alone.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use convoke_core::election::{
    BreakerSettings, BreakerStatus, Conduct, ElectionEvent, Metrics, Settings as ElectionSettings,
};
use convoke_core::ports::leases::{Floor, Lease as Granted};
use convoke_core::ports::{Clock, Leases, MeshLink};
use convoke_core::{Epoch, Error, Result};
use tokio::sync::watch;
use tracing::{debug, info};

use super::session::MeshSession;
use super::settings::Settings;
use super::telemetry::Meters;
use crate::election::Tenure;
use crate::election::driver;
use crate::election::holder::{Candidate, Holder};
use crate::election::office::Office;
use crate::machine;
use crate::outage::Outages;

pub(super) struct Lease {
    /// The value under which the lock is held.
    pub name: String,
    holder: Arc<Holder>,
    meters: Arc<Meters>,
}

impl Lease {
    pub(super) fn new(
        link: Arc<dyn MeshLink>,
        settings: &Settings,
        meters: Arc<Meters>,
        outages: Arc<Outages>,
    ) -> Self {
        let name = machine::id().to_string();
        let holder = Holder::new(Candidate {
            id: name.clone(),
            namespace: namespace(&*link),
            leases: Arc::new(Lock(link)),
            clock: Arc::new(WallClock),
            settings: election_settings(settings),
            conduct: Conduct::lock(settings.leader_retry_delay),
            lease_check_interval: None,
            foreign: None,
            delay: Duration::ZERO,
            outages,
            vacancy: Arc::default(),
            fit: watch::channel(true).1,
        });
        Lease { name, holder, meters }
    }

    pub(super) fn is_held(&self) -> bool {
        self.holder.present().is_some()
    }

    /// Releases the lock: a write was rejected, or the instance ends.
    pub(super) fn lost(&self) {
        if let Some(term) = self.holder.present() {
            term.end();
        }
        self.meters.leads(false);
    }

    /// Makes the driver release the lock and end.
    pub(super) fn quit(&self) {
        self.holder.quit();
    }

    /// Publishes that this instance no longer holds the lock, after it was dropped without a stop.
    pub(super) fn abandon(&self) {
        self.lost();
        self.holder.forget();
    }

    /// Returns the health of the requests for the lock.
    pub(super) fn election(&self) -> (Metrics, BreakerStatus) {
        let rules = self.holder.rules.lock();
        (rules.metrics(), rules.breaker())
    }
}

/// The label of the lock's metrics.
fn namespace(link: &dyn MeshLink) -> String {
    format!("mesh:{}", link.key())
}

/// The circuit breaker does not keep an instance out for longer than a renewal: an outage that is over must not cost
/// more than a failover does.
fn election_settings(settings: &Settings) -> ElectionSettings {
    let breaker = BreakerSettings::default();
    ElectionSettings {
        heartbeat_interval: settings.leader_renew_interval,
        heartbeat_jitter: Duration::ZERO,
        lease_timeout: settings.leader_ttl,
        circuit_breaker: BreakerSettings {
            reset_timeout: breaker.reset_timeout.min(settings.leader_renew_interval),
            ..breaker
        },
        ..ElectionSettings::default()
    }
}

/// Takes the lock when it is free and keeps it, until [`Lease::quit`].
pub(super) async fn compete_for_lease(session: Arc<MeshSession>) {
    let holder = session.lease.holder.clone();
    let left = holder.left.clone().drop_guard();
    driver::drive(holder, Arc::new(SweeperOffice { session }), left).await;
}

/// The office of the instance that leads.
struct SweeperOffice {
    session: Arc<MeshSession>,
}

#[async_trait]
impl Office for SweeperOffice {
    fn begin(&self, _term: &Tenure) {
        self.session.meters.leads(true);
        info!(instance = self.session.id().0, "this instance leads its mesh");
    }

    async fn end(&self, _term: &Tenure) {
        self.session.meters.leads(false);
        info!(instance = self.session.id().0, "this instance no longer leads its mesh");
    }

    fn announce(&self, what: ElectionEvent) {
        debug!(instance = self.session.id().0, event = what.name(), "event of the mesh's election");
    }
}

/// The lock of a mesh as a lease. It has no list of members, and its holder cannot be read: each attempt shows whether
/// it is free.
struct Lock(Arc<dyn MeshLink>);

#[async_trait]
impl Leases for Lock {
    fn address(&self) -> String {
        self.0.address()
    }

    async fn elect(&self, _namespace: &str, candidate: &str, ttl: Duration, floor: Floor) -> Result<Granted> {
        match self.0.lead(candidate, ttl).await? {
            true => Ok(granted(candidate, floor.epoch().next(), ttl)),
            false => Err(Error::Conflict("another instance leads the mesh".to_owned())),
        }
    }

    async fn renew(&self, _namespace: &str, holder: &str, epoch: Epoch, ttl: Duration) -> Result<Granted> {
        match self.0.renew(holder, ttl).await? {
            true => Ok(granted(holder, epoch, ttl)),
            false => Err(Error::Fenced { what: "renew" }),
        }
    }

    async fn resign(&self, _namespace: &str, holder: &str, _epoch: Epoch) -> Result<()> {
        self.0.resign(holder).await
    }

    async fn read(&self, _namespace: &str) -> Result<Option<Granted>> {
        Ok(None)
    }

    async fn enroll(&self, _namespace: &str, _member: &str, _ttl: Duration) -> Result<()> {
        Ok(())
    }

    async fn withdraw(&self, _namespace: &str, _member: &str) -> Result<()> {
        Ok(())
    }

    async fn roster(&self, _namespace: &str) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    async fn ping(&self) -> Result<()> {
        self.0.nodes(Duration::ZERO).await.map(drop)
    }
}

fn granted(holder: &str, epoch: Epoch, ttl: Duration) -> Granted {
    Granted { holder: holder.to_owned(), epoch, remaining: ttl, is_foreign: false }
}

/// For timestamps of the metrics. No decision depends on it.
struct WallClock;

impl Clock for WallClock {
    fn now(&self) -> jiff::Timestamp {
        machine::now()
    }
}

#[cfg(test)]
mod tests;
