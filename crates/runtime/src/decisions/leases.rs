//! Leases that record elections, renewals and resignations.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use convoke_core::decisions::{Decision, Mark, What};
use convoke_core::ports::leases::{Floor, Lease, Leases, Resignations};
use convoke_core::{Epoch, NodeId, Result};

use super::Recorder;

/// Passes every call on to leases, and records those that compare an epoch.
pub struct RecordingLeases {
    inner: Arc<dyn Leases>,
    recorder: Arc<Recorder>,
}

impl RecordingLeases {
    /// Wraps leases.
    pub fn new(inner: Arc<dyn Leases>, recorder: Arc<Recorder>) -> Arc<Self> {
        Arc::new(RecordingLeases { inner, recorder })
    }
}

/// Returns the record of a request of `holder`, without its epoch.
fn requested<T>(what: What, namespace: &str, holder: &str, result: &Result<T>) -> Decision {
    // A namespace or an id that is no name is left out of the line.
    let namespace = NodeId::new(namespace).ok();
    let after = NodeId::new(holder).ok().map(Mark::Name);
    Decision { namespace, after, ..Decision::of(what, result.into()) }
}

#[async_trait]
impl Leases for RecordingLeases {
    async fn enroll(&self, namespace: &str, member: &str, ttl: Duration) -> Result<()> {
        self.inner.enroll(namespace, member, ttl).await
    }

    async fn withdraw(&self, namespace: &str, member: &str) -> Result<()> {
        self.inner.withdraw(namespace, member).await
    }

    async fn roster(&self, namespace: &str) -> Result<Vec<String>> {
        self.inner.roster(namespace).await
    }

    async fn read(&self, namespace: &str) -> Result<Option<Lease>> {
        self.inner.read(namespace).await
    }

    async fn elect(&self, namespace: &str, candidate: &str, ttl: Duration, floor: Floor) -> Result<Lease> {
        let since = self.recorder.since();
        let result = self.inner.elect(namespace, candidate, ttl, floor).await;
        let decision = requested(What::LeaseElect, namespace, candidate, &result);
        let epoch = result.as_ref().ok().map(|lease| lease.epoch);
        self.recorder.record_one(since, Decision { epoch, before: Some(Mark::from(floor.epoch())), ..decision });
        result
    }

    async fn renew(&self, namespace: &str, holder: &str, epoch: Epoch, ttl: Duration) -> Result<Lease> {
        let since = self.recorder.since();
        let result = self.inner.renew(namespace, holder, epoch, ttl).await;
        let decision = requested(What::LeaseRenew, namespace, holder, &result);
        self.recorder.record_one(since, Decision { epoch: Some(epoch), ..decision });
        result
    }

    async fn resign(&self, namespace: &str, holder: &str, epoch: Epoch) -> Result<()> {
        let since = self.recorder.since();
        let result = self.inner.resign(namespace, holder, epoch).await;
        let decision = requested(What::LeaseResign, namespace, holder, &result);
        self.recorder.record_one(since, Decision { epoch: Some(epoch), ..decision });
        result
    }

    fn watch_resignations(&self, namespace: &str) -> Box<dyn Resignations> {
        self.inner.watch_resignations(namespace)
    }

    fn lease_check_interval(&self) -> Option<Duration> {
        self.inner.lease_check_interval()
    }

    fn foreign(&self) -> Option<fn(&str) -> bool> {
        self.inner.foreign()
    }

    fn carries_reports(&self) -> bool {
        self.inner.carries_reports()
    }

    async fn publish(&self, namespace: &str, report: &str) -> Result<()> {
        self.inner.publish(namespace, report).await
    }

    async fn published(&self, namespace: &str) -> Result<Option<String>> {
        self.inner.published(namespace).await
    }

    async fn namespaces(&self, limit: usize) -> Result<Option<Vec<String>>> {
        self.inner.namespaces(limit).await
    }

    fn address(&self) -> String {
        self.inner.address()
    }

    async fn ping(&self) -> Result<()> {
        self.inner.ping().await
    }
}
