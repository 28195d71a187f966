//! `convoke elect`: any command as a singleton that is always somewhere.
//!
//! It is started on as many machines as one likes. One of them leads and runs the command; where it dies, stops or loses sight
//! of the backend, its command is gone before another's begins. A command that was frozen together with all around it (a
//! suspended machine) cannot be stopped in time by anybody: what it writes is guarded by `CONVOKE_EPOCH`.

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
use lease_deadline::BEAT_PART;
use port::Port;
use signals::Signals;

const FAILED: u8 = 1;

#[derive(Debug, Args)]
pub struct ElectArgs {
    /// Namespace to contend in: those with the same name elect one leader. With status, members or metrics before it: look, and do not contend
    #[arg(value_name = "NAMESPACE", num_args = 1..=2, required_unless_present = "named")]
    words: Vec<String>,
    /// The namespace, if it is called status, members or metrics itself
    #[arg(long = "namespace", value_name = "NAMESPACE")]
    named: Option<String>,
    #[arg(skip)]
    namespace: String,
    /// Where it is decided: redis://…, postgres://…, s3://bucket/prefix, sqlite:PATH for the processes of one machine
    #[arg(long, value_name = "URL", env = "CONVOKE_LEASES__URL", hide_env_values = true)]
    leases: String,
    /// Unlike that of any other process that contends [default: host name + random]
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// How long the lead lasts without a renewal: so long nobody leads after a crash [default: election.lease_timeout, 15s]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    ttl: Option<Duration>,
    /// Who takes a vacant place: first-come or lowest-id
    #[arg(long, value_name = "POLICY", default_value_t = Policy::FirstCome)]
    policy: Policy,
    /// Leave the lead to members of s3db.js while any are in the namespace, on S3 [default: election.yield_to_foreign, true]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    yield_to_foreign: Option<bool>,
    /// Stop when the first term ends
    #[arg(long)]
    once: bool,
    /// From SIGTERM to SIGKILL when asked to stop; when the lead is lost, a fifth of --ttl at most
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, default_value = "10s")]
    grace: Duration,
    /// Before the names of keys, where the leases are a Redis
    #[arg(long, value_name = "PREFIX", default_value = convoke::connect::BUS_PREFIX)]
    prefix: String,
    /// Serve /health, /metrics and /v1/election here while contending
    #[arg(long, value_name = "HOST:PORT")]
    http: Option<String>,
    /// Serve them beyond loopback without tokens
    #[arg(long, requires = "http")]
    insecure: bool,
    /// With status, members or metrics: print JSON
    #[arg(long)]
    json: bool,
    /// With status, members or metrics: look again and again until interrupted
    #[arg(long)]
    watch: bool,
    /// What to run while leading; without one, a line of JSON is printed per change
    #[arg(last = true)]
    command: Vec<OsString>,
}

/// What `--help` says in the end.
pub const HELP: &str = "COMMAND runs only while this process leads, with CONVOKE_EPOCH (the term's number, rising) and
CONVOKE_NAMESPACE in its environment and nothing on its standard input. Where the lead is lost it gets SIGTERM, then SIGKILL,
with all that it started, before another can lead; then this process contends again, or ends with 1 where --once was given.
Where this process dies, even by SIGKILL, COMMAND dies too.

When COMMAND ends by itself, the lead is given up and this process ends with its exit code (128 + N where signal N killed
it). SIGTERM, SIGINT and SIGQUIT are passed on and end both, with 0 where COMMAND died of the signal, else with its exit code;
SIGHUP, SIGUSR1 and SIGUSR2 are passed on, and mean nothing to a process that waits. Without a COMMAND, SIGHUP ends it too.

`convoke elect status NAMESPACE` shows leader, epoch, lease, members and what the leader publishes of itself; `members` and
`metrics` show those. They never contend, and end with 0 if somebody leads (there are members, there are figures), else with 1.
A namespace called status, members or metrics is named by --namespace.

Examples:
  convoke elect reports --leases redis://localhost -- ./make-reports --forever
  convoke elect cron --leases postgres://localhost/app --ttl 5s -- cron -f
  convoke elect production --leases sqlite:/var/lib/app/leases.db
  convoke elect status reports --leases redis://localhost --json";

impl ElectArgs {
    /// Finds out what is meant: a namespace to contend in, or one to look at.
    fn resolve(&mut self) -> Result<Option<View>, Usage> {
        let names = View::NAMES.join(", ");
        let (view, namespace) = match (self.words.as_slice(), self.named.take()) {
            ([], Some(named)) => (None, named),
            ([word], None) if View::named(word).is_none() => (None, word.clone()),
            ([word], Some(named)) if View::named(word).is_some() => (View::named(word), named),
            ([word, namespace], None) if View::named(word).is_some() => (View::named(word), namespace.clone()),
            ([word], None) => {
                return Err(Usage(format!(
                    "expected a NAMESPACE after {word}: `convoke elect {word} NAMESPACE`. To contend in a namespace of that name say \
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

    fn refuse_flags_of_the_other(&self, looks: bool) -> Result<(), Usage> {
        let contending = [
            ("--id", self.id.is_some()),
            ("--ttl", self.ttl.is_some()),
            ("--yield-to-foreign", self.yield_to_foreign.is_some()),
            ("--once", self.once),
            ("--http", self.http.is_some()),
            ("a COMMAND", !self.command.is_empty()),
        ];
        let looking = [("--json", self.json), ("--watch", self.watch)];
        let wrong = if looks { contending.as_slice() } else { looking.as_slice() };
        match wrong.iter().find(|(_, is_given)| *is_given) {
            Some((flag, _)) if looks => {
                Err(Usage(format!("{flag} is for contending; status, members and metrics only look")))
            }
            Some((flag, _)) => Err(Usage(format!("{flag} is for status, members and metrics"))),
            None => Ok(()),
        }
    }
}

pub async fn run(mut args: ElectArgs) -> Result<ExitCode> {
    let view = args.resolve()?;
    if args.leases.starts_with("memory") {
        let message = "--leases: expected redis://…, postgres://…, s3://… or sqlite:PATH; nobody else sees a memory:";
        return Err(Usage(message.into()).into());
    }
    if let Some(view) = view {
        return inspect::run(view, &args).await;
    }
    // Chosen here, so that every line of the log names it.
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
    // What was configured was checked with the rest of it.
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

/// An elector can do with few heartbeats; a command is told to end before its lease is over, and needs one by then.
fn refuse_a_slow_heart(settings: &Settings) -> Result<(), Usage> {
    let longest = settings.heartbeat_interval.saturating_add(settings.heartbeat_jitter);
    let allowed = settings.lease_timeout / BEAT_PART;
    if longest <= allowed {
        return Ok(());
    }
    Err(Usage(format!(
        "election.heartbeat_interval: expected at most {} with election.heartbeat_jitter, half of election.lease_timeout, so \
         that a command is not told to end before the lease is renewed; got {}",
        duration::format(allowed),
        duration::format(longest)
    )))
}

/// As configured; `--ttl` sets the times that follow from it.
fn settings(configured: Settings, args: &ElectArgs) -> Settings {
    let (startup_jitter_min, startup_jitter_max) = startup_jitter(&configured);
    let yield_to_foreign = args.yield_to_foreign.unwrap_or(configured.yield_to_foreign);
    let mut settings = args.ttl.map_or(configured.clone(), |ttl| configured.with_ttl(ttl));
    // An outage that is over must not cost more than a failover does.
    let reset_timeout = &mut settings.circuit_breaker.reset_timeout;
    *reset_timeout = settings.lease_timeout.min(*reset_timeout);
    Settings { policy: args.policy, startup_jitter_min, startup_jitter_max, yield_to_foreign, ..settings }
}

/// None by default: these are a few processes that somebody waits for. Who has a fleet that is deployed at once says so.
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
        info!(epoch = term.epoch().0, "leading: the command is started");
        let outcome = run_term(&term, command, signals, &mut tree).await?;
        info!(epoch = term.epoch().0, outcome = name(outcome), exit_code = exit_code(outcome), "the command has ended");
        match outcome {
            Outcome::Ended(ending) => return Ok(ending.exit_code()),
            Outcome::Stopped(Ending::Signal(by)) if is_request(by) => return Ok(0),
            Outcome::Stopped(ending) => return Ok(ending.exit_code()),
            Outcome::Lost if once => return Ok(FAILED),
            // A lease that was saved at the last moment is of no use to a command that has ended.
            Outcome::Lost => elector.resign().await,
        }
    }
}

/// How a command ended, for the log.
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

/// Prints what changes, until asked to stop or, with `once`, until the first term of our own has ended.
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
        // The end of it is told too.
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
            &["look", "reports"],
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
