//! The one writer: a thread that combines all waiting verbs into one transaction.
//!
//! A verb returns after its transaction is committed and flushed. While one transaction is being flushed the next verbs
//! are collected, so that a thousand waiting callers cost one flush, not a thousand.
//!
//! A write that is not acknowledged need not be flushed by itself ([`Flush::Later`]): the log is written in order, so
//! the next flushed transaction includes it, and a machine that loses power before that has acknowledged nothing after
//! it.
//!
//! A verb that rejects its input has changed nothing and does not affect the others. If the database fails, the
//! transaction is rolled back, and each of its verbs is repeated in a transaction of its own: a bad verb cannot fail
//! another. If the transaction cannot even begin, all its verbs return the error, so that they do not wait for a lock
//! one after the other. A full disk, a lock or an I/O error is returned as `Unavailable`, and the thread continues, so
//! that it recovers by itself. The result is `Unknown` only if a commit fails in a way that leaves open whether it is
//! in the file.

use std::panic::AssertUnwindSafe;
use std::thread::JoinHandle;

use convoke_core::{Error, Result};
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::catalog::{Catalog, WriteTx};
use super::checkpoint::Checkpoints;
use super::failure::{self, Failure, is_undone};
use super::lock::StoreLock;

/// Limit of waiting verbs: beyond it, callers wait for room.
const WAITING_MAX: usize = 8_192;

/// A transaction takes no further verb from this many rows on, so that no verb waits long for the commit.
const GROUP_ROWS_MAX: usize = 4_000;

/// So many bytes of arguments, results or log lines count as a row of their own.
pub(super) const BYTES_PER_ROW: usize = 4 << 10;

/// Whether a verb's transaction must be on the disk before the verb returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flush {
    Now,
    Later,
}

pub(super) struct Writer {
    requests: Option<mpsc::Sender<Box<dyn Request>>>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub(super) fn start(db: Connection, checkpoints: Checkpoints, lock: StoreLock) -> Result<Self> {
        let (requests, waiting) = mpsc::channel(WAITING_MAX);
        let writer_thread = WriterThread { db, catalog: None, flush: Flush::Now, checkpoints };
        let thread = std::thread::Builder::new()
            .name("sqlite-writer".into())
            .spawn(move || {
                writer_thread.serve(waiting);
                // Only now may another process open the file.
                drop(lock);
            })
            .map_err(|error| Error::unavailable("store", format!("cannot start the writer thread: {error}")))?;
        Ok(Writer { requests: Some(requests), thread: Some(thread) })
    }

    /// Runs `verb`, perhaps more than once, never committed more than once. `rows` is the approximate number of rows
    /// that it writes.
    pub(super) async fn call<T, F>(&self, rows: usize, verb: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut WriteTx<'_>) -> failure::Result<T> + Send + 'static,
    {
        self.request(rows, Flush::Now, verb).await
    }

    /// Like [`call`](Self::call), for writes that survive a crash of the process, but perhaps not of the machine.
    pub(super) async fn call_later<T, F>(&self, rows: usize, verb: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut WriteTx<'_>) -> failure::Result<T> + Send + 'static,
    {
        self.request(rows, Flush::Later, verb).await
    }

    async fn request<T, F>(&self, rows: usize, flush: Flush, verb: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut WriteTx<'_>) -> failure::Result<T> + Send + 'static,
    {
        let (reply, receiver) = oneshot::channel();
        let request = Box::new(Verb { rows, flush, run: verb, outcome: None, reply });
        let stopped = || Error::unavailable("store", "the store is closed: its writer has stopped");
        self.requests.as_ref().ok_or_else(stopped)?.send(request).await.map_err(|_| stopped())?;
        receiver.await.map_err(|_| Error::unknown("store", "the writer stopped before its reply"))?
    }
}

impl Drop for Writer {
    /// Waits until the waiting verbs are committed and the file is closed: the next process finds it free.
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("writer thread panicked");
        }
    }
}

trait Request: Send {
    fn rows(&self) -> usize;
    fn flush(&self) -> Flush;
    fn run(&mut self, tx: &mut WriteTx<'_>) -> Result<(), Broken>;
    fn send_reply(self: Box<Self>);
    fn fail(self: Box<Self>, error: Error);
}

struct Verb<F, T> {
    rows: usize,
    flush: Flush,
    run: F,
    outcome: Option<Result<T>>,
    reply: oneshot::Sender<Result<T>>,
}

/// Why a transaction cannot be committed as it is.
#[derive(Debug)]
enum Broken {
    /// It could not begin: no verb of the group ran, and none would succeed alone.
    Unbegun(rusqlite::Error),
    Database(rusqlite::Error),
    /// The commit failed, and may be in the file all the same.
    Doubtful(rusqlite::Error),
    /// A verb rejected its input after it had written: its writes must be rolled back.
    RefusedLate,
    Panicked,
}

impl Broken {
    /// Returns the cause, for the log.
    fn reason(&self) -> String {
        match self {
            Broken::Unbegun(error) | Broken::Database(error) | Broken::Doubtful(error) => error.to_string(),
            Broken::RefusedLate => "a verb rejected its input after it had written".into(),
            Broken::Panicked => "a verb panicked".into(),
        }
    }
}

impl From<rusqlite::Error> for Broken {
    fn from(error: rusqlite::Error) -> Self {
        Broken::Database(error)
    }
}

impl<F, T> Request for Verb<F, T>
where
    T: Send,
    F: FnMut(&mut WriteTx<'_>) -> failure::Result<T> + Send,
{
    fn rows(&self) -> usize {
        self.rows
    }

    fn flush(&self) -> Flush {
        self.flush
    }

    fn run(&mut self, tx: &mut WriteTx<'_>) -> Result<(), Broken> {
        let changes = tx.db.total_changes();
        let run = AssertUnwindSafe(|| (self.run)(tx));
        match std::panic::catch_unwind(run).map_err(|_| Broken::Panicked)? {
            Ok(value) => {
                self.outcome = Some(Ok(value));
                Ok(())
            }
            Err(Failure::Database(error)) => Err(Broken::Database(error)),
            Err(Failure::Refused(error)) => {
                self.outcome = Some(Err(error));
                if tx.db.total_changes() == changes { Ok(()) } else { Err(Broken::RefusedLate) }
            }
        }
    }

    fn send_reply(self: Box<Self>) {
        let outcome = self.outcome.unwrap_or_else(|| Err(Error::unknown("store", "a verb was not run")));
        // The caller may be gone: the verb stays committed.
        let _ = self.reply.send(outcome);
    }

    fn fail(self: Box<Self>, error: Error) {
        let _ = self.reply.send(Err(error));
    }
}

/// The state of the thread.
struct WriterThread {
    db: Connection,
    /// `None` after a rollback, until it is read again.
    catalog: Option<Catalog>,
    /// The present setting of the connection.
    flush: Flush,
    checkpoints: Checkpoints,
}

impl WriterThread {
    fn serve(mut self, mut waiting: mpsc::Receiver<Box<dyn Request>>) {
        let mut group = Vec::new();
        while let Some(first) = waiting.blocking_recv() {
            let mut rows = first.rows();
            group.push(first);
            while rows < GROUP_ROWS_MAX
                && let Ok(next) = waiting.try_recv()
            {
                rows += next.rows();
                group.push(next);
            }
            self.commit(&mut group);
            self.checkpoints.after_commit(&self.db);
        }
    }

    /// Commits the verbs of the group and sends their results. Leaves the group empty.
    fn commit(&mut self, group: &mut Vec<Box<dyn Request>>) {
        match self.attempt(group) {
            Ok(()) => group.drain(..).for_each(|request| request.send_reply()),
            Err(Broken::Doubtful(error)) => {
                // The caller logs it, as for any unavailable store: a log line here would be one per call.
                tracing::debug!(%error, verbs = group.len(), "commit failed; its outcome is unknown");
                let message = error.to_string();
                group.drain(..).for_each(|request| request.fail(Error::unknown("store", message.as_str())));
            }
            Err(Broken::Unbegun(error)) => {
                tracing::debug!(%error, verbs = group.len(), "transaction could not begin");
                let message = error.to_string();
                group.drain(..).for_each(|request| request.fail(Error::unavailable("store", message.as_str())));
            }
            Err(broken) if group.len() > 1 => {
                tracing::debug!(
                    reason = broken.reason(),
                    verbs = group.len(),
                    "transaction rolled back; running its verbs one by one"
                );
                let mut alone = Vec::with_capacity(1);
                for request in group.drain(..) {
                    alone.push(request);
                    self.commit(&mut alone);
                }
            }
            Err(broken) => group.drain(..).for_each(|request| match &broken {
                Broken::RefusedLate => request.send_reply(),
                Broken::Panicked => request.fail(Error::unavailable("store", "the verb panicked and was rolled back")),
                Broken::Database(error) | Broken::Doubtful(error) | Broken::Unbegun(error) => {
                    request.fail(Error::unavailable("store", error.to_string()))
                }
            }),
        }
    }

    fn attempt(&mut self, group: &mut [Box<dyn Request>]) -> Result<(), Broken> {
        let outcome = self.transact(group);
        if outcome.is_err() {
            self.catalog = None;
            // After some errors SQLite has rolled back by itself.
            if !self.db.is_autocommit()
                && let Err(error) = self.db.execute_batch("rollback")
            {
                tracing::error!(%error, "rollback failed");
            }
        }
        outcome
    }

    /// Called between transactions only: within one, SQLite ignores the setting.
    fn flush(&mut self, flush: Flush) -> rusqlite::Result<()> {
        if self.flush != flush {
            let synchronous = if flush == Flush::Now { "full" } else { "normal" };
            self.db.pragma_update(None, "synchronous", synchronous)?;
            self.flush = flush;
        }
        Ok(())
    }

    fn begin(&mut self, flush: Flush) -> rusqlite::Result<()> {
        self.flush(flush)?;
        self.db.prepare_cached("begin immediate")?.execute([])?;
        Ok(())
    }

    fn transact(&mut self, group: &mut [Box<dyn Request>]) -> Result<(), Broken> {
        let now = group.iter().any(|request| request.flush() == Flush::Now);
        self.begin(if now { Flush::Now } else { Flush::Later }).map_err(Broken::Unbegun)?;
        let catalog = match &mut self.catalog {
            Some(catalog) => catalog,
            none => none.insert(Catalog::read(&self.db)?),
        };
        let mut tx = WriteTx { db: &self.db, catalog };
        for request in group.iter_mut() {
            request.run(&mut tx)?;
        }
        tx.catalog.write_counts(&self.db)?;
        match self.db.prepare_cached("commit")?.execute([]) {
            Ok(_) => Ok(()),
            Err(error) if is_undone(&error) => Err(Broken::Database(error)),
            Err(error) => Err(Broken::Doubtful(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::super::schema;
    use super::*;

    /// How often the connection met a lock.
    static MET: AtomicU32 = AtomicU32::new(0);

    fn give_up(_: i32) -> bool {
        MET.fetch_add(1, Ordering::Relaxed);
        false
    }

    #[test]
    fn a_transaction_that_cannot_begin_is_unavailable_to_all_its_verbs_at_once() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("convoke.db");
        let mut db = schema::open_writable(&path, 64).expect("opens");
        let checkpoints = Checkpoints::start(&path, &mut db).expect("starts");
        db.busy_handler(Some(give_up)).expect("set");
        let mut writer_thread = WriterThread { db, catalog: None, flush: Flush::Now, checkpoints };
        let other = Connection::open(&path).expect("opens");
        other.execute_batch("begin immediate").expect("takes the lock");

        let mut group: Vec<Box<dyn Request>> = Vec::new();
        let mut receivers = Vec::new();
        for _ in 0..3 {
            let (reply, receiver) = oneshot::channel();
            let run = |_: &mut WriteTx<'_>| -> failure::Result<()> { panic!("nothing began") };
            group.push(Box::new(Verb { rows: 1, flush: Flush::Now, run, outcome: None, reply }));
            receivers.push(receiver);
        }
        writer_thread.commit(&mut group);
        assert!(group.is_empty());
        for mut receiver in receivers {
            let error = receiver.try_recv().expect("replied").expect_err("locked");
            assert!(matches!(error, Error::Unavailable { .. }) && error.to_string().contains("locked"), "{error}");
        }
        assert_eq!(MET.load(Ordering::Relaxed), 1, "the lock was waited for once");

        other.execute_batch("rollback").expect("the lock is released");
        let (reply, mut receiver) = oneshot::channel();
        let run = |_: &mut WriteTx<'_>| -> failure::Result<()> { Ok(()) };
        writer_thread.commit(&mut vec![Box::new(Verb { rows: 1, flush: Flush::Later, run, outcome: None, reply })]);
        receiver.try_recv().expect("replied").expect("goes on by itself");
    }
}
