//! Runs a command for a job.
//!
//! Each run of the command is supervised: all its processes get SIGTERM, then SIGKILL, if the run is cancelled, takes
//! too long or is dropped, and are killed when the command ends or the worker dies. No process outlives the run that
//! started it.

use std::time::Duration;

use convoke_core::jobs::LogLevel;
use convoke_core::limits::LOG_LINE_BYTES_MAX;
use convoke_core::{Json, duration};
use convoke_runtime::jobs::worker::{Context, Failure};
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio_util::sync::CancellationToken;

use super::supervise::{Commands, Ending, RunningCommand};

/// The time from SIGTERM to SIGKILL. Shorter than the worker's grace for a cancelled handler.
pub(super) const TERM_GRACE: Duration = Duration::from_secs(4);
/// How long to read the rest of the pipes after the command has ended.
pub(super) const DRAIN_LIMIT: Duration = Duration::from_secs(1);

pub struct Exec {
    commands: Commands,
}

impl Exec {
    /// `without` are variables of this process that the command must not see. A command that is `bound` does not outlive its guard,
    /// whatever happens to this process.
    pub fn new(command: String, without: Vec<&'static str>, bound: bool) -> std::io::Result<Self> {
        let command = vec!["sh".into(), "-c".into(), command.into()];
        Ok(Exec { commands: Commands::new(command, TERM_GRACE, without, bound)? })
    }

    /// Waits until all processes of all commands have ended. Must be called before the process ends, when no run is
    /// left.
    pub async fn finish(&self) {
        self.commands.finish().await;
    }

    /// Runs the command for one job.
    pub async fn run(&self, cx: &Context, args: &Json) -> Result<(), Failure> {
        let start = self.commands.start(variables(cx));
        let mut command = start.map_err(|error| Failure::new(format!("the command cannot be run: {error}")))?;
        let (stdin, stdout, stderr) = (command.stdin.take(), command.stdout.take(), command.stderr.take());
        let mut last_error_line = String::new();
        let ended = CancellationToken::new();
        let end = async {
            let ending = until_end(cx, &mut command).await;
            ended.cancel();
            ending
        };
        let output = async {
            tokio::join!(
                feed(stdin, args),
                logged(cx, LogLevel::Info, stdout, None),
                logged(cx, LogLevel::Warn, stderr, Some(&mut last_error_line)),
            )
        };
        let output = async {
            tokio::select! {
                _ = output => {}
                () = async { ended.cancelled().await; tokio::time::sleep(DRAIN_LIMIT).await } => {}
            }
        };
        let (ending, ()) = tokio::join!(end, output);
        let ending = ending.map_err(|error| Failure::new(format!("the command was lost: {error}")))?;
        result(ending, last_error_line.trim())
    }
}

/// Returns the environment variables that describe the job to the command.
fn variables(cx: &Context) -> Vec<(String, String)> {
    let variables = [
        ("CONVOKE_JOB_ID", cx.job_id().to_string()),
        ("CONVOKE_JOB_TYPE", cx.job_type().to_string()),
        ("CONVOKE_EXECUTION_ID", cx.execution_id().to_string()),
        ("CONVOKE_ATTEMPT", cx.attempt().to_string()),
        ("CONVOKE_MAX_RETRIES", cx.max_retries().to_string()),
        ("CONVOKE_QUEUE", cx.queue().to_string()),
        ("CONVOKE_CORRELATION_ID", cx.correlation_id().unwrap_or_default().to_owned()),
        ("CONVOKE_TAGS", serde_json::json!(cx.input().tags).to_string()),
        ("CONVOKE_TIMEOUT", cx.timeout().map(duration::format).unwrap_or_default()),
    ];
    variables.map(|(name, value)| (name.to_owned(), value)).to_vec()
}

/// Converts the end of a command into the outcome of the attempt.
pub(super) fn result(ending: Ending, last_error_line: &str) -> Result<(), Failure> {
    let how = match ending {
        Ending::Code(0) => return Ok(()),
        Ending::Code(code) => format!("exit code {code}"),
        Ending::Signal(signal) => format!("killed by signal {signal}"),
    };
    Err(Failure::new(if last_error_line.is_empty() { how } else { format!("{how}: {last_error_line}") }))
}

/// Waits for the end of the command, and stops it if its run is cancelled.
async fn until_end(cx: &Context, command: &mut RunningCommand) -> std::io::Result<Ending> {
    tokio::select! {
        ending = command.ended() => return ending,
        () = cx.cancelled() => command.stop(),
    }
    command.ended().await
}

/// Writes the arguments. A command need not read them.
pub(super) async fn feed(stdin: Option<impl AsyncWrite + Unpin>, args: &Json) {
    if let Some(mut stdin) = stdin {
        let _ = stdin.write_all(args.as_str().as_bytes()).await;
        let _ = stdin.write_all(b"\n").await;
    }
}

/// Turns lines into logs until the end of the pipe. The last line that is not empty is kept in `last`.
async fn logged(cx: &Context, level: LogLevel, pipe: Option<impl AsyncRead + Unpin>, mut last: Option<&mut String>) {
    let Some(pipe) = pipe else { return };
    let mut lines = BufReader::new(pipe);
    while let Some(line) = next_line(&mut lines).await {
        if let Some(last) = last.as_deref_mut().filter(|_| !line.trim().is_empty()) {
            last.clone_from(&line);
        }
        // A run that is over accepts no more logs; the pipe is still read, so that the command does not block.
        let _ = cx.log(level, line).await;
    }
}

/// Returns the next line without its end. A line that is longer than the limit of a log line is split, which bounds the
/// memory for a command that never ends its line.
pub(super) async fn next_line(pipe: &mut (impl AsyncBufRead + Unpin)) -> Option<String> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exit_is_a_success_or_a_failure_with_its_last_error_line() {
        assert_eq!(result(Ending::Code(0), "noise"), Ok(()));
        let error = |ending, last| result(ending, last).expect_err("failed").error;
        assert_eq!(error(Ending::Code(3), "no such file"), "exit code 3: no such file");
        assert_eq!(error(Ending::Code(3), ""), "exit code 3");
        assert_eq!(error(Ending::Signal(9), ""), "killed by signal 9");
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
