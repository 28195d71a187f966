//! Helpers that the cases of the bus share.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use convoke_core::JobId;
use convoke_core::jobs::channels::Channels;
use convoke_core::ports::{Bus, Consumer, Delivery};

/// A dead bus must fail a case, not hang it.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long nothing must arrive to conclude that nothing does.
const SILENCE: Duration = Duration::from_millis(200);

/// Returns the next message, which must arrive.
pub async fn soon<T>(future: impl Future<Output = convoke_core::Result<T>>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("it comes").expect("it is no error")
}

pub async fn assert_silent<T: std::fmt::Debug>(future: impl Future<Output = T>) {
    let result = tokio::time::timeout(SILENCE, future).await;
    assert!(result.is_err(), "nothing should come, but: {result:?}");
}

pub fn body(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

pub fn text(delivery: &Delivery) -> &str {
    std::str::from_utf8(&delivery.body).expect("text was sent")
}

pub fn texts(deliveries: &[Delivery]) -> Vec<&str> {
    deliveries.iter().map(text).collect()
}

pub fn ids(deliveries: &[Delivery]) -> Vec<String> {
    deliveries.iter().map(|delivery| delivery.id.clone()).collect()
}

/// The status channel of a job that has `name` for an id, as it were.
pub fn channel(name: &str) -> String {
    let number = name.bytes().fold(1, |number: u128, byte| number << 8 | u128::from(byte));
    Channels::new("convoke").status(JobId(uuid::Uuid::from_u128(number)))
}

pub async fn push(bus: &dyn Bus, queue: &str, bodies: &[&str]) {
    let entries = bodies.iter().map(|text| (queue.to_owned(), body(text))).collect();
    bus.push(entries).await.expect("push");
}

pub async fn join(bus: &dyn Bus, queue: &str, group: &str, name: &str) -> Box<dyn Consumer> {
    bus.consumer(queue, group, name).await.expect("consumer")
}

/// Closes queues with all that they hold now.
pub async fn close(bus: &dyn Bus, queues: &[String]) {
    let ends = bus.ends(queues).await.expect("ends");
    bus.close(&ends).await.expect("close");
}

/// Receives until there are `count`, in however many batches.
pub async fn take(consumer: &dyn Consumer, count: usize) -> Vec<Delivery> {
    let mut taken = Vec::new();
    while taken.len() < count {
        taken.extend(soon(consumer.take(count - taken.len())).await);
    }
    taken
}
