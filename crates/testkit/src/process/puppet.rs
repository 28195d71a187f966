//! A node without a process: a row in the registry that is kept fresh, and a client of the bus that the test directs.
//!
//! It takes part in handoffs as any node does: it takes offers from `job.handoff`, becomes the owner in the store by
//! compare-and-set, and acknowledges to the node that offered. It can fail to do so, or stop its heartbeats.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use convoke_core::jobs::Ownership;
use jiff::Timestamp;
use parking_lot::Mutex;
use redis::aio::MultiplexedConnection;
use redis::streams::StreamReadReply;
use serde_json::{Value, json};
use tokio::task::AbortHandle;
use tokio_postgres::{Client, NoTls};

use super::waiting::eventually;

const GROUP: &str = "coordinators";
const READ_PAUSE: Duration = Duration::from_millis(20);

/// Whether it takes an offer; it is asked for each.
pub type OfferFilter = Arc<dyn Fn(&Value) -> bool + Send + Sync>;

pub struct Puppet {
    inner: Arc<Inner>,
    task: AbortHandle,
}

struct Inner {
    redis: MultiplexedConnection,
    store: Client,
    prefix: String,
    id: String,
    takes: OfferFilter,
    is_alive: AtomicBool,
    offers: Mutex<Vec<Value>>,
}

impl Puppet {
    /// Starts a node that is in the registry, sends heartbeats and takes offers until it is dropped. The URLs are those of the engines themselves.
    pub async fn start(
        bus: &str,
        store: &str,
        prefix: &str,
        id: &str,
        takes: impl Fn(&Value) -> bool + Send + Sync + 'static,
    ) -> Puppet {
        let client = redis::Client::open(bus).expect("an address");
        let redis = eventually("Redis", || async { client.get_multiplexed_async_connection().await.ok() }).await;
        let mut config: tokio_postgres::Config = store.parse().expect("a PostgreSQL URL");
        config.application_name(id);
        let (store, connection) = config.connect(NoTls).await.expect("PostgreSQL responds");
        tokio::spawn(connection);
        let inner = Arc::new(Inner {
            redis,
            store,
            prefix: prefix.into(),
            id: id.into(),
            takes: Arc::new(takes),
            is_alive: AtomicBool::new(true),
            offers: Mutex::default(),
        });
        inner.heartbeat().await;
        let task = tokio::spawn(inner.clone().live()).abort_handle();
        Puppet { inner, task }
    }

    /// The offers that it received so far.
    pub fn offers(&self) -> Vec<Value> {
        self.inner.offers.lock().clone()
    }

    /// Sends no more heartbeats, and takes nothing: dead, as far as anybody can see.
    pub fn play_dead(&self) {
        self.inner.is_alive.store(false, Ordering::SeqCst);
    }

    pub fn revive(&self) {
        self.inner.is_alive.store(true, Ordering::SeqCst);
    }
}

impl Drop for Puppet {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Inner {
    async fn live(self: Arc<Self>) {
        loop {
            if self.is_alive.load(Ordering::SeqCst) {
                self.heartbeat().await;
                self.take_offers().await;
            }
            tokio::time::sleep(READ_PAUSE).await;
        }
    }

    async fn heartbeat(&self) {
        let statement = "insert into convoke_nodes (id, role, state, job_count, started_at, last_heartbeat_at, version,
                                               since)
                    values ($1, 1, 0, 0, $2, $2, 'puppet', $2)
                    on conflict (id) do update set last_heartbeat_at = excluded.last_heartbeat_at, state = 0";
        let now = Timestamp::now().as_microsecond();
        self.store.execute(statement, &[&self.id, &now]).await.expect("the registry can be written");
    }

    async fn take_offers(&self) {
        let queue = format!("{}.job.handoff", self.prefix);
        let mut read = redis::cmd("XREADGROUP");
        read.arg("GROUP").arg(GROUP).arg(&self.id).arg("COUNT").arg(100).arg("STREAMS").arg(&queue).arg(">");
        let read: redis::RedisResult<Option<StreamReadReply>> = read.query_async(&mut self.redis.clone()).await;
        let Ok(Some(read)) = read else { return };
        for entry in read.keys.into_iter().flat_map(|key| key.ids) {
            let data: String = entry.get("data").expect("an entry has a body");
            let offer: Value = serde_json::from_str(&data).expect("an offer is JSON");
            let takes = (self.takes)(&offer);
            self.offers.lock().push(offer.clone());
            if takes {
                self.accept(&offer).await;
            }
            let mut done = redis::pipe();
            done.cmd("XACK").arg(&queue).arg(GROUP).arg(&entry.id).cmd("XDEL").arg(&queue).arg(&entry.id);
            let done: redis::RedisResult<()> = done.query_async(&mut self.redis.clone()).await;
            done.expect("Redis is there");
        }
    }

    async fn accept(&self, offer: &Value) {
        let text = |field: &str| offer[field].as_str().unwrap_or_else(|| panic!("{offer} has no {field}"));
        let id = |field: &str| text(field).parse::<uuid::Uuid>().expect("an id");
        let (job, execution, from) = (id("jobId"), id("executionId"), text("fromNode"));
        let take = "update convoke_runs set owner = $1, ownership = $5
                    where id = $2 and execution_id = $3 and owner = $4";
        let owned = i16::from(Ownership::Owned.code());
        let taken = self.store.execute(take, &[&self.id, &job, &execution, &from, &owned]).await;
        let taken = taken.expect("the store responds");
        assert_eq!(taken, 1, "what is offered is the offerer's to give: {offer}");
        let ack = json!({ "v": 1, "jobId": text("jobId"), "newOwner": self.id });
        let mut publish = redis::cmd("PUBLISH");
        publish.arg(format!("{}.job.handoff.ack.{from}", self.prefix)).arg(ack.to_string());
        let received: i64 = publish.query_async(&mut self.redis.clone()).await.expect("Redis is there");
        assert!(received > 0, "who offers must listen before: {offer}");
    }
}
