//! The waiters for the end of jobs, here and on other nodes.
//!
//! A waiter is woken by the recorder of its own node at once. For a job that another node records, the node publishes
//! on the topic `interest` which jobs it waits for, and the node that records the end of one of them publishes it on
//! `job.ended`. Announcing the few awaited jobs, rather than receiving the end of all, keeps waiting off the path of
//! jobs without waiters: a job's end then costs one read of a counter. All of it is hints: a waiter also reads the
//! store, once when its announcement has surely spread (the job may have ended while it was on its way) and then every
//! second.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use convoke_core::JobId;
use convoke_core::jobs::wire::{self, Ended, V1};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::Instant;
use tracing::debug;

use super::node::NodeBase;

/// How long an announcement may take to reach every node.
pub const SPREAD: Duration = Duration::from_millis(50);
/// How often a waiter reads the store.
pub const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Upper bound of the jobs that other nodes may wait for. The waiters of further ones read the store.
const ELSEWHERE_MAX: usize = 100_000;
const MESSAGE_JOBS_MAX: usize = 1_000;

#[derive(Default)]
pub struct Waiters {
    /// Waiters here and jobs awaited elsewhere: mostly none, and then a job's end must not cost a lock.
    count: AtomicUsize,
    here: Mutex<BTreeMap<JobId, (usize, Arc<Notify>)>>,
    /// Jobs that other nodes wait for, and when that expires unless it is repeated.
    elsewhere: Mutex<BTreeMap<JobId, Instant>>,
    unpublished: Mutex<Unpublished>,
    /// Notified when there are messages for the other nodes.
    pub ring: Notify,
}

/// Messages that are not yet published to the other nodes.
#[derive(Default)]
struct Unpublished {
    awaited: BTreeSet<JobId>,
    ended: Vec<JobId>,
}

impl Waiters {
    pub fn enter(&self, job: JobId) -> Waiting<'_> {
        self.count.fetch_add(1, Ordering::SeqCst);
        let mut here = self.here.lock();
        let (count, notify) = here.entry(job).or_default();
        *count += 1;
        Waiting { waiters: self, job, notify: notify.clone() }
    }

    /// Wakes the waiters of a job whose end this node recorded.
    pub fn wake(&self, job: JobId) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        self.wake_here(job);
        if self.elsewhere.lock().remove(&job).is_some() {
            self.count.fetch_sub(1, Ordering::SeqCst);
            self.unpublished.lock().ended.push(job);
            self.ring.notify_one();
        }
    }

    /// Wakes the waiters of a job whose end another node published.
    pub fn wake_here(&self, job: JobId) {
        if let Some((_, notify)) = self.here.lock().get(&job) {
            notify.notify_waiters();
        }
    }

    /// Wakes all waiters, to read the store: messages of other nodes were missed.
    pub fn wake_all_here(&self) {
        self.here.lock().values().for_each(|(_, notify)| notify.notify_waiters());
    }

    /// Records that another node waits for `jobs`, until `until` at the latest.
    pub fn awaited_elsewhere(&self, jobs: &[JobId], until: Instant) {
        let mut elsewhere = self.elsewhere.lock();
        for job in jobs {
            if elsewhere.len() < ELSEWHERE_MAX || elsewhere.contains_key(job) {
                let is_new = elsewhere.insert(*job, until).is_none();
                self.count.fetch_add(usize::from(is_new), Ordering::SeqCst);
            }
        }
    }

    /// Forgets jobs that other nodes have not announced again.
    pub fn expire(&self, now: Instant) {
        let mut elsewhere = self.elsewhere.lock();
        let before = elsewhere.len();
        elsewhere.retain(|_, until| *until > now);
        self.count.fetch_sub(before - elsewhere.len(), Ordering::SeqCst);
    }

    /// Returns the jobs that this node waits for and has not announced.
    pub fn take_unannounced(&self) -> Vec<JobId> {
        let awaited = std::mem::take(&mut self.unpublished.lock().awaited);
        let here = self.here.lock();
        awaited.into_iter().filter(|job| here.contains_key(job)).collect()
    }

    /// Returns all jobs that this node waits for.
    pub fn all(&self) -> Vec<JobId> {
        self.here.lock().keys().copied().collect()
    }
}

pub struct Waiting<'a> {
    waiters: &'a Waiters,
    job: JobId,
    notify: Arc<Notify>,
}

impl Waiting<'_> {
    /// Completes at the job's end, if that comes after it was first polled or enabled.
    pub fn woken(&self) -> Notified<'_> {
        self.notify.notified()
    }

    /// Announces to the other nodes that this node waits.
    pub fn announce(&self) {
        self.waiters.unpublished.lock().awaited.insert(self.job);
        self.waiters.ring.notify_one();
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut here = self.waiters.here.lock();
        if let Some((count, _)) = here.get_mut(&self.job) {
            *count -= 1;
            if *count == 0 {
                here.remove(&self.job);
            }
        }
        self.waiters.count.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Publishes which of the jobs that other nodes wait for have ended.
pub async fn publish_ended(node: &NodeBase, waiters: &Waiters) {
    let ended = std::mem::take(&mut waiters.unpublished.lock().ended);
    for jobs in ended.chunks(MESSAGE_JOBS_MAX) {
        let message = wire::encode(&Ended { v: V1, jobs: jobs.to_vec() });
        if let Err(error) = node.bus().publish(&node.channels.ended(), message).await {
            debug!(%error, "publishing ended jobs failed: other nodes find out when they poll");
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn job(n: u128) -> JobId {
        JobId(uuid::Uuid::from_u128(n))
    }

    fn ended(waiters: &Waiters) -> Vec<JobId> {
        std::mem::take(&mut waiters.unpublished.lock().ended)
    }

    #[tokio::test]
    async fn all_who_wait_for_a_job_are_woken_and_nobody_else() {
        let waiters = Waiters::default();
        let waiting = [waiters.enter(job(1)), waiters.enter(job(1)), waiters.enter(job(2))];
        let mut woken: Vec<_> = waiting.iter().map(|waiting| Box::pin(waiting.woken())).collect();
        for woken in &mut woken {
            woken.as_mut().enable();
        }
        waiters.wake(job(1));
        let received: Vec<bool> = woken.into_iter().map(|woken| woken.now_or_never().is_some()).collect();
        assert_eq!(received, [true, true, false]);
        assert_eq!(ended(&waiters), [], "nobody elsewhere asked");
    }

    #[tokio::test(start_paused = true)]
    async fn an_end_is_told_to_others_once_and_only_while_they_wait() {
        let waiters = Waiters::default();
        let until = Instant::now() + Duration::from_secs(30);
        waiters.awaited_elsewhere(&[job(1), job(2), job(1)], until);
        waiters.wake(job(1));
        waiters.wake(job(1));
        waiters.wake(job(3));
        assert_eq!(ended(&waiters), [job(1)]);
        waiters.expire(until);
        waiters.wake(job(2));
        assert_eq!(ended(&waiters), []);
        assert_eq!(waiters.count.load(Ordering::SeqCst), 0, "an end costs nothing again");
    }

    #[tokio::test]
    async fn what_others_ask_for_is_bounded() {
        let waiters = Waiters::default();
        let jobs: Vec<JobId> = (0..ELSEWHERE_MAX as u128 + 10).map(job).collect();
        waiters.awaited_elsewhere(&jobs, Instant::now());
        assert_eq!(waiters.elsewhere.lock().len(), ELSEWHERE_MAX);
    }

    #[tokio::test]
    async fn only_those_who_still_wait_are_announced() {
        let waiters = Waiters::default();
        let (gone, stays) = (waiters.enter(job(1)), waiters.enter(job(2)));
        gone.announce();
        stays.announce();
        drop(gone);
        assert_eq!(waiters.take_unannounced(), [job(2)]);
        assert_eq!(waiters.take_unannounced(), []);
        drop(stays);
        assert_eq!(waiters.count.load(Ordering::SeqCst), 0);
    }
}
