//! `convoke events`: follows the events of all nodes.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use convoke::ServerEvent;
use serde_json::{Map, Value};

use super::output::{line, printable};
use super::remote::{CallError, Remote, RemoteArgs, query, usage};

/// The time between two attempts to reach a server that is unreachable.
const RECONNECT_DELAY: Duration = Duration::from_millis(500);

#[derive(Debug, Args)]
#[command(
    after_help = "Events are hints: those that happen while the connection is broken or that the server could not keep for a slow
reader are missing, which is reported on standard error. To get the current state, read it: `convoke job show`.

Examples:
  convoke events
  convoke events --types job:failed,job:timedOut,node
  convoke events --json | jq .event"
)]
pub struct EventsArgs {
    /// Only events of these kinds (job) or names (job:failed), separated by commas
    #[arg(long, value_name = "TYPES")]
    types: Option<String>,
    #[command(flatten)]
    remote: RemoteArgs,
}

pub async fn run(args: EventsArgs, verbose: u8) -> Result<()> {
    let remote = Remote::new(&args.remote, verbose)?;
    let path = query("/v1/events", [("types", args.types)]);
    let mut events = remote.events(&path).await.map_err(rejected)?;
    loop {
        while let Ok(Some(event)) = events.next().await {
            show(&remote, &event)?;
        }
        eprintln!("the stream of events broke off; reconnecting");
        events = loop {
            tokio::time::sleep(RECONNECT_DELAY).await;
            match remote.events(&path).await {
                Ok(events) => break events,
                Err(error) if error.is_transient() => {}
                Err(error) => return Err(rejected(error)),
            }
        };
        eprintln!("reconnected; events may have been missed");
    }
}

fn rejected(error: CallError) -> anyhow::Error {
    match error {
        CallError::NoStream(error) => usage(error),
        error => error.into(),
    }
}

fn show(remote: &Remote, event: &ServerEvent) -> Result<()> {
    let Ok(fields) = serde_json::from_str::<Map<String, Value>>(&event.data) else { return Ok(()) };
    if event.event == "lagged" {
        let missed = fields.get("missed").unwrap_or(&Value::Null);
        eprintln!("{missed} events were missed: this reader is too slow");
        return Ok(());
    }
    Ok(line(if remote.json { event.data.clone() } else { shown(&event.event, &fields) })?)
}

/// Returns an event as a line: time, name, and its other fields.
fn shown(name: &str, fields: &Map<String, Value>) -> String {
    let at = fields.get("at").and_then(Value::as_str).unwrap_or("-");
    let mut text = format!("{at} {name}");
    for (key, value) in
        fields.iter().filter(|(key, value)| !["at", "event"].contains(&key.as_str()) && !value.is_null())
    {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        text.push_str(&format!(" {key}={}", printable(&value)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_a_line_of_when_what_and_its_fields() {
        let data = r#"{"event":"job:failed","at":"2030-01-01T00:00:00Z","attempt":2,"error":"no\nluck","node":null}"#;
        let fields = serde_json::from_str(data).expect("an object");
        assert_eq!(shown("job:failed", &fields), "2030-01-01T00:00:00Z job:failed attempt=2 error=no\\nluck");
    }
}
