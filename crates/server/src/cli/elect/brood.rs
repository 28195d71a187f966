//! All processes below this one, also those that went their own way.
//!
//! A process whose parent ends is given to the nearest ancestor that has asked for such orphans, and on Linux this one asks. So
//! whatever was started from here stays below until it ends, in whatever group or session it is, and is buried here: where
//! nobody else does it (in a container this may be the first process) its name would stay for ever.
//!
//! Killing goes from the top down: what was below the killed comes up and is next, and the dead start nothing new. Only a
//! child is killed by its id, for that cannot be another's until its end was asked for here. Elsewhere than on Linux there
//! are no orphans to be had, and what left its process group is not found. What runs as another user may not be killed,
//! and neither it nor what is below it is waited for.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, getpid, kill_process, wait, waitid,
};
use tokio::signal::unix::{self, SignalKind, signal};

/// An orphan may come up without any sign.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

pub struct Brood {
    ends: unix::Signal,
    /// Children that were there before, of whatever ran in this process before us: none of our business.
    strangers: Vec<Pid>,
}

impl Brood {
    /// From now on orphans come to this process.
    pub fn adopt() -> io::Result<Brood> {
        let ends = signal(SignalKind::child())?;
        #[cfg(target_os = "linux")]
        rustix::process::set_child_subreaper(Some(getpid()))?;
        Ok(Brood { ends, strangers: children() })
    }

    /// Buries whoever ends, until it is this one.
    pub async fn ended(&mut self, child: Pid) -> io::Result<WaitStatus> {
        loop {
            while let Some((pid, status)) = self.bury()? {
                if pid == child {
                    return Ok(status);
                }
            }
            self.ends.recv().await;
        }
    }

    /// Buries whoever ends, for as long as it is waited for.
    pub async fn tend(&mut self) -> Infallible {
        loop {
            while let Ok(Some(_)) = self.bury() {}
            self.ends.recv().await;
        }
    }

    /// Kills every child, but not yet what is below it. Gives how many.
    pub fn kill(&self) -> usize {
        let children = children().into_iter().filter(|pid| !self.strangers.contains(pid));
        // An error means that it has changed its user. To wait for it would be to lead for as long as it likes.
        children.filter(|pid| kill_process(*pid, Signal::KILL).is_ok()).count()
    }

    /// Kills all that is below, and returns when nothing is that may be killed.
    pub async fn end(&mut self) {
        loop {
            let left = loop {
                match self.bury() {
                    Ok(Some(_)) => {}
                    Ok(None) => break true,
                    Err(_) => break false,
                }
            };
            if !left || self.kill() == 0 {
                return;
            }
            let _ = tokio::time::timeout(LOOK_INTERVAL, self.ends.recv()).await;
        }
    }

    /// The next one that has ended. An error where there are no children.
    fn bury(&mut self) -> io::Result<Option<(Pid, WaitStatus)>> {
        loop {
            match wait(WaitOptions::NOHANG) {
                Err(Errno::INTR) => {}
                Ok(Some((pid, status))) => {
                    self.strangers.retain(|stranger| *stranger != pid);
                    return Ok(Some((pid, status)));
                }
                other => return Ok(other?),
            }
        }
    }
}

fn children() -> Vec<Pid> {
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    let ours = getpid();
    let child = |name: &str| {
        let pid = Pid::from_raw(name.parse().ok()?)?;
        (parent_of(name)? == ours && is_child(pid)).then_some(pid)
    };
    processes.filter_map(|process| child(process.ok()?.file_name().to_str()?)).collect()
}

fn parent_of(process: &str) -> Option<Pid> {
    let stat = std::fs::read(format!("/proc/{process}/stat")).ok()?;
    let stat = String::from_utf8_lossy(&stat);
    // A program's name is in brackets, and may have brackets and blanks in it.
    let (_, rest) = stat.rsplit_once(") ")?;
    Pid::from_raw(rest.split(' ').nth(1)?.parse().ok()?)
}

/// Also where what is mounted at `/proc` counts processes in another way.
fn is_child(pid: Pid) -> bool {
    waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT).is_ok()
}
