//! Messages to present subscribers.
//!
//! A subscription has a mailbox of bounded size. A full mailbox drops messages and records a gap in their place; when
//! the subscriber reaches the gap, it is notified to read the state again. Publishing never waits for a slow
//! subscriber.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use convoke_core::Result;
use convoke_core::ports::{Message, Subscription};
use parking_lot::Mutex;
use tokio::sync::Notify;

const MAILBOX_MESSAGES_MAX: usize = 4_096;
const MAILBOX_BYTES_MAX: usize = 32 << 20;

#[derive(Default)]
pub(super) struct Topics {
    subscribers: HashMap<Arc<str>, Vec<Arc<Mailbox>>>,
}

#[derive(Default)]
struct Mailbox {
    items: Mutex<Items>,
    bell: Arc<Notify>,
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

impl Mailbox {
    fn put(&self, topic: &Arc<str>, message: Bytes) {
        let mut items = self.items.lock();
        if items.list.len() < MAILBOX_MESSAGES_MAX && items.bytes + message.len() <= MAILBOX_BYTES_MAX {
            items.bytes += message.len();
            items.list.push_back(Item::Message(topic.clone(), message));
        } else if !matches!(items.list.back(), Some(Item::Gap)) {
            items.list.push_back(Item::Gap);
        }
    }
}

impl Topics {
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.subscribers.is_empty()
    }

    /// Delivers, and returns the subscribers to wake.
    pub(super) fn publish(&self, topic: &str, message: Bytes) -> Vec<Arc<Notify>> {
        let Some((topic, mailboxes)) = self.subscribers.get_key_value(topic) else { return Vec::new() };
        mailboxes
            .iter()
            .map(|mailbox| {
                mailbox.put(topic, message.clone());
                mailbox.bell.clone()
            })
            .collect()
    }
}

pub(super) fn subscribe(topics: &Arc<Mutex<Topics>>, names: &[String]) -> MemorySubscription {
    let mailbox = Arc::new(Mailbox::default());
    let mut locked = topics.lock();
    for name in names {
        let mailboxes = locked.subscribers.entry(name.as_str().into()).or_default();
        if !mailboxes.iter().any(|known| Arc::ptr_eq(known, &mailbox)) {
            mailboxes.push(mailbox.clone());
        }
    }
    drop(locked);
    MemorySubscription { topics: topics.clone(), names: names.to_vec(), mailbox }
}

pub(super) struct MemorySubscription {
    topics: Arc<Mutex<Topics>>,
    names: Vec<String>,
    mailbox: Arc<Mailbox>,
}

#[async_trait]
impl Subscription for MemorySubscription {
    async fn next(&mut self) -> Result<Option<Message>> {
        loop {
            let item = self.mailbox.items.lock().list.pop_front();
            match item {
                Some(Item::Message(topic, body)) => {
                    self.mailbox.items.lock().bytes -= body.len();
                    return Ok(Some(Message { channel: topic.as_ref().to_owned(), body }));
                }
                Some(Item::Gap) => return Ok(None),
                None => self.mailbox.bell.notified().await,
            }
        }
    }
}

impl Drop for MemorySubscription {
    fn drop(&mut self) {
        let mut topics = self.topics.lock();
        for name in &self.names {
            let Some(mailboxes) = topics.subscribers.get_mut(name.as_str()) else { continue };
            mailboxes.retain(|mailbox| !Arc::ptr_eq(mailbox, &self.mailbox));
            if mailboxes.is_empty() {
                topics.subscribers.remove(name.as_str());
            }
        }
    }
}
