//! Closing: queues are forgotten with all that they held when it was decided.

use std::time::Duration;

use convoke_core::ports::Bus;

use super::stage::*;

pub async fn a_closed_queue_holds_nothing(bus: &dyn Bus, _advance: impl AsyncFn(Duration)) {
    push(bus, "a", &["1"]).await;
    push(bus, "b", &["2"]).await;
    push(bus, "c", &["3"]).await;
    let all = ["a".into(), "b".into(), "never there".into()];
    let ends = bus.ends(&all).await.expect("ends");
    assert_eq!(ends.iter().map(|end| end.queue.as_str()).collect::<Vec<_>>(), ["a", "b"], "of those that are there");
    bus.close(&ends).await.expect("close");
    bus.close(&ends).await.expect("not an error where it is gone");
    for queue in ["a", "b"] {
        assert_eq!(bus.backlog(queue, "g").await.expect("backlog"), 0);
        assert_silent(join(bus, queue, "g", "c").await.take(1)).await;
    }
    assert_eq!(texts(&take(&*join(bus, "c", "g", "c").await, 1).await), ["3"], "others are left alone");
}

pub async fn a_closed_queue_forgets_pending_entries(bus: &dyn Bus, _advance: impl AsyncFn(Duration)) {
    let (one, two) = (join(bus, "q", "g", "c1").await, join(bus, "q", "g", "c2").await);
    push(bus, "q", &["a", "b"]).await;
    let taken = take(&*one, 1).await;
    close(bus, &["q".into()]).await;
    assert!(soon(two.take_over(Duration::ZERO, 9)).await.is_empty());
    assert_eq!(bus.backlog("q", "g").await.expect("backlog"), 0);
    one.ack(&ids(&taken)).await.expect("passed over");
    one.leave().await.expect("leave");
}

pub async fn those_who_read_a_closed_queue_go_on(bus: &dyn Bus, _advance: impl AsyncFn(Duration)) {
    let consumer = join(bus, "q", "g", "c").await;
    let multiplex = bus.multiplex().await.expect("multiplex");
    multiplex.add(&[channel("m")]).await.expect("add");
    push(bus, "q", &["lost"]).await;
    push(bus, &channel("m"), &["lost"]).await;
    let old = take(&*consumer, 1).await;
    close(bus, &["q".into(), channel("m")]).await;
    push(bus, "q", &["new"]).await;
    push(bus, &channel("m"), &["new"]).await;
    consumer.ack(&ids(&old)).await.expect("of an entry that is no more");
    let taken = take(&*consumer, 1).await;
    assert_eq!((texts(&taken), taken[0].deliveries), (vec!["new"], 1));
    let came = soon(multiplex.next()).await;
    assert_eq!((&came[0].0, &came[0].1[0].body[..]), (&channel("m"), &b"new"[..]));
    assert_eq!(came[0].1.len(), 1);
}

pub async fn an_acknowledgement_from_before_the_close_hits_nothing_new(bus: &dyn Bus, advance: impl AsyncFn(Duration)) {
    let old = join(bus, "q", "g", "c1").await;
    push(bus, "q", &["old"]).await;
    let before = take(&*old, 1).await;
    close(bus, &["q".into()]).await;
    push(bus, "q", &["new"]).await;
    take(&*old, 1).await;
    old.ack(&ids(&before)).await.expect("ack");
    advance(Duration::from_millis(50)).await;
    let heir = join(bus, "q", "g", "c2").await;
    assert_eq!(texts(&soon(heir.take_over(Duration::from_millis(20), 9)).await), ["new"]);
}

pub async fn queues_that_hold_something_are_found_by_the_beginning_of_their_names(
    bus: &dyn Bus,
    _advance: impl AsyncFn(Duration),
) {
    for queue in ["p.job.1", "p.job.2", "p*job.3", "q.job.4"] {
        push(bus, queue, &["x"]).await;
    }
    close(bus, &["p.job.2".into()]).await;
    assert_eq!(bus.queues("p.").await.expect("queues"), ["p.job.1"]);
    assert_eq!(bus.queues("p*").await.expect("queues"), ["p*job.3"], "a prefix is no pattern");
    assert!(bus.queues("nothing").await.expect("queues").is_empty());
}

pub async fn what_is_pushed_after_the_end_was_read_stays(bus: &dyn Bus, _advance: impl AsyncFn(Duration)) {
    push(bus, &channel("a"), &["old", "old"]).await;
    push(bus, &channel("b"), &["old"]).await;
    let ends = bus.ends(&[channel("a"), channel("b")]).await.expect("ends");
    push(bus, &channel("a"), &["new", "newer"]).await;
    bus.close(&ends).await.expect("close");
    push(bus, &channel("b"), &["new"]).await;
    bus.close(&ends).await.expect("an end of long ago");
    let multiplex = bus.multiplex().await.expect("multiplex");
    multiplex.add(&[channel("a"), channel("b")]).await.expect("add");
    let mut came = Vec::new();
    while came.len() < 3 {
        let batch = soon(multiplex.next()).await;
        came.extend(batch.into_iter().flat_map(|(_, entries)| entries).map(|entry| entry.body));
    }
    came.sort();
    assert_eq!(came, ["new", "new", "newer"].map(body));
}
