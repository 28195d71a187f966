//! `convoke history export`: writes what a coordinator's store holds as lines of a history, for `convoke verify`.
//!
//! The lines are written as they are read: an export that fails has no last line, and `convoke verify` does not take it for
//! the whole store.

use std::io::Write as _;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use async_trait::async_trait;
use clap::{Args, Subcommand};
use convoke::history;
use convoke_core::decisions::Decision;
use convoke_runtime::decisions::DecisionSink;
use parking_lot::Mutex;

use super::remote::{RemoteArgs, connect, usage};

#[derive(Debug, Args)]
pub struct HistoryArgs {
    #[command(subcommand)]
    verb: Verb,
    #[command(flatten)]
    remote: RemoteArgs,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Write all jobs, runs and the epoch of the store as lines of a history, for `convoke verify`
    #[command(after_help = "Example:
  convoke history export --server http://127.0.0.1:3000 > store.jsonl
  convoke verify store.jsonl n1.jsonl n2.jsonl n3.jsonl")]
    Export,
}

pub async fn run(args: HistoryArgs) -> Result<()> {
    match args.verb {
        Verb::Export => export(&args.remote).await,
    }
}

/// Writes lines to standard output, until that fails.
#[derive(Default)]
struct Output(Mutex<Option<std::io::Error>>);

#[async_trait]
impl DecisionSink for Output {
    fn write(&self, decisions: Vec<Decision>) {
        let mut failed = self.0.lock();
        if failed.is_some() {
            return;
        }
        let mut text = Vec::new();
        decisions.iter().for_each(|decision| decision.write_line(&mut text));
        *failed = std::io::stdout().lock().write_all(&text).err();
    }

    async fn written(&self) {}
}

async fn export(remote: &RemoteArgs) -> Result<()> {
    let http = connect(remote)?;
    let output = Arc::new(Output::default());
    let recorder = history::recorder("export", output.clone()).map_err(usage)?;
    let exported = history::export(&http, &recorder).await;
    if exported.is_ok() {
        recorder.end().await;
    }
    if let Some(error) = output.0.lock().take() {
        return Err(error.into());
    }
    let count = exported.map_err(|error| anyhow!("the store at {} cannot be exported: {error}", remote.server))?;
    eprintln!("{count} jobs exported");
    Ok(())
}
