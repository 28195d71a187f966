//! The one connection by which a process receives notifications.
//!
//! All of a cluster have one name, and every process receives all of them; listeners are found by the names of topics
//! and queues inside. So a subscription costs nothing at the server. When the connection breaks, it is replaced, and
//! then each listener is notified that it may have missed messages: it must read the state again.
//!
//! The connection is checked every few seconds, by a query that finds queues with waiting entries whose bells were
//! lost. It costs the same for one queue as for many.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use convoke_core::{Error, Result};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_postgres::Client;
use tracing::debug;

use super::wire::{Arrival, Assembly, Record};
use crate::postgres::failure;
use crate::postgres::server::{Kind, Server, patiently};
use crate::postgres::url::quote;
use crate::statement::sql;

/// How often the connection is checked, and queues without bells are read.
const READ_INTERVAL: Duration = Duration::from_secs(5);
/// A reply to the check that takes longer shows that the connection is lost.
const READ_PATIENCE: Duration = Duration::from_secs(4);
/// After this many reads, readers of many queues read all of them.
const READS_PER_SWEEP: u32 = 12;
/// How long a new subscription waits for the connection.
const CONNECTION_WAIT: Duration = Duration::from_secs(2);
const RETRY_PAUSE_MS: std::ops::Range<u64> = 50..500;
/// A process that stays connected and does not read, because it is frozen, would keep the notifications of the whole
/// server from being discarded. The server closes the connection of such a process after this time.
const UNREAD_MAX: &str = "set tcp_user_timeout = '60s'";

/// All methods are called while the hub is locked: they must be quick, and must not call the hub.
pub(super) trait Listener: Send + Sync {
    fn on_message(&self, _topic: &Arc<str>, _body: Bytes) {}
    /// The queue has new entries.
    fn on_bell(&self, _queue: &str) {}
    /// Messages or bells may have been lost.
    fn missed(&self);
}

/// The topics or the queue of a listener.
pub(super) enum Interest {
    Topics(Vec<Arc<str>>),
    Queue(Arc<str>),
    /// The bells of all queues.
    Bells,
}

type Listeners = HashMap<Arc<str>, Vec<Arc<dyn Listener>>>;

#[derive(Default)]
struct Registry {
    topics: Listeners,
    queues: Listeners,
    bells: Vec<Arc<dyn Listener>>,
}

/// Clones are the same hub.
#[derive(Clone)]
pub(super) struct Hub {
    shared: Arc<Shared>,
    _task: Arc<AbortOnDrop>,
}

struct Shared {
    registry: Mutex<Registry>,
    assembly: Mutex<Assembly>,
    is_connected: watch::Sender<bool>,
    /// The present connection, or the last one.
    client: Mutex<Option<Arc<Client>>>,
    /// How often it has connected: after a reconnection the server may have lost all queues.
    connections: AtomicU64,
}

struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Keeps its listener registered until it is dropped.
pub(super) struct Listening {
    shared: Arc<Shared>,
    interest: Interest,
    listener: Arc<dyn Listener>,
}

impl Hub {
    pub(super) async fn open(server: Server, channel: String) -> Result<Self> {
        let shared = Arc::new(Shared {
            registry: Mutex::default(),
            assembly: Mutex::default(),
            is_connected: watch::Sender::new(false),
            client: Mutex::default(),
            connections: AtomicU64::new(0),
        });
        let first = connect(&server, &shared, &channel).await.map_err(|failure| failure.into_error("bus"))?;
        let task = tokio::spawn(serve_for_ever(server, shared.clone(), channel, first));
        Ok(Hub { shared, _task: Arc::new(AbortOnDrop(task)) })
    }

    /// Registers a listener. It receives what is sent from now on, or is notified that it missed something.
    pub(super) fn listen(&self, interest: Interest, listener: Arc<dyn Listener>) -> Listening {
        let mut registry = self.shared.registry.lock();
        match &interest {
            Interest::Topics(topics) => {
                topics
                    .iter()
                    .for_each(|topic| registry.topics.entry(topic.clone()).or_default().push(listener.clone()));
            }
            Interest::Queue(queue) => registry.queues.entry(queue.clone()).or_default().push(listener.clone()),
            Interest::Bells => registry.bells.push(listener.clone()),
        }
        drop(registry);
        Listening { shared: self.shared.clone(), interest, listener }
    }

    /// Waits for the connection, for a short time.
    pub(super) async fn connected(&self) -> Result<()> {
        let mut is_connected = self.shared.is_connected.subscribe();
        let connected = is_connected.wait_for(|is_connected| *is_connected);
        match tokio::time::timeout(CONNECTION_WAIT, connected).await {
            Ok(Ok(_)) => Ok(()),
            _ => Err(Error::unavailable("bus", "no connection to PostgreSQL")),
        }
    }

    /// Waits until all that was sent before has been received. PostgreSQL sends notifications before the reply to a
    /// query. If the connection is lost meanwhile, listeners are notified that they may have missed messages.
    pub(super) async fn receive_earlier(&self) {
        let client = self.shared.client.lock().clone();
        if let Some(client) = client
            && let Err(error) = client.batch_execute("select 1").await
        {
            debug!(error = failure::in_words(&error), "waiting for earlier notifications failed");
        }
    }

    /// Returns the number of the present connection, or of the last one.
    pub(super) fn connection(&self) -> u64 {
        self.shared.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let mut registry = self.shared.registry.lock();
        let Registry { topics, queues, bells } = &mut *registry;
        match &self.interest {
            Interest::Topics(names) => names.iter().for_each(|name| forget(topics, name, &self.listener)),
            Interest::Queue(name) => forget(queues, name, &self.listener),
            Interest::Bells => bells.retain(|other| !Arc::ptr_eq(other, &self.listener)),
        }
    }
}

fn forget(listeners: &mut Listeners, name: &str, listener: &Arc<dyn Listener>) {
    let Some(present) = listeners.get_mut(name) else { return };
    present.retain(|other| !Arc::ptr_eq(other, listener));
    if present.is_empty() {
        listeners.remove(name);
    }
}

impl Registry {
    fn on_message(&self, topic: &str, body: Bytes) {
        let Some((topic, present)) = self.topics.get_key_value(topic) else { return };
        let Some((last, others)) = present.split_last() else { return };
        others.iter().for_each(|listener| listener.on_message(topic, body.clone()));
        last.on_message(topic, body);
    }

    fn on_bell(&self, queue: &str) {
        let present = self.queues.get(queue).into_iter().flatten();
        present.chain(&self.bells).for_each(|listener| listener.on_bell(queue));
    }
}

impl Shared {
    fn receive(&self, notification: &str) {
        let arrival = self.assembly.lock().receive(notification);
        match arrival {
            Arrival::Nothing => {}
            Arrival::Gap => {
                debug!("incomplete notifications");
                self.notify_missed();
            }
            Arrival::Records(records) => {
                let registry = self.registry.lock();
                for record in records {
                    match record {
                        Record::Message { topic, body } => registry.on_message(&topic, body),
                        Record::Bell { queue } => registry.on_bell(&queue),
                    }
                }
            }
        }
    }

    fn notify_missed(&self) {
        let registry = self.registry.lock();
        let of_names = registry.topics.values().chain(registry.queues.values()).flatten();
        of_names.chain(&registry.bells).for_each(|listener| listener.missed());
    }

    fn sweep(&self) {
        self.registry.lock().bells.iter().for_each(|listener| listener.missed());
    }

    fn queues(&self) -> Vec<Arc<str>> {
        self.registry.lock().queues.keys().cloned().collect()
    }
}

/// A connection that listens, and its end.
struct Connected {
    client: Arc<Client>,
    ended: JoinHandle<()>,
}

async fn connect(server: &Server, shared: &Arc<Shared>, channel: &str) -> failure::Result<Connected> {
    let receiver = shared.clone();
    let connecting =
        server.connect_listening(&["jit=off", "statement_timeout=10000", "synchronous_commit=off"], move |text| {
            receiver.receive(text);
        });
    let (client, ended) = connecting.await?;
    let listen = async {
        // Not on every system, and not needed for any message.
        if let Err(error) = client.batch_execute(UNREAD_MAX).await {
            debug!(%error, "PostgreSQL has no limit for connections that are not read");
        }
        Ok(client.batch_execute(&format!("listen {}", quote(channel))).await?)
    };
    patiently(Kind::Read, listen).await?;
    let client = Arc::new(client);
    *shared.assembly.lock() = Assembly::default();
    *shared.client.lock() = Some(client.clone());
    shared.connections.fetch_add(1, Ordering::SeqCst);
    shared.is_connected.send_replace(true);
    Ok(Connected { client, ended })
}

async fn serve_for_ever(server: Server, shared: Arc<Shared>, channel: String, first: Connected) {
    let mut connected = first;
    loop {
        serve(&mut connected, &shared).await;
        connected.ended.abort();
        shared.is_connected.send_replace(false);
        connected = loop {
            match connect(&server, &shared, &channel).await {
                Ok(connected) => break connected,
                Err(failure) => {
                    debug!(error = %failure.into_error("bus"), "listening to PostgreSQL failed");
                    tokio::time::sleep(Duration::from_millis(rand::random_range(RETRY_PAUSE_MS))).await;
                }
            }
        };
        // Listen first, notify second: later messages are received.
        shared.notify_missed();
    }
}

/// Serves the connection until it is lost.
async fn serve(connected: &mut Connected, shared: &Shared) {
    let mut reads: u32 = 0;
    loop {
        tokio::select! {
            _ = &mut connected.ended => return,
            () = tokio::time::sleep(READ_INTERVAL) => {}
        }
        match tokio::time::timeout(READ_PATIENCE, waiting_queues(&connected.client, &shared.queues())).await {
            Ok(Ok(waiting)) => {
                let registry = shared.registry.lock();
                waiting.iter().for_each(|queue| registry.on_bell(queue));
            }
            Ok(Err(error)) if error.code().is_some() && !connected.client.is_closed() => {
                debug!(error = failure::in_words(&error), "reading queues failed");
            }
            _ => return,
        }
        reads += 1;
        if reads.is_multiple_of(READS_PER_SWEEP) {
            shared.sweep();
        }
    }
}

/// Returns those of the queues that have waiting entries.
async fn waiting_queues(client: &Client, queues: &[Arc<str>]) -> Result<Vec<String>, tokio_postgres::Error> {
    let names: Vec<&str> = queues.iter().map(AsRef::as_ref).collect();
    let waiting = sql!(
        "select q.name from unnest($1::text[]) as q (name)
         where exists (select 1 from convoke_bus_entries e where e.queue = q.name and e.member is null)"
    );
    let rows = client.query_typed(waiting, &[(&names, tokio_postgres::types::Type::TEXT_ARRAY)]).await?;
    rows.iter().map(|row| row.try_get("name")).collect()
}
