//! A subscription to topics.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use convoke_core::Result;
use convoke_core::ports::{Message, Subscription};

use super::hub::{Hub, Interest, Listener, Listening};
use crate::mailbox::Mailbox;

impl Listener for Mailbox {
    fn on_message(&self, topic: &Arc<str>, body: Bytes) {
        self.put(topic, body);
    }

    fn missed(&self) {
        self.put_gap();
    }
}

pub(super) struct PostgresSubscription {
    mailbox: Arc<Mailbox>,
    _listening: Listening,
}

pub(super) async fn subscribe(hub: &Hub, topics: &[String]) -> Result<PostgresSubscription> {
    let mut topics: Vec<Arc<str>> = topics.iter().map(|topic| topic.as_str().into()).collect();
    topics.sort_unstable();
    topics.dedup();
    hub.connected().await?;
    hub.receive_earlier().await;
    let mailbox = Arc::new(Mailbox::default());
    let listening = hub.listen(Interest::Topics(topics), mailbox.clone());
    hub.connected().await?;
    Ok(PostgresSubscription { mailbox, _listening: listening })
}

#[async_trait]
impl Subscription for PostgresSubscription {
    async fn next(&mut self) -> Result<Option<Message>> {
        Ok(self.mailbox.next().await)
    }
}
