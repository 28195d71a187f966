//! One command, run many times, also side by side.
//!
//! Each run of the command has a guard to itself for as long as it lasts; the guard is then kept for the next run. So a run costs no
//! more than its command, and there are as many guards as commands ran at once lately.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::Pid;
use tokio::net::unix::pipe;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::child_tree::ChildTree;
use super::guard_link::{GuardLink, GuardOptions};
use super::messages::{Ending, GuardEvent, Order};

/// A guard that was idle for this long is ended.
const IDLE_MAX: Duration = Duration::from_secs(10);
/// How much longer than the grace guards may take to end before they are killed.
const FINISH_MARGIN: Duration = Duration::from_secs(2);

/// Must be made once in a process: from then on it reaps all children of the process.
pub struct Commands {
    shared: Arc<Shared>,
}

struct Shared {
    command: Vec<OsString>,
    grace: Duration,
    /// Variables that the command must not see.
    without: Vec<&'static str>,
    /// Whether the kernel kills the command if its guard dies. Otherwise this process does, and a run costs little more than its
    /// command.
    bound: bool,
    /// Guards without a command, the one that ran last at the end.
    idle: Mutex<Vec<(Instant, GuardLink)>>,
    /// All guards, until they are reaped and all that they left behind was killed.
    guards: watch::Sender<HashSet<Pid>>,
    closing: CancellationToken,
}

/// A command that runs. If it is dropped before it has ended, it is stopped as by [`RunningCommand::stop`].
pub struct RunningCommand {
    pub stdin: Option<pipe::Sender>,
    pub stdout: Option<pipe::Receiver>,
    pub stderr: Option<pipe::Receiver>,
    guard: Option<GuardLink>,
    shared: Arc<Shared>,
}

impl Commands {
    /// `grace` is the time from SIGTERM to SIGKILL.
    pub fn new(
        command: Vec<OsString>,
        grace: Duration,
        without: Vec<&'static str>,
        bound: bool,
    ) -> io::Result<Commands> {
        let tree = ChildTree::adopt()?;
        let (idle, guards, closing) = (Mutex::default(), watch::Sender::default(), CancellationToken::new());
        let shared = Arc::new(Shared { command, grace, without, bound, idle, guards, closing });
        tokio::spawn(reap(tree, shared.clone()));
        Ok(Commands { shared })
    }

    /// Starts the command with these variables in its environment.
    pub fn start(&self, env: Vec<(String, String)>) -> io::Result<RunningCommand> {
        let (stdin, child_stdin) = pipe::pipe()?;
        let (child_stdout, stdout) = pipe::pipe()?;
        let (child_stderr, stderr) = pipe::pipe()?;
        let files =
            [child_stdin.into_blocking_fd()?, child_stdout.into_blocking_fd()?, child_stderr.into_blocking_fd()?];
        let files = files.each_ref().map(|file| file.as_fd());
        let order = Order::Start { env, deadline: None };
        let idle = std::iter::from_fn(|| self.shared.idle.lock().pop());
        // A guard that was killed while it was idle does not take the order.
        let started =
            idle.map(|(_, guard)| guard).find_map(|mut guard| guard.send_with(&order, &files).then_some(guard));
        let guard = match started {
            Some(guard) => guard,
            None => {
                let mut guard = self.shared.new_guard()?;
                if !guard.send_with(&order, &files) {
                    return Err(io::Error::other("its guard ended at once"));
                }
                guard
            }
        };
        let (stdin, stdout, stderr) = (Some(stdin), Some(stdout), Some(stderr));
        Ok(RunningCommand { stdin, stdout, stderr, guard: Some(guard), shared: self.shared.clone() })
    }

    /// Waits until all processes of all commands have ended. Running commands must have been dropped.
    pub async fn finish(&self) {
        self.shared.closing.cancel();
        self.shared.idle.lock().clear();
        let _ = self.shared.guards.subscribe().wait_for(HashSet::is_empty).await;
    }
}

impl RunningCommand {
    /// Sends SIGTERM now, SIGKILL after the grace.
    pub fn stop(&mut self) {
        if let Some(guard) = &mut self.guard {
            guard.send(&Order::Stop);
        }
    }

    /// Waits until the command has ended and nothing is left of what it started. Cancel safe.
    pub async fn ended(&mut self) -> io::Result<Ending> {
        let already = || io::Error::other("it has ended before");
        loop {
            let guard = self.guard.as_mut().ok_or_else(already)?;
            let outcome = match guard.next().await {
                Some(GuardEvent::Started { .. } | GuardEvent::Stopping) => continue,
                Some(GuardEvent::Ended(ending)) => Ok(ending),
                Some(GuardEvent::NotStarted(error)) => Err(io::Error::other(error)),
                None => {
                    let pid = guard.pid();
                    let _ = self.shared.guards.subscribe().wait_for(|guards| !guards.contains(&pid)).await;
                    self.guard = None;
                    return Err(io::Error::other("its guard was killed, and the command with it"));
                }
            };
            if let Some(guard) = self.guard.take() {
                self.shared.put_back(guard);
            }
            return outcome;
        }
    }
}

impl Shared {
    fn new_guard(&self) -> io::Result<GuardLink> {
        if self.closing.is_cancelled() {
            return Err(io::Error::other("no more commands are started"));
        }
        let mut started = None;
        // Under the lock, so that the guard is not taken for a process that another guard left behind.
        self.guards.send_modify(|guards| {
            let guard = GuardLink::start(&GuardOptions {
                command: &self.command,
                grace: self.grace,
                without: &self.without,
                bound: self.bound,
            });
            guards.extend(guard.as_ref().ok().map(GuardLink::pid));
            started = Some(guard);
        });
        started.unwrap_or_else(|| Err(io::Error::other("its guard was not started")))
    }

    fn put_back(&self, guard: GuardLink) {
        let mut idle = self.idle.lock();
        if !self.closing.is_cancelled() {
            idle.push((Instant::now(), guard));
        }
    }

    fn end_idle(&self) {
        let now = Instant::now();
        self.idle.lock().retain(|(since, _)| now.duration_since(*since) < IDLE_MAX);
    }
}

/// Reaps guards that have ended, and kills what is left of their commands: that happens only if a guard was killed.
async fn reap(mut tree: ChildTree, shared: Arc<Shared>) {
    let mut idle_check = tokio::time::interval(IDLE_MAX);
    let overdue = async {
        shared.closing.cancelled().await;
        tokio::time::sleep(shared.grace + FINISH_MARGIN).await;
    };
    tokio::pin!(overdue);
    let mut ended = Vec::new();
    loop {
        while let Ok(Some((pid, _))) = tree.reap() {
            ended.push(pid);
        }
        let left_behind = !ended.is_empty() && {
            let guards = shared.guards.borrow();
            tree.kill_children(|pid| !guards.contains(&pid)) > 0
        };
        if !left_behind {
            shared.guards.send_modify(|guards| ended.drain(..).for_each(|pid| _ = guards.remove(&pid)));
        }
        tokio::select! {
            () = tree.child_ended(left_behind) => {}
            _ = idle_check.tick() => shared.end_idle(),
            () = &mut overdue => {
                tree.kill_all().await;
                shared.guards.send_modify(HashSet::clear);
                return;
            }
        }
    }
}
