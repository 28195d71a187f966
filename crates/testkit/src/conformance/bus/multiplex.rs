//! One reader for many queues: the channels of jobs.

use std::collections::BTreeMap;
use std::time::Duration;

use convoke_core::ports::{Bus, Entry, Multiplex};

use super::stage::*;

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| channel(name)).collect()
}

fn texts(entries: &[Entry]) -> Vec<&str> {
    entries.iter().map(|entry| std::str::from_utf8(&entry.body).expect("text was sent")).collect()
}

fn ids(entries: &[Entry]) -> Vec<String> {
    entries.iter().map(|entry| entry.id.clone()).collect()
}

/// Reads until there are `count` entries: what came of each queue, in order.
async fn read(multiplex: &dyn Multiplex, count: usize) -> BTreeMap<String, Vec<Entry>> {
    let mut came = BTreeMap::<String, Vec<Entry>>::new();
    while came.values().map(Vec::len).sum::<usize>() < count {
        for (queue, entries) in soon(multiplex.next()).await {
            came.entry(queue).or_default().extend(entries);
        }
    }
    came
}

pub async fn it_reads_what_is_added_and_nothing_else(bus: &dyn Bus, _advance: impl AsyncFn(Duration)) {
    let multiplex = bus.multiplex().await.expect("multiplex");
    multiplex.add(&names(&["a", "b"])).await.expect("add");
    let entries = [("a", "1"), ("b", "2"), ("c", "3"), ("a", "4")];
    bus.push(entries.map(|(queue, text)| (channel(queue), body(text))).to_vec()).await.expect("push");
    let came = read(&*multiplex, 3).await;
    assert_eq!(texts(&came[&channel("a")]), ["1", "4"], "in order");
    assert_eq!(texts(&came[&channel("b")]), ["2"]);
    assert_silent(multiplex.next()).await;
}

pub async fn what_a_queue_holds_already_arrives_too(bus: &dyn Bus, _advance: impl AsyncFn(Duration)) {
    push(bus, &channel("a"), &["1", "2"]).await;
    let multiplex = bus.multiplex().await.expect("multiplex");
    multiplex.add(&names(&["a", "empty"])).await.expect("add");
    push(bus, &channel("a"), &["3"]).await;
    assert_eq!(texts(&read(&*multiplex, 3).await[&channel("a")]), ["1", "2", "3"]);
    multiplex.add(&names(&["a"])).await.expect("adding again changes nothing");
    assert_silent(multiplex.next()).await;
}

pub async fn a_waiting_multiplex_is_woken(bus: &dyn Bus, _advance: impl AsyncFn(Duration)) {
    let multiplex = bus.multiplex().await.expect("multiplex");
    push(bus, &channel("later"), &["2"]).await;
    multiplex.add(&names(&["a"])).await.expect("add");
    let (came, ()) = tokio::join!(soon(multiplex.next()), async {
        tokio::task::yield_now().await;
        push(bus, &channel("a"), &["1"]).await;
    });
    assert_eq!(texts(&came[0].1), ["1"]);
    let (came, added) = tokio::join!(soon(multiplex.next()), async {
        tokio::task::yield_now().await;
        multiplex.add(&names(&["later"])).await
    });
    added.expect("add");
    assert_eq!((&came[0].0, texts(&came[0].1)), (&channel("later"), vec!["2"]));
}

pub async fn what_is_removed_is_read_no_more(bus: &dyn Bus, _advance: impl AsyncFn(Duration)) {
    let multiplex = bus.multiplex().await.expect("multiplex");
    multiplex.add(&names(&["a", "b"])).await.expect("add");
    push(bus, &channel("a"), &["before"]).await;
    multiplex.remove(&names(&["a", "never added"])).await.expect("remove");
    push(bus, &channel("a"), &["after"]).await;
    push(bus, &channel("b"), &["1"]).await;
    let came = read(&*multiplex, 1).await;
    assert_eq!(came.keys().collect::<Vec<_>>(), [&channel("b")]);
    assert_silent(multiplex.next()).await;
    multiplex.add(&names(&["a"])).await.expect("add");
    assert_eq!(texts(&read(&*multiplex, 2).await[&channel("a")]), ["before", "after"], "nothing was lost meanwhile");
}

pub async fn what_was_acknowledged_does_not_come_again(bus: &dyn Bus, _advance: impl AsyncFn(Duration)) {
    let first = bus.multiplex().await.expect("multiplex");
    first.add(&names(&["a"])).await.expect("add");
    push(bus, &channel("a"), &["1", "2", "3"]).await;
    let came = read(&*first, 3).await.remove(&channel("a")).expect("of a");
    first.ack(&[(channel("a"), vec![came[0].id.clone(), came[2].id.clone(), "nonsense".into()])]).await.expect("ack");
    first.ack(&[(channel("nowhere"), ids(&came))]).await.expect("passed over");
    first.remove(&names(&["a"])).await.expect("remove");
    let second = bus.multiplex().await.expect("multiplex");
    second.add(&names(&["a"])).await.expect("add");
    let again = read(&*second, 1).await.remove(&channel("a")).expect("of a");
    assert_eq!(texts(&again), ["2"], "what was not comes again");
    assert_eq!(again[0].id, came[1].id);
    second.ack(&[(channel("a"), ids(&again))]).await.expect("ack");
    assert_silent(second.next()).await;
    push(bus, &channel("a"), &["4"]).await;
    assert_eq!(texts(&read(&*second, 1).await[&channel("a")]), ["4"]);
}

pub async fn a_dropped_multiplex_leaves_its_entries_to_the_next(bus: &dyn Bus, _advance: impl AsyncFn(Duration)) {
    let dead = bus.multiplex().await.expect("multiplex");
    dead.add(&names(&["a"])).await.expect("add");
    push(bus, &channel("a"), &["1"]).await;
    read(&*dead, 1).await;
    drop(dead);
    push(bus, &channel("a"), &["2"]).await;
    let heir = bus.multiplex().await.expect("multiplex");
    heir.add(&names(&["a"])).await.expect("add");
    assert_eq!(texts(&read(&*heir, 2).await[&channel("a")]), ["1", "2"]);
}

pub async fn several_multiplexes_of_a_queue_share_acknowledgements(bus: &dyn Bus, _advance: impl AsyncFn(Duration)) {
    let (one, two) = (bus.multiplex().await.expect("multiplex"), bus.multiplex().await.expect("multiplex"));
    one.add(&names(&["a"])).await.expect("add");
    two.add(&names(&["a"])).await.expect("add");
    push(bus, &channel("a"), &["1"]).await;
    assert_eq!(texts(&read(&*one, 1).await[&channel("a")]), ["1"]);
    assert_eq!(texts(&read(&*two, 1).await[&channel("a")]), ["1"]);
    push(bus, &channel("a"), &["2"]).await;
    let second = read(&*one, 1).await;
    one.ack(&[(channel("a"), ids(&second[&channel("a")]))]).await.expect("ack");
    assert_silent(two.next()).await;
}

pub async fn what_is_finished_is_gone_and_what_came_meanwhile_stays(bus: &dyn Bus, _advance: impl AsyncFn(Duration)) {
    let multiplex = bus.multiplex().await.expect("multiplex");
    multiplex.add(&names(&["a", "b", "c"])).await.expect("add");
    for (queue, texts) in [("a", &["1"][..]), ("b", &["2", "3"][..]), ("c", &["4"][..])] {
        push(bus, &channel(queue), texts).await;
    }
    let came = read(&*multiplex, 4).await;
    push(bus, &channel("b"), &["5"]).await;
    // A queue that is gone already is no error.
    multiplex.ack(&[(channel("c"), ids(&came[&channel("c")]))]).await.expect("ack");
    let done: Vec<_> = ["a", "b"].map(|queue| (channel(queue), ids(&came[&channel(queue)]))).into();
    multiplex.finish(&done).await.expect("finish");
    multiplex.finish(&[(channel("c"), ids(&came[&channel("c")])), (channel("nowhere"), vec![])]).await.expect("finish");
    let again = bus.multiplex().await.expect("multiplex");
    again.add(&names(&["a", "b", "c"])).await.expect("add");
    assert_eq!(read(&*again, 1).await.into_values().flatten().map(|entry| entry.body).collect::<Vec<_>>(), [body("5")]);
    assert_silent(again.next()).await;
    assert_eq!(texts(&read(&*multiplex, 1).await[&channel("b")]), ["5"], "its reader goes on");
}

pub async fn an_emptied_queue_is_read_on(bus: &dyn Bus, _advance: impl AsyncFn(Duration)) {
    let multiplex = bus.multiplex().await.expect("multiplex");
    multiplex.add(&names(&["a"])).await.expect("add");
    for round in 0..100 {
        // As fast as can be: a bus must not take what comes after an acknowledgement for what came before it.
        let name = round.to_string();
        push(bus, &channel("a"), &[&name]).await;
        let came = read(&*multiplex, 1).await;
        assert_eq!(texts(&came[&channel("a")]), [name.as_str()]);
        multiplex.ack(&[(channel("a"), ids(&came[&channel("a")]))]).await.expect("ack");
    }
    assert_silent(multiplex.next()).await;
}

pub async fn a_next_that_is_given_up_has_taken_nothing(bus: &dyn Bus, _advance: impl AsyncFn(Duration)) {
    let multiplex = bus.multiplex().await.expect("multiplex");
    multiplex.add(&names(&["a"])).await.expect("add");
    for round in 0..50 {
        let name = round.to_string();
        let mut given_up = Box::pin(multiplex.next());
        tokio::select! {
            biased;
            _ = &mut given_up => panic!("nothing was pushed"),
            () = tokio::task::yield_now() => {}
        }
        push(bus, &channel("a"), &[&name]).await;
        drop(given_up);
        assert_eq!(
            texts(&read(&*multiplex, 1).await[&channel("a")]),
            [name.as_str()],
            "nothing is lost in round {round}"
        );
    }
}

pub async fn ten_thousand_queues_are_read_by_one(bus: &dyn Bus, _advance: impl AsyncFn(Duration)) {
    let multiplex = bus.multiplex().await.expect("multiplex");
    let queues: Vec<String> = (0..10_000).map(|n| channel(&n.to_string())).collect();
    for part in queues.chunks(1_000) {
        multiplex.add(part).await.expect("add");
    }
    for round in ["1", "2"] {
        for part in queues.chunks(1_000) {
            bus.push(part.iter().map(|queue| (queue.clone(), body(round))).collect()).await.expect("push");
        }
    }
    let came = read(&*multiplex, 20_000).await;
    assert_eq!(came.len(), 10_000);
    for (queue, entries) in &came {
        assert_eq!(texts(entries), ["1", "2"], "{queue}");
        multiplex.ack(&[(queue.to_owned(), ids(entries))]).await.expect("ack");
    }
    multiplex.remove(&queues).await.expect("remove");
    close(bus, &queues).await;
    assert_silent(multiplex.next()).await;
}
