//! The cost of `/health` and `/readyz`, and their contents.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::counting::CountingStore;
use crate::common::{ports, start};
use async_trait::async_trait;
use convoke_core::ports::Leases;
use convoke_core::ports::leases::{Floor, Lease};
use convoke_core::{Epoch, Result};
use convoke_runtime::jobs::{Check, Coordinator, Ports};

/// Leases that count how often they are pinged.
struct CountingLeases {
    inner: Arc<dyn Leases>,
    pings: AtomicUsize,
}

#[async_trait]
impl Leases for CountingLeases {
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
        self.inner.elect(namespace, candidate, ttl, floor).await
    }

    async fn renew(&self, namespace: &str, holder: &str, epoch: Epoch, ttl: Duration) -> Result<Lease> {
        self.inner.renew(namespace, holder, epoch, ttl).await
    }

    async fn resign(&self, namespace: &str, holder: &str, epoch: Epoch) -> Result<()> {
        self.inner.resign(namespace, holder, epoch).await
    }

    async fn ping(&self) -> Result<()> {
        self.pings.fetch_add(1, Ordering::SeqCst);
        self.inner.ping().await
    }
}

async fn counted() -> (Coordinator, Arc<CountingStore>, Arc<CountingLeases>) {
    let ports = ports();
    let store = CountingStore::new(ports.store.clone());
    let leases = Arc::new(CountingLeases { inner: ports.leases.clone(), pings: AtomicUsize::new(0) });
    let coordinator = start(&Ports { store: store.clone(), leases: leases.clone(), ..ports }).await;
    (coordinator, store, leases)
}

fn all_healthy(checks: &[Check]) -> bool {
    let components: Vec<_> = checks.iter().map(|check| check.component).collect();
    assert_eq!(components, ["Coordinator", "Store", "Bus", "Leases"]);
    checks.iter().all(|check| check.is_healthy)
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_requests_is_one_probe_and_none_of_the_leases() {
    let (node, store, leases) = counted().await;
    let flood = (0..1_000).map(|_| {
        let node = node.clone();
        tokio::spawn(async move { assert!(all_healthy(&node.health().await)) })
    });
    for asked in flood.collect::<Vec<_>>() {
        asked.await.expect("healthy");
    }
    assert_eq!(store.pings.load(Ordering::SeqCst), 1);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(all_healthy(&node.health().await));
    assert_eq!(store.pings.load(Ordering::SeqCst), 2, "a result is shared for a second");
    assert_eq!(leases.pings.load(Ordering::SeqCst), 0, "the election shows their health");
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn requests_that_are_given_up_do_not_begin_another_probe() {
    let (node, store, _) = counted().await;
    let shut = store.gate.write().await;
    let ask = || {
        let node = node.clone();
        tokio::spawn(async move { node.health().await })
    };
    for _ in 0..100 {
        let asked = ask();
        tokio::task::yield_now().await;
        asked.abort();
        assert!(asked.await.is_err_and(|error| error.is_cancelled()));
    }
    let last = ask();
    tokio::task::yield_now().await;
    drop(shut);
    assert!(all_healthy(&last.await.expect("a response")));
    assert_eq!(store.pings.load(Ordering::SeqCst), 1);
    node.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_does_not_respond_is_unhealthy_and_holds_nobody_up_for_long() {
    let (node, store, _) = counted().await;
    let _shut = store.gate.write().await;
    let checks = node.health().await;
    assert!(!all_healthy(&checks));
    let unhealthy: Vec<_> = checks.iter().filter(|check| !check.is_healthy).map(|check| check.component).collect();
    assert_eq!(unhealthy, ["Store"]);
    node.stop().await;
}
