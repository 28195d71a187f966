//! Writes lines to standard error in a separate thread.
//!
//! A write to a pipe without a reader blocks. Here it blocks only this thread: at most [`LINES_MAX`] lines wait for it,
//! further lines are dropped, and their number is logged as soon as lines are written again.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

/// How many lines may wait to be written.
const LINES_MAX: usize = 4_096;
/// How long a process that ends waits until its last lines are written.
const FLUSH_WAIT: Duration = Duration::from_secs(1);

static WRITER: OnceLock<Writer> = OnceLock::new();

#[derive(Clone)]
pub struct Writer {
    queue: SyncSender<Order>,
    dropped: Arc<AtomicU64>,
}

enum Order {
    Write(Vec<u8>),
    /// Sent after all earlier lines; acknowledged when they are written.
    Confirm(SyncSender<()>),
}

impl Writer {
    /// Returns the writer of this process; the first call starts its thread.
    pub fn start() -> Writer {
        WRITER.get_or_init(|| Writer::to(io::stderr())).clone()
    }

    fn to(target: impl Write + Send + 'static) -> Writer {
        let (queue, orders) = sync_channel(LINES_MAX);
        let dropped = Arc::new(AtomicU64::new(0));
        let counted = dropped.clone();
        let spawned = std::thread::Builder::new().name("log".into()).spawn(move || write(target, &orders, &counted));
        if let Err(error) = spawned {
            eprintln!("no thread can be started for the log: {error}");
        }
        Writer { queue, dropped }
    }

    /// Waits until all lines logged so far are written, or [`FLUSH_WAIT`] has passed.
    fn flush(&self) {
        let (confirm, confirmed) = sync_channel(1);
        // A full queue has no reader, or a slow one, so it is not waited for.
        if self.queue.try_send(Order::Confirm(confirm)).is_ok() {
            let _ = confirmed.recv_timeout(FLUSH_WAIT);
        }
    }
}

fn write(mut target: impl Write, orders: &Receiver<Order>, dropped: &AtomicU64) {
    while let Ok(order) = orders.recv() {
        match order {
            // A closed standard error is no reason to end.
            Order::Write(line) => drop(target.write_all(&line)),
            Order::Confirm(confirm) => drop(confirm.try_send(())),
        }
        let count = dropped.swap(0, Ordering::Relaxed);
        if count > 0 {
            tracing::warn!(count, "log lines dropped: standard error is not read fast enough");
        }
    }
}

/// Waits, for a moment, until the lines logged so far are written. For a process that is about to end.
pub fn flush() {
    if let Some(writer) = WRITER.get() {
        writer.flush();
    }
}

impl<'a> MakeWriter<'a> for Writer {
    type Writer = LineWriter<'a>;

    fn make_writer(&'a self) -> LineWriter<'a> {
        LineWriter(self)
    }
}

/// Receives one line: the formatter writes each line at once.
pub struct LineWriter<'a>(&'a Writer);

impl Write for LineWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.queue.try_send(Order::Write(bytes.to_vec())) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.0.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::{Mutex, MutexGuard};

    use super::*;

    /// Blocks every write while the test holds the lock.
    #[derive(Clone, Default)]
    struct Stuck(Arc<Mutex<Vec<u8>>>);

    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_target_that_takes_nothing_costs_lines_and_blocks_nobody() {
        let target = Stuck::default();
        let writer = Writer::to(target.clone());
        let stuck: MutexGuard<'_, _> = target.0.lock();
        for number in 0..LINES_MAX * 2 {
            writeln!(writer.make_writer(), "line {number}").expect("never fails");
        }
        assert!(writer.dropped.load(Ordering::Relaxed) > 0, "what does not fit is counted");
        drop(stuck);
        // Only the writer's thread makes room; the last line shows that it has caught up.
        let deadline = std::time::Instant::now() + Duration::from_secs(30);
        while !String::from_utf8_lossy(&target.0.lock()).contains("the end") {
            assert!(std::time::Instant::now() < deadline, "the thread writes again");
            writer.make_writer().write_all(b"the end\n").expect("never fails");
            std::thread::yield_now();
        }
        assert!(String::from_utf8_lossy(&target.0.lock()).starts_with("line 0\n"));
    }

    #[test]
    fn what_was_logged_is_written_once_it_is_flushed() {
        let target = Stuck::default();
        let writer = Writer::to(target.clone());
        writeln!(writer.make_writer(), "last words").expect("never fails");
        writer.flush();
        assert_eq!(&*target.0.lock(), b"last words\n");
    }
}
