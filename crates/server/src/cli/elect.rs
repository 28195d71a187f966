//! `convoke elect`: runs any command as a singleton, on one machine of many.
//!
//! It is started on any number of machines. One process leads and runs the command. If it dies, stops or loses the
//! connection to the backend, its command has ended before another one starts. A command that is frozen together with
//! its machine (suspended) cannot be stopped in time: `CONVOKE_EPOCH` fences its writes.

mod inspect;
mod leader_loop;
mod lease_deadline;
mod port;
mod signals;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use convoke::Elector;
use convoke::election::{Policy, Settings};
use convoke_core::duration;
use rustix::process::Signal;
use tracing::info;

use super::configured;
use super::output::line;
use super::remote::{Usage, usage};
use super::supervise::{ChildTree, Ending};
use crate::config::{self, Surroundings};
use crate::logs;
use inspect::View;
use leader_loop::{LeaderCommand, Outcome, run_term};
use lease_deadline::HEARTBEAT_PART;
use port::Port;
use signals::Signals;

const FAILED: u8 = 1;

#[derive(Debug, Args)]
pub struct ElectArgs {
    /// Namespace to contend in: processes with the same namespace elect one leader. After status, members or metrics:
    /// the namespace to show, without contending
    #[arg(value_name = "NAMESPACE", num_args = 1..=2, required_unless_present = "named")]
    words: Vec<String>,
    /// The namespace, if its name is status, members or metrics
    #[arg(long = "namespace", value_name = "NAMESPACE")]
    named: Option<String>,
    #[arg(skip)]
    namespace: String,
    /// URL of the leases: redis://…, postgres://…, s3://bucket/prefix, or sqlite:PATH for the processes of one machine
    #[arg(long, value_name = "URL", env = "CONVOKE_LEASES__URL", hide_env_values = true)]
    leases: String,
    /// Id of this process, unique among those that contend [default: host name + random]
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// How long a lease lasts without a renewal, and so how long the namespace has no leader after a crash [default:
    /// election.lease_timeout, 15s]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    ttl: Option<Duration>,
    /// Which member takes a vacant lead: first-come or lowest-id
    #[arg(long, value_name = "POLICY", default_value_t = Policy::FirstCome)]
    policy: Policy,
    /// On S3, do not contend while members of s3db.js are in the namespace [default: election.yield_to_foreign, true]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    yield_to_foreign: Option<bool>,
    /// Exit when the first term ends
    #[arg(long)]
    once: bool,
    /// Time from SIGTERM to SIGKILL when asked to stop; if the lead is lost, at most a fifth of --ttl
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, default_value = "10s")]
    grace: Duration,
    /// Prefix of keys, if the leases are in Redis
    #[arg(long, value_name = "PREFIX", default_value = convoke::connect::BUS_PREFIX)]
    prefix: String,
    /// Serve /health, /metrics and /v1/election at this address while contending
    #[arg(long, value_name = "HOST:PORT")]
    http: Option<String>,
    /// Allow --http beyond loopback without tokens
    #[arg(long, requires = "http")]
    insecure: bool,
    /// With status, members or metrics: print JSON
    #[arg(long)]
    json: bool,
    /// With status, members or metrics: repeat until interrupted
    #[arg(long)]
    watch: bool,
    /// Command to run while leading; without one, each change is printed as a line of JSON
    #[arg(last = true)]
    command: Vec<OsString>,
}

/// The text after the options in `--help`.
pub const HELP: &str = "COMMAND runs only while this process leads, with CONVOKE_EPOCH (the term's number, rising) and
CONVOKE_NAMESPACE in its environment and nothing on its standard input. If the lead is lost it gets SIGTERM, then SIGKILL,
with all that it started, before another can lead; then this process contends again, or exits with 1 if --once was given.
If this process dies, even by SIGKILL, COMMAND dies too.

When COMMAND ends by itself, this process resigns and exits with its exit code (128 + N if signal N killed
it). SIGTERM, SIGINT and SIGQUIT are passed on and end both, with 0 if COMMAND died of the signal, else with its exit code;
SIGHUP, SIGUSR1 and SIGUSR2 are passed on, and ignored while this process does not lead. Without a COMMAND, SIGHUP ends it too.

`convoke elect status NAMESPACE` shows leader, epoch, lease, members and the figures that the leader publishes; `members` and
`metrics` show those. They never contend, and exit with 0 if there is a leader (members, figures), else with 1.
A namespace called status, members or metrics is named by --namespace.

Examples:
  convoke elect reports --leases redis://localhost -- ./make-reports --forever
  convoke elect cron --leases postgres://localhost/app --ttl 5s -- cron -f
  convoke elect production --leases sqlite:/var/lib/app/leases.db
  convoke elect status reports --leases redis://localhost --json";

impl ElectArgs {
    /// Decides between a namespace to contend in and one to show.
    fn resolve(&mut self) -> Result<Option<View>, Usage> {
        let names = View::NAMES.join(", ");
        let (view, namespace) = match (self.words.as_slice(), self.named.take()) {
            ([], Some(named)) => (None, named),
            ([word], None) if View::named(word).is_none() => (None, word.clone()),
            ([word], Some(named)) if View::named(word).is_some() => (View::named(word), named),
            ([word, namespace], None) if View::named(word).is_some() => (View::named(word), namespace.clone()),
            ([word], None) => {
                return Err(Usage(format!(
                    "expected a NAMESPACE after {word}: `convoke elect {word} NAMESPACE`. To contend in a namespace of that name use \
                     --namespace {word}"
                )));
            }
            ([word, _], None) => return Err(Usage(format!("expected {names} before the NAMESPACE, got {word:?}"))),
            ([], None) => return Err(Usage("expected a NAMESPACE".into())),
            (words, None) => {
                return Err(Usage(format!("unexpected {:?}: a COMMAND comes after --", words[1..].join(" "))));
            }
            _ => return Err(Usage("expected the NAMESPACE once, got it twice".into())),
        };
        self.namespace = namespace;
        self.refuse_flags_of_the_other(view.is_some())?;
        Ok(view)
    }

    fn refuse_flags_of_the_other(&self, inspects: bool) -> Result<(), Usage> {
        let contending = [
            ("--id", self.id.is_some()),
            ("--ttl", self.ttl.is_some()),
            ("--yield-to-foreign", self.yield_to_foreign.is_some()),
            ("--once", self.once),
            ("--http", self.http.is_some()),
            ("a COMMAND", !self.command.is_empty()),
        ];
        let inspecting = [("--json", self.json), ("--watch", self.watch)];
        let wrong = if inspects { contending.as_slice() } else { inspecting.as_slice() };
        match wrong.iter().find(|(_, is_given)| *is_given) {
            Some((flag, _)) if inspects => {
                Err(Usage(format!("{flag} is for contending; status, members and metrics do not contend")))
            }
            Some((flag, _)) => Err(Usage(format!("{flag} is for status, members and metrics"))),
            None => Ok(()),
        }
    }
}

pub async fn run(mut args: ElectArgs) -> Result<ExitCode> {
    let view = args.resolve()?;
    if args.leases.starts_with("memory") {
        let message =
            "--leases: expected redis://…, postgres://…, s3://… or sqlite:PATH; other processes cannot reach memory:";
        return Err(Usage(message.into()).into());
    }
    if let Some(view) = view {
        return inspect::run(view, &args).await;
    }
    // Chosen here, so that every log line carries it.
    let id = args.id.get_or_insert_with(convoke::fresh_id);
    let surroundings = Surroundings::read(&config::variables(), "elector").map_err(Usage)?;
    logs::start(&surroundings, &[("elector", id), ("namespace", &args.namespace)]);
    let mut signals = Signals::listen(!args.command.is_empty())?;
    let port = match &args.http {
        Some(bind) => {
            let mut config = configured()?;
            config.http.insecure |= args.insecure;
            Some(Port::open(bind, config).await?)
        }
        None => None,
    };
    let elector = tokio::select! {
        elector = start(&args) => elector?,
        _ = signals.end() => return Ok(ExitCode::SUCCESS),
    };
    let serving = port.map(|port| port.serve(&elector)).transpose()?;
    let ended = if args.command.is_empty() {
        watch(&elector, args.once, &mut signals).await.map(|()| 0)
    } else {
        let Settings { lease_timeout: ttl, .. } = elector.settings();
        let command = LeaderCommand { namespace: args.namespace, command: args.command, ttl, grace: args.grace };
        serve(&elector, &command, args.once, &mut signals).await
    };
    drop(serving);
    elector.stop().await;
    ended.map(ExitCode::from)
}

async fn start(args: &ElectArgs) -> Result<Elector> {
    let wrong = |error: convoke::Error| match error {
        convoke::Error::Coordinator(error) => usage(error),
        error => error.into(),
    };
    let settings = settings(configured()?.coordinator.election, args);
    // The configured values were checked when they were loaded.
    settings.check().map_err(|wrong| Usage(format!("--ttl: {}", wrong.message)))?;
    if !args.command.is_empty() {
        refuse_a_slow_heart(&settings)?;
    }
    let mut candidate = Elector::connect_with_prefix(&args.leases, &args.prefix).await.map_err(wrong)?;
    candidate = candidate.namespace(&args.namespace).settings(settings);
    if let Some(id) = &args.id {
        candidate = candidate.id(id);
    }
    candidate.start().await.map_err(wrong)
}

/// An elector needs few heartbeats. A command is ended before its lease expires, so a renewal must come before that.
fn refuse_a_slow_heart(settings: &Settings) -> Result<(), Usage> {
    let longest = settings.heartbeat_interval.saturating_add(settings.heartbeat_jitter);
    let allowed = settings.lease_timeout / HEARTBEAT_PART;
    if longest <= allowed {
        return Ok(());
    }
    Err(Usage(format!(
        "election.heartbeat_interval: expected at most {} with election.heartbeat_jitter, half of election.lease_timeout, so \
         that a command is not stopped before the lease is renewed; got {}",
        duration::format(allowed),
        duration::format(longest)
    )))
}

/// Returns the configured settings; `--ttl` overrides the times that depend on it.
fn settings(configured: Settings, args: &ElectArgs) -> Settings {
    let (startup_jitter_min, startup_jitter_max) = startup_jitter(&configured);
    let yield_to_foreign = args.yield_to_foreign.unwrap_or(configured.yield_to_foreign);
    let mut settings = args.ttl.map_or(configured.clone(), |ttl| configured.with_ttl(ttl));
    // Recovery after an outage must not take longer than a failover.
    let reset_timeout = &mut settings.circuit_breaker.reset_timeout;
    *reset_timeout = settings.lease_timeout.min(*reset_timeout);
    Settings { policy: args.policy, startup_jitter_min, startup_jitter_max, yield_to_foreign, ..settings }
}

/// No jitter by default, so that a few processes elect a leader at once. For a large fleet it can be configured.
fn startup_jitter(configured: &Settings) -> (Duration, Duration) {
    let jitter = |settings: &Settings| (settings.startup_jitter_min, settings.startup_jitter_max);
    let set = jitter(configured);
    if set == jitter(&Settings::default()) { (Duration::ZERO, Duration::ZERO) } else { set }
}

/// Runs the command in every term, until it ends by itself.
async fn serve(elector: &Elector, command: &LeaderCommand, once: bool, signals: &mut Signals) -> Result<u8> {
    let mut tree = ChildTree::adopt()?;
    info!("contending for the lead");
    loop {
        let term = tokio::select! {
            term = elector.lead() => term,
            _ = signals.end() => None,
            never = tree.reap_forever() => match never {},
        };
        let Some(term) = term else { return Ok(0) };
        info!(epoch = term.epoch().0, "leading: starting the command");
        let outcome = run_term(&term, command, signals, &mut tree).await?;
        info!(epoch = term.epoch().0, outcome = name(outcome), exit_code = exit_code(outcome), "command ended");
        match outcome {
            Outcome::Ended(ending) => return Ok(ending.exit_code()),
            Outcome::Stopped(Ending::Signal(by)) if is_request(by) => return Ok(0),
            Outcome::Stopped(ending) => return Ok(ending.exit_code()),
            Outcome::Lost if once => return Ok(FAILED),
            // A lease that was renewed at the last moment is of no use to a command that has ended.
            Outcome::Lost => elector.resign().await,
        }
    }
}

/// Returns how a command ended, for the log.
fn name(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Ended(_) => "ended",
        Outcome::Stopped(_) => "stopped",
        Outcome::Lost => "lead_lost",
    }
}

fn exit_code(outcome: Outcome) -> Option<u8> {
    match outcome {
        Outcome::Ended(ending) | Outcome::Stopped(ending) => Some(ending.exit_code()),
        Outcome::Lost => None,
    }
}

fn is_request(signal: i32) -> bool {
    [Signal::TERM, Signal::INT, Signal::QUIT].iter().any(|it| it.as_raw() == signal)
}

/// Prints changes until asked to stop or, with `once`, until the first term of this process has ended.
async fn watch(elector: &Elector, once: bool, signals: &mut Signals) -> Result<()> {
    let mut events = elector.events();
    let show = async {
        while let Some(event) = events.next().await {
            line(serde_json::to_string(event.as_ref())?)?;
        }
        anyhow::Ok(())
    };
    let leave = async {
        tokio::select! {
            _ = signals.end() => {}
            () = first_term(elector), if once => {}
        }
        // The final change is printed too.
        elector.stop().await;
        anyhow::Ok(())
    };
    tokio::try_join!(show, leave).map(|_| ())
}

async fn first_term(elector: &Elector) {
    if let Some(term) = elector.lead().await {
        term.ended().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(words: &[&str]) -> Result<(Option<View>, String), String> {
        let line = ["elect", "--leases", "sqlite:x.db"].iter().chain(words);
        let Line { mut elect } = clap::Parser::try_parse_from(line).map_err(|error| error.to_string())?;
        let view = elect.resolve().map_err(|usage| usage.to_string())?;
        Ok((view, elect.namespace))
    }

    #[test]
    fn a_word_before_the_namespace_looks_and_a_namespace_of_such_a_name_needs_its_flag() {
        let found = |view, namespace: &str| Ok((view, namespace.to_owned()));
        assert_eq!(resolved(&["reports"]), found(None, "reports"));
        assert_eq!(resolved(&["status", "reports"]), found(Some(View::Status), "reports"));
        assert_eq!(resolved(&["members", "status"]), found(Some(View::Members), "status"));
        assert_eq!(resolved(&["metrics", "--namespace", "metrics"]), found(Some(View::Metrics), "metrics"));
        assert_eq!(resolved(&["--namespace", "status"]), found(None, "status"));
        assert_eq!(resolved(&["--namespace", "status", "--once", "--", "true"]), found(None, "status"));
        let wrong: [&[&str]; 8] = [
            &[],
            &["status"],
            &["reads", "reports"],
            &["a", "--namespace", "b"],
            &["status", "a", "b"],
            &["status", "a", "--once"],
            &["status", "a", "--", "true"],
            &["a", "--json"],
        ];
        for words in wrong {
            assert!(resolved(words).is_err(), "{words:?}");
        }
        assert!(resolved(&["status"]).expect_err("refused").contains("--namespace status"));
    }

    #[test]
    fn whether_it_yields_is_configured_and_a_flag_overrides_that() {
        let yields = |configured: bool, flags: &[&str]| {
            let line = ["elect", "x", "--leases", "sqlite:x.db"].iter().chain(flags);
            let Line { elect } = clap::Parser::parse_from(line);
            settings(Settings { yield_to_foreign: configured, ..Settings::default() }, &elect).yield_to_foreign
        };
        for configured in [true, false] {
            assert_eq!(yields(configured, &[]), configured);
            assert!(yields(configured, &["--yield-to-foreign"]) && yields(configured, &["--yield-to-foreign=true"]));
            assert!(!yields(configured, &["--yield-to-foreign=false", "--ttl", "3s"]));
        }
        assert!(resolved(&["status", "x", "--yield-to-foreign"]).is_err());
    }

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        elect: ElectArgs,
    }

    fn jitter(configured: Settings, flags: &[&str]) -> (Duration, Duration) {
        let line = ["elect", "x", "--leases", "sqlite:x.db"].iter().chain(flags);
        let Line { elect } = clap::Parser::parse_from(line);
        let settings = settings(configured, &elect);
        (settings.startup_jitter_min, settings.startup_jitter_max)
    }

    #[test]
    fn the_first_heartbeat_waits_only_where_that_was_set() {
        let (min, max) = (Duration::from_secs(2), Duration::from_secs(9));
        for flags in [&[][..], &["--ttl", "30s"]] {
            let set = Settings { startup_jitter_min: min, startup_jitter_max: max, ..Settings::default() };
            assert_eq!(jitter(set, flags), (min, max));
            assert_eq!(jitter(Settings::default(), flags), (Duration::ZERO, Duration::ZERO));
        }
    }
}
