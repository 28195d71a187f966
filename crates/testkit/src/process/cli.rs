//! The command line, run to its end.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Stdio;

use serde_json::Value;
use tokio::io::AsyncWriteExt;

use super::program::command;
use super::waiting::PATIENCE;

/// `convoke …` against one server.
#[derive(Debug, Clone)]
pub struct Cli {
    pub binary: PathBuf,
    pub directory: PathBuf,
    pub server: Option<String>,
    pub env: Vec<(String, String)>,
}

#[derive(Debug, Clone)]
pub struct Output {
    /// `None` where a signal ended it.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Cli {
    pub async fn run<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Output {
        self.run_with_input(args, "").await
    }

    pub async fn run_with_input<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>, input: &str) -> Output {
        let mut command = command(&self.binary, &self.directory);
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.envs(self.server.iter().map(|server| ("CONVOKE_SERVER", server)));
        command.envs(self.env.iter().map(|(key, value)| (key, value)));
        let mut child = command.spawn().expect("the binary starts");
        if let Some(mut stdin) = child.stdin.take() {
            // A command that does not read its input may end first.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
        let output = match tokio::time::timeout(PATIENCE, child.wait_with_output()).await {
            Ok(output) => output.expect("a child of ours can be waited for"),
            Err(_) => panic!("the command did not end within {PATIENCE:?}"),
        };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Output { code: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) }
    }
}

impl Output {
    /// Returns the output of a command that must end with this code.
    #[track_caller]
    pub fn expect(&self, code: i32) -> &str {
        assert_eq!(self.code, Some(code), "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        &self.stdout
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        let text = self.expect(0);
        serde_json::from_str(text).unwrap_or_else(|error| panic!("not JSON ({error}): {text}"))
    }
}
