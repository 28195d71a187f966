//! The readers of a queue, and announcements that a queue keeps.

use std::time::Duration;

use convoke_core::ports::{Bus, GroupReader};

use super::stage::*;

const HOUR: Duration = Duration::from_secs(3_600);

/// The readers of queue `q` in group `g`, by name.
async fn readers(bus: &dyn Bus, idle: Duration) -> Vec<GroupReader> {
    let mut found = bus.readers(&["q".into()], "g", idle).await.expect("readers");
    let mut readers = found.remove(0).expect("it has the group").readers;
    readers.sort_by(|a, b| a.name.cmp(&b.name));
    readers
}

pub async fn members_of_a_group_are_listed_with_what_they_have_not_acknowledged(
    bus: &dyn Bus,
    _advance: impl AsyncFn(Duration),
) {
    let none = bus.readers(&["q".into(), "p".into()], "g", HOUR).await.expect("readers");
    assert_eq!(none, [None, None], "of queues that are not there");
    push(bus, "q", &["1", "2", "3"]).await;
    let other = join(bus, "q", "other", "o").await;
    take(&*other, 3).await;
    assert_eq!(bus.readers(&["q".into()], "g", HOUR).await.expect("readers"), [None], "it has another group");
    let (one, two) = (join(bus, "q", "g", "one").await, join(bus, "q", "g", "two").await);
    let first = take(&*one, 2).await;
    take(&*two, 1).await;
    let found = readers(bus, HOUR).await;
    assert_eq!(found.iter().map(|reader| reader.pending).collect::<Vec<_>>(), [2, 1]);
    assert!(found[0].name.starts_with("one") && found[1].name.starts_with("two"), "{found:?}");
    assert!(found.iter().all(|reader| reader.is_consumer && reader.idle < HOUR), "{found:?}");
    one.ack(&ids(&first)[..1]).await.expect("ack");
    assert_eq!(readers(bus, HOUR).await[0].pending, 1);
    two.leave().await.expect("leave");
    let two_left =
        async || readers(bus, HOUR).await.iter().any(|reader| reader.name.starts_with("two") && reader.pending == 0);
    assert!(!two_left().await, "who left is not listed, or still with what it left");
    let many = bus.readers(&["p".into(), "q".into()], "g", HOUR).await.expect("readers");
    assert!(many[0].is_none() && many[1].is_some(), "in the order of the queues");
}

pub async fn a_member_is_idle_since_it_last_read(bus: &dyn Bus, advance: impl AsyncFn(Duration)) {
    let consumer = join(bus, "q", "g", "c").await;
    push(bus, "q", &["1", "2"]).await;
    let taken = take(&*consumer, 1).await;
    advance(Duration::from_millis(600)).await;
    let before = readers(bus, HOUR).await.remove(0).idle;
    assert!(before >= Duration::from_millis(600), "{before:?}");
    let short = Duration::from_millis(300);
    assert_eq!(readers(bus, short).await.len(), 1, "it has something");
    consumer.ack(&ids(&taken)).await.expect("ack");
    assert_eq!(readers(bus, short).await, [], "it has nothing and did not read lately");
    take(&*consumer, 1).await;
    let after = readers(bus, HOUR).await.remove(0).idle;
    assert!(after < before, "{after:?} after a read, {before:?} before");
}

pub async fn an_announcement_reaches_subscribers_and_a_queue_that_keeps_the_last(
    bus: &dyn Bus,
    _advance: impl AsyncFn(Duration),
) {
    let mut topic = bus.subscribe(&["news".into()]).await.expect("subscribe");
    for n in 0..1_000 {
        bus.announce("news", body(&n.to_string()), 10).await.expect("announce");
    }
    for n in 0..1_000 {
        let message = soon(topic.next()).await.expect("nothing was missed");
        assert_eq!((message.channel.as_str(), &message.body[..]), ("news", n.to_string().as_bytes()));
    }
    let kept = bus.backlog("news", "g").await.expect("backlog") as usize;
    assert!((10..=300).contains(&kept), "{kept} are kept, about 10");
    let taken = take(&*join(bus, "news", "g", "c").await, kept).await;
    assert_eq!(texts(&taken)[kept - 10..], (990..1_000).map(|n| n.to_string()).collect::<Vec<_>>());
    assert_silent(topic.next()).await;
}
