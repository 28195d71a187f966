//! Competes for the leadership of a coordinator's cluster, and holds it: first come, first served.
//!
//! A term begins with three steps: the lease is won, its epoch is sealed in the store, and only then does anything act
//! on it. The term ends by the first of: a rejected renewal, a fenced write, a clean stop, or the end of the time that
//! the last successful request guarantees. The [driver](super::driver) ensures this by the rules of
//! [`Conduct::coordinator`]. This module does a coordinator's part: it runs the leader's tasks and publishes who leads.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use convoke_core::election::{self, Conduct, Elector as Rules, Fence, Settings};
use convoke_core::jobs::event::ClusterEvent;
use convoke_core::ports::leases::Floor;
use convoke_core::ports::{Clock, Leases, Store};
use convoke_core::{Epoch, NodeId, Result};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::driver;
use super::election_health::ElectionHealth;
use super::event_sink::EventSink;
use super::holder::{Candidate, Holder, Timeline};
use super::office::Office;
use super::tenure::Tenure;
use super::term::{Leadership, Term};
use crate::outage::Outages;

/// The parts of a [`Campaign`].
pub struct CampaignOptions {
    /// The namespace whose lease is requested.
    pub namespace: &'static str,
    /// This node.
    pub candidate: NodeId,
    /// Where the lease is held.
    pub leases: Arc<dyn Leases>,
    /// Where the epochs are sealed.
    pub store: Arc<dyn Store>,
    /// For timestamps of the metrics and events.
    pub clock: Arc<dyn Clock>,
    /// How long the lease lasts if it is not renewed.
    pub ttl: Duration,
    /// How often the leader renews its lease.
    pub renew_interval: Duration,
    /// Contention, circuit breaker and percentiles apply; the times are the two above.
    pub settings: Settings,
    /// Receives who leads, as this node knows it.
    pub view: watch::Sender<Leadership>,
    /// Notified when the lease may be vacant.
    pub vacancy: Arc<Notify>,
    /// Whether this node could do a leader's work. A node that cannot does not campaign, and resigns.
    pub fit: watch::Receiver<bool>,
    /// Receives the events of the election.
    pub publish_event: EventSink,
    /// Logs failed requests to the leases and the store.
    pub outages: Arc<Outages>,
}

/// A candidate for the leadership of its cluster.
pub struct Campaign {
    holder: Arc<Holder>,
    namespace: &'static str,
    store: Arc<dyn Store>,
    view: watch::Sender<Leadership>,
    publish_event: EventSink,
}

impl Campaign {
    /// Creates a campaign. It sends nothing before it runs.
    pub fn new(options: CampaignOptions) -> Self {
        let CampaignOptions {
            namespace,
            candidate,
            leases,
            store,
            clock,
            ttl,
            renew_interval,
            view,
            publish_event,
            ..
        } = options;
        let settings = Settings {
            heartbeat_interval: renew_interval,
            heartbeat_jitter: Duration::ZERO,
            lease_timeout: ttl,
            ..options.settings
        };
        let holder = Holder::new(Candidate {
            id: candidate.to_string(),
            namespace: namespace.to_owned(),
            leases,
            clock,
            settings,
            conduct: Conduct::coordinator(renew_interval),
            // A leader publishes its resignation on the bus.
            lease_check_interval: None,
            foreign: None,
            delay: Duration::ZERO,
            outages: options.outages,
            vacancy: options.vacancy,
            fit: options.fit,
        });
        Campaign { holder, namespace, store, view, publish_event }
    }

    /// Returns the health of the campaign's requests to the leases.
    pub fn election_health(&self) -> Arc<ElectionHealth> {
        Arc::new(ElectionHealth(self.holder.clone()))
    }

    /// Campaigns until `stop`; each time it wins, runs `lead` for the term. `lead` must end when its term does.
    pub async fn run<F>(self, stop: CancellationToken, lead: impl Fn(Term) -> F + Send + Sync + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let Campaign { holder, namespace, store, view, publish_event } = self;
        let lead: Lead = Box::new(move |term| Box::pin(lead(term)));
        let (sealed, leading) = Default::default();
        let office = CoordinatorOffice { namespace, store, view, publish_event, lead, sealed, leading };
        let left = holder.left.clone().drop_guard();
        let stopping = async {
            stop.cancelled().await;
            holder.quit();
        };
        // The driver ends by itself after `stop`.
        tokio::join!(driver::drive(holder.clone(), Arc::new(office), left), stopping);
    }
}

type Lead = Box<dyn Fn(Term) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// The office of a coordinator's leader: its tasks, with the fence of their term.
struct CoordinatorOffice {
    namespace: &'static str,
    store: Arc<dyn Store>,
    view: watch::Sender<Leadership>,
    publish_event: EventSink,
    lead: Lead,
    /// The fence of the last sealed term.
    sealed: Mutex<Option<Fence>>,
    /// The tasks of the present term.
    leading: Mutex<Option<JoinHandle<()>>>,
}

#[async_trait]
impl Office for CoordinatorOffice {
    async fn floor(&self, _highest: Epoch) -> Result<Floor> {
        let sealed = self.store.sealed().await?;
        // A store in memory forgets its seals with its process, so the next process cannot rely on them.
        Ok(if self.store.is_lasting() { Floor::Sealed(sealed) } else { Floor::Received(sealed) })
    }

    async fn seal(&self, epoch: Epoch) -> Result<()> {
        let fence = self.store.seal(epoch).await?;
        *self.sealed.lock() = Some(fence);
        Ok(())
    }

    fn begin(&self, tenure: &Tenure) {
        let fence = self.sealed.lock().take().filter(|fence| fence.epoch() == tenure.epoch());
        let Some(fence) = fence else {
            error!(epoch = tenure.epoch().0, "a term began without its seal: resigning");
            return tenure.end();
        };
        info!(epoch = fence.epoch().0, "term began: this node leads");
        *self.leading.lock() = Some(tokio::spawn((self.lead)(Term::of(fence, tenure.clone()))));
    }

    async fn end(&self, tenure: &Tenure) {
        let leading = self.leading.lock().take();
        if let Some(leading) = leading
            && let Err(error) = leading.await
        {
            warn!(%error, "leader task panicked");
        }
        info!(epoch = tenure.epoch().0, "term ended: this node no longer leads");
    }

    fn observe(&self, rules: &Rules, timeline: Timeline) {
        let seen = rules.leader_read_at().map(|at| timeline.instant(at));
        let is_me = rules.term().is_some();
        let holder = rules.holder().map(|(holder, epoch, until)| (NodeId::new(holder).ok(), epoch, until));
        self.view.send_if_modified(|current| {
            let view = match holder {
                Some((leader, epoch, until)) => {
                    Leadership { leader, epoch, is_me, seen, until: Some(timeline.instant(until)) }
                }
                None => Leadership { epoch: current.epoch, seen, ..Leadership::default() },
            };
            current.replace(view)
        });
    }

    fn announce(&self, what: election::ElectionEvent) {
        // Leader and members are published from the view and from the registry.
        if !matches!(
            what,
            election::ElectionEvent::LeaderChanged { .. } | election::ElectionEvent::WorkersUpdated { .. }
        ) {
            (self.publish_event)(ClusterEvent::Election { namespace: self.namespace.to_owned(), what });
        }
    }
}
