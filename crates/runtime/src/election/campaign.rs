//! Runs for the leadership of a namespace, and holds it: first come, first served.
//!
//! A term begins with three steps: the lease is won, its epoch is sealed in the store, and only then does anything act on
//! it. It ends by the first of: a renewal that is refused, a write that comes back fenced, a clean stop, or the moment
//! before which the last successful attempt guarantees the lease. That moment is anchored *before* the request was sent,
//! on the monotonic clock, so that neither a slow answer nor a jump of the wall clock can stretch a term.

use std::sync::Arc;
use std::time::Duration;

use convoke_core::election::certain_for;
use convoke_core::ports::leases::Floor;
use convoke_core::ports::{Leases, Store};
use convoke_core::{Epoch, Error, NodeId, Result};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::election_health::ElectionHealth;
use super::mark::Mark;
use super::tenure::overstays;
use super::term::{Leadership, Term};
use crate::outage::Outages;

/// How far apart candidates try for a place that was just left.
const NUDGE: Duration = Duration::from_millis(50);

pub struct Campaign {
    pub namespace: &'static str,
    pub candidate: NodeId,
    pub leases: Arc<dyn Leases>,
    pub store: Arc<dyn Store>,
    pub ttl: Duration,
    pub renew_interval: Duration,
    pub view: watch::Sender<Leadership>,
    /// Rings when the place may be vacant.
    pub vacancy: Arc<Notify>,
    /// Whether this node could do a leader's work. One that cannot does not campaign, and resigns.
    pub fit: watch::Receiver<bool>,
    pub election_health: Arc<ElectionHealth>,
    pub outages: Arc<Outages>,
}

impl Campaign {
    /// Campaigns until `stop`; each time it wins, runs `lead` for the term. `lead` must end when its term does.
    pub async fn run<F>(self, stop: CancellationToken, lead: impl Fn(Term) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut fit = self.fit.clone();
        while !stop.is_cancelled() {
            if !*fit.borrow_and_update() {
                self.stand_back(&mut fit, &stop).await;
                continue;
            }
            if let Some(pause) = self.election_health.shut_for() {
                self.wait(pause, &stop).await;
                continue;
            }
            let anchor = Mark::now();
            let answer = self.win(anchor).await;
            let is_answered = matches!(answer, Ok(_) | Err(Error::Conflict(_)));
            self.election_health.record_heartbeat(anchor.elapsed(), is_answered);
            if is_answered {
                self.outages.succeeded("leases");
            }
            let pause = match answer {
                Ok(term) => {
                    self.election_health.election_took(anchor.elapsed());
                    self.publish_leader(Some(self.candidate.clone()), &term, anchor);
                    info!(epoch = term.fence().epoch().0, "term began: this node leads");
                    let duties = tokio::spawn(lead(term.clone()));
                    self.hold(&term, anchor, &stop).await;
                    term.end();
                    if let Err(error) = duties.await {
                        warn!(%error, "leader task panicked");
                    }
                    self.publish_leader(None, &term, Mark::now());
                    self.resign(&term).await;
                    info!(epoch = term.fence().epoch().0, "term ended: this node no longer leads");
                    // A term that ended by itself is not worth fighting for at once.
                    self.renew_interval.min(Duration::from_millis(100))
                }
                Err(Error::Conflict(_)) => self.follow().await,
                Err(error) => {
                    self.outages.failed("campaign", &error);
                    self.renew_interval.min(Duration::from_secs(1))
                }
            };
            self.wait(pause, &stop).await;
        }
    }

    /// Waits before it tries again; less where it is told that the place may be vacant.
    async fn wait(&self, pause: Duration, stop: &CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            // A little apart from the others who were told so too.
            () = self.vacancy.notified() => tokio::time::sleep(NUDGE.mul_f64(rand::random())).await,
            () = tokio::time::sleep(pause.mul_f64(0.9 + rand::random::<f64>() * 0.2)) => {}
        }
    }

    /// Only watches who leads.
    async fn stand_back(&self, fit: &mut watch::Receiver<bool>, stop: &CancellationToken) {
        let pause = self.follow().await.max(Duration::from_millis(100));
        tokio::select! {
            () = stop.cancelled() => {}
            _ = fit.changed() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }

    async fn win(&self, anchor: Mark) -> Result<Term> {
        let floor = self.store.sealed().await?;
        self.election_health.record_candidacy();
        // What a store forgets with its process is no more than hearsay to the next.
        let known = if self.store.is_lasting() { Floor::Sealed(floor) } else { Floor::Received(floor) };
        let lease = match self.leases.elect(self.namespace, self.candidate.as_str(), self.ttl, known).await {
            Ok(lease) => lease,
            Err(error @ Error::Unknown { .. }) => {
                self.give_back_what_was_not_heard_of(floor).await;
                return Err(error);
            }
            Err(error) => return Err(error),
        };
        match self.store.seal(lease.epoch).await {
            Ok(fence) => Ok(Term::new(fence, self.certain_until(anchor))),
            Err(error) => {
                // Without the seal nothing may act on the lease: let another try.
                let given_back = self.leases.resign(self.namespace, self.candidate.as_str(), lease.epoch).await;
                debug!(epoch = lease.epoch.0, is_given_back = given_back.is_ok(), %error, "sealing the epoch failed");
                Err(error)
            }
        }
    }

    /// An election whose answer was lost may have been won. Nobody acts on it, so that everybody would wait for its lease to run
    /// out, the winner too.
    async fn give_back_what_was_not_heard_of(&self, floor: Epoch) {
        let read = self.leases.read(self.namespace).await;
        if let Ok(Some(lease)) = read
            && lease.holder == self.candidate.as_str()
            && lease.epoch > floor
        {
            let given_back = self.leases.resign(self.namespace, &lease.holder, lease.epoch).await;
            let is_given_back = given_back.is_ok();
            debug!(epoch = lease.epoch.0, is_given_back, "won an election whose response was lost: resigned");
        }
    }

    /// Renews until the term is over.
    async fn hold(&self, term: &Term, mut anchor: Mark, stop: &CancellationToken) {
        let mut next = anchor.after(self.renew_interval);
        let mut fit = self.fit.clone();
        loop {
            let deadline = self.certain_until(anchor);
            tokio::select! {
                () = stop.cancelled() => return,
                () = term.ended() => return,
                Ok(_) = fit.wait_for(|fit| !fit) => {
                    warn!(epoch = term.fence().epoch().0, "resigning: the bus or the store cannot be reached");
                    return;
                }
                () = tokio::time::sleep_until(next.min(deadline)) => {}
            }
            let (started, is_late) = (Mark::now(), Instant::now() >= deadline);
            if is_late && overstays() {
                // Its duties go on until one of them is refused.
                term.ended().await;
                return;
            }
            if is_late {
                warn!(epoch = term.fence().epoch().0, "lease not renewed in time: resigning");
                return;
            }
            let epoch = term.fence().epoch();
            let renewal = self.leases.renew(self.namespace, self.candidate.as_str(), epoch, self.ttl);
            let answer = tokio::time::timeout_at(deadline, renewal).await;
            let is_answered = matches!(answer, Ok(Ok(_) | Err(Error::Fenced { .. })));
            self.election_health.record_heartbeat(started.elapsed(), is_answered);
            if is_answered {
                self.outages.succeeded("leases");
            }
            match answer {
                Ok(Ok(_)) => {
                    anchor = started;
                    term.prolong(self.certain_until(anchor));
                    self.publish_leader(Some(self.candidate.clone()), term, anchor);
                    next = started.after(self.renew_interval);
                }
                Ok(Err(Error::Fenced { .. })) => {
                    warn!(epoch = epoch.0, "lease lost: another node may lead");
                    return;
                }
                Ok(Err(error)) => {
                    self.outages.failed("lease renewal", &error);
                    next = Instant::now() + self.renew_interval / 5;
                }
                Err(_) => {}
            }
        }
    }

    /// The last moment for which an attempt that began at `anchor` vouches, with a margin for clocks that run apart.
    fn certain_until(&self, anchor: Mark) -> Instant {
        anchor.after(certain_for(self.ttl, self.ttl))
    }

    async fn resign(&self, term: &Term) {
        let epoch = term.fence().epoch();
        let resigned = self.leases.resign(self.namespace, self.candidate.as_str(), epoch).await;
        if let Err(error) = resigned {
            debug!(%error, "resigning failed: the lease expires");
        }
    }

    /// Notes who leads, and says when to try again.
    async fn follow(&self) -> Duration {
        let asked = Mark::now();
        let read = self.leases.read(self.namespace).await;
        self.election_health.asked(read.is_ok());
        let seen = Some(asked.instant());
        match read {
            Ok(Some(lease)) => {
                let leader = NodeId::new(&lease.holder).ok();
                let until = Some(asked.after(lease.remaining));
                let view = Leadership { leader, epoch: lease.epoch, is_me: false, seen, until };
                self.view.send_if_modified(|current| current.replace(view));
                lease.remaining.min(self.renew_interval) + Duration::from_millis(1)
            }
            Ok(None) => {
                self.view.send_if_modified(|current| {
                    let epoch = current.epoch;
                    current.replace(Leadership { epoch, seen, ..Leadership::default() })
                });
                Duration::from_millis(10)
            }
            Err(_) => self.renew_interval,
        }
    }

    fn publish_leader(&self, leader: Option<NodeId>, term: &Term, anchor: Mark) {
        let is_me = leader.is_some();
        let until = is_me.then(|| self.certain_until(anchor));
        let view = Leadership { leader, epoch: term.fence().epoch(), is_me, seen: Some(anchor.instant()), until };
        self.view.send_if_modified(|current| current.replace(view));
    }
}
