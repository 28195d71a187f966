//! `convoke serve`: a coordinator from its configuration to its last answer.
//!
//! It starts in the order in which things can go wrong cheaply: configuration, access, the port, the store, the
//! coordinator; and says where everything is once it is ready. On SIGTERM, SIGINT or a request to drain it is no longer ready, answers what is
//! under way, gives back what it holds and ends with 0. A second signal ends it at once: nothing that was acknowledged
//! depends on a clean end.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use convoke::connect;
use convoke_core::NodeId;
use convoke_http::{self as http, Access, AppState, Info, Policy, PublicPaths, Shards, recorder};
use convoke_runtime::jobs::Coordinator;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::cli::{Usage, line, usage};
use crate::config::{self, Config, Flags, Load, Surroundings};
use crate::stop::Stop;
use crate::{demo, logs, shards};

const VERSION: &str = env!("CARGO_PKG_VERSION");

#[derive(Debug, Clone, Default, Args)]
#[command(after_help = "Examples:
  convoke serve
  convoke serve --store sqlite:/var/lib/convoke/jobs.db --http 127.0.0.1:8080
  convoke serve --demo --store memory:
  convoke serve --store memory: --shards tcp://0.0.0.0:5555

A flag beats the environment (CONVOKE_STORE__URL), the environment beats the file, the file beats the default.")]
pub struct ServeArgs {
    /// Configuration file [default: convoke.toml, where there is one]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Name of this node [default: the host's name and something random]
    #[arg(long, value_name = "ID")]
    node_id: Option<String>,
    /// Where to listen; port 0 takes a free one [default: 127.0.0.1:3000]
    #[arg(long, value_name = "HOST:PORT")]
    http: Option<String>,
    /// Where jobs are kept: sqlite:FILE, postgres://… or memory: [default: sqlite:convoke.db]
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// How nodes hear of each other: redis://… or memory: [default: memory:]
    #[arg(long, value_name = "URL")]
    bus: Option<String>,
    /// Before every channel's name [default: convoke]
    #[arg(long, value_name = "PREFIX")]
    bus_prefix: Option<String>,
    /// Where leadership is decided [default: the store]
    #[arg(long, value_name = "URL")]
    leases: Option<String>,
    /// Where the shard coordinator listens, or off [default: tcp://127.0.0.1:5555]
    #[arg(long, value_name = "tcp://HOST:PORT|off")]
    shards: Option<String>,
    /// Listen beyond loopback without tokens
    #[arg(long)]
    insecure: bool,
    /// Also start sample workers, schedules and a trickle of jobs
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
        flags.set("--insecure", "http.insecure", self.insecure.then_some(true));
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
    // A bad value is the caller's to mend, wherever it was set.
    let mut config = load.config().map_err(|error| Usage(error.to_string()))?;
    if args.print_config {
        return Ok(line(config.to_toml()?.trim_end())?);
    }
    let surroundings = Surroundings::read(&load.variables, "coordinator").map_err(anyhow::Error::msg)?;
    // Chosen before the first line is logged, which names it.
    let node = node_id(&config)?;
    config.node.id = Some(node.to_string());
    logs::start(&surroundings, &[("node", node.as_str())]);
    tracing::debug!(configuration = config.to_toml()?, "starting");
    // Before anything that takes time, so that a signal during the start is not lost.
    let mut stop = Stop::listen()?;
    let started = tokio::select! {
        started = Server::start(&config, &surroundings, load.sets("shards.bind")) => started?,
        () = stop.asked() => return Ok(()),
    };
    started.run(args.demo, stop).await
}

struct Server {
    listener: TcpListener,
    address: SocketAddr,
    coordinator: Coordinator,
    shards: Option<Shards>,
    access: Policy,
    info: Info,
    metrics: PrometheusHandle,
}

impl Server {
    async fn start(config: &Config, surroundings: &Surroundings, wants_shards: bool) -> Result<Server> {
        let addresses = resolve("http.bind", &config.http.bind).await?;
        let access = policy(config, &addresses)?;
        let listener = listen(&config.http.bind, &addresses).await?;
        let address = listener.local_addr()?;
        let node = node_id(config)?;
        let leases = config.leases.url.as_deref();
        let ports = connect::backends(connect::Addresses {
            store: &config.store.url,
            bus: &config.bus.url,
            bus_prefix: &config.bus.prefix,
            leases,
        })
        .await
        .map_err(usage)?;
        let metrics = recorder::install().context("metrics cannot be recorded")?;
        metrics::describe_gauge!("convoke_info", "What runs here: always 1, its labels say it.");
        metrics::gauge!("convoke_info", "version" => VERSION, "service" => surroundings.name.clone(),
            "node" => node.to_string())
        .set(1.0);
        let info = Info {
            version: VERSION.into(),
            store: connect::shown(&config.store.url),
            bus: connect::shown(&config.bus.url),
            leases: match leases {
                Some(url) => connect::shown(url),
                None if config.store.url == "memory:" => "the bus's".into(),
                None => "the store's".into(),
            },
        };
        let (shards, duty) = match config.shards.listens() {
            Some(bind) => {
                let (shards, duty) = shards::prepare(config, bind, wants_shards, &node, &ports).await?;
                (Some(shards), Some(duty))
            }
            None => (None, None),
        };
        let coordinator = Coordinator::start_with(node, ports, config.settings(), duty.into_iter().collect()).await?;
        Ok(Server { listener, address, coordinator, shards, access, info, metrics })
    }

    async fn run(self, with_demo: bool, mut stop: Stop) -> Result<()> {
        let Server { listener, address, coordinator, shards, access, info, metrics } = self;
        let closing = CancellationToken::new();
        let _replying = shards
            .clone()
            .map(|shards| AbortOnDropHandle::new(tokio::spawn(async move { shards.relay.reply_to_nodes().await })));
        let state = AppState::new(coordinator.clone(), shards.clone(), access, info.clone(), metrics);
        let mut serving = tokio::spawn(http::serve(listener, state, closing.clone().cancelled_owned()));
        let demo = tokio::select! {
            ended = &mut serving => return ended.context("the HTTP server panicked"),
            () = stop.asked() => None,
            () = coordinator.drain_requested() => None,
            listening = shards::ready(shards.as_ref(), &coordinator) => {
                announce(address, &info, &coordinator, &listening?)?;
                with_demo.then(|| demo::start(&coordinator))
            }
        };
        tokio::select! {
            ended = &mut serving => return ended.context("the HTTP server panicked"),
            () = stop.asked() => {}
            () = coordinator.drain_requested() => tracing::info!("asked to drain"),
        }
        tracing::info!("stopping: runs are handed over, a second signal stops at once");
        let ending = async {
            if let Some(demo) = demo {
                demo.stop().await;
            }
            // Workers go on reporting to this node until its runs have another owner.
            let clean = coordinator.hand_over().await;
            closing.cancel();
            serving.await.context("the HTTP server panicked")?;
            coordinator.stop().await;
            if !clean {
                bail!(
                    "some runs found no other owner; they are marked as orphans, and the next leader will see to them"
                );
            }
            Ok(())
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
}

/// A port that is open, and who may use it.
pub struct GuardedListener {
    pub listener: TcpListener,
    pub access: Access,
}

impl GuardedListener {
    /// Listens by the rules of `convoke serve`: beyond loopback it takes tokens, or consent. `key` is where the address was set.
    pub async fn bind(key: &str, bind: String, mut config: Config) -> Result<GuardedListener> {
        config.http.bind = bind;
        let addresses = resolve(key, &config.http.bind).await?;
        let access = access(&config, &addresses)?;
        let listener = listen(&config.http.bind, &addresses).await?;
        Ok(GuardedListener { listener, access })
    }
}

/// Every address that the name stands for, so that access is decided by where it will be heard.
pub async fn resolve(key: &str, bind: &str) -> Result<Vec<SocketAddr>> {
    let found = tokio::net::lookup_host(bind).await;
    let addresses: Vec<_> = found.with_context(|| format!("{key} {bind:?} does not resolve"))?.collect();
    if addresses.is_empty() {
        bail!("{key} {bind:?} does not resolve to an address");
    }
    Ok(addresses)
}

async fn listen(bind: &str, addresses: &[SocketAddr]) -> Result<TcpListener> {
    TcpListener::bind(addresses).await.map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            anyhow::anyhow!("{bind} is in use by another process: stop it, or listen elsewhere with --http HOST:PORT")
        }
        _ => anyhow::anyhow!("cannot listen on {bind}: {error}"),
    })
}

/// Who may do what, beside the paths that are open to all.
fn policy(config: &Config, addresses: &[SocketAddr]) -> Result<Policy> {
    let public: PublicPaths = config.http.public.parse().map_err(anyhow::Error::msg)?;
    // What is not public is then closed to other machines.
    let access = match access(config, addresses) {
        Err(_) if !public.is_none() => Access::Loopback,
        access => access?,
    };
    Ok(Policy { access, public, hosts: config.http.hosts.clone() })
}

/// Loopback is open, elsewhere tokens are wanted, unless the operator says otherwise.
fn access(config: &Config, addresses: &[SocketAddr]) -> Result<Access> {
    if !config.http.tokens.is_empty() {
        let tokens = config.http.tokens.iter().map(|entry| (entry.token.as_str(), entry.role));
        return Ok(Access::tokens(tokens));
    }
    if config.http.insecure {
        return Ok(Access::Insecure);
    }
    if addresses.iter().all(|address| address.ip().is_loopback()) {
        return Ok(Access::Loopback);
    }
    bail!(
        "refusing to listen on {} without tokens, because whoever can reach it could do everything. \
         Set tokens (CONVOKE_HTTP__TOKENS=\"admin:SECRET,worker:SECRET\", or in convoke.toml [[http.tokens]] with token \
         and role), listen on loopback (--http 127.0.0.1:3000), open probes and metrics only \
         (CONVOKE_HTTP__PUBLIC=health,metrics), or say --insecure",
        config.http.bind
    )
}

fn node_id(config: &Config) -> Result<NodeId> {
    let id = config.node.id.clone().unwrap_or_else(convoke::fresh_id);
    Ok(NodeId::new(id)?)
}

/// Says where everything is. Standard output, once, when all of it works: whoever starts us may wait for it.
fn announce(address: SocketAddr, info: &Info, coordinator: &Coordinator, shards: &str) -> Result<()> {
    let api = format!("http://{address}");
    let text = format!(
        "convoke {VERSION} is ready\n  api        {api}\n  docs       {api}/docs\n  dashboard  {api}/\n  \
         metrics    {api}/metrics\n  shards     {shards}\n  store      {}\n  bus        {}\n  leases     {}\n  \
         node       {}",
        info.store,
        info.bus,
        info.leases,
        coordinator.node_id(),
    );
    // Nobody may be reading; that is no reason not to serve.
    if let Err(error) = line(text) {
        tracing::debug!(%error, "addresses were not printed: standard output is closed");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listening(bind: &str, change: impl FnOnce(&mut Config)) -> Result<Access> {
        let mut config = Config::default();
        config.http.bind = bind.into();
        change(&mut config);
        access(&config, &[bind.parse().expect("an address")])
    }

    #[test]
    fn loopback_is_open_and_elsewhere_needs_tokens_or_consent() {
        assert!(matches!(listening("127.0.0.1:0", |_| {}), Ok(Access::Loopback)));
        assert!(matches!(listening("[::1]:0", |_| {}), Ok(Access::Loopback)));
        assert!(matches!(listening("0.0.0.0:0", |config| config.http.insecure = true), Ok(Access::Insecure)));
        let token = crate::config::Token { token: "x".into(), role: http::Role::Admin };
        let access = listening("0.0.0.0:0", |config| config.http.tokens.push(token.clone()));
        assert!(matches!(access, Ok(Access::Tokens(_))));
        let access = listening("127.0.0.1:0", |config| config.http.tokens.push(token));
        assert!(matches!(access, Ok(Access::Tokens(_))));
    }

    #[test]
    fn with_public_paths_no_token_is_wanted_and_the_rest_is_closed_to_others() {
        let mut config = Config::default();
        config.http.public = "health,metrics".into();
        config.http.hosts = vec!["jobs".into()];
        let policy = policy(&config, &["0.0.0.0:3000".parse().expect("an address")]).expect("allowed");
        assert!(matches!(policy.access, Access::Loopback));
        assert!(policy.public.health && policy.public.metrics);
        assert_eq!(policy.hosts, ["jobs"]);
    }

    #[test]
    fn a_refusal_to_listen_says_what_to_set() {
        let said = listening("0.0.0.0:3000", |_| {}).expect_err("refused").to_string();
        for part in ["0.0.0.0:3000", "CONVOKE_HTTP__TOKENS=\"admin:SECRET", "[[http.tokens]]", "--insecure"] {
            assert!(said.contains(part), "{said}");
        }
    }

    #[tokio::test]
    async fn a_busy_port_is_said_to_be_busy() {
        let taken = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = taken.local_addr().expect("an address");
        let said = listen(&address.to_string(), &[address]).await.expect_err("busy").to_string();
        assert!(said.starts_with(&format!("{address} is in use by another process")), "{said}");
    }

    #[test]
    fn a_node_without_a_name_gets_one_of_its_own() {
        let config = Config::default();
        let (first, second) = (node_id(&config).expect("a name"), node_id(&config).expect("a name"));
        assert_ne!(first, second);
    }
}
