//! The bus on PostgreSQL if connections break, the server crashes, or others use the same database.
#![cfg(feature = "postgres")]

use std::time::Duration;

use bytes::Bytes;
use convoke_adapters::postgres::{PostgresBus, PostgresStore};
use convoke_core::ports::{Bus, Consumer, Message, Subscription};
use convoke_testkit::process::{Durability, LosingProxy, Postgres, SharedPostgres, eventually};
use tokio_postgres::{Client, NoTls};

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(600);
const PATIENCE: Duration = Duration::from_secs(60);

async fn connect(url: &str, prefix: &str) -> PostgresBus {
    PostgresBus::connect("bus.url", url, prefix).await.expect("connects")
}

async fn probe(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("PostgreSQL is there");
    tokio::spawn(connection);
    client
}

fn body(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

async fn subscribe(bus: &PostgresBus, topic: &str) -> Box<dyn Subscription> {
    bus.subscribe(&[topic.into()]).await.expect("subscribe")
}

async fn next(subscription: &mut Box<dyn Subscription>) -> Option<Message> {
    tokio::time::timeout(PATIENCE, subscription.next()).await.expect("it arrives").expect("no error")
}

fn message(topic: &str, text: &str) -> Option<Message> {
    Some(Message { channel: topic.into(), body: body(text) })
}

async fn taken(consumer: &dyn Consumer) -> Vec<Bytes> {
    let taken = tokio::time::timeout(PATIENCE, consumer.take(10)).await.expect("it arrives").expect("take");
    taken.into_iter().map(|delivery| delivery.body).collect()
}

async fn push(bus: &PostgresBus, queue: &str, text: &str) {
    // The connection that sends may have broken a moment ago.
    eventually("a push", || async { bus.push(vec![(queue.into(), body(text))]).await.ok() }).await;
}

#[tokio::test]
async fn large_messages_and_any_bytes_reach_other_processes() {
    let url = SharedPostgres::get().create_database();
    let (here, there) = (connect(&url, "p").await, connect(&url, "p").await);
    let mut subscription = subscribe(&there, "t").await;
    let bodies =
        [Bytes::from(vec![0; 100_000]), body(&"ä".repeat(1_000_000)), Bytes::from(vec![255, 0, 7]), Bytes::new()];
    for body in &bodies {
        here.publish("t", body.clone()).await.expect("publish");
    }
    for body in bodies {
        assert_eq!(next(&mut subscription).await, Some(Message { channel: "t".into(), body }));
    }
    let too_large = here.publish("t", Bytes::from(vec![b'x'; 17 << 20])).await.expect_err("refused");
    assert!(too_large.to_string().starts_with("message: expected at most 16777216 bytes"), "{too_large}");
    assert!(here.publish("t\0", Bytes::new()).await.is_err());
    assert!(here.push(vec![("q\0".into(), Bytes::new())]).await.is_err());
}

/// Equal messages are no duplicates, however many go in one transaction.
#[tokio::test]
async fn messages_that_wait_together_all_arrive_in_order() {
    let url = SharedPostgres::get().create_database();
    let bus = connect(&url, "p").await;
    let mut subscription = subscribe(&bus, "t").await;
    let same = futures_util::future::join_all((0..500).map(|_| bus.publish("t", body("same"))));
    same.await.into_iter().for_each(|published| published.expect("publish"));
    for _ in 0..500 {
        assert_eq!(next(&mut subscription).await, message("t", "same"));
    }
}

#[tokio::test]
async fn clusters_of_another_prefix_or_schema_receive_nothing() {
    let url = SharedPostgres::get().create_database();
    let bus = connect(&url, "one").await;
    let mut others = Vec::new();
    for (url, prefix) in [(url.clone(), "two"), (format!("{url}&schema=other"), "one")] {
        let other = connect(&url, prefix).await;
        let subscription = subscribe(&other, "t").await;
        others.push((other, subscription));
    }
    bus.publish("t", body("of one")).await.expect("publish");
    for (other, mut subscription) in others {
        other.publish("t", body("its own")).await.expect("publish");
        assert_eq!(next(&mut subscription).await, message("t", "its own"));
    }
}

/// A session that ends is found by its reader, who reads the state again; what is sent later arrives.
#[tokio::test]
async fn a_broken_connection_is_a_gap_and_consumers_go_on() {
    let url = SharedPostgres::get().create_database();
    let bus = connect(&url, "p").await;
    let mut subscription = subscribe(&bus, "t").await;
    let consumer = bus.consumer("q", "g", "c").await.expect("consumer");
    assert!(consumer.take_now(1).await.expect("take").is_empty());
    let end = "select pg_terminate_backend(pid) from pg_stat_activity \
               where datname = current_database() and pid <> pg_backend_pid()";
    probe(&url).await.query(end, &[]).await.expect("they end");
    assert_eq!(next(&mut subscription).await, None, "the subscriber receives a gap");
    push(&bus, "q", "entry").await;
    assert_eq!(taken(&*consumer).await, [body("entry")]);
    bus.publish("t", body("later")).await.expect("publish");
    assert_eq!(next(&mut subscription).await, message("t", "later"));
}

/// Unlogged tables are empty after a crash: entries are lost, as the port allows, and groups are made again.
#[tokio::test]
async fn after_a_crash_of_the_server_readers_go_on_with_later_entries() {
    let mut server = Postgres::start(Durability::Durable).await;
    let url = server.create_database();
    let bus = connect(&url, "p").await;
    let mut subscription = subscribe(&bus, "t").await;
    let consumer = bus.consumer("q", "g", "c").await.expect("consumer");
    push(&bus, "q", "before").await;
    assert_eq!(taken(&*consumer).await, [body("before")]);
    server.restart_immediate().await;
    assert_eq!(next(&mut subscription).await, None);
    push(&bus, "q", "after").await;
    assert_eq!(taken(&*consumer).await, [body("after")]);
    let readers =
        eventually("the group, made again", || async { bus.readers(&["q".into()], "g", LONG).await.ok()?.remove(0) })
            .await;
    assert_eq!((readers.readers[0].name.as_str(), readers.readers[0].pending), ("c", 1));
}

/// The server counts the entries as delivered, the consumer never saw them: they are delivered for the first time.
#[tokio::test]
async fn entries_of_a_read_whose_answer_was_lost_are_delivered_again() {
    let url = SharedPostgres::get().create_database();
    let host = url.split(['@', '/']).find(|part| part.starts_with("127.0.0.1:")).expect("an address");
    let proxy = LosingProxy::to(host.parse().expect("an address")).await;
    let bus = connect(&url.replace(host, &proxy.address().to_string()), "p").await;
    let consumer = bus.consumer("q", "g", "the-consumer").await.expect("consumer");
    // Its statements are prepared by this.
    assert!(consumer.take_now(1).await.expect("take").is_empty());
    push(&bus, "q", "entry").await;
    consumer.ready().await.expect("a bell");
    proxy.lose_response_to("the-consumer");
    consumer.take_now(1).await.expect_err("its reply is lost");
    assert!(proxy.has_lost_one(), "the reply was lost, or this shows nothing");
    let again = tokio::time::timeout(PATIENCE, consumer.take(1)).await.expect("it arrives").expect("take");
    assert_eq!((again[0].body.clone(), again[0].deliveries), (body("entry"), 1));
}

/// Entries that were acknowledged, queues that were closed and groups that were left keep no rows.
#[tokio::test]
async fn nothing_accumulates() {
    let url = SharedPostgres::get().create_database();
    let bus = connect(&url, "p").await;
    let probe = probe(&url).await;
    for round in 0..20 {
        let consumer = bus.consumer("q", "g", &format!("c{round}")).await.expect("consumer");
        push(&bus, "q", "entry").await;
        push(&bus, "job", "unread").await;
        let taken = tokio::time::timeout(PATIENCE, consumer.take(1)).await.expect("it arrives").expect("take");
        consumer.ack(&[taken[0].id.clone()]).await.expect("ack");
        if round % 2 == 0 {
            consumer.leave().await.expect("leave");
        }
        drop(consumer);
    }
    bus.close(&bus.ends(&["job".into()]).await.expect("ends")).await.expect("close");
    let rows = async |table: &str| {
        let count = probe.query_one(&format!("select count(*) from {table}"), &[]).await.expect("a count");
        count.get::<_, i64>(0)
    };
    assert_eq!(rows("convoke_bus_entries").await, 0);
    eventually("no members", || async { (rows("convoke_bus_members").await == 0).then_some(()) }).await;
    assert_eq!(bus.queues("").await.expect("queues"), ["q"]);
    bus.forget_unread(&["q".into()], Duration::ZERO).await.expect("forget");
    assert_eq!(rows("convoke_bus_groups").await, 0);
}

#[tokio::test]
async fn an_entry_that_is_never_acknowledged_is_set_aside() {
    let url = SharedPostgres::get().create_database();
    let bus = connect(&url, "p").await;
    let (one, two) = (bus.consumer("q", "g", "1").await.expect("one"), bus.consumer("q", "g", "2").await.expect("two"));
    push(&bus, "q", "spoilt").await;
    taken(&*one).await;
    for _ in 0..8 {
        two.take_over(Duration::ZERO, 9).await.expect("take over");
        one.take_over(Duration::ZERO, 9).await.expect("take over");
    }
    assert_eq!(bus.backlog("p.poison", "g").await.expect("backlog"), 1);
    assert!(two.take_over(Duration::ZERO, 9).await.expect("take over").is_empty(), "it is no longer in its queue");
}

/// The store and the bus of a node migrate the same database.
#[tokio::test]
async fn a_store_and_a_bus_share_a_database() {
    let url = SharedPostgres::get().create_database();
    let (store, bus) = tokio::join!(PostgresStore::connect(&url), PostgresBus::connect("bus.url", &url, "p"));
    store.expect("connects");
    bus.expect("connects").ping().await.expect("ping");
    let wrong = PostgresBus::connect("bus.url", "postgres:", "p").await.expect_err("refused");
    assert!(wrong.to_string().starts_with("bus.url: expected postgres://"), "{wrong}");
}
