//! Rosters and terms of leadership in memory.
//!
//! Expiry follows tokio's clock, so that a test that pauses time decides when a lease ends. The highest epoch of a
//! namespace outlives its terms, so that epochs rise after expiry and resignation.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use convoke_core::ports::leases::{Floor, Lease, TTL_MAX};
use convoke_core::ports::{Leases, Resignations};
use convoke_core::{Epoch, Error, Result};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::resignations::Notices;

#[derive(Debug, Default)]
pub struct MemoryLeases {
    notices: Notices,
    namespaces: Mutex<BTreeMap<String, Namespace>>,
}

#[derive(Debug, Default)]
struct Namespace {
    roster: BTreeMap<String, Instant>,
    highest: Epoch,
    term: Option<Term>,
}

#[derive(Debug, Clone)]
struct Term {
    holder: String,
    epoch: Epoch,
    expires: Instant,
}

impl Term {
    fn lease(&self, now: Instant) -> Lease {
        Lease { holder: self.holder.clone(), epoch: self.epoch, remaining: self.expires - now, is_foreign: false }
    }
}

impl Namespace {
    /// Returns the term that holds at `now`; an expired one does not count.
    fn present(&mut self, now: Instant) -> Option<&mut Term> {
        self.term.as_mut().filter(|term| term.expires > now)
    }
}

fn expiry(now: Instant, ttl: Duration) -> Instant {
    now + ttl.min(TTL_MAX)
}

impl MemoryLeases {
    pub fn new() -> Self {
        Self::default()
    }

    fn within<T>(&self, namespace: &str, act: impl FnOnce(&mut Namespace, Instant) -> T) -> T {
        let mut namespaces = self.namespaces.lock();
        let now = Instant::now();
        match namespaces.get_mut(namespace) {
            Some(found) => act(found, now),
            None => act(namespaces.entry(namespace.to_owned()).or_default(), now),
        }
    }
}

#[async_trait]
impl Leases for MemoryLeases {
    async fn enroll(&self, namespace: &str, member: &str, ttl: Duration) -> Result<()> {
        self.within(namespace, |namespace, now| {
            namespace.roster.insert(member.to_owned(), expiry(now, ttl));
        });
        Ok(())
    }

    async fn withdraw(&self, namespace: &str, member: &str) -> Result<()> {
        self.within(namespace, |namespace, _| namespace.roster.remove(member));
        Ok(())
    }

    async fn roster(&self, namespace: &str) -> Result<Vec<String>> {
        Ok(self.within(namespace, |namespace, now| {
            namespace.roster.retain(|_, expires| *expires > now);
            namespace.roster.keys().cloned().collect()
        }))
    }

    async fn namespaces(&self, limit: usize) -> Result<Option<Vec<String>>> {
        let now = Instant::now();
        let mut namespaces = self.namespaces.lock();
        let used = namespaces.iter_mut().filter_map(|(name, namespace)| {
            let has_members = namespace.roster.values().any(|expires| *expires > now);
            (has_members || namespace.present(now).is_some()).then(|| name.clone())
        });
        Ok(Some(used.take(limit).collect()))
    }

    async fn read(&self, namespace: &str) -> Result<Option<Lease>> {
        Ok(self.within(namespace, |namespace, now| namespace.present(now).map(|term| term.lease(now))))
    }

    async fn elect(&self, namespace: &str, candidate: &str, ttl: Duration, floor: Floor) -> Result<Lease> {
        self.within(namespace, |namespace, now| {
            if let Some(term) = namespace.present(now) {
                return Err(Error::Conflict(format!("{} leads until its term {} ends", term.holder, term.epoch)));
            }
            let epoch = namespace.highest.max(floor.epoch()).next();
            let term = Term { holder: candidate.to_owned(), epoch, expires: expiry(now, ttl) };
            let lease = term.lease(now);
            namespace.highest = epoch;
            namespace.term = Some(term);
            Ok(lease)
        })
    }

    async fn renew(&self, namespace: &str, holder: &str, epoch: Epoch, ttl: Duration) -> Result<Lease> {
        self.within(namespace, |namespace, now| match namespace.present(now) {
            Some(term) if term.holder == holder && term.epoch == epoch => {
                term.expires = expiry(now, ttl);
                Ok(term.lease(now))
            }
            _ => Err(Error::Fenced { what: "renew" }),
        })
    }

    async fn resign(&self, namespace: &str, holder: &str, epoch: Epoch) -> Result<()> {
        let is_ended = self.within(namespace, |namespace, _| {
            namespace.term.take_if(|term| term.holder == holder && term.epoch == epoch).is_some()
        });
        if is_ended {
            self.notices.notify(namespace);
        }
        Ok(())
    }

    fn watch_resignations(&self, namespace: &str) -> Box<dyn Resignations> {
        Box::new(self.notices.watch(namespace))
    }

    async fn ping(&self) -> Result<()> {
        Ok(())
    }
}
