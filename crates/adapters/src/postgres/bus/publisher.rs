//! Sends messages and appends entries: all that wait, in one statement.
//!
//! One connection does both, so that messages stay in order. Bells of queues are sent by the transaction that appends
//! their entries: whoever receives one finds the entry.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use tokio_postgres::types::ToSql;

use super::wire::Batch;
use crate::postgres::failure::{Failure, Result};
use crate::postgres::lane::{BYTES_PER_WEIGHT, Work};
use crate::postgres::server::Hot;
use crate::statement::sql;

pub(super) enum Item {
    Message {
        topic: String,
        body: Bytes,
    },
    Entry {
        queue: String,
        body: Bytes,
    },
    /// The queue has entries that may not have been read.
    Bell {
        queue: String,
    },
}

pub(super) struct PublishWork {
    /// The name of the notifications.
    channel: String,
    /// Differs between processes.
    instance: u64,
    batches: AtomicU64,
}

impl PublishWork {
    pub(super) fn new(channel: String) -> Self {
        PublishWork { channel, instance: rand::random(), batches: AtomicU64::new(0) }
    }

    fn notifications(&self, items: &[Item]) -> Vec<String> {
        let (mut batch, mut queues) = (Batch::default(), BTreeSet::new());
        for item in items {
            match item {
                Item::Message { topic, body } => batch.add_message(topic, body),
                Item::Entry { queue, .. } | Item::Bell { queue } => {
                    queues.insert(queue.as_str());
                }
            }
        }
        queues.into_iter().for_each(|queue| batch.add_bell(queue));
        batch.notifications(&format!("{:x}.{:x}", self.instance, self.batches.fetch_add(1, Ordering::Relaxed)))
    }
}

#[async_trait]
impl Work for PublishWork {
    type Item = Item;
    type Output = ();
    const WHAT: &'static str = "bus";

    fn weight(item: &Item) -> usize {
        match item {
            Item::Message { body, .. } | Item::Entry { body, .. } => 1 + body.len() / BYTES_PER_WEIGHT,
            Item::Bell { .. } => 1,
        }
    }

    async fn run(&self, hot: &mut Hot, items: &[Item]) -> Result<Vec<()>> {
        let notifications = self.notifications(items);
        let entries = items.iter().filter_map(|item| match item {
            Item::Entry { queue, body } => Some((queue.as_str(), &body[..])),
            Item::Message { .. } | Item::Bell { .. } => None,
        });
        let (queues, bodies): (Vec<&str>, Vec<&[u8]>) = entries.unzip();
        let values: [&(dyn ToSql + Sync); 4] = [&self.channel, &notifications, &queues, &bodies];
        let (statement, values) = if queues.is_empty() {
            let notify = sql!("select pg_notify($1, n.payload) from unnest($2::text[]) as n (payload)");
            (hot.prepared(notify).await?, &values[..2])
        } else {
            (hot.prepared(sql!(include_str!("sql/push.sql"))).await?, &values[..])
        };
        hot.client.query(&statement, values).await.map_err(Failure::of_commit)?;
        Ok(vec![(); items.len()])
    }
}
