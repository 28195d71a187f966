//! Queues: each entry to one consumer of a group.

use std::time::Duration;

use convoke_core::limits::TAKE_BYTES_MAX;
use convoke_core::ports::Bus;

use super::stage::*;

pub async fn a_consumer_takes_in_order_and_at_most_what_it_asked_for(bus: &dyn Bus, _advance: impl AsyncFn(Duration)) {
    let consumer = join(bus, "q", "g", "c").await;
    push(bus, "q", &["a", "b", "c", "d", "e"]).await;
    let first = soon(consumer.take(2)).await;
    assert!(!first.is_empty() && first.len() <= 2);
    let mut all = first;
    all.extend(take(&*consumer, 5 - all.len()).await);
    assert_eq!(texts(&all), ["a", "b", "c", "d", "e"]);
    assert!(all.iter().all(|delivery| delivery.deliveries == 1));
    let mut unique = ids(&all);
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), 5, "each has an id of its own");
    assert_silent(consumer.take(1)).await;
}

pub async fn an_entry_goes_to_one_consumer_of_a_group(bus: &dyn Bus, _advance: impl AsyncFn(Duration)) {
    let consumers = [join(bus, "q", "g", "c1").await, join(bus, "q", "g", "c2").await];
    let bodies: Vec<String> = (0..100).map(|n| n.to_string()).collect();
    push(bus, "q", &bodies.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let mut seen = Vec::new();
    while seen.len() < 100 {
        for consumer in &consumers {
            if seen.len() < 100 {
                let taken = tokio::time::timeout(Duration::from_millis(200), consumer.take(3)).await;
                let taken = taken.map(|result| result.expect("take")).unwrap_or_default();
                seen.extend(taken.iter().map(|delivery| text(delivery).parse::<u32>().expect("a number")));
            }
        }
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..100).collect::<Vec<_>>());
}

pub async fn waiting_consumers_all_get_their_share(bus: &dyn Bus, _advance: impl AsyncFn(Duration)) {
    let (a, b, c) = (join(bus, "q", "g", "a").await, join(bus, "q", "g", "b").await, join(bus, "q", "g", "c").await);
    let waiting = async { tokio::join!(soon(a.take(1)), soon(b.take(1)), soon(c.take(1))) };
    let pushing = async {
        tokio::task::yield_now().await;
        push(bus, "q", &["1", "2", "3"]).await;
    };
    let ((a, b, c), ()) = tokio::join!(waiting, pushing);
    let all = [a, b, c].concat();
    let mut taken = texts(&all);
    taken.sort_unstable();
    assert_eq!(taken, ["1", "2", "3"]);
}

pub async fn every_group_gets_every_entry(bus: &dyn Bus, _advance: impl AsyncFn(Duration)) {
    let one = join(bus, "q", "one", "c").await;
    let two = join(bus, "q", "two", "c").await;
    push(bus, "q", &["a", "b"]).await;
    let taken = take(&*one, 2).await;
    one.ack(&ids(&taken)).await.expect("ack");
    assert_eq!(texts(&take(&*two, 2).await), ["a", "b"], "another group's acknowledgement is not its own");
}

pub async fn a_group_begins_with_what_the_queue_holds(bus: &dyn Bus, _advance: impl AsyncFn(Duration)) {
    push(bus, "q", &["a", "b"]).await;
    let first = join(bus, "q", "first", "c").await;
    let taken = take(&*first, 1).await;
    assert_eq!(texts(&taken), ["a"]);
    let second = join(bus, "q", "second", "c").await;
    assert_eq!(texts(&take(&*second, 2).await), ["a", "b"], "what is pending elsewhere is held too");
}

pub async fn entries_wait_for_a_group_whose_members_have_gone(bus: &dyn Bus, _advance: impl AsyncFn(Duration)) {
    let gone = join(bus, "q", "g", "c1").await;
    push(bus, "q", &["a"]).await;
    let taken = take(&*gone, 1).await;
    gone.ack(&ids(&taken)).await.expect("ack");
    gone.leave().await.expect("leave");
    push(bus, "q", &["b", "c"]).await;
    let next = join(bus, "q", "g", "c2").await;
    assert_eq!(texts(&take(&*next, 2).await), ["b", "c"]);
    assert_silent(next.take(1)).await;
}

pub async fn a_batch_may_be_for_many_queues(bus: &dyn Bus, _advance: impl AsyncFn(Duration)) {
    let entries = [("p", "1"), ("q", "2"), ("p", "3"), ("p", "4"), ("q", "5")];
    bus.push(entries.map(|(queue, text)| (queue.to_owned(), body(text))).to_vec()).await.expect("push");
    bus.push(Vec::new()).await.expect("nothing is a batch too");
    assert_eq!(texts(&take(&*join(bus, "p", "g", "c").await, 3).await), ["1", "3", "4"]);
    assert_eq!(texts(&take(&*join(bus, "q", "g", "c").await, 2).await), ["2", "5"]);
}

pub async fn the_backlog_is_what_nobody_was_given(bus: &dyn Bus, _advance: impl AsyncFn(Duration)) {
    let backlog = async |group: &str| bus.backlog("q", group).await.expect("backlog");
    assert_eq!(backlog("g").await, 0, "of a queue that is not there");
    push(bus, "q", &["a", "b", "c"]).await;
    assert_eq!(backlog("g").await, 3, "of a group that is not there");
    let consumer = join(bus, "q", "g", "c").await;
    assert_eq!(backlog("g").await, 3);
    let taken = take(&*consumer, 2).await;
    assert_eq!(backlog("g").await, 1, "given is enough");
    consumer.ack(&ids(&taken)).await.expect("ack");
    assert_eq!(backlog("g").await, 1);
    push(bus, "q", &["d"]).await;
    assert_eq!(backlog("g").await, 2);
    take(&*consumer, 2).await;
    assert_eq!(backlog("g").await, 0);
}

pub async fn a_take_that_is_given_up_has_taken_nothing(bus: &dyn Bus, _advance: impl AsyncFn(Duration)) {
    let (one, two) = (join(bus, "q", "g", "c1").await, join(bus, "q", "g", "c2").await);
    for round in 0..50 {
        // Both wait; an entry comes; the first is dropped, perhaps just as it was to have it.
        let name = round.to_string();
        {
            let mut given_up = Box::pin(one.take(1));
            let mut waiting = Box::pin(two.take(1));
            tokio::select! {
                biased;
                _ = &mut given_up => panic!("nothing was pushed"),
                _ = &mut waiting => panic!("nothing was pushed"),
                () = tokio::task::yield_now() => {}
            }
            push(bus, "q", &[&name]).await;
            drop(given_up);
            assert_eq!(texts(&soon(waiting).await), [name.as_str()], "nothing is lost in round {round}");
        }
    }
}

pub async fn a_consumer_that_left_takes_no_more(bus: &dyn Bus, _advance: impl AsyncFn(Duration)) {
    let left = join(bus, "q", "g", "c1").await;
    let (waiting, leaving) = tokio::join!(tokio::time::timeout(Duration::from_secs(30), left.take(1)), async {
        tokio::task::yield_now().await;
        left.leave().await
    });
    leaving.expect("leave");
    let not_found = |result| matches!(result, Err(convoke_core::Error::NotFound { .. }));
    assert!(not_found(waiting.expect("a take that waits returns")));
    push(bus, "q", &["a"]).await;
    assert!(not_found(left.take(1).await));
    left.leave().await.expect("not an error");
    assert_eq!(texts(&take(&*join(bus, "q", "g", "c2").await, 1).await), ["a"]);
}

pub async fn a_signal_takes_nothing(bus: &dyn Bus, _advance: impl AsyncFn(Duration)) {
    let (signalled, other) = (join(bus, "q", "g", "c1").await, join(bus, "q", "g", "c2").await);
    assert!(soon(signalled.take_now(9)).await.is_empty(), "of an empty queue");
    push(bus, "q", &["a", "b", "c"]).await;
    soon(signalled.ready()).await;
    assert_eq!(bus.backlog("q", "g").await.expect("backlog"), 3, "nobody was given anything");
    assert!(soon(signalled.take_now(0)).await.is_empty(), "none are wanted");
    assert_eq!(texts(&soon(signalled.take_now(2)).await), ["a", "b"], "no more than was asked for");
    assert_eq!(bus.backlog("q", "g").await.expect("backlog"), 1, "the rest is for others");
    assert_eq!(texts(&take(&*other, 1).await), ["c"], "which are woken for it");
    assert!(soon(signalled.take_now(9)).await.is_empty());
}

pub async fn a_read_is_bounded_in_bytes_and_nothing_is_left_behind(bus: &dyn Bus, _advance: impl AsyncFn(Duration)) {
    let consumer = join(bus, "q", "g", "c").await;
    let large = |n: usize| format!("{n:02}{}", "x".repeat((1 << 20) - 2));
    for n in 0..40 {
        push(bus, "q", &[&large(n)]).await;
    }
    let mut seen = Vec::new();
    while seen.len() < 40 {
        let taken = soon(consumer.take(1_000)).await;
        let bytes: usize = taken.iter().map(|delivery| delivery.body.len()).sum();
        assert!(bytes <= 2 * TAKE_BYTES_MAX, "{bytes} bytes in one read");
        seen.extend(taken.iter().map(|delivery| text(delivery)[..2].parse::<usize>().expect("a number")));
    }
    assert_eq!(seen, (0..40).collect::<Vec<_>>());
    consumer.leave().await.expect("leave");
    let other = join(bus, "q", "g", "other").await;
    let mut taken_over = 0;
    while taken_over < 40 {
        let taken = other.take_over(Duration::ZERO, 1_000).await.expect("take over");
        let bytes: usize = taken.iter().map(|delivery| delivery.body.len()).sum();
        assert!(!taken.is_empty() && bytes <= 3 * TAKE_BYTES_MAX, "{bytes} bytes in one takeover");
        taken_over += taken.len();
        other.ack(&ids(&taken)).await.expect("ack");
    }
    assert_eq!(taken_over, 40);
}
