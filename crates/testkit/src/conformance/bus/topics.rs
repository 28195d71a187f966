//! Topics: delivered to every subscriber.

use std::time::Duration;

use convoke_core::ports::{Bus, Message};
use futures_util::future::join_all;

use super::stage::*;
use crate::scale::Scaled;

fn message(channel: &str, text: &str) -> Option<Message> {
    Some(Message { channel: channel.into(), body: body(text) })
}

pub async fn every_subscriber_gets_every_message_in_order(bus: &dyn Bus, _advance: impl AsyncFn(Duration)) {
    let mut first = bus.subscribe(&["t".into()]).await.expect("subscribe");
    let mut second = bus.subscribe(&["t".into()]).await.expect("subscribe");
    for text in ["a", "b", "c"] {
        bus.publish("t", body(text)).await.expect("publish");
    }
    for text in ["a", "b", "c"] {
        assert_eq!(soon(first.next()).await, message("t", text));
        assert_eq!(soon(second.next()).await, message("t", text));
    }
    assert_silent(first.next()).await;
    bus.ping().await.expect("ping");
}

pub async fn one_subscription_hears_several_topics_and_no_other(bus: &dyn Bus, _advance: impl AsyncFn(Duration)) {
    let mut both = bus.subscribe(&["s".into(), "t".into(), "s".into()]).await.expect("subscribe");
    for (topic, text) in [("t", "1"), ("u", "2"), ("s", "3"), ("t", "4")] {
        bus.publish(topic, body(text)).await.expect("publish");
    }
    let mut received = Vec::new();
    for _ in 0..3 {
        received.extend(soon(both.next()).await.map(|message| (message.channel, message.body)));
    }
    received.sort_by(|(one, _), (other, _)| one.cmp(other));
    let expected = [("s", "3"), ("t", "1"), ("t", "4")].map(|(topic, text)| (topic.to_owned(), body(text)));
    assert_eq!(received, expected, "in order per topic");
    assert_silent(both.next()).await;
}

pub async fn what_was_published_before_does_not_arrive(bus: &dyn Bus, _advance: impl AsyncFn(Duration)) {
    bus.publish("t", body("early")).await.expect("publishing to nobody is no error");
    let mut late = bus.subscribe(&["t".into()]).await.expect("subscribe");
    bus.publish("t", body("late")).await.expect("publish");
    assert_eq!(soon(late.next()).await, message("t", "late"));
}

pub async fn a_waiting_subscriber_is_woken(bus: &dyn Bus, _advance: impl AsyncFn(Duration)) {
    let mut subscription = bus.subscribe(&["t".into()]).await.expect("subscribe");
    let (received, published) = tokio::join!(soon(subscription.next()), async {
        tokio::task::yield_now().await;
        bus.publish("t", body("a")).await
    });
    published.expect("publish");
    assert_eq!(received, message("t", "a"));
}

pub async fn waiting_for_a_message_can_be_given_up(bus: &dyn Bus, _advance: impl AsyncFn(Duration)) {
    let mut subscription = bus.subscribe(&["t".into()]).await.expect("subscribe");
    for text in ["a", "b"] {
        assert_silent(subscription.next()).await;
        bus.publish("t", body(text)).await.expect("publish");
        assert_eq!(soon(subscription.next()).await, message("t", text));
    }
}

/// How many messages of [`a_slow_subscriber_is_told_that_it_missed_something`] are published at the same time. Their order
/// is not promised; that of two waves is.
const WAVE: usize = 500;

/// Far more than any bus need keep for a subscriber that does not read.
pub async fn a_slow_subscriber_is_told_that_it_missed_something(bus: &dyn Bus, _advance: impl AsyncFn(Duration)) {
    let waves = Scaled { quick: 100, full: 400 }.get();
    let mut slow = bus.subscribe(&["t".into()]).await.expect("subscribe");
    for wave in 0..waves {
        let published = join_all((0..WAVE).map(|_| bus.publish("t", body(&wave.to_string())))).await;
        published.into_iter().for_each(|published| published.expect("a slow subscriber hinders no publisher"));
    }
    let (mut wave, mut received, mut gaps, mut total) = (0, 0, 0, 0);
    while let Ok(item) = tokio::time::timeout(Duration::from_secs(1), slow.next()).await {
        match item.expect("no error") {
            None => gaps += 1,
            Some(message) => {
                let of: usize = std::str::from_utf8(&message.body).expect("text").parse().expect("a number");
                assert!(of >= wave, "a message of wave {of} came after one of wave {wave}");
                let is_next = of == wave || (of == wave + 1 && received == WAVE);
                assert!(is_next || gaps > 0, "lost without a report: {received} of wave {wave}, then wave {of}");
                received = if of == wave { received + 1 } else { 1 };
                assert!(received <= WAVE, "a message of wave {wave} came again");
                (wave, total) = (of, total + 1);
            }
        }
    }
    let count = waves * WAVE;
    assert!(total == count || gaps > 0, "{total} of {count} received, and the rest not reported as lost");
    // It goes on.
    bus.publish("t", body("again")).await.expect("publish");
    assert_eq!(soon(slow.next()).await, message("t", "again"));
}
