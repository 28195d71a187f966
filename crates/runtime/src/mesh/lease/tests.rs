//! The leader of a mesh over a minimal lock, on a clock that the test moves.

use bytes::Bytes;
use convoke_core::election::BreakerState;
use convoke_core::mesh::{InstanceId, MeshNode};
use convoke_core::ports::{Membership, MeshInbox};
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::*;
use crate::election::mark::tests::ASLEEP;

const SECOND: Duration = Duration::from_secs(1);

/// The lock, and the count of each request.
#[derive(Default)]
struct Link {
    lock: Mutex<Option<(String, Instant)>>,
    is_down: Mutex<bool>,
    asked: Mutex<Vec<&'static str>>,
}

impl Link {
    fn is_granted(&self, verb: &'static str, holder: &str, ttl: Duration, must_hold: bool) -> Result<bool> {
        self.asked.lock().push(verb);
        if *self.is_down.lock() {
            return Err(Error::unavailable("mesh", "cut off"));
        }
        let mut lock = self.lock.lock();
        lock.take_if(|(_, expires)| *expires <= Instant::now());
        let is_granted = lock.as_ref().map_or(!must_hold, |(present, _)| present == holder);
        if is_granted {
            *lock = Some((holder.to_owned(), Instant::now() + ttl));
        }
        Ok(is_granted)
    }

    fn give_to(&self, holder: &str, ttl: Duration) {
        *self.lock.lock() = Some((holder.to_owned(), Instant::now() + ttl));
    }

    fn holder(&self) -> Option<String> {
        self.lock.lock().as_ref().map(|(holder, _)| holder.clone())
    }

    fn asked(&self) -> usize {
        self.asked.lock().len()
    }
}

#[async_trait]
impl MeshLink for Link {
    fn key(&self) -> String {
        "app".to_owned()
    }

    async fn join(&self, _: &str, _: Arc<dyn MeshInbox>) -> Result<Box<dyn Membership>> {
        Err(Error::unavailable("mesh", "nobody joins here"))
    }

    async fn nodes(&self, _: Duration) -> Result<Vec<MeshNode>> {
        Ok(Vec::new())
    }

    async fn send(&self, outgoing_messages: &[(InstanceId, Bytes)]) -> Vec<Result<u64>> {
        vec![Ok(0); outgoing_messages.len()]
    }

    async fn broadcast(&self, _: Bytes) -> Result<u64> {
        Ok(0)
    }

    async fn lead(&self, holder: &str, ttl: Duration) -> Result<bool> {
        self.is_granted("lead", holder, ttl, false)
    }

    async fn renew(&self, holder: &str, ttl: Duration) -> Result<bool> {
        self.is_granted("renew", holder, ttl, true)
    }

    async fn resign(&self, holder: &str) -> Result<()> {
        self.lock.lock().take_if(|(present, _)| present == holder);
        Ok(())
    }

    async fn sweep(&self, _: &str, _: Duration) -> Result<Vec<InstanceId>> {
        Ok(Vec::new())
    }
}

/// An instance that requests the lock, by the default times: 30 s, renewed every 10 s, requested every 5 s.
fn standing() -> (Arc<Link>, Arc<MeshSession>, JoinHandle<()>) {
    let link = Arc::new(Link::default());
    let (session, _letters) = MeshSession::new(link.clone(), Settings::default(), "host".into(), Arc::default());
    let task = tokio::spawn(compete_for_lease(session.clone()));
    (link, session, task)
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_machine_was_suspended_for_longer_than_the_lock_stops_at_once() {
    let (link, session, _task) = standing();
    tokio::time::sleep(SECOND).await;
    assert!(session.lease.is_held());
    // The machine sleeps: its lock expires, and another instance takes it.
    ASLEEP.set(SECOND * 40);
    link.give_to("another", SECOND * 12);
    assert!(!session.lease.is_held(), "before anything was asked of Redis");
    tokio::time::sleep(SECOND * 11).await;
    assert!(!session.lease.is_held(), "it does not come back while another leads");
    assert_eq!(link.holder().as_deref(), Some("another"));
    tokio::time::sleep(SECOND * 10).await;
    assert!(session.lease.is_held(), "the other one is gone");
}

#[tokio::test(start_paused = true)]
async fn a_short_suspension_costs_nothing() {
    let (link, session, _task) = standing();
    tokio::time::sleep(SECOND).await;
    ASLEEP.set(SECOND * 8);
    assert!(session.lease.is_held());
    tokio::time::sleep(SECOND * 60).await;
    assert!(session.lease.is_held());
    assert_eq!(link.asked.lock().iter().filter(|verb| **verb == "lead").count(), 1, "the same term");
}

#[tokio::test(start_paused = true)]
async fn an_outage_opens_the_breaker_and_is_over_within_a_renewal() {
    let (link, session, _task) = standing();
    tokio::time::sleep(SECOND).await;
    *link.is_down.lock() = true;
    tokio::time::sleep(SECOND * 25).await;
    let (metrics, breaker) = session.lease.election();
    assert_eq!((breaker.state, session.lease.is_held()), (BreakerState::Open, true), "its lock lasts a while yet");
    assert!(metrics.heartbeat_failures >= 5, "{metrics:?}");
    tokio::time::sleep(SECOND * 3).await;
    assert!(!session.lease.is_held(), "it stops before its lock expires");
    let asked = link.asked();
    tokio::time::sleep(SECOND * 60).await;
    let attempts = link.asked() - asked;
    assert!((5..=7).contains(&attempts), "open, it is tried once in a renewal interval: {attempts}");
    assert!(session.lease.election().1.trips >= 5);
    *link.is_down.lock() = false;
    tokio::time::sleep(SECOND * 11).await;
    assert!(session.lease.is_held());
    assert_eq!(session.lease.election().1.state, BreakerState::Closed);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_succeeds_closes_the_breaker_and_keeps_the_lock() {
    let (link, session, _task) = standing();
    tokio::time::sleep(SECOND).await;
    *link.is_down.lock() = true;
    while session.lease.election().1.state != BreakerState::Open {
        tokio::time::sleep(SECOND / 10).await;
    }
    assert!(session.lease.is_held());
    *link.is_down.lock() = false;
    tokio::time::sleep(SECOND * 10).await;
    assert_eq!((session.lease.election().1.state, session.lease.is_held()), (BreakerState::Closed, true));
    assert_eq!(link.asked.lock().iter().filter(|verb| **verb == "lead").count(), 1, "the same term");
}

#[tokio::test(start_paused = true)]
async fn one_that_is_told_to_quit_lets_go_of_the_lock() {
    let (link, session, task) = standing();
    tokio::time::sleep(SECOND).await;
    assert_eq!(link.holder(), Some(session.lease.name.clone()));
    session.lease.quit();
    task.await.expect("does not panic");
    assert_eq!((link.holder(), session.lease.is_held()), (None, false));
}

#[tokio::test(start_paused = true)]
async fn a_sweep_that_was_rejected_ends_the_term() {
    let (link, session, _task) = standing();
    tokio::time::sleep(SECOND).await;
    link.give_to("another", SECOND * 60);
    session.lease.lost();
    assert!(!session.lease.is_held());
    tokio::time::sleep(SECOND * 30).await;
    assert_eq!((session.lease.is_held(), link.holder().as_deref()), (false, Some("another")));
}
