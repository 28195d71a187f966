//! `convoke serve`: runs a coordinator from its configuration.
//!
//! It starts in the order in which failures are cheapest: configuration, access, the port, the store, the coordinator.
//! It prints its addresses when it is ready. On SIGTERM, SIGINT or a request to drain it is no longer ready, finishes
//! open requests, hands its runs over and exits with 0. A second signal ends it at once: acknowledged work does not
//! depend on a clean exit.

use std::path::PathBuf;

use anyhow::{Result, anyhow, bail};
use clap::Args;
use convoke::coordinator::{ShardSettings, ShardsState};
use convoke::{Coordinator, CoordinatorBuilder};
use convoke_core::{Invalid, NodeId};
use convoke_http::{Access, AccessOptions, ListenError, PublicPaths, recorder};
use tokio::net::TcpListener;

use crate::cli::{Usage, line, usage};
use crate::config::{self, Config, Flags, Load, Surroundings};
use crate::stop::Stop;
use crate::{demo, logs};

const VERSION: &str = env!("CARGO_PKG_VERSION");

#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "Examples:
  convoke serve
  convoke serve --store sqlite:/var/lib/convoke/jobs.db --http 127.0.0.1:8080
  convoke serve --demo --store memory:
  convoke serve --store memory: --shards tcp://0.0.0.0:5555

A flag takes precedence over the environment (CONVOKE_STORE__URL), the environment over the file, the file over the default.")]
pub struct ServeArgs {
    /// Configuration file [default: convoke.toml, if it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Name of this node [default: host name + random]
    #[arg(long, value_name = "ID")]
    node_id: Option<String>,
    /// Address of the HTTP API; with port 0 the system chooses one [default: 127.0.0.1:3000]
    #[arg(long, value_name = "HOST:PORT")]
    http: Option<String>,
    /// Store of jobs: sqlite:FILE, postgres://… or memory: [default: sqlite:convoke.db]
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Bus between nodes: postgres: (the store's), postgres://…, redis://… or memory: [default: postgres: if the store is
    /// in PostgreSQL, else memory:]
    #[arg(long, value_name = "URL")]
    bus: Option<String>,
    /// Prefix of every channel's name on the bus [default: convoke]
    #[arg(long, value_name = "PREFIX")]
    bus_prefix: Option<String>,
    /// URL of the leases that decide leadership [default: the store]
    #[arg(long, value_name = "URL")]
    leases: Option<String>,
    /// Address of the shard coordinator, or off [default: tcp://127.0.0.1:5555]
    #[arg(long, value_name = "tcp://HOST:PORT|off")]
    shards: Option<String>,
    /// Append the fenced decisions of this node to a file, for `convoke verify` [default: none]
    #[arg(long, value_name = "FILE")]
    history: Option<String>,
    /// Allow listening beyond loopback without tokens
    #[arg(long)]
    insecure: bool,
    /// Serve no pages for people, only the API
    #[arg(long)]
    no_dashboard: bool,
    /// Also start sample workers, schedules and jobs
    #[arg(long)]
    demo: bool,
    /// Print the effective configuration as TOML, secrets masked, and exit
    #[arg(long)]
    print_config: bool,
}

impl ServeArgs {
    fn flags(&self) -> Flags {
        let mut flags = Flags::default();
        flags.set("--node-id", "node.id", self.node_id.as_deref());
        flags.set("--http", "http.bind", self.http.as_deref());
        flags.set("--store", "store.url", self.store.as_deref());
        flags.set("--bus", "bus.url", self.bus.as_deref());
        flags.set("--bus-prefix", "bus.prefix", self.bus_prefix.as_deref());
        flags.set("--leases", "leases.url", self.leases.as_deref());
        flags.set("--shards", "shards.bind", self.shards.as_deref());
        flags.set("--history", "node.history", self.history.as_deref());
        flags.set("--insecure", "http.insecure", self.insecure.then_some(true));
        flags.set("--no-dashboard", "dashboard.enabled", self.no_dashboard.then_some(false));
        flags
    }
}

pub async fn run(args: ServeArgs) -> Result<()> {
    let load = Load {
        file: args.config.clone(),
        directory: PathBuf::from("."),
        variables: config::variables(),
        flags: args.flags(),
    };
    // An invalid value is a usage error, whatever its source.
    let mut config = load.config().map_err(|error| Usage(error.to_string()))?;
    if args.print_config {
        return Ok(line(config.to_toml()?.trim_end())?);
    }
    let surroundings = Surroundings::read(&load.variables, "coordinator").map_err(anyhow::Error::msg)?;
    // Chosen before the first log line, which carries it.
    let node = node_id(&config)?;
    config.node.id = Some(node.to_string());
    logs::start(&surroundings, &[("node", node.as_str())]);
    tracing::debug!(configuration = config.to_toml()?, "starting");
    // Before anything that takes time, so that a signal during the start is not lost.
    let mut stop = Stop::listen()?;
    count(&node, &surroundings);
    let builder = builder(&config, node, load.sets("shards.bind"))?;
    let coordinator = tokio::select! {
        started = builder.start() => started.map_err(|error| not_started(&config, error))?,
        () = stop.asked() => return Ok(()),
    };
    work(coordinator, args.demo, stop).await
}

/// Returns the coordinator that the configuration describes. `wants_shards`: the address of the shards was set
/// explicitly.
fn builder(config: &Config, node: NodeId, wants_shards: bool) -> Result<CoordinatorBuilder, Invalid> {
    let AccessOptions { tokens, public, hosts, insecure, session_ttl } = config.http.access()?;
    let builder = Coordinator::builder()
        .node_id(node.to_string())
        .http(&config.http.bind)
        .tokens(tokens)
        .public(public)
        .hosts(hosts)
        .insecure(insecure)
        .session_ttl(session_ttl)
        .base_path(&config.http.base_path)
        .dashboard(config.dashboard.clone())
        .settings(config.coordinator.clone());
    let builder = config.node.history.iter().fold(builder, |builder, file| builder.history(file));
    Ok(builder.shards(ShardSettings { required: wants_shards, ..config.shards.clone() }))
}

/// Sets the metric of this process before any other is recorded.
fn count(node: &NodeId, surroundings: &Surroundings) {
    recorder::shared();
    metrics::describe_gauge!("convoke_info", "Always 1; the labels name the version, the service and the node.");
    metrics::gauge!("convoke_info", "version" => VERSION, "service" => surroundings.name.clone(),
        "node" => node.to_string())
    .set(1.0);
}

async fn work(coordinator: Coordinator, with_demo: bool, mut stop: Stop) -> Result<()> {
    let demo = tokio::select! {
        () = coordinator.http_ended() => bail!("the HTTP server panicked"),
        () = stop.asked() => None,
        () = coordinator.drain_requested() => None,
        ready = coordinator.ready() => {
            ready.map_err(|why| {
                anyhow!("{why}: stop the process that listens there, set another address with --shards, or use --shards off")
            })?;
            announce(&coordinator);
            with_demo.then(|| demo::start(coordinator.node()))
        }
    };
    tokio::select! {
        () = coordinator.http_ended() => bail!("the HTTP server panicked"),
        () = stop.asked() => {}
        () = coordinator.drain_requested() => tracing::info!("drain requested"),
    }
    tracing::info!("stopping: runs are handed over, a second signal stops at once");
    let ending = async {
        if let Some(demo) = demo {
            demo.stop().await;
        }
        Ok(coordinator.drain().await?)
    };
    tokio::select! {
        ended = ending => ended,
        () = stop.asked_again() => {
            tracing::warn!("stopped by a second signal: runs may be left without an owner until the next leader finds them");
            logs::flush();
            std::process::exit(130)
        }
    }
}

/// An open port, and its access rules.
pub struct GuardedListener {
    pub listener: TcpListener,
    pub access: Access,
}

impl GuardedListener {
    /// Listens by the rules of `convoke serve`: beyond loopback it needs tokens or --insecure. `key` names the setting
    /// of the address.
    pub async fn bind(key: &str, bind: String, config: Config) -> Result<GuardedListener> {
        // All its pages have the same access, so none is public.
        let options = AccessOptions { public: PublicPaths::default(), ..config.http.access()? };
        let guarded = convoke_http::GuardedListener::bind(&bind, &options).await;
        let convoke_http::GuardedListener { listener, policy } = guarded.map_err(|error| refusal(key, error))?;
        Ok(GuardedListener { listener, access: policy.access })
    }
}

/// Returns why a coordinator did not start, with the keys and flags that fix it.
fn not_started(config: &Config, error: convoke::Error) -> anyhow::Error {
    match error {
        convoke::Error::Coordinator(error) => usage(error),
        convoke::Error::Listen(error) => {
            let of_shards = matches!(&error, ListenError::Unresolved { bind, .. } if *bind != config.http.bind);
            refusal(if of_shards { "shards.bind" } else { "http.bind" }, error)
        }
        error => error.into(),
    }
}

/// Returns why a test server did not start. `key` names the flag of its address.
pub fn not_listening(key: &str, error: convoke::Error) -> anyhow::Error {
    match error {
        convoke::Error::Coordinator(error) => usage(error),
        convoke::Error::Listen(error) => refusal(key, error),
        error => error.into(),
    }
}

/// Returns why a port was not opened. `key` names the setting of its address.
fn refusal(key: &str, error: ListenError) -> anyhow::Error {
    match error {
        ListenError::Unresolved { bind, source } => {
            anyhow::Error::new(source).context(format!("{key} {bind:?} does not resolve"))
        }
        ListenError::NoTokens { bind } => anyhow!(
            "refusing to listen on {bind} without tokens, because every client that reaches it would have full access. \
             Set tokens (CONVOKE_HTTP__TOKENS=\"admin:SECRET,worker:SECRET\", or in convoke.toml [[http.tokens]] with token \
             and role), listen on loopback (--http 127.0.0.1:3000), open probes and metrics only \
             (CONVOKE_HTTP__PUBLIC=health,metrics), or use --insecure"
        ),
        ListenError::InUse { bind } => {
            anyhow!("{bind} is in use by another process: stop it, or listen elsewhere with --http HOST:PORT")
        }
        error => error.into(),
    }
}

fn node_id(config: &Config) -> Result<NodeId> {
    let id = config.node.id.clone().unwrap_or_else(convoke::fresh_id);
    Ok(NodeId::new(id)?)
}

/// Prints the addresses to standard output, once, when the node is ready: the process that started this one may wait
/// for it.
fn announce(coordinator: &Coordinator) {
    let api = coordinator.address().map(|address| format!("http://{address}")).unwrap_or_default();
    let shards = match coordinator.shards() {
        None => "off".into(),
        Some(ShardsState::Listening(address)) => address,
        Some(ShardsState::Standby) => "standby: the node that leads listens".into(),
        Some(ShardsState::Refused(why)) => format!("not listening: {why}"),
    };
    let info = coordinator.info();
    let text = format!(
        "convoke {VERSION} is ready\n  api        {api}\n  docs       {api}/docs\n  dashboard  {api}/\n  \
         metrics    {api}/metrics\n  shards     {shards}\n  store      {}\n  bus        {}\n  leases     {}\n  \
         node       {}",
        info.store,
        info.bus,
        info.leases,
        coordinator.node_id(),
    );
    // Standard output may be closed, which must not stop the server.
    if let Err(error) = line(text) {
        tracing::debug!(%error, "addresses were not printed: standard output is closed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_to_listen_says_what_to_set() {
        let message = refusal("http.bind", ListenError::NoTokens { bind: "0.0.0.0:3000".into() }).to_string();
        for part in ["0.0.0.0:3000", "CONVOKE_HTTP__TOKENS=\"admin:SECRET", "[[http.tokens]]", "--insecure"] {
            assert!(message.contains(part), "{message}");
        }
    }

    #[tokio::test]
    async fn a_busy_port_is_said_to_be_busy() {
        let taken = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = taken.local_addr().expect("an address");
        let refused = GuardedListener::bind("--http", address.to_string(), Config::default()).await;
        let message = refused.err().expect("busy").to_string();
        assert!(message.starts_with(&format!("{address} is in use by another process")), "{message}");
    }

    #[test]
    fn a_node_without_a_name_gets_one_of_its_own() {
        let config = Config::default();
        let (first, second) = (node_id(&config).expect("a name"), node_id(&config).expect("a name"));
        assert_ne!(first, second);
    }
}
