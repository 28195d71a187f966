//! The one connection for all subscriptions of a process.
//!
//! A listener is registered here first, and subscribed at the server second. One task makes all subscriptions, in
//! order, so that an ending one cannot undo a new one; it also pings the connection. When the connection breaks, it is
//! replaced, everything is subscribed again, and then each listener is notified that it may have missed messages: it
//! must read the state again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use convoke_core::{Error, Result};
use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::{PushInfo, PushKind, Value};
use tokio::sync::{mpsc, oneshot};
use tracing::debug;

use super::abort_on_drop::AbortOnDrop;
use super::dial::{Dialer, RESPONSE_TIMEOUT};
use super::failure::{Intent, failure, is_fatal};

const PING_INTERVAL: Duration = Duration::from_secs(5);
/// Bounds one SUBSCRIBE.
const TOPICS_MAX: usize = 1_000;

/// Both methods are called while the hub is locked: they must be quick, and must not call the hub.
pub(super) trait Listener: Send + Sync {
    fn on_message(&self, topic: &Arc<str>, body: Bytes);
    /// Messages may have been lost: the connection was broken for a while.
    fn missed(&self);
}

/// Clones are the same hub.
#[derive(Clone)]
pub(super) struct SubscriptionHub {
    shared: Arc<Shared>,
    _task: Arc<AbortOnDrop>,
}

type Listeners = HashMap<Arc<str>, Vec<Arc<dyn Listener>>>;

struct Shared {
    /// The name of this service in `Unavailable` errors.
    what: &'static str,
    listeners: Mutex<Listeners>,
    orders: mpsc::UnboundedSender<Order>,
}

enum Order {
    Subscribe(Vec<Arc<str>>, oneshot::Sender<Result<()>>),
    /// Unsubscribes, if the topic has no listener by then.
    Unsubscribe(Arc<str>),
    /// The connection of this number is lost.
    Lost(u64),
}

/// Keeps its subscriptions until it is dropped.
pub(super) struct Listening {
    shared: Arc<Shared>,
    topics: Vec<Arc<str>>,
    listener: Arc<dyn Listener>,
}

impl SubscriptionHub {
    pub(super) async fn open(what: &'static str, dialer: Dialer) -> Result<Self> {
        let (orders, queue) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared { what, listeners: Mutex::default(), orders });
        let first = dialer.dial(on_push(1, shared.clone())).await;
        let connection = first.map_err(|error| failure(what, Intent::Ask, error))?;
        let task = AbortOnDrop::spawn(serve_for_ever(dialer, shared.clone(), queue, Some(connection)));
        Ok(SubscriptionHub { shared, _task: Arc::new(task) })
    }

    /// Makes every connection in the background, also the first: then listeners are notified as after an interruption.
    pub(super) fn open_later(what: &'static str, dialer: Dialer) -> Self {
        let (orders, queue) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared { what, listeners: Mutex::default(), orders });
        let task = AbortOnDrop::spawn(serve_for_ever(dialer, shared.clone(), queue, None));
        SubscriptionHub { shared, _task: Arc::new(task) }
    }

    /// Registers a listener. It receives every message only after [`confirm`](Self::confirm) has returned.
    pub(super) fn listen(&self, topics: &[String], listener: Arc<dyn Listener>) -> Listening {
        let mut topics: Vec<Arc<str>> = topics.iter().map(|topic| topic.as_str().into()).collect();
        topics.sort_unstable();
        topics.dedup();
        let mut listeners = self.shared.listeners.lock();
        for topic in &topics {
            listeners.entry(topic.clone()).or_default().push(listener.clone());
        }
        drop(listeners);
        Listening { shared: self.shared.clone(), topics, listener }
    }

    /// Subscribes in the background, for a listener that can miss messages.
    pub(super) fn subscribe_later(&self, listening: &Listening) {
        // Fails only if the hub is gone.
        let _ = self.shared.orders.send(Order::Subscribe(listening.topics.clone(), oneshot::channel().0));
    }

    /// Waits until the server has confirmed these subscriptions.
    pub(super) async fn confirm(&self, listening: &Listening) -> Result<()> {
        let (confirm, confirmed) = oneshot::channel();
        let away = |_| Error::unavailable(self.shared.what, "no connection to Redis");
        self.shared.orders.send(Order::Subscribe(listening.topics.clone(), confirm)).map_err(|_| away(()))?;
        match tokio::time::timeout(RESPONSE_TIMEOUT, confirmed).await {
            Ok(Ok(result)) => result,
            _ => Err(away(())),
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let mut listeners = self.shared.listeners.lock();
        for topic in &self.topics {
            let Some(present) = listeners.get_mut(topic) else { continue };
            if let Some(place) = present.iter().position(|other| Arc::ptr_eq(other, &self.listener)) {
                present.remove(place);
            }
            if present.is_empty() {
                listeners.remove(topic);
                let _ = self.shared.orders.send(Order::Unsubscribe(topic.clone()));
            }
        }
    }
}

impl Shared {
    fn on_message(&self, channel: &[u8], body: Bytes) {
        let Ok(topic) = std::str::from_utf8(channel) else { return };
        let listeners = self.listeners.lock();
        if let Some((topic, present)) = listeners.get_key_value(topic) {
            let Some((last, others)) = present.split_last() else { return };
            others.iter().for_each(|listener| listener.on_message(topic, body.clone()));
            last.on_message(topic, body);
        }
    }

    fn notify_missed(&self) {
        let listeners = self.listeners.lock();
        listeners.values().flatten().for_each(|listener| listener.missed());
    }

    fn topics(&self) -> Vec<Arc<str>> {
        self.listeners.lock().keys().cloned().collect()
    }
}

/// Handles the push messages of connection `number`.
fn on_push(number: u64, shared: Arc<Shared>) -> impl Fn(PushInfo) + Clone + Send + Sync + 'static {
    move |push| match push.kind {
        PushKind::Message => {
            let mut data = push.data.into_iter();
            if let (Some(Value::BulkString(channel)), Some(Value::BulkString(body))) = (data.next(), data.next()) {
                shared.on_message(&channel, body.into());
            }
        }
        PushKind::Disconnection => {
            let _ = shared.orders.send(Order::Lost(number));
        }
        _ => {}
    }
}

async fn serve_for_ever(
    dialer: Dialer,
    shared: Arc<Shared>,
    mut orders: mpsc::UnboundedReceiver<Order>,
    first: Option<MultiplexedConnection>,
) {
    let (mut number, mut present) = (1, first);
    loop {
        if let Some(mut connection) = present.take() {
            serve(&mut connection, number, &shared, &mut orders).await;
        }
        while present.is_none() {
            number += 1;
            let mut connection = dialer.dial_until_connected(shared.what, on_push(number, shared.clone())).await;
            match subscribe(&mut connection, &shared.topics()).await {
                Ok(()) => present = Some(connection),
                Err(error) => {
                    debug!(%error, "renewing the subscriptions failed");
                    tokio::time::sleep(Duration::from_millis(rand::random_range(50..500))).await;
                }
            }
        }
        // Subscribe first, notify second: later messages are received.
        shared.notify_missed();
    }
}

/// Serves the connection until it is lost.
async fn serve(
    connection: &mut MultiplexedConnection,
    number: u64,
    shared: &Shared,
    orders: &mut mpsc::UnboundedReceiver<Order>,
) {
    loop {
        let first = match tokio::time::timeout(PING_INTERVAL, orders.recv()).await {
            Ok(Some(order)) => order,
            Ok(None) => return,
            Err(_) => match connection.send_packed_command(&redis::cmd("PING")).await {
                Err(error) if is_fatal(&error) => return,
                _ => continue,
            },
        };
        let (mut wanted, mut waiting, mut next) = (Vec::new(), Vec::new(), Some(first));
        // Subscriptions that arrive together share one round trip.
        while let Some(order) = next {
            match order {
                Order::Subscribe(topics, confirm) => {
                    wanted.extend(topics);
                    waiting.push(confirm);
                }
                Order::Unsubscribe(topic) => {
                    let is_unused = !shared.listeners.lock().contains_key(&topic);
                    if is_unused {
                        // Its listener may have subscribed and ended a moment ago.
                        wanted.retain(|other| *other != topic);
                        if unsubscribe(connection, &topic).await.is_err() {
                            return;
                        }
                    }
                }
                Order::Lost(lost) if lost == number => return,
                Order::Lost(_) => {}
            }
            next = if wanted.len() < TOPICS_MAX { orders.try_recv().ok() } else { None };
        }
        let done = subscribe(connection, &wanted).await;
        let is_lost = done.as_ref().is_err_and(is_fatal);
        for confirm in waiting {
            let reported = done.as_ref().copied().map_err(|error| Error::unavailable(shared.what, error.to_string()));
            let _ = confirm.send(reported);
        }
        if is_lost {
            return;
        }
    }
}

async fn subscribe(connection: &mut MultiplexedConnection, topics: &[Arc<str>]) -> redis::RedisResult<()> {
    for part in topics.chunks(TOPICS_MAX) {
        let names: Vec<&str> = part.iter().map(AsRef::as_ref).collect();
        connection.subscribe(&names).await?;
    }
    Ok(())
}

/// Fails if the connection is lost.
async fn unsubscribe(connection: &mut MultiplexedConnection, topic: &Arc<str>) -> redis::RedisResult<()> {
    match connection.unsubscribe(topic.as_ref()).await {
        Err(error) if is_fatal(&error) => Err(error),
        _ => Ok(()),
    }
}
