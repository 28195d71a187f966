//! `convoke queue`: shows queues and sets their limits.

use anyhow::Result;
use clap::{Args, Subcommand};
use convoke_core::QueueName;
use convoke_core::jobs::{RateLimit, Status};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::output::{fields, line, list, table, text};
use super::remote::{CallError, Remote, RemoteArgs, RemoteResponse};

#[derive(Debug, Args)]
pub struct QueueArgs {
    #[command(flatten)]
    remote: RemoteArgs,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List queues with their counts
    List,
    /// Show a queue
    Show { queue: QueueName },
    /// Stop dispatching a queue's jobs; running ones continue
    Pause { queue: QueueName },
    /// Resume dispatching a paused queue's jobs
    Resume { queue: QueueName },
    /// Limit a queue's rate, or how many of its jobs run at once
    #[command(after_help = "Examples:
  convoke queue limit email --rate 100/1m
  convoke queue limit reports --concurrency 2
  convoke queue limit email --rate none --concurrency none")]
    Limit(LimitArgs),
    /// Delete a queue that has no jobs and no workers, with its settings
    Delete { queue: QueueName },
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("limit").required(true).multiple(true))]
struct LimitArgs {
    queue: QueueName,
    /// Maximum rate, N jobs in any window of D; none removes the limit
    #[arg(long, value_name = "N/D", value_parser = rate, group = "limit")]
    rate: Option<Limit<RateLimit>>,
    /// Maximum number of jobs at once; none removes the limit
    #[arg(long, value_name = "N", value_parser = concurrency, group = "limit")]
    concurrency: Option<Limit<u32>>,
}

/// A limit to set or to remove.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Limit<T> {
    Set(T),
    None,
}

impl<T: serde::Serialize> Limit<T> {
    fn to_json(&self) -> Value {
        match self {
            Limit::Set(limit) => json!(limit),
            Limit::None => Value::Null,
        }
    }
}

fn rate(text: &str) -> Result<Limit<RateLimit>, String> {
    if text == "none" {
        return Ok(Limit::None);
    }
    text.parse().map(Limit::Set).map_err(|message: String| message.replace("100/1s,", "100/1s, or none,"))
}

fn concurrency(text: &str) -> Result<Limit<u32>, String> {
    match text {
        "none" => Ok(Limit::None),
        _ => match text.parse() {
            Ok(limit) if limit > 0 => Ok(Limit::Set(limit)),
            _ => Err("expected a number from 1, or none (pause the queue to stop it)".into()),
        },
    }
}

pub async fn run(args: QueueArgs, verbose: u8) -> Result<()> {
    let remote = Remote::new(&args.remote, verbose)?;
    match args.verb {
        Verb::List => list_all(&remote).await,
        Verb::Show { queue } => show(&remote, &remote.get(&path(&queue)).await?),
        Verb::Pause { queue } => patch(&remote, &queue, json!({ "paused": true })).await,
        Verb::Resume { queue } => patch(&remote, &queue, json!({ "paused": false })).await,
        Verb::Delete { queue } => {
            remote.delete(&path(&queue)).await?;
            Ok(line(if remote.json { "null".into() } else { format!("{queue} is deleted") })?)
        }
        Verb::Limit(args) => {
            let mut body = serde_json::Map::new();
            if let Some(rate) = args.rate {
                body.insert("rateLimit".into(), rate.to_json());
            }
            if let Some(concurrency) = args.concurrency {
                body.insert("concurrency".into(), concurrency.to_json());
            }
            patch(&remote, &args.queue, body.into()).await
        }
    }
}

fn path(queue: &QueueName) -> String {
    format!("/v1/queues/{}", convoke::encode(queue.as_str()))
}

async fn patch(remote: &Remote, queue: &QueueName, body: Value) -> Result<()> {
    let before = remote.call(Method::GET, &path(queue), None).await;
    let is_new = matches!(before, Err(CallError::Refused { status: StatusCode::NOT_FOUND, .. }));
    let response = remote.send(Method::PATCH, &path(queue), &body).await?;
    if is_new {
        eprintln!("created queue {:?}: there was no queue of this name", queue.as_str());
    }
    show(remote, &response)
}

async fn list_all(remote: &Remote) -> Result<()> {
    let response = remote.get("/v1/queues").await?;
    if remote.json {
        return Ok(line(response.text())?);
    }
    let page = response.value()?;
    let counted = ["pending", "scheduled", "dispatched", "running", "completed", "failed"];
    let rows = list(&page, "queues").iter().map(|queue| {
        let state = if queue["paused"] == true { "paused" } else { "active" };
        let mut row = vec![text(queue, "name"), state.into()];
        row.extend(counted.map(|status| text(queue, &format!("counts.{status}"))));
        row.extend([text(queue, "oldestPendingAge"), text(queue, "workers"), limits(queue)]);
        row
    });
    let mut headers = vec!["name", "state"];
    headers.extend(counted);
    headers.extend(["oldest", "workers", "limits"]);
    Ok(table(&headers, rows.collect())?)
}

fn limits(queue: &Value) -> String {
    let mut limits = Vec::new();
    if !queue["rateLimit"].is_null() {
        limits.push(format!("{}/{}", text(queue, "rateLimit.limit"), text(queue, "rateLimit.per")));
    } else if !queue["effectiveRateLimit"].is_null() {
        let rate = |field| text(queue, &format!("effectiveRateLimit.{field}"));
        limits.push(format!("{}/{} (default)", rate("limit"), rate("per")));
    }
    if !queue["concurrency"].is_null() {
        limits.push(format!("{} at once", text(queue, "concurrency")));
    }
    limits.join(", ")
}

fn show(remote: &Remote, response: &RemoteResponse) -> Result<()> {
    if remote.json {
        return Ok(line(response.text())?);
    }
    let queue = response.value()?;
    let state = if queue["paused"] == true { "paused" } else { "active" };
    let mut pairs = vec![("name", text(&queue, "name")), ("state", state.into()), ("limits", limits(&queue))];
    pairs.extend(Status::ALL.map(|status| (status.as_str(), text(&queue, &format!("counts.{}", status.as_str())))));
    pairs.extend([("oldest pending", text(&queue, "oldestPendingAge")), ("workers", text(&queue, "workers"))]);
    Ok(fields(&pairs)?)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_rate_is_a_number_and_a_window() {
        let minute = RateLimit { limit: 100, per: Duration::from_secs(60) };
        assert_eq!(rate("100/1m"), Ok(Limit::Set(minute)));
        assert_eq!(rate("100/m"), Ok(Limit::Set(minute)));
        assert_eq!(rate("none"), Ok(Limit::None));
        for bad in ["", "100", "/1s", "100/", "-1/s", "1.5/s", "100/fortnight", "0/1s", "5/0s"] {
            assert!(rate(bad).expect_err(bad).contains("expected"), "{bad}");
        }
    }

    #[test]
    fn a_limit_that_is_taken_away_is_null() {
        assert_eq!(rate("none").expect("valid").to_json(), Value::Null);
        let set = rate("5/1s").expect("valid").to_json();
        assert_eq!(set, json!({"limit":5,"per":"1s"}));
        assert!(concurrency("0").is_err() && concurrency("x").is_err());
    }
}
