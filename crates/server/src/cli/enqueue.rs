//! `convoke enqueue`: enqueues a job and, on request, waits until it has ended.

use std::io::{IsTerminal as _, Read as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::Args;
use convoke_core::jobs::{JobSpec, Status};
use convoke_core::{JobType, Json, duration, instant};
use http::Method;
use indicatif::{ProgressBar, ProgressStyle};
use jiff::Timestamp;
use serde_json::Value;

use super::output::{line, printable, text};
use super::remote::{Outage, Remote, RemoteArgs, RemoteResponse, Usage};
use super::template::TemplateArgs;

/// The time between two reads of the queue of a job that does not start.
const QUEUE_READ_INTERVAL: Duration = Duration::from_secs(2);
/// The limits of all inputs are far below this one. It bounds the memory for an input that is too large.
const INPUT_BYTES_MAX: u64 = 64 << 20;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  convoke enqueue email.send --args '{\"to\":\"a@b.c\"}'
  convoke enqueue report.build --queue reports --args @report.json --priority high --wait
  convoke enqueue invoice.remind --delay 3d --unique-key invoice-17")]
pub struct EnqueueArgs {
    /// Type of the job, which selects its handler
    #[arg(value_name = "TYPE")]
    job_type: JobType,
    #[command(flatten)]
    template: TemplateArgs,
    /// Delay before the job is due, such as 30s or 1h30m
    #[arg(long, value_parser = duration::parse, conflicts_with = "at")]
    delay: Option<Duration>,
    /// Instant at which the job is due, such as 2030-01-31T09:00:00Z
    #[arg(long, value_parser = instant::parse, value_name = "INSTANT")]
    at: Option<Timestamp>,
    /// Wait until the job has ended, and show its progress or why it does not start; exit code 1 if it failed
    #[arg(long, short)]
    wait: bool,
    #[command(flatten)]
    remote: RemoteArgs,
}

/// Reads an argument: JSON, a file's name after `@`, or `-` for standard input.
pub fn read_json(name: &str, given: &str, bytes_max: usize) -> Result<Json> {
    let mut text = String::new();
    match given.strip_prefix('@') {
        _ if given == "-" => {
            let input = std::io::stdin().take(INPUT_BYTES_MAX).read_to_string(&mut text);
            input.with_context(|| format!("{name} -: cannot read standard input"))?;
        }
        Some(path) => {
            let file = std::fs::File::open(path).and_then(|file| file.take(INPUT_BYTES_MAX).read_to_string(&mut text));
            file.map_err(|error| Usage(format!("{name} @{path}: {error}")))?;
        }
        None => given.clone_into(&mut text),
    }
    let bytes = text.trim().len();
    if bytes > bytes_max {
        let (size, limit) = (size(bytes), bytes_max >> 20);
        return Err(Usage(format!("{name}: {size} is over the limit of {limit} MiB")).into());
    }
    Ok(Json::parse(text).map_err(|error| Usage(format!("{name}: expected JSON, got {}: {error}", shortened(given))))?)
}

/// Returns a size for people; exact if it is close to a limit of 1 MiB.
fn size(bytes: usize) -> String {
    if bytes < 1_100_000 {
        return format!("{bytes} bytes");
    }
    let tenths = bytes / 100_000;
    format!("{}.{} MB", tenths / 10, tenths % 10)
}

fn shortened(text: &str) -> String {
    let short: String = text.chars().take(60).collect();
    if short.len() < text.len() { format!("{short:?}…") } else { format!("{short:?}") }
}

pub async fn run(args: EnqueueArgs, verbose: u8) -> Result<ExitCode> {
    let remote = Remote::new(&args.remote, verbose)?;
    let template = args.template.into_template(args.job_type)?;
    let spec = JobSpec { delay: args.delay, run_at: args.at, ..template.into() };
    let response = remote.post("/v1/jobs", &spec).await?;
    let id = text(&response.value()?, "id");
    if !args.wait {
        line(if remote.json { response.text().into_owned() } else { id })?;
        return Ok(ExitCode::SUCCESS);
    }
    if !remote.json {
        line(&id)?;
    }
    let ended = wait(&remote, &id).await?;
    report_end(&remote, &ended)
}

fn report_end(remote: &Remote, ended: &RemoteResponse) -> Result<ExitCode> {
    let job = ended.value()?;
    let completed = text(&job, "status") == Status::Completed.as_str();
    if remote.json {
        line(ended.text())?;
    } else if completed && !job["result"].is_null() {
        line(job["result"].to_string())?;
    }
    if completed {
        return Ok(ExitCode::SUCCESS);
    }
    let (status, error) = (text(&job, "status"), text(&job, "error"));
    let because = if error.is_empty() { String::new() } else { format!(": {}", printable(&error)) };
    eprintln!("error: the job ended as {status}{because}");
    Ok(ExitCode::FAILURE)
}

/// Waits until the job has ended, and returns it.
async fn wait(remote: &Remote, id: &str) -> Result<RemoteResponse> {
    let mut shown = Shown::new();
    let mut outage = Outage::default();
    let mut queue_read_at: Option<Instant> = None;
    let mut obstacle = None;
    // Short at first, to detect soon that no worker is there. On a terminal the bar should move; elsewhere the server
    // may hold the response back.
    let mut hold = "400ms";
    loop {
        let result = remote.call(Method::GET, &format!("/v1/jobs/{}?wait={hold}", convoke::encode(id)), None).await;
        match result {
            Ok(response) => {
                outage.end();
                let job = response.value()?;
                let status = Status::parse(&text(&job, "status"));
                if status != Some(Status::Pending) {
                    obstacle = None;
                } else if queue_read_at.is_none_or(|at| at.elapsed() >= QUEUE_READ_INTERVAL) {
                    queue_read_at = Some(Instant::now());
                    obstacle = obstacle_in(remote, &text(&job, "queue")).await;
                }
                shown.update(&job, obstacle.as_deref());
                if status.is_some_and(|status| !status.is_live()) {
                    shown.finish();
                    return Ok(response);
                }
            }
            Err(error) if outage.is_bearable(&error) => {
                shown.print_progress(&error.to_string());
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            Err(error) => return Err(error.into()),
        }
        if shown.bar.is_none() {
            hold = "5s";
        }
    }
}

/// Returns why no job of the queue starts now, if there is a reason and this client may know it.
async fn obstacle_in(remote: &Remote, queue: &str) -> Option<String> {
    let path = format!("/v1/queues/{}", convoke::encode(queue));
    let found = remote.call(Method::GET, &path, None).await.ok()?.value().ok()?;
    if found["workers"] == 0 {
        return Some(format!("no worker serves queue {queue}"));
    }
    (found["paused"] == true).then(|| format!("queue {queue} is paused"))
}

/// The progress that was shown so far: a bar on a terminal, lines elsewhere.
struct Shown {
    bar: Option<ProgressBar>,
    last: String,
}

impl Shown {
    fn new() -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(100);
            let style = ProgressStyle::with_template("{spinner} {bar:30} {percent:>3}% {msg}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.enable_steady_tick(Duration::from_millis(100));
            bar
        });
        Shown { bar, last: String::new() }
    }

    fn update(&mut self, job: &Value, obstacle: Option<&str>) {
        let percent = job["progress"]["percent"].as_u64();
        let mut now = text(job, "status");
        if let Some(percent) = percent {
            now.push_str(&format!(" {percent}%"));
        }
        let message = text(job, "progress.message");
        if !message.is_empty() {
            now.push_str(&format!(" {}", printable(&message)));
        }
        if let Some(obstacle) = obstacle {
            now.push_str(&format!(": {obstacle}"));
        }
        if let Some(bar) = &self.bar {
            bar.set_position(percent.unwrap_or(0));
        }
        self.print_progress(&now);
    }

    fn print_progress(&mut self, now: &str) {
        if now == self.last {
            return;
        }
        match &self.bar {
            Some(bar) => bar.set_message(now.to_owned()),
            None => eprintln!("{now}"),
        }
        now.clone_into(&mut self.last);
    }

    /// Replaces the bar by the job's outcome. Elsewhere that line was printed already.
    fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
            eprintln!("{}", self.last);
        }
    }
}
