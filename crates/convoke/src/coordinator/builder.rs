//! The options of a coordinator, and its start.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use convoke_core::{Invalid, NodeId};
use convoke_http::{
    AccessOptions, AppState, DashboardSettings, GuardedListener, Info, PublicPaths, Shards, Site, Token, host_and_port,
    recorder,
};
use convoke_runtime::decisions::Recorder;
use convoke_runtime::jobs::{self, Ports, Settings};
use convoke_runtime::mesh::{Meshes, OpeningMesh};
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

#[cfg(feature = "zmq")]
use super::ShardSettings;
#[cfg(feature = "zmq")]
use super::shards::{self, check_shards};
use super::{Coordinator, Server, history};
use crate::connect;
use crate::error::Result;
use crate::identity::{fresh_id, host_name};
use crate::mesh::{MeshAddress, MeshSettings};

/// Options of a coordinator that has not started. [`start`](Self::start) starts it.
#[must_use = "a coordinator does nothing until it is started"]
#[derive(Clone, Default)]
pub struct CoordinatorBuilder {
    node_id: Option<String>,
    store: Option<String>,
    bus: Option<String>,
    bus_prefix: Option<String>,
    leases: Option<String>,
    cache: Option<String>,
    history: Option<PathBuf>,
    http: Option<String>,
    access: AccessOptions,
    site: Site,
    #[cfg(feature = "zmq")]
    shards: Option<ShardSettings>,
    settings: Settings,
}

impl CoordinatorBuilder {
    /// Sets the node's name, which must be unique among the live nodes of the cluster. Default: the host's name and a
    /// random number.
    pub fn node_id(mut self, id: impl Into<String>) -> Self {
        self.node_id = Some(id.into());
        self
    }

    /// Sets the store of jobs: `sqlite:FILE`, `postgres://…` or `memory:`. Default: `sqlite:convoke.db`.
    pub fn store(mut self, url: impl Into<String>) -> Self {
        self.store = Some(url.into());
        self
    }

    /// Sets the bus between nodes: `postgres:` (the database of the store), `postgres://…`, `redis://…`, or `memory:` for
    /// a single node. Default: `postgres:` with a store in PostgreSQL, else `memory:`.
    pub fn bus(mut self, url: impl Into<String>) -> Self {
        self.bus = Some(url.into());
        self
    }

    /// Sets the prefix of every channel's name on the bus. Default: `convoke`.
    pub fn bus_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.bus_prefix = Some(prefix.into());
        self
    }

    /// Sets the URL of the leases that decide leadership. Default: the store, or the bus if the store is `memory:`.
    pub fn leases(mut self, url: impl Into<String>) -> Self {
        self.leases = Some(url.into());
        self
    }

    /// Sets the cache for data that nodes show of finished jobs, workers and nodes: `memory:`, one for each node, or
    /// `redis://…`, shared. Default: `memory:`.
    pub fn cache(mut self, url: impl Into<String>) -> Self {
        self.cache = Some(url.into());
        self
    }

    /// Appends the node's fenced decisions to this file, one line of JSON each, for `convoke verify`. Each node needs a file
    /// of its own. Default: none.
    pub fn history(mut self, file: impl Into<PathBuf>) -> Self {
        self.history = Some(file.into());
        self
    }

    /// Serves the HTTP API on a port of the node's own, as `host:port`; with port 0 the system chooses a free port.
    /// Default: none.
    ///
    /// On loopback, every user of the machine has full access. Any other address needs [`tokens`](Self::tokens),
    /// [`public`](Self::public) paths or [`insecure`](Self::insecure).
    pub fn http(mut self, bind: impl Into<String>) -> Self {
        self.http = Some(bind.into());
        self
    }

    /// Sets the tokens that requests must carry, each as `(token, role)` or as a [`Token`] with a name for the audit. They
    /// also apply to [`Coordinator::router`].
    pub fn tokens<T: Into<Token>>(mut self, tokens: impl IntoIterator<Item = T>) -> Self {
        self.access.tokens = tokens.into_iter().map(Into::into).collect();
        self
    }

    /// Sets how long a session of a browser lasts. Default: 12 hours.
    pub fn session_ttl(mut self, ttl: Duration) -> Self {
        self.access.session_ttl = ttl;
        self
    }

    /// Sets the paths that are served without a token.
    pub fn public(mut self, paths: PublicPaths) -> Self {
        self.access.public = paths;
        self
    }

    /// Sets the names that a node without tokens accepts in `Host`, in addition to addresses and `localhost`.
    pub fn hosts<T: Into<String>>(mut self, names: impl IntoIterator<Item = T>) -> Self {
        self.access.hosts = names.into_iter().map(Into::into).collect();
        self
    }

    /// Sets whether every client that can reach the HTTP API has full access. For trusted networks, and for
    /// applications that check access before requests reach [`Coordinator::router`].
    pub fn insecure(mut self, insecure: bool) -> Self {
        self.access.insecure = insecure;
        self
    }

    /// Sets the path under which a proxy serves this node, such as `/convoke`: links and redirects of pages begin with it.
    /// Default: none, or the path under which [`Coordinator::router`] is nested.
    pub fn base_path(mut self, path: impl Into<String>) -> Self {
        self.site.base_path = path.into();
        self
    }

    /// Sets the name and colour of the dashboard's pages, and whether they are served. Default: they are.
    pub fn dashboard(mut self, settings: DashboardSettings) -> Self {
        self.site.dashboard = settings;
        self
    }

    /// Coordinates shards at this address, such as `tcp://127.0.0.1:5555`, while the node leads. Default: none.
    #[cfg(feature = "zmq")]
    pub fn shards(mut self, settings: impl Into<ShardSettings>) -> Self {
        self.shards = Some(settings.into());
        self
    }

    /// Sets all other options: the sections `store`, `bus`, `leases`, `cluster`, `channels`, `cache`, `retry`,
    /// `rate_limit`, `election`, `worker` and `retention` of the configuration. An address or prefix that is set by its
    /// own method takes precedence, in either order of the calls.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Opens the port, connects to the store and the bus, joins the cluster and starts the node's tasks.
    /// [`Coordinator::ready`] waits until the node accepts work.
    ///
    /// Fails with the name of the key if a value is wrong ([`Error::Coordinator`](crate::Error::Coordinator)), if a
    /// backend cannot be reached ([`Unreachable`](crate::Unreachable)), and if the node may not or cannot listen
    /// ([`Error::Listen`](crate::Error::Listen)). After a failure nothing runs.
    ///
    /// Metrics for `/metrics` are recorded by a recorder of the process, which the first coordinator installs. If the
    /// application has installed its own recorder before, the metrics go there.
    pub async fn start(mut self) -> Result<Coordinator> {
        self.set_addresses();
        let id = self.check()?;
        // The checks that fail cheaply come first.
        let (listener, policy) = match &self.http {
            Some(bind) => {
                let GuardedListener { listener, policy } = GuardedListener::bind(bind, &self.access).await?;
                (Some(listener), policy)
            }
            None => (None, self.access.policy(&[]).unwrap_or_else(|| convoke_http::Access::Loopback.into())),
        };
        let address = listener.as_ref().map(|listener| listener.local_addr()).transpose()?;
        let history = self.history.as_deref().map(history::open).transpose()?;
        let mut ports = connect::backends(self.addresses()).await?;
        let recorder = history.map(|file| history::record(file, &id, &mut ports, &self.settings.retention));
        // Metrics that are recorded before there is a recorder are lost.
        let metrics = recorder::shared();
        let (shards, duties) = self.shard_duty(&id, &ports, recorder.as_ref()).await?;
        let node = jobs::Coordinator::start_with(id, ports, self.settings.clone(), duties).await?;
        let mut background = Vec::new();
        if listener.is_none() {
            // A server does this itself.
            background.push(AbortOnDropHandle::new(tokio::spawn(recorder::upkeep(metrics.clone()))));
        }
        if let Some(shards) = shards.clone() {
            let replying = async move { shards.relay.reply_to_nodes().await };
            background.push(AbortOnDropHandle::new(tokio::spawn(replying)));
        }
        let (meshes, info) = (self.meshes(), self.info());
        let state = AppState::with_meshes(node.clone(), shards, meshes, policy, info, self.site, metrics);
        let server = listener.zip(address).map(|(listener, address)| {
            let (closing, ended) = (CancellationToken::new(), CancellationToken::new());
            let serving = convoke_http::serve(listener, state.clone(), closing.clone().cancelled_owned());
            let over = ended.clone().drop_guard();
            tokio::spawn(async move {
                let _over = over;
                serving.await;
            });
            Server { address, closing, ended }
        });
        Ok(Coordinator { node, state, server, recorder, drained: OnceCell::new(), _background: background })
    }

    /// Copies the addresses that were set by their own methods into the settings.
    fn set_addresses(&mut self) {
        let Settings { store, bus, leases, cache, .. } = &mut self.settings;
        for (given, url) in [(&self.store, &mut store.url), (&self.cache, &mut cache.url)] {
            if let Some(given) = given {
                *url = given.into();
            }
        }
        for (given, url) in [(&self.bus, &mut bus.url), (&self.leases, &mut leases.url)] {
            if let Some(given) = given {
                *url = Some(given.into());
            }
        }
        if let Some(prefix) = &self.bus_prefix {
            bus.prefix.clone_from(prefix);
        }
    }

    /// Rejects settings that cannot work, with the name of the key.
    fn check(&self) -> Result<NodeId, Invalid> {
        let id = self.node_id.clone().unwrap_or_else(fresh_id);
        let id = NodeId::new(id).map_err(|invalid| Invalid::new("node.id", invalid.message))?;
        if let Some(bind) = &self.http {
            host_and_port(bind).map_err(|message| Invalid::new("http.bind", message))?;
        }
        self.access.check()?;
        self.site.check()?;
        #[cfg(feature = "zmq")]
        self.shards.as_ref().map_or(Ok(()), check_shards)?;
        self.settings.check()?;
        Ok(id)
    }

    fn addresses(&self) -> connect::Addresses<'_> {
        let Settings { store, bus, leases, cache, retry, .. } = &self.settings;
        connect::Addresses {
            store: &store.url,
            bus: connect::bus_of(bus.url.as_deref(), &store.url),
            bus_prefix: &bus.prefix,
            leases: leases.url.as_deref(),
            cache: &cache.url,
            defaults: *retry,
        }
    }

    /// Returns the meshes of the configured Redis; without one, those of the bus if it is a Redis.
    fn meshes(&self) -> Option<Meshes> {
        let bus = Some(self.addresses().bus).filter(|bus| connect::is_bus(bus));
        let url = self.site.dashboard.mesh.as_deref().or(bus)?;
        let address = MeshAddress::with_env(url);
        let open = move |mesh: String| -> OpeningMesh {
            let address = address.clone();
            Box::pin(async move { connect::mesh_link(&address, &mesh).await })
        };
        let names = self.site.dashboard.meshes.clone();
        Some(Meshes::new(connect::shown(url), names, host_name(), MeshSettings::default(), Box::new(open)))
    }

    fn info(&self) -> Info {
        let connect::Addresses { store, bus, leases, .. } = self.addresses();
        Info {
            version: env!("CARGO_PKG_VERSION").into(),
            store: connect::shown(store),
            bus: connect::shown(bus),
            leases: match leases {
                Some(url) => connect::shown(url),
                None if connect::is_in_memory(store) => "the bus's".into(),
                None => "the store's".into(),
            },
        }
    }

    #[cfg(feature = "zmq")]
    async fn shard_duty(
        &self,
        id: &NodeId,
        ports: &Ports,
        recorder: Option<&Arc<Recorder>>,
    ) -> Result<(Option<Shards>, Vec<jobs::Duty>)> {
        let Some(options) = self.shards.as_ref().filter(|shards| shards.is_on()) else { return Ok((None, Vec::new())) };
        let (shards, duty) = shards::prepare(options, self.addresses(), id, ports, recorder).await?;
        Ok((Some(shards), vec![duty]))
    }

    #[cfg(not(feature = "zmq"))]
    async fn shard_duty(
        &self,
        _: &NodeId,
        _: &Ports,
        _: Option<&Arc<Recorder>>,
    ) -> Result<(Option<Shards>, Vec<jobs::Duty>)> {
        Ok((None, Vec::new()))
    }
}
