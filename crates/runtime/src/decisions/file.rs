//! A history in a file: one thread appends the lines in batches.
//!
//! The processes that record never wait for the disk. At most [`WAITING_MAX`] lines wait for the thread; beyond that lines
//! are dropped. If lines were dropped, or the disk was full, the file gets a `gap` line as soon as it can be written again,
//! and the log says so once. Lines are given to the system within [`COLLECT`], so that a process that is killed loses few;
//! they are not flushed to the disk, because a history is evidence and no state.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use convoke_core::decisions::{Decision, Outcome, What};
use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;
use tracing::{info, warn};

use super::DecisionSink;

/// Lines that wait to be written.
const WAITING_MAX: usize = 200_000;
/// How long the thread collects lines between two writes.
const COLLECT: Duration = Duration::from_millis(10);
/// How long it waits before it tries again after a failed write.
const RETRY: Duration = Duration::from_millis(100);

/// A history in a file. Dropping the last handle writes what waits.
pub struct DecisionFile {
    shared: Arc<Shared>,
    thread: Option<std::thread::JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Wakes the thread.
    work: Condvar,
    /// Lines that were lost since the last gap line.
    lost: AtomicU64,
}

#[derive(Default)]
struct State {
    waiting: Vec<Decision>,
    /// Notified once everything so far is written, or could not be.
    confirm: Vec<oneshot::Sender<()>>,
    is_closed: bool,
}

impl DecisionFile {
    /// Opens a file to append to, and creates it if it is missing. A last line that a killed process left incomplete is
    /// ended first.
    pub fn open(path: &Path) -> io::Result<DecisionFile> {
        let mut file = OpenOptions::new().create(true).append(true).read(true).open(path)?;
        if !ends_with_newline(&mut file)? {
            file.write_all(b"\n")?;
        }
        Self::to(file)
    }

    fn to(target: impl Write + Send + 'static) -> io::Result<DecisionFile> {
        let shared = Arc::new(Shared::default());
        let own = shared.clone();
        let thread = std::thread::Builder::new().name("history".into()).spawn(move || own.run(target))?;
        Ok(DecisionFile { shared, thread: Some(thread) })
    }
}

fn ends_with_newline(file: &mut File) -> io::Result<bool> {
    if file.metadata()?.len() == 0 {
        return Ok(true);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

#[async_trait]
impl DecisionSink for DecisionFile {
    fn write(&self, decisions: Vec<Decision>) {
        let mut state = self.shared.state.lock();
        if state.waiting.len() + decisions.len() > WAITING_MAX {
            self.shared.lost.fetch_add(decisions.len() as u64, Ordering::Relaxed);
            return;
        }
        let was_empty = state.waiting.is_empty();
        if was_empty {
            state.waiting = decisions;
        } else {
            state.waiting.extend(decisions);
        }
        if was_empty {
            self.shared.work.notify_one();
        }
    }

    async fn written(&self) {
        let (confirm, confirmed) = oneshot::channel();
        self.shared.state.lock().confirm.push(confirm);
        self.shared.work.notify_one();
        // An error means that the thread has ended: nothing more can be written.
        let _ = confirmed.await;
    }
}

impl Drop for DecisionFile {
    fn drop(&mut self) {
        self.shared.state.lock().is_closed = true;
        self.shared.work.notify_one();
        if let Some(thread) = self.thread.take() {
            // It panicked: there is nothing left to wait for.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn run(&self, mut target: impl Write) {
        let mut text = Vec::new();
        // The identity of the process, for gap lines.
        let mut template: Option<Decision> = None;
        // Bytes of an incomplete line were written.
        let mut is_torn = false;
        let mut is_failing = false;
        loop {
            let (waiting, confirm, is_closed) = self.next();
            text.clear();
            if is_torn {
                text.push(b'\n');
            }
            if let Some(last) = waiting.last() {
                template = Some(last.clone());
            }
            // Lines that were lost before the first could be written are found by its number.
            let lost = template.as_ref().map_or(0, |_| self.lost.load(Ordering::Relaxed));
            if let Some(like) = template.as_ref().filter(|_| lost > 0) {
                gap_line(like, lost).write_line(&mut text);
            }
            waiting.iter().for_each(|decision| decision.write_line(&mut text));
            match write_all(&mut target, &text) {
                Ok(()) => {
                    is_torn = false;
                    self.lost.fetch_sub(lost, Ordering::Relaxed);
                    if is_failing || lost > 0 {
                        info!(lost, "history is written again, with a gap");
                    }
                    is_failing = false;
                }
                Err((written, error)) => {
                    is_torn |= written > 0;
                    self.lost.fetch_add(waiting.len() as u64, Ordering::Relaxed);
                    if !is_failing {
                        warn!(%error, "history cannot be written: it will have a gap");
                    }
                    is_failing = true;
                }
            }
            for confirm in confirm {
                // Nobody waits any more.
                let _ = confirm.send(());
            }
            if is_closed {
                return;
            }
            std::thread::sleep(if is_failing { RETRY } else { COLLECT });
        }
    }

    /// Waits for lines, or for the end.
    fn next(&self) -> (Vec<Decision>, Vec<oneshot::Sender<()>>, bool) {
        let mut state = self.state.lock();
        while state.waiting.is_empty()
            && state.confirm.is_empty()
            && !state.is_closed
            && self.lost.load(Ordering::Relaxed) == 0
        {
            self.work.wait(&mut state);
        }
        (std::mem::take(&mut state.waiting), std::mem::take(&mut state.confirm), state.is_closed)
    }
}

/// Returns the line for `lost` missing ones, of the same process as `like`.
fn gap_line(like: &Decision, lost: u64) -> Decision {
    let gap = Decision::of(What::Gap, Outcome::Accepted);
    let (seq, since) = (like.seq, like.since);
    Decision { at: like.at, node: like.node.clone(), boot: like.boot, seq, since, count: Some(lost), ..gap }
}

/// Like [`Write::write_all`], but returns how much was written before a failure.
fn write_all(target: &mut impl Write, mut text: &[u8]) -> Result<(), (usize, io::Error)> {
    let mut written = 0;
    while !text.is_empty() {
        match target.write(text) {
            Ok(0) => return Err((written, io::ErrorKind::WriteZero.into())),
            Ok(count) => {
                written += count;
                text = &text[count..];
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err((written, error)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use convoke_core::NodeId;

    use super::*;

    /// Takes bytes as long as there is room.
    #[derive(Clone, Default)]
    struct Disk(Arc<Mutex<(Vec<u8>, usize)>>);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let (held, room) = &mut *self.0.lock();
            let count = bytes.len().min(*room);
            if count == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            *room -= count;
            held.extend_from_slice(&bytes[..count]);
            Ok(count)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn line(seq: u64) -> Decision {
        let node = NodeId::new("n").expect("a name");
        Decision { node, boot: 7, seq, ..Decision::of(What::JobsPromote, Outcome::Accepted) }
    }

    fn read(text: &[u8]) -> Vec<Result<Decision, String>> {
        String::from_utf8_lossy(text).lines().map(Decision::read_line).collect()
    }

    #[tokio::test]
    async fn lines_are_in_the_file_once_they_are_confirmed_and_after_a_torn_one() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("h.jsonl");
        std::fs::write(&path, "{\"v\":1,\"at").expect("written");
        let file = DecisionFile::open(&path).expect("it can be opened");
        file.write(vec![line(1), line(2)]);
        file.written().await;
        let read = read(&std::fs::read(&path).expect("readable"));
        assert!(read[0].is_err(), "the torn line is alone");
        assert_eq!(read[1..].iter().map(|it| it.as_ref().map(|it| it.seq)).collect::<Vec<_>>(), [Ok(1), Ok(2)]);
    }

    #[tokio::test]
    async fn a_full_disk_leaves_a_gap_that_counts_what_is_missing() {
        let disk = Disk::default();
        disk.0.lock().1 = 40;
        let file = DecisionFile::to(disk.clone()).expect("a thread");
        file.write(vec![line(1), line(2)]);
        file.written().await;
        disk.0.lock().1 = usize::MAX;
        file.write(vec![line(3)]);
        file.written().await;
        let read = read(&disk.0.lock().0);
        assert!(read[0].is_err(), "what was begun is torn");
        let gap = read[1].as_ref().expect("a line");
        assert_eq!((gap.what, gap.count, gap.boot), (What::Gap, Some(2), 7));
        assert_eq!(read[2].as_ref().map(|it| it.seq), Ok(3));
        assert_eq!(read.len(), 3);
    }

    #[test]
    fn what_waits_is_written_at_the_end() {
        let disk = Disk::default();
        disk.0.lock().1 = usize::MAX;
        let file = DecisionFile::to(disk.clone()).expect("a thread");
        file.write((1..=1_000).map(line).collect());
        drop(file);
        assert_eq!(read(&disk.0.lock().0).len(), 1_000);
    }

    #[test]
    fn a_directory_is_no_history() {
        let directory = tempfile::tempdir().expect("a directory");
        assert!(DecisionFile::open(directory.path()).is_err());
    }
}
