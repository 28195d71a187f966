//! A command that runs a job.
//!
//! The command is the leader of a process group of its own, so that all that it starts can be told to stop: SIGTERM first,
//! SIGKILL after a grace. What a command leaves behind when it ends is killed: nothing outlives the run that started it,
//! because nobody would know of it. When the run itself is dropped, the group gets the same two signals.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use convoke_core::jobs::LogLevel;
use convoke_core::limits::LOG_LINE_BYTES_MAX;
use convoke_core::{Json, duration};
use convoke_runtime::jobs::worker::{Context, Failure};
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncRead, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// From SIGTERM to SIGKILL. Shorter than what the worker allows a cancelled handler.
const TERM_GRACE: Duration = Duration::from_secs(4);
/// How often a group that was told to stop is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// For what is still in the pipes when the command has ended.
const DRAIN_LIMIT: Duration = Duration::from_secs(1);

pub struct Exec {
    command: String,
    /// Groups that were told to stop when their run was dropped, and are yet to be made to.
    dying: TaskTracker,
}

impl Exec {
    pub fn new(command: String) -> Self {
        Exec { command, dying: TaskTracker::new() }
    }

    /// Waits until all that was told to stop has had its SIGKILL: the process must not end before that.
    pub async fn finish(&self) {
        self.dying.close();
        self.dying.wait().await;
    }

    /// Runs the command for one job.
    pub async fn run(&self, cx: &Context, args: &Json) -> Result<(), Failure> {
        let mut child = self.spawn(cx).map_err(|error| Failure::new(format!("the command cannot be run: {error}")))?;
        let group = Group::of(&child, self.dying.clone());
        let stdin = child.stdin.take();
        let stdout = child.stdout.take();
        let stderr = child.stderr.take();
        let mut last_complaint = String::new();
        let ended = CancellationToken::new();
        let end = async {
            let status = until_end(cx, &mut child, &group).await;
            // What it left behind would hold the pipes open, and nobody would know of it.
            group.signal(Signal::KILL);
            ended.cancel();
            status
        };
        let output = async {
            tokio::join!(
                feed(stdin, args),
                logged(cx, LogLevel::Info, stdout, None),
                logged(cx, LogLevel::Warn, stderr, Some(&mut last_complaint)),
            )
        };
        let output = async {
            tokio::select! {
                _ = output => {}
                () = async { ended.cancelled().await; tokio::time::sleep(DRAIN_LIMIT).await } => {}
            }
        };
        let (status, ()) = tokio::join!(end, output);
        group.disarm();
        let status = status.map_err(|error| Failure::new(format!("the command was lost: {error}")))?;
        verdict(status, last_complaint.trim())
    }

    fn spawn(&self, cx: &Context) -> std::io::Result<Child> {
        let mut command = Command::new("sh");
        command.arg("-c").arg(&self.command);
        command.env("CONVOKE_JOB_ID", cx.job_id().to_string());
        command.env("CONVOKE_JOB_TYPE", cx.job_type().as_str());
        command.env("CONVOKE_EXECUTION_ID", cx.execution_id().to_string());
        command.env("CONVOKE_ATTEMPT", cx.attempt().to_string());
        command.env("CONVOKE_MAX_RETRIES", cx.max_retries().to_string());
        command.env("CONVOKE_QUEUE", cx.queue().as_str());
        command.env("CONVOKE_CORRELATION_ID", cx.correlation_id().unwrap_or_default());
        command.env("CONVOKE_TIMEOUT", cx.timeout().map(duration::format).unwrap_or_default());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.process_group(0).spawn()
    }
}

/// What the exit says of the attempt.
fn verdict(status: ExitStatus, last_complaint: &str) -> Result<(), Failure> {
    use std::os::unix::process::ExitStatusExt as _;
    if status.success() {
        return Ok(());
    }
    let how = match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => "ended without an exit code".into(),
    };
    Err(Failure::new(if last_complaint.is_empty() { how } else { format!("{how}: {last_complaint}") }))
}

/// Waits for the command; once its run is cancelled, tells it to stop, and then makes it.
async fn until_end(cx: &Context, child: &mut Child, group: &Group) -> std::io::Result<ExitStatus> {
    tokio::select! {
        ended = child.wait() => return ended,
        () = cx.cancelled() => {}
    }
    group.signal(Signal::TERM);
    if let Ok(ended) = tokio::time::timeout(TERM_GRACE, child.wait()).await {
        return ended;
    }
    group.signal(Signal::KILL);
    child.wait().await
}

/// Writes the arguments. A command need not read them.
async fn feed(stdin: Option<ChildStdin>, args: &Json) {
    if let Some(mut stdin) = stdin {
        let _ = stdin.write_all(args.as_str().as_bytes()).await;
        let _ = stdin.write_all(b"\n").await;
    }
}

/// Turns lines into logs, to the end of the pipe. The last line that is not empty is kept in `last`.
async fn logged(cx: &Context, level: LogLevel, pipe: Option<impl AsyncRead + Unpin>, mut last: Option<&mut String>) {
    let Some(pipe) = pipe else { return };
    let mut lines = BufReader::new(pipe);
    while let Some(line) = next_line(&mut lines).await {
        if let Some(last) = last.as_deref_mut().filter(|_| !line.trim().is_empty()) {
            last.clone_from(&line);
        }
        // A run that is over takes no more logs; the pipe is read nevertheless, so that the command does not block.
        let _ = cx.log(level, line).await;
    }
}

/// The next line without its end. One that is longer than a log line may be comes in parts, so that a command which never
/// ends its line costs no more memory than that.
async fn next_line(pipe: &mut (impl AsyncBufRead + Unpin)) -> Option<String> {
    let mut line = Vec::new();
    while let Ok(buffer) = pipe.fill_buf().await {
        if buffer.is_empty() {
            break;
        }
        let room = LOG_LINE_BYTES_MAX - line.len();
        let end = buffer.iter().take(room).position(|byte| *byte == b'\n');
        let taken = end.unwrap_or(room.min(buffer.len()));
        line.extend_from_slice(&buffer[..taken]);
        pipe.consume(taken + usize::from(end.is_some()));
        if end.is_some() || line.len() >= LOG_LINE_BYTES_MAX {
            return Some(text(line));
        }
    }
    (!line.is_empty()).then(|| text(line))
}

fn text(line: Vec<u8>) -> String {
    let mut text =
        String::from_utf8(line).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
    if text.ends_with('\r') {
        text.pop();
    }
    text
}

/// The processes of one run.
struct Group {
    leader: Option<Pid>,
    dying: TaskTracker,
}

impl Group {
    fn of(child: &Child, dying: TaskTracker) -> Self {
        let pid = child.id().and_then(|id| i32::try_from(id).ok());
        Group { leader: pid.and_then(Pid::from_raw), dying }
    }

    fn signal(&self, signal: Signal) {
        if let Some(leader) = self.leader {
            // An error means that nobody is left to hear it.
            let _ = kill_process_group(leader, signal);
        }
    }

    /// Its end was seen: there is nobody left to stop.
    fn disarm(mut self) {
        self.leader = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let Some(leader) = self.leader.take() else { return };
        let _ = kill_process_group(leader, Signal::TERM);
        if tokio::runtime::Handle::try_current().is_err() {
            let _ = kill_process_group(leader, Signal::KILL);
            return;
        }
        self.dying.spawn(async move {
            let since = tokio::time::Instant::now();
            // Looked at often, so that a group which stops at once does not keep the process.
            while since.elapsed() < TERM_GRACE && test_kill_process_group(leader).is_ok() {
                tokio::time::sleep(LOOK_INTERVAL).await;
            }
            let _ = kill_process_group(leader, Signal::KILL);
        });
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    #[test]
    fn an_exit_is_a_success_or_a_failure_with_its_last_words() {
        assert_eq!(verdict(ExitStatus::from_raw(0), "noise"), Ok(()));
        let error = |raw, last| verdict(ExitStatus::from_raw(raw), last).expect_err("failed").error;
        assert_eq!(error(3 << 8, "no such file"), "exit code 3: no such file");
        assert_eq!(error(3 << 8, ""), "exit code 3");
        assert_eq!(error(9, ""), "killed by signal 9");
    }

    #[tokio::test]
    async fn output_is_cut_into_lines_and_a_line_without_end_into_parts() {
        let mut output: Vec<u8> = b"one\r\n\ntwo \xff\n".to_vec();
        output.extend(vec![b'x'; LOG_LINE_BYTES_MAX + 5]);
        let mut reader = BufReader::with_capacity(100, output.as_slice());
        let mut lines = Vec::new();
        while let Some(line) = next_line(&mut reader).await {
            lines.push(line);
        }
        assert_eq!(lines[..3], ["one", "", "two \u{fffd}"]);
        assert_eq!(lines[3..].iter().map(String::len).collect::<Vec<_>>(), [LOG_LINE_BYTES_MAX, 5]);
    }
}
