//! A process that a measurement needs: started, awaited until it reports that it is ready, stopped.
//!
//! It ends with this process, and its output after it is ready is read and dropped, so that it never blocks on a full
//! pipe.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader, Lines};
use tokio::process::{Child, Command};

const READY_TIMEOUT: Duration = Duration::from_secs(30);
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

type OutputLines = Lines<BufReader<Box<dyn AsyncRead + Send + Unpin>>>;

/// The stream on which it reports that it is ready.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Output {
    Standard,
    Error,
}

pub struct Process {
    what: &'static str,
    child: Child,
    pid: Pid,
}

impl Process {
    /// Returns the process and the first result of `ready` for a line.
    pub async fn start<T>(
        what: &'static str,
        mut command: Command,
        output: Output,
        ready: impl FnMut(&str) -> Option<T>,
    ) -> Result<(Process, T)> {
        command.stdin(Stdio::null()).kill_on_drop(true);
        match output {
            Output::Standard => command.stdout(Stdio::piped()),
            Output::Error => command.stdout(Stdio::null()).stderr(Stdio::piped()),
        };
        let mut child = command.spawn().with_context(|| format!("{what} cannot be started"))?;
        let pid = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let pid = pid.with_context(|| format!("{what} has no process id"))?;
        let output: Option<Box<dyn AsyncRead + Send + Unpin>> = match output {
            Output::Standard => child.stdout.take().map(|it| Box::new(it) as _),
            Output::Error => child.stderr.take().map(|it| Box::new(it) as _),
        };
        let mut output = BufReader::new(output.with_context(|| format!("{what} has no output"))?).lines();
        let first = tokio::time::timeout(READY_TIMEOUT, first(&mut output, ready)).await;
        let found = first.with_context(|| format!("{what} did not get ready"))??;
        let Some(found) = found else { bail!("{what} ended before it was ready") };
        tokio::spawn(async move { while let Ok(Some(_)) = output.next_line().await {} });
        Ok((Process { what, child, pid }, found))
    }

    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Asks it to end, and checks that it exits with success.
    pub async fn stop(self) -> Result<()> {
        let what = self.what;
        let status = self.end().await?;
        if !status.success() {
            bail!("{what} ended with {status}");
        }
        Ok(())
    }

    pub fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill_process(self.pid, signal)?)
    }

    /// Returns whether it has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Kills it, and waits until it is gone.
    pub async fn kill(mut self) -> Result<()> {
        Ok(self.child.kill().await?)
    }

    /// Waits until it has ended.
    pub async fn wait(mut self) -> Result<ExitStatus> {
        let ended = tokio::time::timeout(STOP_TIMEOUT, self.child.wait()).await;
        Ok(ended.with_context(|| format!("{} did not stop", self.what))??)
    }

    /// Like `stop`, for programs of others, whose exit codes differ.
    pub async fn end(mut self) -> Result<ExitStatus> {
        kill_process(self.pid, Signal::TERM)?;
        let ended = tokio::time::timeout(STOP_TIMEOUT, self.child.wait()).await;
        Ok(ended.with_context(|| format!("{} did not stop", self.what))??)
    }
}

/// Our own program. The defaults are measured, whatever the environment sets.
pub fn ourselves() -> Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("our own program cannot be found")?);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CONVOKE_")) {
        command.env_remove(name);
    }
    command.env_remove("PORT").env("LOG_LEVEL", "warn");
    Ok(command)
}

async fn first<T>(output: &mut OutputLines, mut ready: impl FnMut(&str) -> Option<T>) -> Result<Option<T>> {
    while let Some(line) = output.next_line().await? {
        if let Some(found) = ready(&line) {
            return Ok(Some(found));
        }
    }
    Ok(None)
}
