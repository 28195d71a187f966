//! `convoke schedule`: recurring jobs.

use std::time::Duration;

use anyhow::Result;
use clap::{Args, Subcommand, ValueEnum};
use convoke_core::jobs::cron::DayRule;
use convoke_core::jobs::{ScheduleSpec, schedule};
use convoke_core::{JobType, ScheduleName, duration};
use http::Method;
use serde_json::{Value, json};

use super::output::{age, fields, line, list, table, text};
use super::remote::{Remote, RemoteArgs};
use super::template::{SHOWN, TemplateArgs};

#[derive(Debug, Args)]
pub struct ScheduleArgs {
    #[command(flatten)]
    remote: RemoteArgs,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Add a schedule, or replace the one with this name
    #[command(after_help = "Examples:
  convoke schedule add nightly --cron '0 3 * * *' --tz Europe/Berlin --type report.build
  convoke schedule add pulse --every 30s --type health.check --overlap allow")]
    Add(Box<AddArgs>),
    /// List schedules
    List,
    /// Show a schedule
    Show { name: ScheduleName },
    /// Pause a schedule until it is resumed
    Pause { name: ScheduleName },
    /// Resume a paused schedule
    Resume { name: ScheduleName },
    /// Enqueue a schedule's job now
    Trigger { name: ScheduleName },
    /// Remove a schedule; jobs that it has made stay
    Remove { name: ScheduleName },
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("when").required(true))]
struct AddArgs {
    name: ScheduleName,
    /// Cron expression: five or six fields, or a nickname such as @daily
    #[arg(long, value_name = "EXPR", group = "when")]
    cron: Option<String>,
    /// Interval, such as 30s
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, group = "when")]
    every: Option<Duration>,
    /// Time zone of the cron expression, such as Europe/Berlin [default: UTC]
    #[arg(long, value_name = "ZONE", conflicts_with = "every")]
    tz: Option<String>,
    /// If both day fields are restricted, match days by either or by both [default: or]
    #[arg(long, value_name = "RULE", conflicts_with = "every")]
    day: Option<Day>,
    /// Type of the jobs
    #[arg(long = "type", value_name = "TYPE")]
    job_type: JobType,
    #[command(flatten)]
    template: TemplateArgs,
    /// The ticks to make up for that passed while no node led [default: latest]
    #[arg(long)]
    missed: Option<Missed>,
    /// The effect of a tick while a job of the schedule is still live [default: skip]
    #[arg(long)]
    overlap: Option<Overlap>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Day {
    /// Either field matches, as in cron
    Or,
    /// Both fields match, as in Cronos
    And,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Missed {
    /// Skip them
    Skip,
    /// Run one job, for the latest tick
    Latest,
    /// Run a job for each, up to a limit
    All,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Overlap {
    /// Skip the tick
    Skip,
    /// Run both jobs
    Allow,
}

impl From<Day> for DayRule {
    fn from(day: Day) -> Self {
        match day {
            Day::Or => DayRule::Or,
            Day::And => DayRule::And,
        }
    }
}

impl From<Missed> for schedule::Missed {
    fn from(missed: Missed) -> Self {
        match missed {
            Missed::Skip => schedule::Missed::Skip,
            Missed::Latest => schedule::Missed::Latest,
            Missed::All => schedule::Missed::All,
        }
    }
}

impl From<Overlap> for schedule::Overlap {
    fn from(overlap: Overlap) -> Self {
        match overlap {
            Overlap::Skip => schedule::Overlap::Skip,
            Overlap::Allow => schedule::Overlap::Allow,
        }
    }
}

pub async fn run(args: ScheduleArgs, verbose: u8) -> Result<()> {
    let remote = Remote::new(&args.remote, verbose)?;
    match args.verb {
        Verb::Add(args) => add(&remote, *args).await,
        Verb::List => list_all(&remote).await,
        Verb::Show { name } => show(&remote, &name).await,
        Verb::Pause { name } => switch(&remote, &name, "pause").await,
        Verb::Resume { name } => switch(&remote, &name, "resume").await,
        Verb::Trigger { name } => trigger(&remote, &name).await,
        Verb::Remove { name } => {
            remote.delete(&path(&name)).await?;
            Ok(line(if remote.json { "null".into() } else { format!("{name} is removed") })?)
        }
    }
}

fn path(name: &ScheduleName) -> String {
    format!("/v1/schedules/{}", convoke::encode(name.as_str()))
}

async fn add(remote: &Remote, args: AddArgs) -> Result<()> {
    let spec = ScheduleSpec {
        template: args.template.into_template(args.job_type)?,
        cron: args.cron,
        every: args.every,
        tz: args.tz,
        day: args.day.map(DayRule::from),
        missed: args.missed.map(schedule::Missed::from),
        overlap: args.overlap.map(schedule::Overlap::from),
        paused: None,
    };
    let response = remote.send(Method::PUT, &path(&args.name), &spec).await?;
    if remote.json {
        return Ok(line(response.text())?);
    }
    let schedule = response.value()?;
    for warning in list(&schedule, "warnings").iter().filter_map(Value::as_str) {
        eprintln!("warning: {warning}");
    }
    Ok(line(format!("{} runs next at {}", args.name, text(&schedule, "nextRunAt")))?)
}

async fn list_all(remote: &Remote) -> Result<()> {
    let response = remote.get("/v1/schedules").await?;
    if remote.json {
        return Ok(line(response.text())?);
    }
    let page = response.value()?;
    let rows = list(&page, "schedules").iter().map(|schedule| {
        let next = if schedule["paused"] == true { "paused".into() } else { age(schedule, "nextRunAt") };
        let (name, job_type, queue) = (text(schedule, "name"), text(schedule, "type"), text(schedule, "queue"));
        vec![name, when(schedule), job_type, queue, next, age(schedule, "lastRunAt")]
    });
    Ok(table(&["name", "when", "type", "queue", "next", "last"], rows.collect())?)
}

fn when(schedule: &Value) -> String {
    let (cron, every, tz) = (text(schedule, "cron"), text(schedule, "every"), text(schedule, "tz"));
    match (cron.is_empty(), tz.is_empty()) {
        (true, _) => format!("every {every}"),
        (false, true) => cron,
        (false, false) => format!("{cron} ({tz})"),
    }
}

async fn show(remote: &Remote, name: &ScheduleName) -> Result<()> {
    let response = remote.get(&path(name)).await?;
    if remote.json {
        return Ok(line(response.text())?);
    }
    let schedule = response.value()?;
    let cadence = [
        ("cron", "cron"),
        ("every", "every"),
        ("time zone", "tz"),
        ("day fields", "day"),
        ("missed", "missed"),
        ("overlap", "overlap"),
        ("paused", "paused"),
        ("unique for", "uniqueFor"),
        ("next run", "nextRunAt"),
        ("last run", "lastRunAt"),
    ];
    let names = [("name", "name")].into_iter().chain(SHOWN).chain(cadence);
    Ok(fields(&names.map(|(name, path)| (name, text(&schedule, path))).collect::<Vec<_>>())?)
}

async fn switch(remote: &Remote, name: &ScheduleName, verb: &str) -> Result<()> {
    let response = remote.post(&format!("{}/{verb}", path(name)), &json!({})).await?;
    if remote.json {
        return Ok(line(response.text())?);
    }
    let schedule = response.value()?;
    let next = text(&schedule, "nextRunAt");
    Ok(line(if next.is_empty() { format!("{name} is paused") } else { format!("{name} runs next at {next}") })?)
}

async fn trigger(remote: &Remote, name: &ScheduleName) -> Result<()> {
    let response = remote.post(&format!("{}/trigger", path(name)), &json!({})).await?;
    let shown = if remote.json { response.text().into_owned() } else { text(&response.value()?, "id") };
    Ok(line(shown)?)
}
