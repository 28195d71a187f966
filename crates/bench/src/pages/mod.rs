//! `convoke bench pages`: how long the server takes for each page of the dashboard, with many jobs in the store.
//!
//! A private server is filled through its API with jobs in every status ([`fill`]). Then each page of the navigation, each
//! page of one thing, each filter of the list of jobs, each pair of filters and each preview of a bulk action ([`paths`]) is
//! requested over one connection on the same machine, one request at a time: the times are those of the server and of one
//! exchange. Nothing is asserted; the plans of the queries are tested elsewhere (`no_page_reads_a_table_without_an_index`).

mod fill;
mod paths;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};

use super::child::{Children, Engines};
use super::jobs::wire::Target;
use super::report::{Report, line};
use super::run::percentile;
use crate::Usage;

/// The time that no page may exceed, p99, in milliseconds: the goal, marked in the table.
const GOAL_MS: f64 = 50.0;
/// Requests that are not counted, for each page: statements are prepared, and pages of the store are in memory.
const WARM_UP: u64 = 3;

#[derive(Debug, Clone, Args)]
pub struct PagesArgs {
    /// Measure this server, with the jobs that it has, instead of a private one
    #[arg(long, value_name = "URL", requires = "no_fill")]
    server: Option<String>,
    /// Token for that server, if it requires one
    #[arg(long, requires = "server")]
    token: Option<String>,
    #[command(flatten)]
    engines: Engines,
    /// Directory for the private server's file during the run [default: the system's temporary directory]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Jobs in the store [default: 1000000]
    #[arg(long, value_name = "N")]
    jobs: Option<u64>,
    /// Requests of each page [default: 200]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    requests: Option<u64>,
    /// Measure with the jobs that the store has
    #[arg(long)]
    no_fill: bool,
    /// Use small numbers, to check that the benchmark works
    #[arg(long)]
    quick: bool,
    /// Print figures as JSON
    #[arg(long)]
    json: bool,
}

impl PagesArgs {
    fn jobs(&self) -> u64 {
        self.jobs.unwrap_or(if self.quick { 5_000 } else { 1_000_000 })
    }

    fn requests(&self) -> u64 {
        self.requests.unwrap_or(if self.quick { 3 } else { 200 })
    }
}

/// The times of one page, in milliseconds.
struct Measured {
    path: String,
    p50: f64,
    p99: f64,
    longest: f64,
}

pub async fn run(args: PagesArgs) -> Result<()> {
    let dir = match &args.dir {
        Some(dir) => tempfile::tempdir_in(dir),
        None => tempfile::tempdir(),
    };
    let dir = dir.map_err(|error| Usage(format!("--dir: {error}")))?;
    let report = Report::new("pages", args.json);
    let children = match &args.server {
        None => Children::start(dir.path(), &args.engines).await?,
        Some(_) => Children::default(),
    };
    let urls = args.server.clone().unwrap_or_else(|| children.urls().join(","));
    let target = Target::parse(&urls, args.token.clone()).map_err(|message| Usage(format!("--server: {message}")))?;
    let measured = measure(&args, &target, &report).await;
    children.stop().await?;
    let measured = measured?;
    report.clear();
    if args.json {
        return Ok(line(to_json(&measured, args.jobs()).to_string())?);
    }
    for row in table(&measured) {
        line(row)?;
    }
    Ok(())
}

async fn measure(args: &PagesArgs, target: &Target, report: &Report) -> Result<Vec<Measured>> {
    if !args.no_fill {
        fill::fill(target, args.jobs(), report).await?;
    }
    let mut measured = Vec::new();
    for path in paths::all(target).await? {
        report.phase(&path);
        measured.push(page(target, path, args.requests()).await?);
    }
    Ok(measured)
}

/// Requests one page, one request at a time.
async fn page(target: &Target, path: String, requests: u64) -> Result<Measured> {
    let mut connection = target.connect().await?;
    let request = target.request("GET", &path, "");
    for _ in 0..WARM_UP.min(requests) {
        connection.exchange(&request).await?;
    }
    let mut times_us = Vec::new();
    for _ in 0..requests {
        let sent = Instant::now();
        connection.exchange(&request).await?;
        times_us.push(u32::try_from(sent.elapsed().as_micros()).unwrap_or(u32::MAX));
    }
    times_us.sort_unstable();
    let [p50, p99, longest] = [50.0, 99.0, 100.0].map(|percent| percentile(&times_us, percent));
    Ok(Measured { path, p50, p99, longest })
}

fn to_json(measured: &[Measured], jobs: u64) -> Value {
    let page = |it: &Measured| json!({ "path": it.path, "p50Ms": it.p50, "p99Ms": it.p99, "longestMs": it.longest });
    let pages: Vec<Value> = measured.iter().map(page).collect();
    json!({ "bench": "pages", "version": env!("CARGO_PKG_VERSION"), "jobs": jobs, "pages": pages })
}

/// Returns the lines of the table, the slowest page first.
fn table(measured: &[Measured]) -> Vec<String> {
    let mut sorted: Vec<&Measured> = measured.iter().collect();
    sorted.sort_by(|one, other| other.p99.total_cmp(&one.p99));
    let mut lines = vec![format!("{:>9} {:>9} {:>9}  page", "p50 ms", "p99 ms", "longest")];
    lines.extend(sorted.iter().map(|it| {
        let mark = if it.p99 > GOAL_MS { "  <- above 50 ms" } else { "" };
        format!("{:>9.2} {:>9.2} {:>9.2}  {}{mark}", it.p50, it.p99, it.longest, it.path)
    }));
    let above = sorted.iter().filter(|it| it.p99 > GOAL_MS).count();
    lines.push(format!("{} pages, {above} with a p99 above {GOAL_MS} ms", sorted.len()));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_page_comes_first_and_those_above_the_goal_are_counted() {
        let page = |path: &str, p99: f64| Measured { path: path.into(), p50: 1.0, p99, longest: p99 };
        let lines = table(&[page("/jobs", 3.0), page("/slow", 51.0), page("/", 2.0)]);
        assert!(lines[1].contains("/slow  <- above 50 ms") && lines[3].ends_with("  /"), "{lines:?}");
        assert_eq!(lines[4], "3 pages, 1 with a p99 above 50 ms");
        let figures = to_json(&[page("/", 2.0)], 7);
        assert_eq!((&figures["jobs"], &figures["pages"][0]["p99Ms"]), (&json!(7), &json!(2.0)));
    }
}
