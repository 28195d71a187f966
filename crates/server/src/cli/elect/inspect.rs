//! `convoke elect status|members|metrics`: shows the leader of a namespace, without contending.
//!
//! It does not become a member: it reads the lease, the list of members and the leader's report as any member does. The
//! exit code is 0 if there is a leader (for `members` a member, for `metrics` figures), else 1.

use std::io::IsTerminal as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use convoke::connect;
use convoke_core::duration;
use convoke_core::election::Report;
use convoke_core::ports::Leases;
use convoke_core::ports::leases::Lease;
use serde_json::{Value, json};

use super::{ElectArgs, FAILED};
use crate::cli::output::{line, list, render, text, titled};
use crate::cli::remote::{Usage, usage};

/// The time between two reads with `--watch`.
const EVERY: Duration = Duration::from_secs(1);
/// The same for backends that charge for every request.
const EVERY_PAID: Duration = Duration::from_secs(5);
/// Clears the terminal and moves the cursor to its upper left corner.
const CLEAR: &str = "\x1b[2J\x1b[H";

/// The part of a namespace to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum View {
    Status,
    Members,
    Metrics,
}

impl View {
    pub const NAMES: [&str; 3] = ["status", "members", "metrics"];

    pub fn named(name: &str) -> Option<View> {
        match name {
            "status" => Some(View::Status),
            "members" => Some(View::Members),
            "metrics" => Some(View::Metrics),
            _ => None,
        }
    }
}

pub async fn run(view: View, args: &ElectArgs) -> Result<ExitCode> {
    refuse_missing_file(&args.leases)?;
    let leases = connect::leases(&args.leases, &args.prefix).await.map_err(usage)?;
    let every = if leases.lease_check_interval().is_some() { EVERY } else { EVERY_PAID };
    let clear = if args.watch && !args.json && std::io::stdout().is_terminal() { CLEAR } else { "" };
    loop {
        let has_found = match inspect(&*leases, &args.namespace).await {
            Ok(seen) => {
                line(format!("{clear}{}", seen.shown(view, args.json)))?;
                seen.has(view)
            }
            // With --watch, an outage is shown and the loop goes on.
            Err(error) if args.watch => {
                line(format!("{clear}error: {error}"))?;
                false
            }
            Err(error) => return Err(error),
        };
        if !args.watch {
            return Ok(ExitCode::from(if has_found { 0 } else { FAILED }));
        }
        tokio::time::sleep(every).await;
    }
}

/// Opening a file creates it, so a mistyped path would show an empty namespace.
fn refuse_missing_file(url: &str) -> Result<()> {
    let Some(path) = url.strip_prefix("sqlite:") else { return Ok(()) };
    let path = path.strip_prefix("//").unwrap_or(path);
    if !path.is_empty() && !Path::new(path).exists() {
        bail!("--leases: {path} does not exist: expected a file that `convoke elect` has created");
    }
    Ok(())
}

/// A namespace as it was read.
struct Seen {
    namespace: String,
    address: String,
    lease: Option<Lease>,
    members: Vec<String>,
    /// The report of the present leader's term.
    report: Option<Report>,
    is_carried: bool,
}

async fn inspect(leases: &dyn Leases, namespace: &str) -> Result<Seen> {
    convoke_core::ids::check_name("NAMESPACE", namespace).map_err(|invalid| Usage(invalid.to_string()))?;
    let lease = leases.read(namespace).await?;
    let members = leases.roster(namespace).await?;
    let published = leases.published(namespace).await?;
    // A report that cannot be read is from another version.
    let report = published.and_then(|text| serde_json::from_str::<Report>(&text).ok());
    let is_present =
        |report: &Report| lease.as_ref().is_some_and(|it| it.holder == report.member && it.epoch == report.epoch);
    Ok(Seen {
        namespace: namespace.to_owned(),
        address: leases.address(),
        report: report.filter(is_present),
        lease,
        members,
        is_carried: leases.carries_reports(),
    })
}

impl Seen {
    fn has(&self, view: View) -> bool {
        match view {
            View::Status => self.lease.is_some(),
            View::Members => !self.members.is_empty(),
            View::Metrics => self.report.is_some(),
        }
    }

    fn shown(&self, view: View, as_json: bool) -> String {
        let value = match view {
            View::Status => self.status(),
            View::Members => self.roster(),
            View::Metrics => self.figures(),
        };
        if as_json {
            return value.to_string();
        }
        match view {
            View::Status => self.status_in_words(&value),
            View::Members => {
                let row = |member: &Value| {
                    let role = if member["isLeader"] == true { "leader" } else { "" };
                    vec![text(member, "id"), role.to_owned()]
                };
                render(&["member", "role"], list(&value, "members").iter().map(row).collect())
            }
            View::Metrics => self.figures_in_words(&value),
        }
    }

    /// The first fields of every view.
    fn head(&self) -> Value {
        json!({
            "namespace": self.namespace,
            "leases": self.address,
            "leader": self.lease.as_ref().map(|lease| &lease.holder),
            "epoch": self.lease.as_ref().map(|lease| lease.epoch),
        })
    }

    fn status(&self) -> Value {
        let mut value = self.head();
        let remaining = self.lease.as_ref().map(|lease| lease.remaining);
        value["remaining"] = json!(remaining.map(duration::format));
        value["remainingMs"] = json!(remaining.map(duration::ms));
        value["members"] = json!(self.members);
        value["report"] = json!(self.report);
        value
    }

    fn roster(&self) -> Value {
        let mut value = self.head();
        let is_leader = |member: &String| self.lease.as_ref().is_some_and(|lease| lease.holder == *member);
        let members = self.members.iter().map(|member| json!({ "id": member, "isLeader": is_leader(member) }));
        value["members"] = members.collect();
        value
    }

    fn figures(&self) -> Value {
        let mut value = self.head();
        value["at"] = json!(self.report.as_ref().map(|report| report.at));
        value["metrics"] = json!(self.report.as_ref().map(|report| &report.metrics));
        value["breaker"] = json!(self.report.as_ref().map(|report| &report.breaker));
        value
    }

    fn status_in_words(&self, value: &Value) -> String {
        let lease = match &self.lease {
            Some(lease) => format!("{} left", duration::format(lease.remaining)),
            None => String::new(),
        };
        titled(&[
            ("namespace", self.namespace.clone()),
            ("leases", self.address.clone()),
            ("leader", self.lease.as_ref().map_or_else(|| "none".into(), |lease| lease.holder.clone())),
            ("epoch", text(value, "epoch")),
            ("lease", lease),
            ("members", self.members.join(", ")),
            ("heartbeat", latency(&value["report"])),
            ("breaker", text(value, "report.breaker.state")),
        ])
    }

    fn figures_in_words(&self, value: &Value) -> String {
        if self.report.is_none() {
            let why = match (&self.lease, self.is_carried) {
                (None, _) => "no member leads",
                (_, false) => "this backend does not store figures: start the leader with --http and read them there",
                (_, true) => "the leader has published none yet",
            };
            return titled(&[("namespace", self.namespace.clone()), ("metrics", format!("none: {why}"))]);
        }
        let figure = |name: &str| text(value, &format!("metrics.{name}"));
        titled(&[
            ("namespace", self.namespace.clone()),
            ("leader", text(value, "leader")),
            ("epoch", text(value, "epoch")),
            ("as of", text(value, "at")),
            ("heartbeat", latency(value)),
            ("heartbeats", figure("heartbeatCount")),
            ("failed", figure("heartbeatFailures")),
            ("skipped", figure("heartbeatsSkipped")),
            ("elections", figure("electionCount")),
            ("leader changes", figure("leaderChanges")),
            ("breaker", text(value, "breaker.state")),
            ("breaker trips", text(value, "breaker.trips")),
        ])
    }
}

fn latency(value: &Value) -> String {
    let percentiles = &value["metrics"]["heartbeatLatencyMs"];
    if percentiles.is_null() {
        return String::new();
    }
    let part = |name: &str| format!("{name} {}ms", text(percentiles, name));
    ["p50", "p95", "p99"].map(part).join("  ")
}
