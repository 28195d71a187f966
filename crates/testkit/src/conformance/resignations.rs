//! Notices of resignations, for leases that send them.

use std::sync::Arc;
use std::time::Duration;

use convoke_core::Epoch;
use convoke_core::ports::leases::Floor;
use convoke_core::ports::{Leases, Resignations};

/// Tests of leases that notify. The arguments are those of [`leases_conformance`](crate::leases_conformance).
#[macro_export]
macro_rules! resignations_conformance {
    ($make:expr, $advance:expr) => {
        $crate::conformance_tests!(
            async || ($make)($crate::conformance::resignations::CLIENTS).await,
            ($advance),
            (resignations),
            [
                every_client_is_notified_of_every_resignation,
                a_notice_that_nobody_waited_for_is_kept,
                only_a_resignation_in_its_own_namespace_is_notified,
            ]
        );
    };
}

/// The first resigns, the others watch.
pub const CLIENTS: usize = 4;

const LONG: Duration = Duration::from_secs(600);
/// Longer than any notice takes, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a notice that must not come is waited for.
const SILENCE: Duration = Duration::from_millis(300);

async fn elect_and_resign(leases: &dyn Leases, namespace: &str) -> Epoch {
    let lease = leases.elect(namespace, "a", LONG, Floor::UNKNOWN).await.expect("nobody leads");
    leases.resign(namespace, "a", lease.epoch).await.expect("resign");
    lease.epoch
}

async fn is_notified(watch: &mut Box<dyn Resignations>, within: Duration) -> bool {
    tokio::time::timeout(within, watch.next()).await.is_ok()
}

/// A watch whose connection is made: the first notice may mean just that.
async fn watch(leases: &dyn Leases, resigner: &dyn Leases) -> Box<dyn Resignations> {
    let mut watch = leases.watch_resignations("ns");
    elect_and_resign(resigner, "ns").await;
    assert!(is_notified(&mut watch, PATIENCE).await, "the watch never begins");
    while is_notified(&mut watch, SILENCE).await {}
    watch
}

pub async fn every_client_is_notified_of_every_resignation(
    clients: &[Arc<dyn Leases>],
    _advance: impl AsyncFn(Duration),
) {
    let (resigner, others) = clients.split_first().expect("there are some");
    let mut watches = Vec::new();
    for leases in others {
        watches.push(watch(&**leases, &**resigner).await);
    }
    // The process that resigns may watch too: with another member.
    watches.push(watch(&**resigner, &**resigner).await);
    for watch in &mut watches {
        while is_notified(watch, SILENCE).await {}
    }
    for round in 0..3 {
        let epoch = elect_and_resign(&**resigner, "ns").await;
        for (number, watch) in watches.iter_mut().enumerate() {
            assert!(is_notified(watch, PATIENCE).await, "watch {number} missed {epoch} in round {round}");
        }
    }
}

pub async fn a_notice_that_nobody_waited_for_is_kept(clients: &[Arc<dyn Leases>], advance: impl AsyncFn(Duration)) {
    let [resigner, leases, ..] = clients else { panic!("several clients") };
    let mut watch = watch(&**leases, &**resigner).await;
    elect_and_resign(&**resigner, "ns").await;
    advance(SILENCE).await;
    // A caller that stopped waiting before misses nothing.
    assert!(is_notified(&mut watch, PATIENCE).await);
}

pub async fn only_a_resignation_in_its_own_namespace_is_notified(
    clients: &[Arc<dyn Leases>],
    _advance: impl AsyncFn(Duration),
) {
    let [resigner, leases, ..] = clients else { panic!("several clients") };
    let mut watch = watch(&**leases, &**resigner).await;
    elect_and_resign(&**resigner, "other").await;
    let lease = resigner.elect("ns", "a", LONG, Floor::UNKNOWN).await.expect("nobody leads");
    resigner.renew("ns", "a", lease.epoch, LONG).await.expect("its own term");
    resigner.resign("ns", "b", lease.epoch).await.expect("not an error where it is another's");
    resigner.resign("ns", "a", Epoch(lease.epoch.0 - 1)).await.expect("not an error where it is over");
    assert!(!is_notified(&mut watch, SILENCE).await, "nobody resigned here");
    resigner.resign("ns", "a", lease.epoch).await.expect("resign");
    assert!(is_notified(&mut watch, PATIENCE).await);
}
