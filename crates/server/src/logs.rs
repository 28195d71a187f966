//! The log of this process, on standard error: text for people, JSON in production.
//!
//! Every line carries the process's identity (`node=n2`, `worker=w1`, `elector=a namespace=reports`, `mesh=app
//! instance=3`), so that the logs of a cluster can be read together. A separate thread writes the lines: if standard
//! error is a pipe without a reader, lines are dropped and counted, and the process goes on.

mod line;
mod writer;

use std::io::IsTerminal as _;
use std::sync::OnceLock;

use clap::{Args, ValueEnum};
use parking_lot::RwLock;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::config::Surroundings;
use line::{Json, Text};
use writer::Writer;

pub use writer::flush;

/// The logging flags. A flag takes precedence over the environment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Args)]
pub struct LogArgs {
    /// Format of the log [default: json if NODE_ENV=production, else text]
    #[arg(long, global = true, value_enum, value_name = "FORMAT")]
    pub log_format: Option<Format>,
    /// Lowest level that is logged [default: LOG_LEVEL, else info]
    #[arg(long, global = true, value_enum, value_name = "LEVEL")]
    pub log_level: Option<Level>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Text,
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Level {
    Trace,
    Debug,
    Info,
    #[value(alias = "warning")]
    Warn,
    #[value(alias = "fatal")]
    Error,
    #[value(alias = "silent")]
    Off,
}

impl Level {
    const fn as_str(self) -> &'static str {
        match self {
            Level::Trace => "trace",
            Level::Debug => "debug",
            Level::Info => "info",
            Level::Warn => "warn",
            Level::Error => "error",
            Level::Off => "off",
        }
    }
}

/// The logging flags; set once, before any command runs.
static CHOSEN: OnceLock<(LogArgs, u8)> = OnceLock::new();
/// The fields that every line carries.
static IDENTITY: RwLock<Vec<(&'static str, String)>> = RwLock::new(Vec::new());

/// Stores the flags and the number of `-v` for [`start`].
pub fn choose(args: LogArgs, verbose: u8) {
    // Only the first call sets it; there is one command line.
    let _ = CHOSEN.set((args, verbose));
}

/// Starts the log of a process with this identity.
pub fn start(surroundings: &Surroundings, identity: &[(&'static str, &str)]) {
    for (name, value) in identity {
        identify(name, value);
    }
    let (args, verbose) = CHOSEN.get().copied().unwrap_or_default();
    let level = match (args.log_level, verbose) {
        (Some(level), _) => level.as_str(),
        (None, 0) => surroundings.log_level,
        (None, 1) => "debug",
        (None, _) => "trace",
    };
    let format = args.log_format.unwrap_or(if surroundings.production { Format::Json } else { Format::Text });
    let service = surroundings.name.clone();
    let lines = tracing_subscriber::fmt::layer().with_writer(Writer::start());
    let lines = match format {
        Format::Json => lines.event_format(Json { service, identity: &IDENTITY }).boxed(),
        Format::Text => {
            let colours = std::io::stderr().is_terminal();
            lines.event_format(Text { service, identity: &IDENTITY, colours }).boxed()
        }
    };
    let logs = tracing_subscriber::registry().with(lines).with(wanted(level, verbose));
    if let Err(error) = logs.try_init() {
        eprintln!("logs cannot be started: {error}");
    }
}

/// Returns which events are logged. Libraries log every frame, which is of use only with `-vv`.
fn wanted(level: &str, verbose: u8) -> Targets {
    let wanted = Targets::new().with_default(level.parse().unwrap_or(LevelFilter::INFO));
    if verbose > 1 {
        return wanted;
    }
    wanted.with_targets(["hyper", "hyper_util", "rustls"].map(|library| (library, LevelFilter::WARN)))
}

/// Sets a field of every further line; one that was set before is replaced.
pub fn identify(name: &'static str, value: &str) {
    let mut identity = IDENTITY.write();
    match identity.iter_mut().find(|(known, _)| *known == name) {
        Some((_, known)) => value.clone_into(known),
        None => identity.push((name, value.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use tracing::Level as Of;

    use super::*;

    #[test]
    fn libraries_are_quiet_unless_everything_is_asked_for() {
        let debug = wanted("debug", 1);
        assert!(debug.would_enable("convoke_runtime::jobs", &Of::DEBUG));
        assert!(!debug.would_enable("hyper_util::client", &Of::INFO) && debug.would_enable("rustls", &Of::WARN));
        assert!(wanted("trace", 2).would_enable("hyper", &Of::TRACE));
        assert!(
            !wanted("warn", 0).would_enable("convoke", &Of::INFO)
                && !wanted("off", 0).would_enable("convoke", &Of::ERROR)
        );
    }
}
