//! The mailbox of a subscriber.
//!
//! Its size is bounded. A full mailbox drops messages and records a gap in their place, as it does after an
//! interruption of the connection; when the subscriber reaches the gap, it is notified to read the state again.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use convoke_core::ports::Message;
use parking_lot::Mutex;
use tokio::sync::Notify;

const MAILBOX_MESSAGES_MAX: usize = 4_096;
const MAILBOX_BYTES_MAX: usize = 32 << 20;

#[derive(Default)]
pub struct Mailbox {
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

impl Mailbox {
    /// Adds a message, or a gap if the mailbox is full.
    pub fn put(&self, topic: &Arc<str>, body: Bytes) {
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

    /// Records that messages may be missing here.
    pub fn put_gap(&self) {
        self.items.lock().put_gap();
        self.bell.notify_one();
    }

    /// Waits for the next message; `None` is a gap.
    pub async fn next(&self) -> Option<Message> {
        loop {
            {
                let mut items = self.items.lock();
                match items.list.pop_front() {
                    Some(Item::Message(topic, body)) => {
                        items.bytes -= body.len();
                        return Some(Message { channel: topic.as_ref().to_owned(), body });
                    }
                    Some(Item::Gap) => return None,
                    None => {}
                }
            }
            self.bell.notified().await;
        }
    }
}
