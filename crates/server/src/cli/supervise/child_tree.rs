//! All processes below this one, in any process group or session.
//!
//! If the parent of a process ends, the kernel gives the process to its nearest ancestor that is a subreaper. On Linux this process
//! becomes one: all that was started from here stays below it until it ends. It must then also reap what it did not start itself,
//! or zombies would pile up (in a container this may be process 1).
//!
//! Killing goes from the top down: the children of a killed process become children of this one and are next, and a dead process
//! starts nothing new. Only children are killed, because the id of a child cannot be reused before it was reaped here. On other
//! systems than Linux there is no subreaper, and a process that left its process group is not found. A process that changed its user
//! may not be killed; neither it nor what is below it is waited for.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, getpid, kill_process, wait, waitid,
};
use tokio::signal::unix::{self, SignalKind, signal};

/// The time between two checks: a process may become a child of this one without a signal.
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

pub struct ChildTree {
    child_signals: unix::Signal,
    /// Children from before this program was executed. They are not touched.
    foreign: Vec<Pid>,
}

impl ChildTree {
    /// Makes this process the subreaper of all that it starts from now on.
    pub fn adopt() -> io::Result<ChildTree> {
        let child_signals = signal(SignalKind::child())?;
        #[cfg(target_os = "linux")]
        rustix::process::set_child_subreaper(Some(getpid()))?;
        Ok(ChildTree { child_signals, foreign: children() })
    }

    /// Reaps children until this one has ended.
    pub async fn wait_for(&mut self, child: Pid) -> io::Result<WaitStatus> {
        loop {
            while let Some((pid, status)) = self.reap()? {
                if pid == child {
                    return Ok(status);
                }
            }
            self.child_signals.recv().await;
        }
    }

    /// Reaps children for as long as the future is polled.
    pub async fn reap_forever(&mut self) -> Infallible {
        loop {
            while let Ok(Some(_)) = self.reap() {}
            self.child_signals.recv().await;
        }
    }

    /// Waits until a child has ended. With `is_dying`, processes that were killed may become children of this one without a
    /// signal, and it returns soon in any case.
    pub async fn child_ended(&mut self, is_dying: bool) {
        if is_dying {
            let _ = tokio::time::timeout(CHECK_INTERVAL, self.child_signals.recv()).await;
        } else {
            self.child_signals.recv().await;
        }
    }

    /// Kills the children for which `condemned` is true, but not what is below them. Returns how many.
    pub fn kill_children(&self, condemned: impl Fn(Pid) -> bool) -> usize {
        let children = children().into_iter().filter(|pid| !self.foreign.contains(pid) && condemned(*pid));
        // An error means that the process changed its user. Waiting for it could take forever.
        children.filter(|pid| kill_process(*pid, Signal::KILL).is_ok()).count()
    }

    /// Kills the whole tree. Returns when nothing is left that may be killed.
    pub async fn kill_all(&mut self) {
        loop {
            let has_children = loop {
                match self.reap() {
                    Ok(Some(_)) => {}
                    Ok(None) => break true,
                    Err(_) => break false,
                }
            };
            if !has_children || self.kill_children(|_| true) == 0 {
                return;
            }
            self.child_ended(true).await;
        }
    }

    /// Reaps a child that has ended. Returns an error if there are no children.
    pub fn reap(&mut self) -> io::Result<Option<(Pid, WaitStatus)>> {
        loop {
            match wait(WaitOptions::NOHANG) {
                Err(Errno::INTR) => {}
                Ok(Some((pid, status))) => {
                    self.foreign.retain(|foreign| *foreign != pid);
                    return Ok(Some((pid, status)));
                }
                other => return Ok(other?),
            }
        }
    }
}

fn children() -> Vec<Pid> {
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    let this = getpid();
    let child = |name: &str| {
        let pid = Pid::from_raw(name.parse().ok()?)?;
        (parent_of(name)? == this && is_child(pid)).then_some(pid)
    };
    processes.filter_map(|process| child(process.ok()?.file_name().to_str()?)).collect()
}

fn parent_of(process: &str) -> Option<Pid> {
    let stat = std::fs::read(format!("/proc/{process}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    // The program's name is in brackets, and may contain brackets and blanks.
    let (_, rest) = stat.rsplit_once(") ")?;
    Pid::from_raw(rest.split(' ').nth(1)?.parse().ok()?)
}

/// Asks the kernel: `/proc` may be mounted from another PID namespace and count in another way.
fn is_child(pid: Pid) -> bool {
    waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT).is_ok()
}
