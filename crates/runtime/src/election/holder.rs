//! The state that the driver of a lease shares with its handles.
//!
//! The rules of [`convoke_core::election`] decide; this module publishes their results: the present term, the metrics,
//! and whether the leases respond. Reads are served from memory and checked against the clock at that moment, which on
//! Linux also counts how long the machine was suspended.

use std::sync::Arc;
use std::time::Duration;

use convoke_core::Epoch;
use convoke_core::election::{Conduct, Elector as Rules, Moment, Now, Settings};
use convoke_core::ports::{Clock, Leases};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::mark::Mark;
use super::office::Office;
use super::telemetry;
use super::tenure::Tenure;
use crate::outage::Outages;

/// The parts of a [`Holder`].
pub(crate) struct Candidate {
    /// Its id in requests, unique among those that live at the same time.
    pub id: String,
    pub namespace: String,
    pub leases: Arc<dyn Leases>,
    pub clock: Arc<dyn Clock>,
    pub settings: Settings,
    pub conduct: Conduct,
    /// How often a follower reads the lease between its heartbeats.
    pub lease_check_interval: Option<Duration>,
    /// Recognizes a member of another system by its id, if another system shares the namespace.
    pub foreign: Option<fn(&str) -> bool>,
    /// Delay of the first heartbeat.
    pub delay: Duration,
    pub outages: Arc<Outages>,
    /// Notified when the lease may be vacant.
    pub vacancy: Arc<Notify>,
    /// Whether it could do a leader's work. A holder that cannot does not stand, and resigns.
    pub fit: watch::Receiver<bool>,
}

/// One holder, for as long as its driver runs.
pub(crate) struct Holder {
    pub namespace: String,
    pub leases: Arc<dyn Leases>,
    pub clock: Arc<dyn Clock>,
    pub rules: Mutex<Rules>,
    pub term: watch::Sender<Option<Tenure>>,
    pub stop: CancellationToken,
    /// Cancelled when the driver has ended: it sends nothing more to the leases.
    pub left: CancellationToken,
    timeline: Timeline,
    pub(super) outages: Arc<Outages>,
    pub(super) vacancy: Arc<Notify>,
    pub(super) fit: watch::Receiver<bool>,
    /// Whether the leases responded to the last request; `None` before the first.
    responds: Mutex<Option<bool>>,
}

/// The origin of the rules' moments.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timeline(Mark);

impl Timeline {
    fn moment(self) -> Moment {
        Moment(self.0.elapsed())
    }

    pub fn instant(self, moment: Moment) -> Instant {
        self.0.after(moment.0)
    }
}

impl Holder {
    pub fn new(candidate: Candidate) -> Arc<Self> {
        let Candidate { id, namespace, leases, clock, settings, conduct, lease_check_interval, foreign, .. } =
            candidate;
        telemetry::describe();
        let timeline = Timeline(Mark::now());
        let now = Now { at: Moment::default(), wall: clock.now() };
        let rules = Rules::new(&id, settings, lease_check_interval, now, now.at + candidate.delay);
        let rules = rules.with_conduct(conduct).sharing_with(foreign);
        telemetry::publish_gauges(&namespace, &rules);
        Arc::new(Holder {
            namespace,
            leases,
            clock,
            rules: Mutex::new(rules),
            term: watch::Sender::new(None),
            stop: CancellationToken::new(),
            left: CancellationToken::new(),
            timeline,
            outages: candidate.outages,
            vacancy: candidate.vacancy,
            fit: candidate.fit,
            responds: Mutex::default(),
        })
    }

    pub fn now(&self) -> Now {
        Now { at: self.moment(), wall: self.clock.now() }
    }

    pub fn moment(&self) -> Moment {
        self.timeline.moment()
    }

    pub fn instant(&self, moment: Moment) -> Instant {
        self.timeline.instant(moment)
    }

    /// Records whether the leases responded to a request.
    pub(super) fn responded(&self, has_reply: bool) {
        *self.responds.lock() = Some(has_reply);
        if has_reply {
            self.outages.succeeded("leases");
        }
    }

    /// Returns whether the leases responded to the last request; `None` before the first.
    pub fn responds(&self) -> Option<bool> {
        *self.responds.lock()
    }

    /// Returns the term that is held at this moment.
    pub fn present(&self) -> Option<Tenure> {
        self.term.borrow().clone().filter(|term| !term.is_over())
    }

    /// Cancels the work of the term; the driver does the rest.
    pub fn quit(&self) {
        if let Some(term) = &*self.term.borrow() {
            term.end();
        }
        self.stop.cancel();
    }

    /// Publishes that this holder no longer leads.
    pub fn forget(&self) {
        telemetry::forget(&self.namespace);
    }

    /// Waits for the first term after that one that is not over.
    pub async fn next_term(&self, after: Epoch) -> Option<Tenure> {
        let mut terms = self.term.subscribe();
        loop {
            let present = terms.borrow_and_update().clone();
            if let Some(term) = present.filter(|term| term.epoch() > after && !term.is_over())
                && !self.stop.is_cancelled()
            {
                return Some(term);
            }
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return None,
                changed = terms.changed() => changed.ok()?,
            }
        }
    }

    /// Publishes the results of the rules. Returns a term that has ended by them: the caller has to [end](Office::end)
    /// it and to publish again.
    pub(super) fn publish(&self, rules: &mut Rules, office: &dyn Office) -> Option<Tenure> {
        let held = rules.term();
        let present = self.term.borrow().clone();
        let mut over = None;
        match (held, present) {
            (Some(held), Some(term)) if held.epoch == term.epoch() => {
                term.prolong(self.instant(held.certain_until));
                office.observe(rules, self.timeline);
            }
            (Some(held), None) => {
                let term = Tenure::new(held.epoch, self.instant(held.certain_until));
                office.observe(rules, self.timeline);
                office.begin(&term);
                self.term.send_replace(Some(term));
            }
            (_, Some(before)) => {
                before.end();
                self.term.send_replace(None);
                over = Some(before);
            }
            (None, None) => office.observe(rules, self.timeline),
        }
        telemetry::held(&self.namespace, rules);
        rules.take_events().into_iter().for_each(|what| office.announce(what));
        over
    }
}
