//! A process of ours and its output.
//!
//! It runs in a process group of its own, and the whole group is killed when the handle is dropped: a worker's commands
//! do not outlive the test. Its output is kept, and shown if the test panics.

use std::ffi::OsString;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
pub use rustix::process::Signal;
use rustix::process::{Pid, kill_process, kill_process_group};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::waiting::{PATIENCE, eventually};

/// How much of its output is shown if the test panics.
const SHOWN_LINES_MAX: usize = 80;
const LAST_WORDS_WAIT: Duration = Duration::from_millis(500);

pub struct Program {
    name: String,
    child: Child,
    pid: Pid,
    output: Arc<CapturedOutput>,
    listeners: Vec<JoinHandle<()>>,
    ended: Option<ExitStatus>,
}

#[derive(Default)]
struct CapturedOutput {
    lines: Mutex<Vec<String>>,
    more: Notify,
}

/// A process to start. The environment is the test's own without what a process of ours would heed, so that a setting meant for
/// another one cannot change a test.
#[derive(Debug, Clone)]
pub struct Launch {
    pub name: String,
    pub binary: PathBuf,
    pub args: Vec<OsString>,
    pub env: Vec<(String, String)>,
    pub directory: PathBuf,
}

/// Variables of the seeds' deployments that a server honours too.
const FOREIGN: [&str; 8] = [
    "PORT",
    "LOG_LEVEL",
    "PROCESS_NAME",
    "NODE_ENV",
    "SHARD_COORDINATOR_BIND_HOST",
    "SHARD_COORDINATOR_BIND_PORT",
    "HEARTBEAT_TIMEOUT_SECONDS",
    "HEARTBEAT_CHECK_INTERVAL_SECONDS",
];

/// The prefix of the variables of a mesh.
const FOREIGN_PREFIXES: [&str; 4] = ["CONVOKE_", "MESH_REDIS_", "MUTEX_REDIS_", "REDIS_"];

/// A command in `directory` with a clean environment and nothing on its input.
pub(super) fn command(binary: &Path, directory: &Path) -> Command {
    let mut command = Command::new(binary);
    command.current_dir(directory).stdin(Stdio::null()).kill_on_drop(true);
    let inherited = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let is_foreign =
        |name: &str| FOREIGN.contains(&name) || FOREIGN_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    for name in inherited.filter(|name| is_foreign(name)) {
        command.env_remove(name);
    }
    command
}

impl Program {
    pub fn start(launch: &Launch) -> Program {
        let mut command = command(&launch.binary, &launch.directory);
        command.args(&launch.args).envs(launch.env.iter().map(|(key, value)| (key, value)));
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{} does not start: {error}", launch.name));
        let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let pid = pid.expect("a process that was just started has an id");
        let output = Arc::new(CapturedOutput::default());
        let listeners = vec![
            tokio::spawn(listen(child.stdout.take(), output.clone())),
            tokio::spawn(listen(child.stderr.take(), output.clone())),
        ];
        Program { name: launch.name.clone(), child, pid, output, listeners, ended: None }
    }

    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Sends a signal to the process itself. A process that has ended is not an error: that is what some tests race with.
    pub fn signal(&self, signal: Signal) {
        if self.ended.is_none() {
            let _ = kill_process(self.pid, signal);
        }
    }

    /// Sends a signal to the process and to all that it started.
    pub fn signal_group(&self, signal: Signal) {
        let _ = kill_process_group(self.pid, signal);
    }

    /// Kills it at once and waits until it is gone.
    pub async fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.wait().await;
    }

    pub async fn wait(&mut self) -> ExitStatus {
        if let Some(status) = self.ended {
            return status;
        }
        let status = match tokio::time::timeout(PATIENCE, self.child.wait()).await {
            Ok(status) => status.expect("a child of ours can be waited for"),
            Err(_) => panic!("{} did not end within {PATIENCE:?}", self.name),
        };
        self.ended = Some(status);
        self.read_to_end().await;
        status
    }

    /// Waits for its last output, which may still be in the pipe. Bounded: its children may hold the pipe open.
    async fn read_to_end(&mut self) {
        for listener in self.listeners.drain(..) {
            let _ = tokio::time::timeout(LAST_WORDS_WAIT, listener).await;
        }
    }

    pub fn has_ended(&mut self) -> bool {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().expect("a child of ours can be asked");
        }
        self.ended.is_some()
    }

    /// Returns its output so far, both streams.
    pub fn printed(&self) -> Vec<String> {
        self.output.lines.lock().clone()
    }

    /// Returns the first result of `wanted` for a line. `None` if it ended without one.
    pub async fn line<T>(&mut self, what: &str, wanted: impl Fn(&str) -> Option<T>) -> Option<T> {
        let output = self.output.clone();
        let started = std::time::Instant::now();
        loop {
            let more = output.more.notified();
            let found = output.lines.lock().iter().find_map(|line| wanted(line));
            if found.is_some() {
                return found;
            }
            if self.has_ended() {
                self.read_to_end().await;
                return output.lines.lock().iter().find_map(|line| wanted(line));
            }
            assert!(started.elapsed() < PATIENCE, "{}: {what} did not come within {PATIENCE:?}", self.name);
            let _ = tokio::time::timeout(Duration::from_millis(50), more).await;
        }
    }
}

async fn listen(stream: Option<impl AsyncRead + Unpin>, output: Arc<CapturedOutput>) {
    let Some(stream) = stream else { return };
    let mut lines = BufReader::new(stream).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        output.lines.lock().push(line);
        output.more.notify_waiters();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.signal_group(Signal::KILL);
        if std::thread::panicking() {
            let lines = self.output.lines.lock();
            eprintln!("---- output of {} (its last {SHOWN_LINES_MAX} lines)", self.name);
            for line in &lines[lines.len().saturating_sub(SHOWN_LINES_MAX)..] {
                eprintln!("{line}");
            }
        }
    }
}

/// Waits for the number that a script writes to a file.
pub async fn number_in(path: &Path) -> u32 {
    let read = || async {
        let text = std::fs::read_to_string(path).ok()?;
        text.strip_suffix('\n')?.trim().parse().ok()
    };
    eventually("a number in a file", read).await
}

/// Returns whether the process exists and is not a zombie.
pub fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

/// Returns a port that is free now. Another process may take it first.
pub(super) fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("it has an address").port()
}

/// For a test that cannot run on this machine: prints that and adds it, for `scripts/test`, to its list of skipped
/// tests. Only for what the machine forbids, never for what is merely slow.
pub fn skip_loudly(test: &str, why: &str) {
    eprintln!("SKIPPED: {test}: {why}");
    if let Some(path) = std::env::var_os("CONVOKE_TEST_SKIPS") {
        let line = format!("{test}: {}\n", why.replace('\n', " "));
        let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
        let written = file.and_then(|mut file| std::io::Write::write_all(&mut file, line.as_bytes()));
        written.expect("the list of skipped tests can be written");
    }
}
