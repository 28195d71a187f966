//! A lane: a few connections that serve one busy verb, with all waiting calls in one statement.
//!
//! While a statement is under way the next calls are collected, so that a thousand waiting callers cost one commit, not
//! a thousand. A call returns after its transaction is committed. Calls of one statement do not affect each other: if
//! the server rejects the statement, the calls are repeated separately, so that a bad call cannot fail another. Inserts
//! do that in one statement too ([`Work::run_apart`]): a call that waits for a lock which an application's transaction
//! holds must not delay the others.
//!
//! A broken connection is replaced for the next group. Calls that were under way return `Unknown`: it is not known
//! whether they happened. As long as the server cannot be reached, calls return `Unavailable`.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use convoke_core::{Error, Result};
use tokio::sync::{Mutex, mpsc, oneshot};

use super::failure::{self, Failure};
use super::server::{COLLISIONS_MAX, Flush, Hot, Kind, Server, patiently};

/// Limit of waiting calls: beyond it, callers wait for room.
const WAITING_MAX: usize = 8_192;

/// A statement takes no further call from this weight on, so that no call waits long for the commit.
const GROUP_WEIGHT_MAX: usize = 2_000;

/// Bytes that weigh as much as a row.
pub(super) const BYTES_PER_WEIGHT: usize = 4 << 10;

/// The work of a lane.
#[async_trait]
pub(super) trait Work: Send + Sync + 'static {
    type Item: Send + Sync + 'static;
    type Output: Send + 'static;

    /// Returns the approximate number of rows that an item costs.
    fn weight(item: &Self::Item) -> usize;

    /// The port whose verbs these are, in errors.
    const WHAT: &'static str = "store";

    /// How long a statement waits for a lock.
    const LOCK_TIMEOUT: &'static str = "lock_timeout=2000";

    /// Runs in one transaction, perhaps more than once, never committed more than once. Returns one result for each
    /// item, in order.
    async fn run(&self, hot: &mut Hot, items: &[Self::Item]) -> failure::Result<Vec<Self::Output>>;

    /// Runs the calls of a rejected group in one transaction; each succeeds or fails by itself. `None` if this work
    /// cannot do that: then each call gets a transaction of its own.
    async fn run_apart(&self, _: &mut Hot, _: &[Self::Item], _: &[Range<usize>]) -> Option<Apart<Self::Output>> {
        None
    }

    /// Called after a call failed because another transaction holds a lock that it needs.
    fn found_locked(&self, _: &[Self::Item]) {}
}

/// The results of calls that were run separately, in order.
pub(super) type Apart<A> = failure::Result<Vec<failure::Result<Vec<A>>>>;

struct Call<W: Work> {
    items: Vec<W::Item>,
    reply: Reply<W>,
}

type Reply<W> = oneshot::Sender<Result<Vec<<W as Work>::Output>>>;

pub(super) struct Lane<W: Work> {
    calls: mpsc::Sender<Call<W>>,
}

impl<W: Work> Lane<W> {
    /// Connects. The tasks end after the lane is dropped and the waiting calls are done.
    pub(super) async fn start(server: &Server, flush: Flush, connections: usize, work: W) -> Result<Self> {
        let (calls, waiting) = mpsc::channel(WAITING_MAX);
        let (work, waiting) = (Arc::new(work), Arc::new(Mutex::new(waiting)));
        for _ in 0..connections {
            let connected = patiently(Kind::Read, server.hot(flush, W::LOCK_TIMEOUT)).await;
            let hot = connected.map_err(|failure| failure.into_error(W::WHAT))?;
            let lane_worker = LaneWorker { server: server.clone(), flush, work: Arc::clone(&work), hot: Some(hot) };
            tokio::spawn(lane_worker.serve(Arc::clone(&waiting)));
        }
        Ok(Lane { calls })
    }

    pub(super) async fn call(&self, items: Vec<W::Item>) -> Result<Vec<W::Output>> {
        if items.is_empty() {
            return Ok(Vec::new());
        }
        let (reply, receiver) = oneshot::channel();
        let stopped = |_| Error::unavailable(W::WHAT, "its connections have ended");
        self.calls.send(Call { items, reply }).await.map_err(stopped)?;
        receiver.await.map_err(|_| Error::unknown(W::WHAT, "the connection ended before the reply"))?
    }
}

/// One task of a lane, with its connection.
struct LaneWorker<W: Work> {
    server: Server,
    flush: Flush,
    work: Arc<W>,
    hot: Option<Hot>,
}

impl<W: Work> LaneWorker<W> {
    async fn serve(mut self, waiting: Arc<Mutex<mpsc::Receiver<Call<W>>>>) {
        loop {
            let group = gather(&mut *waiting.lock().await).await;
            if group.is_empty() {
                return;
            }
            self.commit(group).await;
        }
    }

    async fn commit(&mut self, group: Vec<Call<W>>) {
        let mut items = Vec::with_capacity(group.iter().map(|call| call.items.len()).sum());
        let mut replies = Vec::with_capacity(group.len());
        for call in group {
            let begin = items.len();
            items.extend(call.items);
            replies.push((begin..items.len(), call.reply));
        }
        match self.attempt(&items).await {
            Ok(results) => {
                let mut results = results.into_iter();
                for (range, reply) in replies {
                    // The caller may be gone: the change stays committed.
                    let _ = reply.send(Ok(results.by_ref().take(range.len()).collect()));
                }
            }
            // The server rejected the group, perhaps because of one call.
            Err(failure) if replies.len() > 1 && !failure.is_disconnection() => {
                tracing::debug!(calls = replies.len(), "group of calls rejected; running them separately");
                self.commit_apart(&items, replies).await;
            }
            Err(failure) => {
                if failure.is_locked() {
                    self.work.found_locked(&items);
                }
                let mut replies = replies.into_iter().map(|(_, reply)| reply);
                let first = replies.next();
                let error = failure.into_error(W::WHAT);
                for reply in replies {
                    let _ = reply.send(Err(error.clone()));
                }
                if let Some(reply) = first {
                    let _ = reply.send(Err(error));
                }
            }
        }
    }

    async fn commit_apart(&mut self, items: &[W::Item], replies: Vec<(Range<usize>, Reply<W>)>) {
        let ranges: Vec<Range<usize>> = replies.iter().map(|(range, _)| range.clone()).collect();
        let results = match self.attempt_apart(items, &ranges).await {
            Some(Ok(results)) => results,
            Some(Err(failure)) => {
                let error = failure.into_error(W::WHAT);
                return replies.into_iter().for_each(|(_, reply)| drop(reply.send(Err(error.clone()))));
            }
            None => {
                for (range, reply) in replies {
                    let result = self.attempt(&items[range]).await;
                    let _ = reply.send(result.map_err(|failure| failure.into_error(W::WHAT)));
                }
                return;
            }
        };
        for ((range, reply), result) in replies.into_iter().zip(results) {
            if result.as_ref().is_err_and(Failure::is_locked) {
                self.work.found_locked(&items[range]);
            }
            let _ = reply.send(result.map_err(|failure| failure.into_error(W::WHAT)));
        }
    }

    async fn attempt_apart(&mut self, items: &[W::Item], ranges: &[Range<usize>]) -> Option<Apart<W::Output>> {
        let work = Arc::clone(&self.work);
        let hot = match self.connected().await {
            Ok(hot) => hot,
            Err(failure) => return Some(Err(failure)),
        };
        let run = async { work.run_apart(hot, items, ranges).await.transpose() };
        let done = patiently(Kind::Write, run).await.transpose();
        if let Some(Err(failure)) = &done {
            self.repair(failure.is_disconnection()).await;
        }
        done
    }

    /// Returns the connection, a new one if it broke.
    async fn connected(&mut self) -> failure::Result<&mut Hot> {
        let hot = match self.hot.take().filter(|hot| !hot.client.is_closed()) {
            Some(hot) => hot,
            // Nothing was sent yet: whatever fails, nothing happened.
            None => patiently(Kind::Read, self.server.hot(self.flush, W::LOCK_TIMEOUT)).await.map_err(unsent)?,
        };
        Ok(self.hot.insert(hot))
    }

    async fn attempt(&mut self, items: &[W::Item]) -> failure::Result<Vec<W::Output>> {
        let work = Arc::clone(&self.work);
        let mut collisions = 0;
        loop {
            let hot = self.connected().await?;
            match patiently(Kind::Write, work.run(hot, items)).await {
                Err(failure) if failure.is_collision() && collisions < COLLISIONS_MAX => {
                    collisions += 1;
                    self.recover().await;
                }
                Err(failure) => {
                    self.repair(failure.is_disconnection()).await;
                    return Err(failure);
                }
                done => return done,
            }
        }
    }

    /// Makes the connection usable after a failure, or drops it.
    async fn repair(&mut self, is_broken: bool) {
        if is_broken {
            self.hot = None;
        } else {
            self.recover().await;
        }
    }

    /// Rolls back: a rejection inside a transaction leaves it open.
    async fn recover(&mut self) {
        if let Some(hot) = &self.hot {
            let rolled_back = async { Ok(hot.client.batch_execute("rollback").await?) };
            if patiently(Kind::Read, rolled_back).await.is_err() {
                self.hot = None;
            }
        }
    }
}

fn unsent(failure: Failure) -> Failure {
    match failure {
        Failure::Doubtful(error) => Failure::Database(error),
        other => other,
    }
}

/// Returns the first call and all that wait behind it. Empty if the lane is closed.
async fn gather<W: Work>(waiting: &mut mpsc::Receiver<Call<W>>) -> Vec<Call<W>> {
    let mut group = Vec::new();
    let mut weight = 0;
    let mut next = waiting.recv().await;
    while let Some(call) = next {
        weight += call.items.iter().map(W::weight).sum::<usize>();
        group.push(call);
        next = if weight < GROUP_WEIGHT_MAX { waiting.try_recv().ok() } else { None };
    }
    group
}
