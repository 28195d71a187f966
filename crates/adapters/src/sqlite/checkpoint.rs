//! Copies committed pages from the log to the database file, off the writer's path.
//!
//! A thread with a connection of its own copies while the writer continues. The log starts over once everything in it
//! is copied, which never happens while the writer is always a little ahead; so when the log has grown large, the
//! writer itself copies the rest. Nothing can be lost here: pages that are not copied are in the log.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use convoke_core::{Error, Result};
use rusqlite::Connection;

use super::schema;

/// Copies when the log has grown by this many pages of 4 KiB.
const COPY_EVERY_PAGES: u64 = 4_000;

/// The writer makes the log start over at this many pages.
const RESTART_PAGES: u64 = 32_000;

const CACHE_KIB: u32 = 64;

pub(super) struct Checkpoints {
    pages: Arc<AtomicU64>,
    copied_at: u64,
    restarted_at: u64,
    wake: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Checkpoints {
    /// Registers a hook on `writer` that counts the pages of the log.
    pub(super) fn start(path: &Path, writer: &mut Connection) -> Result<Self> {
        let pages = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&pages);
        writer
            .wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, count: std::ffi::c_int| {
                counted.store(u64::try_from(count).unwrap_or(0), Ordering::Relaxed);
                Ok(())
            }))
            .map_err(super::failure::unavailable)?;
        let copier = schema::open_writable(path, CACHE_KIB)?;
        let (wake, asked) = sync_channel(1);
        let thread = std::thread::Builder::new()
            .name("sqlite-checkpoint".into())
            .spawn(move || copy_when_asked(&copier, &asked))
            .map_err(|error| Error::unavailable("store", format!("cannot start the checkpoint thread: {error}")))?;
        Ok(Checkpoints { pages, copied_at: 0, restarted_at: 0, wake: Some(wake), thread: Some(thread) })
    }

    /// Called by the writer between two transactions.
    pub(super) fn after_commit(&mut self, writer: &Connection) {
        let pages = self.pages.load(Ordering::Relaxed);
        if pages < self.copied_at {
            // The log has started over.
            (self.copied_at, self.restarted_at) = (0, 0);
        }
        if pages >= self.copied_at + COPY_EVERY_PAGES {
            self.copied_at = pages;
            if let Some(wake) = &self.wake {
                // A full channel means that the thread is busy and checks again.
                let _ = wake.try_send(());
            }
        } else if pages >= RESTART_PAGES && pages >= self.restarted_at + COPY_EVERY_PAGES / 2 {
            // Not as often as possible: while a reader uses the log, the attempt fails.
            self.restarted_at = pages;
            copy(writer);
        }
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        self.wake = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("checkpoint thread panicked");
        }
    }
}

fn copy_when_asked(copier: &Connection, asked: &Receiver<()>) {
    while asked.recv().is_ok() {
        copy(copier);
    }
}

/// Copies the pages that no reader uses. A failure loses nothing: the log keeps them, and the next attempt may succeed.
fn copy(connection: &Connection) {
    let passive = connection.query_row("pragma wal_checkpoint(passive)", [], |_| Ok(()));
    if let Err(error) = passive {
        tracing::warn!(%error, "checkpoint failed");
    }
}
