//! A subscription's mailbox.
//!
//! Its size is bounded. A full mailbox drops messages and records a gap in their place, as it does after an
//! interruption of the connection; when the subscriber reaches the gap, it is notified to read the state again.

use std::collections::VecDeque;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use convoke_core::Result;
use convoke_core::ports::{Message, Subscription};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::subscription_hub::{Listener, Listening, SubscriptionHub};

const MAILBOX_MESSAGES_MAX: usize = 4_096;
const MAILBOX_BYTES_MAX: usize = 32 << 20;

#[derive(Default)]
struct Mailbox {
    items: Mutex<Items>,
    bell: Notify,
}

#[derive(Default)]
struct Items {
    list: VecDeque<Item>,
    bytes: usize,
}

enum Item {
    Message(Arc<str>, Bytes),
    Gap,
}

impl Items {
    fn put_gap(&mut self) {
        if !matches!(self.list.back(), Some(Item::Gap)) {
            self.list.push_back(Item::Gap);
        }
    }
}

impl Listener for Mailbox {
    fn on_message(&self, topic: &Arc<str>, body: Bytes) {
        let mut items = self.items.lock();
        if items.list.len() < MAILBOX_MESSAGES_MAX && items.bytes + body.len() <= MAILBOX_BYTES_MAX {
            items.bytes += body.len();
            items.list.push_back(Item::Message(topic.clone(), body));
        } else {
            items.put_gap();
        }
        drop(items);
        self.bell.notify_one();
    }

    fn missed(&self) {
        self.items.lock().put_gap();
        self.bell.notify_one();
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
        loop {
            {
                let mut items = self.mailbox.items.lock();
                match items.list.pop_front() {
                    Some(Item::Message(topic, body)) => {
                        items.bytes -= body.len();
                        return Ok(Some(Message { channel: topic.as_ref().to_owned(), body }));
                    }
                    Some(Item::Gap) => return Ok(None),
                    None => {}
                }
            }
            self.mailbox.bell.notified().await;
        }
    }
}
