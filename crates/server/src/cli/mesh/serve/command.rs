//! Commands that handle requests of a mesh.
//!
//! Each request starts its command under supervision. The request's data is its standard input, its standard output is
//! the reply. A command is stopped (SIGTERM, then SIGKILL to all its processes) if its output exceeds the limit of a
//! reply, or if its request is abandoned because the instance stops.

use std::collections::VecDeque;

use convoke_core::mesh::Fault;
use convoke_core::mesh::envelope::DATA_BYTES_MAX;
use convoke_core::{Json, duration};
use convoke_runtime::mesh::{Context, HandlerFuture, Instance};
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt as _, BufReader};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::super::super::exec::{DRAIN_LIMIT, TERM_GRACE, feed, next_line, result};
use super::super::super::supervise::{Commands, RunningCommand};

/// The variable that contains the command. It is not passed on to the command.
const COMMAND_VARIABLE: &str = "CONVOKE_MESH_COMMAND";
/// One program for all commands, since they share one supervisor.
const PROGRAM: &str = r#"command=$CONVOKE_MESH_COMMAND; unset CONVOKE_MESH_COMMAND; eval "$command""#;
/// The number of lines of standard error that a caller receives.
const ERROR_LINES_MAX: usize = 5;
const ERROR_BYTES_MAX: usize = 4 << 10;
const READ_BYTES: usize = 16 << 10;

pub struct CommandOptions {
    /// Name of the mesh.
    pub key: String,
    /// The maximum number of commands at once.
    pub concurrency: usize,
    pub pass_token: bool,
    /// Cancelled to end all requests at once.
    pub hurry: CancellationToken,
}

pub struct CommandRunner {
    instance: Instance,
    options: CommandOptions,
    commands: Commands,
    running: Semaphore,
}

impl CommandRunner {
    pub fn new(instance: Instance, options: CommandOptions) -> std::io::Result<Self> {
        let program = ["sh", "-c", PROGRAM].map(Into::into).to_vec();
        let without = if options.pass_token { vec![] } else { vec!["CONVOKE_TOKEN"] };
        let commands = Commands::new(program, TERM_GRACE, without, false)?;
        let running = Semaphore::new(options.concurrency);
        Ok(CommandRunner { instance, options, commands, running })
    }

    /// Returns a handler that runs `command` for each request.
    pub fn handler(
        self: &Arc<Self>,
        request_type: String,
        command: String,
    ) -> impl Fn(Context, String) -> HandlerFuture + Send + Sync + use<> {
        let runner = self.clone();
        let names: Arc<(String, String)> = Arc::new((request_type, command));
        move |context, data| {
            let (runner, names) = (runner.clone(), names.clone());
            Box::pin(async move {
                let (request_type, command) = &*names;
                let running = runner.run(request_type, command, &context, data);
                let outcome = runner.options.hurry.run_until_cancelled(running).await.unwrap_or(Err(Fault::Stopped));
                if let Err(Fault::Handler(error)) = &outcome {
                    tracing::warn!(request_type, caller = context.caller().0, error, "request failed");
                }
                outcome
            })
        }
    }

    /// Waits until all processes of all commands have ended. Must be called before the process ends, when no request is
    /// left.
    pub async fn finish(&self) {
        self.commands.finish().await;
    }

    async fn run(&self, request_type: &str, command: &str, context: &Context, data: String) -> Result<Json, Fault> {
        let data = super::read(data)?;
        let _turn = self.running.try_acquire().map_err(|_| Fault::Busy)?;
        let start = self.commands.start(self.variables(request_type, command, context));
        let mut command = start.map_err(|error| Fault::Handler(format!("the command cannot be run: {error}")))?;
        let (stdin, stdout, stderr) = (command.stdin.take(), command.stdout.take(), command.stderr.take());
        let (mut reply, mut errors) = (Reply::default(), LastLines::default());
        let (ended, too_large) = (CancellationToken::new(), CancellationToken::new());
        let end = async {
            let ending = until_end(&mut command, &too_large).await;
            ended.cancel();
            ending
        };
        let streams = async {
            tokio::join!(feed(stdin, &data), reply.read(stdout, &too_large), errors.read(stderr));
        };
        // A process that left the command's tree may keep its streams open.
        let streams = async {
            tokio::select! {
                () = streams => {}
                () = async { ended.cancelled().await; tokio::time::sleep(DRAIN_LIMIT).await } => {}
            }
        };
        let (ending, ()) = tokio::join!(end, streams);
        let ending = ending.map_err(|error| Fault::Handler(format!("the command was lost: {error}")))?;
        if too_large.is_cancelled() {
            return Err(Fault::Handler(format!("the command wrote more than the {DATA_BYTES_MAX} bytes of a reply")));
        }
        result(ending, errors.text().trim()).map_err(|failure| Fault::Handler(failure.error))?;
        reply.parse()
    }

    /// Returns the environment variables that describe the request to the command.
    fn variables(&self, request_type: &str, command: &str, context: &Context) -> Vec<(String, String)> {
        let variables = [
            (COMMAND_VARIABLE, command.to_owned()),
            ("CONVOKE_MESH_KEY", self.options.key.clone()),
            ("CONVOKE_MESH_TYPE", request_type.to_owned()),
            ("CONVOKE_MESH_INSTANCE", self.instance.id().to_string()),
            ("CONVOKE_MESH_CALLER", context.caller().to_string()),
            ("CONVOKE_MESH_TIMEOUT", duration::format(context.timeout())),
            ("CONVOKE_MESH_EPOCH", context.epoch().map(|epoch| epoch.0.to_string()).unwrap_or_default()),
        ];
        variables.map(|(name, value)| (name.to_owned(), value)).to_vec()
    }
}

/// Waits until the command has ended, and stops it if its output exceeds the limit.
async fn until_end(
    command: &mut RunningCommand,
    too_large: &CancellationToken,
) -> std::io::Result<super::super::super::supervise::Ending> {
    tokio::select! {
        ending = command.ended() => return ending,
        () = too_large.cancelled() => command.stop(),
    }
    command.ended().await
}

/// The standard output of a command.
#[derive(Default)]
struct Reply {
    bytes: Vec<u8>,
}

impl Reply {
    /// Reads to the end. Output over the limit is discarded.
    async fn read(&mut self, pipe: Option<impl AsyncRead + Unpin>, too_large: &CancellationToken) {
        let Some(mut pipe) = pipe else { return };
        let mut buffer = vec![0; READ_BYTES];
        while let Ok(count @ 1..) = pipe.read(&mut buffer).await {
            // Room for the end of the last line.
            if self.bytes.len() + count > DATA_BYTES_MAX + 2 {
                too_large.cancel();
            } else {
                self.bytes.extend_from_slice(&buffer[..count]);
            }
        }
    }

    fn parse(self) -> Result<Json, Fault> {
        let refused = |why: &dyn std::fmt::Display| Fault::Handler(format!("the command did not write JSON: {why}"));
        let text = String::from_utf8(self.bytes).map_err(|error| refused(&error))?;
        let text = if text.trim().is_empty() { "null" } else { text.trim() };
        Json::parse(text.to_owned()).map_err(|error| refused(&error))
    }
}

/// The last lines of standard error that are not empty.
#[derive(Default)]
struct LastLines {
    lines: VecDeque<String>,
}

impl LastLines {
    async fn read(&mut self, pipe: Option<impl AsyncRead + Unpin>) {
        let Some(pipe) = pipe else { return };
        let mut lines = BufReader::new(pipe);
        while let Some(line) = next_line(&mut lines).await {
            tracing::debug!(line, "command wrote to standard error");
            self.keep(line);
        }
    }

    fn keep(&mut self, mut line: String) {
        if line.trim().is_empty() {
            return;
        }
        line.truncate(line.floor_char_boundary(ERROR_BYTES_MAX));
        self.lines.push_back(line);
        while self.lines.len() > ERROR_LINES_MAX
            || (self.lines.len() > 1 && self.lines.iter().map(String::len).sum::<usize>() > ERROR_BYTES_MAX)
        {
            self.lines.pop_front();
        }
    }

    fn text(self) -> String {
        Vec::from(self.lines).join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_lines_are_kept_and_no_more_bytes_than_a_caller_needs() {
        let mut lines = LastLines::default();
        (0..10).for_each(|n| lines.keep(format!("line {n}")));
        lines.keep("  ".into());
        assert_eq!(lines.text(), "line 5\nline 6\nline 7\nline 8\nline 9");
        let mut lines = LastLines::default();
        lines.keep("first".into());
        lines.keep("ä".repeat(ERROR_BYTES_MAX));
        assert_eq!(lines.text(), "ä".repeat(ERROR_BYTES_MAX / 2));
    }

    #[test]
    fn no_output_is_null_and_anything_but_json_is_an_error() {
        let parse = |text: &[u8]| Reply { bytes: text.to_vec() }.parse();
        assert_eq!(parse(b" \n").expect("nothing").as_str(), "null");
        assert_eq!(parse(b"{\"a\":1}\n").expect("an object").as_str(), "{\"a\":1}");
        for text in [&b"hello"[..], b"{} {}", b"\xff"] {
            assert!(
                matches!(parse(text), Err(Fault::Handler(why)) if why.starts_with("the command did not write JSON"))
            );
        }
    }
}
