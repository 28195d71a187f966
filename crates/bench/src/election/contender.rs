//! A process that wants to lead.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::PREFIX;
use crate::process::ourselves;

/// Longer than any lease that is measured.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long to wait for its last output.
const LAST_WORDS_WAIT: Duration = Duration::from_secs(1);
/// `etcdctl lock` does not report that it waits.
const ETCDCTL_START: Duration = Duration::from_millis(500);

/// The backend that decides who leads.
pub enum System {
    Convoke { leases: String },
    Etcdctl { endpoint: String },
}

pub struct Contender {
    process: Child,
    pid: Pid,
    lines: Lines<BufReader<ChildStdout>>,
    /// The last line of its standard error, once it has ended.
    last_words: JoinHandle<String>,
    /// The line that it prints when it leads.
    mark: String,
    prints_that_it_waits: bool,
}

impl Contender {
    pub fn start(system: &System, ttl: Duration, namespace: &str, id: &str) -> Result<Contender> {
        let seconds = ttl.as_secs();
        let (mut command, mark) = match system {
            System::Convoke { leases } => {
                let mut command = ourselves()?;
                command.args(["elect", namespace, "--leases", leases, "--prefix", PREFIX, "--id", id]);
                command.args(["--ttl", &format!("{seconds}s")]);
                (command, format!("\"newLeader\":\"{id}\""))
            }
            System::Etcdctl { endpoint } => {
                let mut command = Command::new("etcdctl");
                command.args(["--endpoints", endpoint, "lock", &format!("--ttl={seconds}"), namespace]);
                command.env("ETCDCTL_API", "3");
                (command, namespace.to_owned())
            }
        };
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn().context("a contender cannot be started")?;
        let pid = process.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let pid = pid.context("a contender has no process id")?;
        let lines = BufReader::new(process.stdout.take().context("a contender has no output")?).lines();
        let complaints = process.stderr.take().context("a contender has no output")?;
        let last_words = tokio::spawn(last_line(complaints));
        let prints_that_it_waits = matches!(system, System::Convoke { .. });
        Ok(Contender { process, pid, lines, last_words, mark, prints_that_it_waits })
    }

    /// Waits until it reports that it leads.
    pub async fn leads(&mut self) -> Result<()> {
        let mark = self.mark.clone();
        self.wait_for_line(|line| line.contains(&mark)).await
    }

    /// Waits until it knows that another leads.
    pub async fn waits(&mut self) -> Result<()> {
        if !self.prints_that_it_waits {
            tokio::time::sleep(ETCDCTL_START).await;
            return Ok(());
        }
        self.wait_for_line(|line| line.contains("\"newLeader\":\"")).await
    }

    async fn wait_for_line(&mut self, wanted: impl Fn(&str) -> bool) -> Result<()> {
        let output = async {
            while let Some(line) = self.lines.next_line().await? {
                if wanted(&line) {
                    return Ok(());
                }
            }
            let words = timeout(LAST_WORDS_WAIT, &mut self.last_words).await;
            let words = words.ok().and_then(Result::ok).filter(|words| !words.is_empty());
            bail!("a contender ended before it led: {}", words.as_deref().unwrap_or("it gave no reason"))
        };
        timeout(PATIENCE, output).await.context("no leader was elected")?
    }

    pub fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill_process(self.pid, signal)?)
    }

    pub async fn end(mut self) -> Result<()> {
        timeout(PATIENCE, self.process.wait()).await.context("a contender does not end")??;
        Ok(())
    }
}

/// Reads all output, so that it never blocks on a full pipe.
async fn last_line(complaints: ChildStderr) -> String {
    let (mut lines, mut last) = (BufReader::new(complaints).lines(), String::new());
    while let Ok(Some(line)) = lines.next_line().await {
        last = line;
    }
    last
}
