//! The Redis adapters during faults of Redis: it restarts empty, is unavailable, fails over, loses replies.
#![cfg(feature = "redis")]

mod redis_stage;

use std::collections::BTreeSet;
use std::time::Duration;

use convoke_adapters::redis::RedisLeases;
use convoke_core::ports::leases::Floor;
use convoke_core::ports::{Bus, Delivery, Leases, Subscription};
use convoke_core::{Epoch, Error};
use convoke_testkit::process::{PATIENCE, RedisSentinel, RedisServer, eventually};

use redis_stage::*;

/// Repeats until there is no transient error.
async fn persist<T>(what: &str, act: impl AsyncFn() -> convoke_core::Result<T>) -> T {
    eventually(what, async || match act().await {
        Ok(done) => Some(done),
        Err(error) if error.is_transient() => None,
        Err(error) => panic!("{what}: {error}"),
    })
    .await
}

async fn within_reason<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("{what} did not come"))
}

/// Waits for the notice that messages may have been missed; messages before it are ignored.
async fn gap(subscription: &mut dyn Subscription) {
    while within_reason("a gap", subscription.next()).await.expect("no error").is_some() {}
}

#[tokio::test]
async fn after_redis_was_restarted_empty_all_go_on() {
    let mut server = RedisServer::start().await;
    let bus = connect(&server.url()).await;
    let mut subscription = bus.subscribe(&["t".into()]).await.expect("subscribe");
    let consumer = bus.consumer("q", "g", "c").await.expect("consumer");
    let multiplex = bus.multiplex().await.expect("multiplex");
    multiplex.add(&[status(1)]).await.expect("add");
    push(&bus, "q", &["lost"]).await;
    let lost = consumer.take(1).await.expect("take");

    let waiting = async { tokio::join!(consumer.take(9), multiplex.next()) };
    let restarting = async {
        server.restart_empty().await;
        gap(&mut *subscription).await;
        for queue in ["q".to_owned(), status(1)] {
            persist("push", async || bus.push(vec![(queue.clone(), body("new"))]).await).await;
        }
        persist("publish", async || bus.publish("t", body("again")).await).await;
    };
    let ((taken, read), ()) = within_reason("both", async { tokio::join!(waiting, restarting) }).await;
    assert_eq!(texts(&taken.expect("the group is made again")), ["new"]);
    let read = read.expect("next");
    assert_eq!((read[0].0.as_str(), texts_read(&read[0].1)), (status(1).as_str(), vec!["new"]));
    let received = within_reason("a message", subscription.next()).await.expect("no error").expect("a message");
    assert_eq!(received.body, body("again"));
    consumer.ack(&ids(&lost)).await.expect("what is no more is passed over");
    assert_eq!(bus.backlog("q", "g").await.expect("backlog"), 0);
}

#[tokio::test]
async fn what_came_while_the_bells_were_lost_is_read_without_them() {
    let server = RedisServer::start().await;
    let bus = connect(&server.url()).await;
    let mut probe = Probe::connect(&server.url()).await;
    let multiplex = bus.multiplex().await.expect("multiplex");
    multiplex.add(&[status(1)]).await.expect("add");
    push(&bus, &status(1), &["first"]).await;
    assert_eq!(within_reason("the first", multiplex.next()).await.expect("next").len(), 1);
    // Added by a producer without bells, just before the connection that receives bells is lost.
    probe.ask(&["XADD", &status(1), "*", "data", "silent"]).await;
    probe.ask(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
    let read = within_reason("the second", multiplex.next()).await.expect("next");
    assert_eq!(texts_read(&read[0].1), ["silent"]);
}

#[tokio::test]
async fn killed_connections_lose_nothing_that_was_acknowledged() {
    const COUNT: usize = 600;
    let server = RedisServer::start().await;
    let (producer, bus) = (connect(&server.url()).await, connect(&server.url()).await);
    let consumer = bus.consumer("q", "g", "c").await.expect("consumer");
    let multiplex = bus.multiplex().await.expect("multiplex");
    multiplex.add(&[status(1)]).await.expect("add");

    let producing = async {
        for n in 0..COUNT {
            let entries = vec![("q".into(), body(&n.to_string())), (status(1), body(&n.to_string()))];
            persist("push", async || producer.push(entries.clone()).await).await;
        }
    };
    let taking = async {
        let mut seen = BTreeSet::new();
        while seen.len() < COUNT {
            let taken = within_reason("an entry", consumer.take(7)).await.expect("take rides out a lost connection");
            seen.extend(texts(&taken).into_iter().map(|text| text.parse::<usize>().expect("a number")));
            persist("ack", async || consumer.ack(&ids(&taken)).await).await;
        }
    };
    let reading = async {
        let mut seen = BTreeSet::new();
        while seen.len() < COUNT {
            for (queue, entries) in within_reason("an entry", multiplex.next()).await.expect("next") {
                seen.extend(texts_read(&entries).into_iter().map(|text| text.parse::<usize>().expect("a number")));
                let done = [(queue, ids_read(&entries))];
                persist("ack", async || multiplex.ack(&done).await).await;
            }
        }
    };
    let killing = async {
        let mut probe = Probe::connect(&server.url()).await;
        loop {
            probe.ask(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await;
            probe.ask(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
            tokio::time::sleep(Duration::from_millis(40)).await;
        }
    };
    tokio::select! {
        _ = async { tokio::join!(producing, taking, reading) } => {}
        () = killing => unreachable!("it goes on for ever"),
    }
}

#[tokio::test]
async fn a_read_whose_answer_was_lost_is_found_by_the_same_consumer() {
    let server = RedisServer::start().await;
    let proxy = Proxy::to(server.port()).await;
    let bus = connect(&proxy.url()).await;
    let consumer = bus.consumer("q", "g", "c").await.expect("consumer");
    push(&bus, "q", &["a", "b", "c"]).await;
    let held = within_reason("the first", consumer.take(1)).await.expect("take");
    proxy.lose_response_to("XREADGROUP");
    let mut taken: Vec<Delivery> = Vec::new();
    while taken.len() < 2 {
        taken.extend(within_reason("the rest", consumer.take(2)).await.expect("take"));
    }
    assert!(proxy.has_lost_one(), "the response was lost, or this shows nothing");
    assert_eq!(texts(&taken), ["b", "c"], "and what it held is not given again");
    assert!(taken.iter().all(|delivery| delivery.deliveries == 1), "nobody saw them before");
    consumer.ack(&ids(&[held, taken].concat())).await.expect("ack");
    assert_eq!(bus.backlog("q", "g").await.expect("backlog"), 0);
}

#[tokio::test]
async fn an_election_whose_answer_was_lost_is_found_won() {
    let server = RedisServer::start().await;
    let proxy = Proxy::to(server.port()).await;
    let leases = RedisLeases::connect(&proxy.url(), "convoke").await.expect("connects");
    let ttl = Duration::from_secs(60);
    // The server knows the script from then on, so that the lost reply is that of an election and not of loading the
    // script.
    let before = elect_for_a_moment(&leases).await;
    proxy.lose_response_to("EVALSHA");
    let lease = leases.elect("ns", "a", ttl, Floor::UNKNOWN).await.expect("it was elected");
    assert!(proxy.has_lost_one(), "the response was lost, or this shows nothing");
    let epoch = lease.epoch;
    assert_eq!(epoch, before.next(), "once");
    let read = leases.read("ns").await.expect("read").expect("somebody leads");
    assert_eq!((read.holder.as_str(), read.epoch), ("a", epoch));
    assert!(matches!(leases.elect("ns", "b", ttl, Floor::UNKNOWN).await, Err(Error::Conflict(_))));
    leases.renew("ns", "a", epoch, ttl).await.expect("its own term");
    proxy.lose_response_to("EVALSHA");
    assert!(matches!(leases.renew("ns", "a", epoch, ttl).await, Err(Error::Unknown { .. })));
}

#[tokio::test]
async fn sealed_epochs_go_on_after_redis_lost_its_data() {
    let mut server = RedisServer::start().await;
    let leases = RedisLeases::connect(&server.url(), "convoke").await.expect("connects");
    let ttl = Duration::from_secs(60);
    leases.elect("coordinator", "a", ttl, Floor::Sealed(Epoch(6))).await.expect("elected");
    let mut probe = Probe::connect(&server.url()).await;
    assert_eq!(probe.keys("*").await, ["convoke:coordinator:epoch", "convoke:coordinator:leader"]);
    server.restart_empty().await;
    let lease = persist("elect", async || leases.elect("coordinator", "b", ttl, Floor::Sealed(Epoch(7))).await).await;
    assert_eq!(lease.epoch, Epoch(8));
    assert!(matches!(leases.renew("coordinator", "a", Epoch(7), ttl).await, Err(Error::Fenced { .. })));
}

/// Elects and resigns. Returns the epoch.
async fn elect_for_a_moment(leases: &RedisLeases) -> Epoch {
    let elect = async || leases.elect("ns", "a", Duration::from_secs(60), Floor::UNKNOWN).await;
    let epoch = persist("elect", elect).await.epoch;
    leases.resign("ns", "a", epoch).await.expect("resign");
    epoch
}

#[tokio::test]
async fn epochs_rise_after_redis_lost_the_last_of_them_or_all() {
    let mut server = RedisServer::start().await;
    let leases = RedisLeases::connect(&server.url(), "convoke").await.expect("connects");
    let mut probe = Probe::connect(&server.url()).await;
    let first = elect_for_a_moment(&leases).await;
    let saved = probe.ask(&["GET", "convoke:ns:epoch"]).await;
    probe.ask(&["SAVE"]).await;
    // More often than the ticks of any clock coarser than microseconds.
    let mut last = first;
    for _ in 0..5_000 {
        let epoch = elect_for_a_moment(&leases).await;
        assert_eq!(epoch, last.next(), "one by one for as long as nothing is lost");
        last = epoch;
    }
    server.restart().await;
    let mut probe = Probe::connect(&server.url()).await;
    assert_eq!(probe.ask(&["GET", "convoke:ns:epoch"]).await, saved, "the later ones are lost");
    let after = elect_for_a_moment(&leases).await;
    assert!(after > last, "{after} after {last}");
    assert_eq!(elect_for_a_moment(&leases).await, after.next());
    server.restart_empty().await;
    let anew = elect_for_a_moment(&leases).await;
    assert!(anew > after.next(), "{anew} after {after} and another");
}

#[tokio::test]
async fn epochs_rise_where_redis_may_not_be_asked_who_it_is() {
    let mut server = RedisServer::start().await;
    let mut last = Epoch(0);
    for _ in 0..2 {
        let mut probe = Probe::connect(&server.url()).await;
        probe.ask(&["ACL", "SETUSER", "small", "on", ">secret", "~*", "&*", "+@all", "-info"]).await;
        let url = server.url().replace("redis://", "redis://small:secret@");
        let leases = RedisLeases::connect(&url, "convoke").await.expect("connects");
        for _ in 0..3 {
            let epoch = elect_for_a_moment(&leases).await;
            assert!(epoch > last, "{epoch} after {last}");
            last = epoch;
        }
        server.restart_empty().await;
    }
}

#[tokio::test]
async fn while_redis_is_away_verbs_say_so_and_nothing_happened() {
    let mut server = RedisServer::start().await;
    let bus = connect(&server.url()).await;
    let leases = RedisLeases::connect(&server.url(), "convoke").await.expect("connects");
    server.stop().await;
    // The first may have been on its way when the connection broke; from then on nothing is sent.
    eventually("it is noticed", async || matches!(bus.ping().await, Err(Error::Unavailable { .. })).then_some(()))
        .await;
    eventually("it is noticed", async || matches!(leases.ping().await, Err(Error::Unavailable { .. })).then_some(()))
        .await;
    assert!(matches!(bus.push(vec![("q".into(), body("a"))]).await, Err(Error::Unavailable { .. })));
    assert!(matches!(bus.publish("t", body("a")).await, Err(Error::Unavailable { .. })));
    assert!(matches!(bus.consumer("q", "g", "c").await, Err(Error::Unavailable { .. })));
    assert!(matches!(bus.subscribe(&["t".into()]).await, Err(Error::Unavailable { .. })));
    let elected = leases.elect("ns", "a", Duration::from_secs(9), Floor::UNKNOWN).await;
    assert!(matches!(elected, Err(Error::Unavailable { .. })));
    server.restart().await;
    persist("ping", async || bus.ping().await).await;
    assert_eq!(bus.backlog("q", "g").await.expect("backlog"), 0, "nothing had happened");
}

#[tokio::test]
async fn a_silent_redis_leaves_it_open_whether_something_happened() {
    let server = RedisServer::start().await;
    let bus = connect(&server.url()).await;
    server.pause();
    let (pushed, asked) = tokio::join!(bus.push(vec![("q".into(), body("a"))]), bus.backlog("q", "g"));
    assert!(matches!(pushed, Err(Error::Unknown { .. })), "{pushed:?}");
    assert!(matches!(asked, Err(Error::Unavailable { .. })), "a question can be asked again: {asked:?}");
    server.resume();
    persist("push", async || bus.push(vec![("q".into(), body("b"))]).await).await;
    let consumer = persist("consumer", async || bus.consumer("q", "g", "c").await).await;
    let mut seen = Vec::new();
    while seen.last().map(String::as_str) != Some("b") {
        let taken = within_reason("an entry", consumer.take(9)).await.expect("take");
        seen.extend(texts(&taken).into_iter().map(str::to_owned));
    }
}

#[tokio::test]
async fn after_a_failover_the_new_master_is_found() {
    let mut master = RedisServer::start().await;
    let port = master.port().to_string();
    let replica = RedisServer::builder().args(["--replicaof", "127.0.0.1", &port]).start().await;
    let sentinel = RedisSentinel::watch(&master).await;
    let bus = connect(&sentinel.url()).await;
    let leases = RedisLeases::connect(&sentinel.url(), "convoke").await.expect("connects");
    let mut subscription = bus.subscribe(&["t".into()]).await.expect("subscribe");
    let consumer = bus.consumer("q", "g", "c").await.expect("consumer");
    push(&bus, "q", &["before"]).await;
    assert_eq!(texts(&consumer.take(1).await.expect("take")), ["before"]);
    let epoch = elect_for_a_moment(&leases).await;

    master.kill().await;
    persist("push", async || bus.push(vec![("q".into(), body("after"))]).await).await;
    gap(&mut *subscription).await;
    let mut seen = Vec::new();
    while !seen.contains(&"after".to_owned()) {
        let taken = within_reason("an entry", consumer.take(9)).await.expect("take");
        seen.extend(texts(&taken).into_iter().map(str::to_owned));
    }
    let later = elect_for_a_moment(&leases).await;
    assert!(later > epoch.next(), "{later} is of the replica's clock: it may not know all before {epoch}");
    let mut probe = Probe::connect(&replica.url()).await;
    assert!(probe.keys("*").await.contains(&"convoke:ns:epoch".to_owned()), "it was the replica that took it");
}

#[tokio::test]
async fn a_sentinel_that_knows_no_such_master_is_said_to_be_one() {
    let master = RedisServer::start().await;
    let port = master.port().to_string();
    let _replica = RedisServer::builder().args(["--replicaof", "127.0.0.1", &port]).start().await;
    let sentinel = RedisSentinel::watch(&master).await;
    let url = sentinel.url().replace("/main", "/other");
    let error = try_connect(&url).await.err().expect("no such master");
    assert!(matches!(error, Error::Unavailable { .. }) && error.to_string().contains("master"), "{error}");
}
