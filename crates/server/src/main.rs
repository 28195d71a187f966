//! The binary `convoke`: a coordinator, and the command line.

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

mod cli;
mod config;
mod demo;
mod logs;
mod serve;
mod stop;

use std::process::ExitCode;
use std::time::Duration;

use cli::{Cli, Usage};

const FAILED: u8 = 1;
const WRONG_USAGE: u8 = 2;

fn main() -> ExitCode {
    if let Some(code) = cli::exec_under_guard(std::env::args_os()) {
        return code;
    }
    let cli = Cli::typed(std::env::args_os()).unwrap_or_else(|error| error.exit());
    allow_many_files();
    let mut runtime = if cli.wants_all_cores() {
        tokio::runtime::Builder::new_multi_thread()
    } else {
        tokio::runtime::Builder::new_current_thread()
    };
    let runtime = match runtime.enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: cannot start threads: {error}");
            return ExitCode::from(FAILED);
        }
    };
    let outcome = runtime.block_on(cli.run());
    // A thread that is blocked in a read must not keep the process alive.
    runtime.shutdown_timeout(Duration::from_secs(1));
    logs::flush();
    match outcome {
        Ok(code) => code,
        // The reader of standard output closed it, which is not a failure.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", with_causes(&error));
            ExitCode::from(if error.is::<Usage>() { WRONG_USAGE } else { FAILED })
        }
    }
}

/// Raises the limit of open files to its maximum: a shell's default is too low for ten thousand workers. A failure is
/// ignored, since a lower limit works too.
fn allow_many_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io = error.chain().find_map(|cause| cause.downcast_ref::<std::io::Error>());
    io.is_some_and(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
}

/// Returns an error and its causes in one line. A cause that an error names already is not repeated.
fn with_causes(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_each_cause_once() {
        let inner = std::io::Error::other("disk on fire");
        let error = anyhow::Error::new(convoke_core::Error::unavailable("the store", inner)).context("cannot start");
        assert_eq!(with_causes(&error), "cannot start: the store is unavailable: disk on fire");
    }
}
