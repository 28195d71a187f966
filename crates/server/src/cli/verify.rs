//! `convoke verify`: checks histories against the invariants, and shows what was violated with the lines that prove it.
//!
//! The exit code is 0 if nothing was violated and nothing is missing, 1 if something was violated, 2 if the histories prove
//! nothing: they cannot be read, have no decisions, or lines are missing.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use clap::Args;
use convoke::history::{self, DecisionLog, Expectations, History};

use super::output::line;
use super::remote::{RemoteArgs, connect, usage};

const VIOLATED: u8 = 1;
const UNUSABLE: u8 = 2;

pub const HELP: &str = "Examples:
  convoke verify n1.jsonl n2.jsonl n3.jsonl
  convoke verify --drained store.jsonl n*.jsonl producer.jsonl
  convoke verify http://127.0.0.1:3000

Exit codes: 0 nothing was violated, 1 something was, 2 the histories prove nothing: unreadable, empty, or lines are missing.";

#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// Files that nodes, clients and exports wrote, or the address of a coordinator whose store is exported
    #[arg(required = true, value_name = "FILE|URL")]
    sources: Vec<String>,
    /// All work had ended when the store was exported: a job that has not is a violation
    #[arg(long)]
    drained: bool,
    /// Token, if a server requires one
    #[arg(long, env = "CONVOKE_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

pub async fn run(args: VerifyArgs) -> Result<ExitCode> {
    let mut history = History::default();
    for source in &args.sources {
        if let Err(error) = read(source, &args, &mut history).await {
            eprintln!("error: {error}");
            return Ok(ExitCode::from(UNUSABLE));
        }
    }
    let report = history.check(Expectations { drained: args.drained });
    if args.json {
        line(history::to_json(&report, &history).to_string())?;
    } else {
        line(history::to_text(&report, &history))?;
    }
    Ok(ExitCode::from(match (report.violations.is_empty(), report.is_complete()) {
        (false, _) => VIOLATED,
        (true, false) => UNUSABLE,
        (true, true) => 0,
    }))
}

async fn read(source: &str, args: &VerifyArgs, history: &mut History) -> Result<()> {
    if !source.starts_with("http://") && !source.starts_with("https://") {
        return history::read(Path::new(source), history).map_err(|error| anyhow!(error));
    }
    let remote = RemoteArgs { server: source.to_owned(), token: args.token.clone(), json: false };
    let log = Arc::new(DecisionLog::default());
    let recorder = history::recorder("export", log.clone()).map_err(usage)?;
    let exported = history::export(&connect(&remote)?, &recorder).await;
    exported.map_err(|error| anyhow!("the store at {source} cannot be exported: {error}"))?;
    recorder.end().await;
    history.extend(source, log.take());
    Ok(())
}
