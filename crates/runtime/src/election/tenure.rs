//! A term that is held: its number, and when to stop acting on it.
//!
//! It ends when it is ended early, or when the time is reached up to which the lease is certain. The latter needs no
//! other task: a process that was paused, or whose heartbeat hangs, reads it from the clock, which on Linux also counts
//! how long the machine was suspended.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use convoke_core::Epoch;
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::mark::Mark;

/// One term of leadership. Cheap to clone; all clones are the same term.
#[derive(Debug, Clone)]
pub struct Tenure {
    epoch: Epoch,
    over: CancellationToken,
    certain_until: Arc<Mutex<Mark>>,
    at_work: TaskTracker,
}

impl Tenure {
    /// Creates a term whose lease is certain until then.
    pub fn new(epoch: Epoch, certain_until: Instant) -> Self {
        let certain_until = Arc::new(Mutex::new(Mark::at(certain_until)));
        Tenure { epoch, over: CancellationToken::new(), certain_until, at_work: TaskTracker::new() }
    }

    /// Returns the epoch, for every write that a former leader must not make.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Returns until when the lease is certain, as of its last renewal. A renewal moves it.
    pub fn certain_until(&self) -> Instant {
        self.certain_until.lock().instant()
    }

    /// Extends the term, unless it has ended: a term that was over stays over, however late its renewal arrives.
    pub(super) fn prolong(&self, certain_until: Instant) {
        let mut until = self.certain_until.lock();
        if has_come(*until) {
            self.over.cancel();
        } else {
            *until = Mark::at(certain_until);
        }
    }

    /// Ends the term early: a write was rejected, or the holder resigns. An elector then resigns.
    pub fn end(&self) {
        self.over.cancel();
    }

    /// Returns whether the term was ended or its time has passed.
    pub fn is_over(&self) -> bool {
        // Read under the lock: else the term could be extended between the comparison and its result.
        self.over.is_cancelled() || has_come(*self.certain_until.lock())
    }

    /// Waits for the end of the term.
    pub async fn ended(&self) {
        while !self.is_over() {
            let until = self.certain_until();
            tokio::select! {
                biased;
                () = self.over.cancelled() => {}
                // It may have been extended meanwhile.
                () = tokio::time::sleep_until(until), if !overstays() => {}
            }
        }
    }

    /// Waits until the time is up, also if the term was ended early: until then its holder may finish what it has begun.
    pub async fn expired(&self) {
        while !has_come(*self.certain_until.lock()) {
            if overstays() {
                std::future::pending::<()>().await;
            }
            // It may have been extended meanwhile.
            tokio::time::sleep_until(self.certain_until()).await;
        }
    }

    /// Waits until the term is ended early.
    pub(super) async fn given_up(&self) {
        self.over.cancelled().await;
    }

    /// Returns whether the time is up and the holder ignores it, for a test.
    pub(super) fn overstays(&self) -> bool {
        overstays() && self.certain_until.lock().has_come()
    }

    /// Sleeps. Returns false if the term ended first.
    pub async fn sleep(&self, duration: Duration) -> bool {
        tokio::select! {
            biased;
            () = self.ended() => false,
            () = tokio::time::sleep(duration) => !self.is_over(),
        }
    }

    /// Runs `work` for as long as the term lasts. Returns its output, or `None` if the term ended first. Then `work` is
    /// dropped at its await point and is not polled again, also after the process was paused.
    pub async fn run<F: Future>(&self, work: impl FnOnce(Tenure) -> F) -> Option<F::Output> {
        let _at_work = self.guard();
        let mut work = pin!(work(self.clone()));
        let mut ended = pin!(self.ended());
        poll_fn(|context| {
            if self.is_over() || ended.as_mut().poll(context).is_ready() {
                return Poll::Ready(None);
            }
            work.as_mut().poll(context).map(Some)
        })
        .await
    }

    /// Returns a guard: while it is kept, a holder that resigns delays the next leader, up to the end of its lease.
    pub fn guard(&self) -> TaskTrackerToken {
        self.at_work.token()
    }

    /// Waits until nothing of the term runs any more, or until its lease ends.
    pub(super) async fn quiet(&self) {
        self.at_work.close();
        // A timeout is no error: then the lease has expired, and `run` has dropped its work by itself.
        let _ = tokio::time::timeout_at(self.certain_until(), self.at_work.wait()).await;
    }
}

fn has_come(end: Mark) -> bool {
    end.has_come() && !overstays()
}

/// A failpoint, in builds with debug assertions only: with `CONVOKE_FAILPOINT=overstay` a leader ignores that its time
/// is up, so that a test can observe the store reject its writes.
fn overstays() -> bool {
    static OVERSTAYS: OnceLock<bool> = OnceLock::new();
    cfg!(debug_assertions)
        && *OVERSTAYS.get_or_init(|| std::env::var_os("CONVOKE_FAILPOINT").is_some_and(|name| name == "overstay"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenure() -> Tenure {
        Tenure::new(Epoch(7), Instant::now() + Duration::from_secs(10))
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_ends_within_the_term_gives_its_answer() {
        assert_eq!(tenure().run(async |term| term.epoch()).await, Some(Epoch(7)));
    }

    #[tokio::test(start_paused = true)]
    async fn work_is_dropped_when_the_lease_is_no_longer_certain() {
        let (tenure, started) = (tenure(), Instant::now());
        assert_eq!(tenure.run(|_| std::future::pending::<()>()).await, None);
        assert_eq!(started.elapsed().as_secs(), 10);
        assert!(tenure.is_over());
        assert!(!tenure.sleep(Duration::ZERO).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_prolonged_term_goes_on_until_somebody_ends_it() {
        let (tenure, started) = (tenure(), Instant::now());
        let working = tokio::spawn({
            let tenure = tenure.clone();
            async move { tenure.run(|_| std::future::pending::<()>()).await }
        });
        assert!(tenure.sleep(Duration::from_secs(9)).await);
        tenure.prolong(Instant::now() + Duration::from_secs(100));
        assert!(tenure.sleep(Duration::from_secs(50)).await);
        tenure.end();
        assert_eq!(working.await.expect("does not panic"), None);
        assert_eq!(started.elapsed().as_secs(), 59);
        tenure.quiet().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_term_that_was_seen_to_be_over_is_not_prolonged() {
        let tenure = tenure();
        tokio::time::advance(Duration::from_secs(10)).await;
        assert!(tenure.is_over());
        tenure.prolong(Instant::now() + Duration::from_secs(5));
        assert!(tenure.is_over());
        tenure.given_up().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_machine_that_was_suspended_for_longer_than_the_lease_does_not_go_on_believing() {
        let tenure = tenure();
        crate::election::mark::tests::ASLEEP.set(Duration::from_secs(11));
        assert!(tenure.is_over());
        tenure.prolong(Instant::now() + Duration::from_secs(10));
        assert!(tenure.is_over());
    }

    #[tokio::test(start_paused = true)]
    async fn work_is_not_polled_after_a_pause_that_outlasted_the_lease() {
        let tenure = tenure();
        let polls = tenure
            .run(|_| async {
                // Like a stopped process: time passes, nothing else runs.
                tokio::time::advance(Duration::from_secs(60)).await;
                tokio::task::yield_now().await;
                panic!("acts after its time");
            })
            .await;
        assert!(polls.is_none());
    }
}
