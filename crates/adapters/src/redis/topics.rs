//! A subscription to topics.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use convoke_core::Result;
use convoke_core::ports::{Message, Subscription};

use super::subscription_hub::{Listener, Listening, SubscriptionHub};
use crate::mailbox::Mailbox;

impl Listener for Mailbox {
    fn on_message(&self, topic: &Arc<str>, body: Bytes) {
        self.put(topic, body);
    }

    fn missed(&self) {
        self.put_gap();
    }
}

pub(super) struct RedisSubscription {
    mailbox: Arc<Mailbox>,
    _listening: Listening,
}

pub(super) async fn subscribe(subscriptions: &SubscriptionHub, topics: &[String]) -> Result<RedisSubscription> {
    let mailbox = Arc::new(Mailbox::default());
    let listening = subscriptions.listen(topics, mailbox.clone());
    if !topics.is_empty() {
        subscriptions.confirm(&listening).await?;
    }
    Ok(RedisSubscription { mailbox, _listening: listening })
}

#[async_trait]
impl Subscription for RedisSubscription {
    async fn next(&mut self) -> Result<Option<Message>> {
        Ok(self.mailbox.next().await)
    }
}
