//! A subscription that is renewed when it breaks: the only way by which duties receive messages of topics.
//!
//! Topics deliver at most once. The reader of a [`Feed`] is notified of every gap, and then reads what it may have
//! missed from the store: after [`Received::Subscribed`], which also comes first of all, and after
//! [`Received::Missed`].

use std::sync::Arc;
use std::time::Duration;

use convoke_core::Result;
use convoke_core::ports::{Message, Subscription};
use futures_util::future::BoxFuture;
use tokio::time::Instant;

use super::node::NodeBase;

/// The pause after a subscription failed, or broke at once.
const RETRY_AFTER: Duration = Duration::from_millis(250);

/// An item of a feed.
#[derive(Debug, PartialEq, Eq)]
pub enum Received {
    /// Subscribed, for the first time or again: messages from before may have been missed.
    Subscribed,
    Message(Message),
    /// The reader was too slow: some messages are lost.
    Missed,
    /// The subscription broke: messages are lost until it is there again.
    Broken,
}

/// The messages of some topics.
pub struct Feed {
    node: Arc<NodeBase>,
    topics: Vec<String>,
    /// The name of the reader, for the log.
    task: &'static str,
    observes_reach: bool,
    state: State,
}

enum State {
    /// The next attempt is not made before this instant.
    Waiting(Instant),
    /// Kept between calls of `next`, so that an attempt that takes longer than its caller waits is not started over
    /// each time.
    Subscribing(BoxFuture<'static, Result<Box<dyn Subscription>>>),
    Subscribed {
        subscription: Box<dyn Subscription>,
        since: Instant,
    },
}

impl Feed {
    pub fn new(node: Arc<NodeBase>, topics: Vec<String>, task: &'static str) -> Self {
        Feed { node, topics, task, observes_reach: false, state: State::Waiting(Instant::now()) }
    }

    /// Counts its attempts to subscribe as observations of whether the bus can be reached.
    pub fn observing_reach(mut self) -> Self {
        self.observes_reach = true;
        self
    }

    /// Returns the next item; never an error, however long the bus is unavailable. Safe to cancel.
    pub async fn next(&mut self) -> Received {
        loop {
            match &mut self.state {
                State::Waiting(until) => {
                    if *until > Instant::now() {
                        tokio::time::sleep_until(*until).await;
                    }
                    let (bus, topics) = (self.node.ports.bus.clone(), self.topics.clone());
                    self.state = State::Subscribing(Box::pin(async move { bus.subscribe(&topics).await }));
                }
                State::Subscribing(attempt) => {
                    let subscribed = attempt.await;
                    if let Some(received) = self.subscribed(subscribed) {
                        return received;
                    }
                }
                State::Subscribed { subscription, since } => match subscription.next().await {
                    Ok(Some(message)) => return Received::Message(message),
                    Ok(None) => return Received::Missed,
                    Err(error) => {
                        self.node.outages.failed(self.task, &error);
                        self.state = State::Waiting(Instant::now().max(*since + RETRY_AFTER));
                        return Received::Broken;
                    }
                },
            }
        }
    }

    fn subscribed(&mut self, result: Result<Box<dyn Subscription>>) -> Option<Received> {
        let result = match self.observes_reach {
            true => self.node.reach.bus.record_result(result, self.node.now()),
            false => result,
        };
        match result {
            Ok(subscription) => {
                self.state = State::Subscribed { subscription, since: Instant::now() };
                Some(Received::Subscribed)
            }
            Err(error) => {
                self.node.outages.failed(self.task, &error);
                self.state = State::Waiting(Instant::now() + RETRY_AFTER);
                None
            }
        }
    }

    /// Drops the subscription and starts again a moment later: the work after [`Received::Subscribed`] failed.
    pub fn begin_again(&mut self) {
        self.state = State::Waiting(Instant::now() + RETRY_AFTER);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::jobs::node::fixture;

    #[tokio::test(start_paused = true)]
    async fn a_reader_is_told_of_the_beginning_and_of_every_gap() {
        let node = fixture::node().await;
        let topic = node.channels.cancel();
        let mut feed = Feed::new(node.base.clone(), vec![topic.clone()], "test");
        assert_eq!(feed.next().await, Received::Subscribed);
        node.bus().publish(&topic, Bytes::from_static(b"one")).await.expect("memory is always there");
        let one = Message { channel: topic.clone(), body: Bytes::from_static(b"one") };
        assert_eq!(feed.next().await, Received::Message(one));
        feed.begin_again();
        node.bus().publish(&topic, Bytes::from_static(b"two")).await.expect("memory is always there");
        assert_eq!(feed.next().await, Received::Subscribed, "what came meanwhile is lost, and the reader knows");
    }

    #[tokio::test(start_paused = true)]
    async fn a_subscription_that_takes_long_is_not_begun_again_by_an_impatient_reader() {
        let node = fixture::node().await;
        let mut feed = Feed::new(node.base.clone(), vec![node.channels.cancel()], "test");
        feed.begin_again();
        let impatient = Duration::from_millis(100);
        assert!(tokio::time::timeout(impatient, feed.next()).await.is_err());
        assert!(tokio::time::timeout(impatient, feed.next()).await.is_err());
        assert_eq!(tokio::time::timeout(impatient, feed.next()).await, Ok(Received::Subscribed));
    }
}
