//! The Redis adapters against the suites of their ports, and against events of a real server.
#![cfg(feature = "redis")]

mod redis_stage;

use std::sync::Arc;

use convoke_adapters::redis::{RedisBus, RedisCache, RedisLeases, RedisMesh};
use convoke_core::jobs::channels::Channels;
use convoke_core::ports::cache::{Lookup, Ticket};
use convoke_core::ports::{Bus, Leases, MeshLink, SharedCache};
use convoke_testkit::conformance::Subject;
use convoke_testkit::conformance::leases::Clients;
use convoke_testkit::process::RedisServer;

mod bus {
    use super::*;

    async fn fresh() -> Subject<dyn Bus> {
        let server = RedisServer::start().await;
        let bus = RedisBus::connect(&server.url(), Channels::new("convoke")).await.expect("connects");
        Subject::keeping(Arc::new(bus), server)
    }

    convoke_testkit::bus_conformance!(fresh, tokio::time::sleep);
}

mod cache {
    use std::time::Duration;

    use super::redis_stage::Probe;
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    async fn fresh() -> Subject<dyn SharedCache> {
        let server = RedisServer::start().await;
        Subject::keeping(Arc::new(RedisCache::open(&server.url()).expect("an address")), server)
    }

    convoke_testkit::cache_conformance!(fresh, tokio::time::sleep);

    /// Leases use the same prefix: a node of the name `epoch` must not delete a cluster's epoch.
    #[tokio::test]
    async fn what_others_wrote_is_neither_returned_nor_changed() {
        let server = RedisServer::start().await;
        let (cache, mut probe) =
            (RedisCache::open(&server.url()).expect("an address"), Probe::connect(&server.url()).await);
        probe.ask(&["SET", "convoke:coordinator:epoch", "7"]).await;
        probe.ask(&["HSET", "convoke:coordinator:leader", "holder", "n1"]).await;
        probe.ask(&["SET", "convoke:job:huge", &"x".repeat(2 << 20)]).await;
        let keys = ["convoke:coordinator:epoch", "convoke:coordinator:leader", "convoke:job:huge"];
        for key in keys {
            assert_eq!(cache.get(key).await.expect("it responds"), Lookup::Foreign, "{key}");
            assert!(!cache.put(key, "1", LONG, &Ticket(String::new())).await.expect("it responds"), "{key}");
        }
        cache.outdate(&keys.map(String::from)).await.expect("it responds");
        assert_eq!(probe.ask(&["GET", keys[0]]).await, redis::Value::BulkString(b"7".to_vec()));
        assert_eq!(probe.number(&["HLEN", keys[1]]).await, 1);
        assert_eq!(probe.number(&["STRLEN", keys[2]]).await, 2 << 20);
    }
}

mod leases {
    use super::*;

    async fn fresh(count: usize) -> Clients {
        let server = RedisServer::start().await;
        let mut clients: Vec<Arc<dyn Leases>> = Vec::new();
        for _ in 0..count {
            clients.push(Arc::new(RedisLeases::connect(&server.url(), "convoke").await.expect("connects")));
        }
        Subject::keeping(clients.into(), server)
    }

    convoke_testkit::leases_conformance!(fresh, tokio::time::sleep);
    convoke_testkit::resignations_conformance!(fresh, tokio::time::sleep);
}

mod mesh {
    use super::*;

    async fn fresh() -> Subject<dyn MeshLink> {
        let server = RedisServer::start().await;
        let link = RedisMesh::connect(&server.url(), "app", "app", "my-app").await.expect("connects");
        Subject::keeping(Arc::new(link), server)
    }

    convoke_testkit::mesh_conformance!(fresh, tokio::time::sleep);
}

mod keys {
    use std::time::Duration;

    use super::redis_stage::*;
    use super::*;

    #[tokio::test]
    async fn connections_do_not_grow_with_what_is_read() {
        let server = RedisServer::start().await;
        let mut probe = Probe::connect(&server.url()).await;
        let bus = connect(&server.url()).await;
        let few = probe.connections().await;
        assert_eq!(few, 3, "two, and the test's own");
        let mut consumers = Vec::new();
        let mut subscriptions = Vec::new();
        for n in 0..200 {
            consumers.push(bus.consumer(&format!("q{}", n % 20), "g", &format!("c{n}")).await.expect("consumer"));
            subscriptions.push(bus.subscribe(&[format!("t{n}")]).await.expect("subscribe"));
        }
        let multiplex = bus.multiplex().await.expect("multiplex");
        let queues: Vec<String> = (0..10_000).map(status).collect();
        multiplex.add(&queues).await.expect("add");
        let takes = consumers.iter().map(|consumer| consumer.take(1));
        let waiting = async { tokio::join!(futures_util::future::select_all(takes), multiplex.next()) };
        let pushing = async {
            tokio::task::yield_now().await;
            bus.push(vec![("q7".into(), body("a")), (status(9_999), body("b"))]).await.expect("push");
        };
        let (((taken, ..), read), ()) = tokio::join!(waiting, pushing);
        assert_eq!(texts(&taken.expect("take")), ["a"]);
        assert_eq!(read.expect("next")[0].0, status(9_999));
        assert_eq!(probe.connections().await, few);
    }

    #[tokio::test]
    async fn no_key_of_a_job_is_left_once_it_is_acknowledged_or_closed() {
        let server = RedisServer::start().await;
        let mut probe = Probe::connect(&server.url()).await;
        let bus = connect(&server.url()).await;
        let multiplex = bus.multiplex().await.expect("multiplex");
        let queues: Vec<String> = channels().of_jobs(&(0..3_000).map(job).collect::<Vec<_>>());
        multiplex.add(&queues).await.expect("add");
        bus.push(queues.iter().map(|queue| (queue.clone(), body("a"))).collect()).await.expect("push");
        let mut read = 0;
        while read < queues.len() {
            let batch = multiplex.next().await.expect("next");
            read += batch.len();
            let done: Vec<_> = batch.iter().map(|(queue, entries)| (queue.clone(), ids_read(entries))).collect();
            multiplex.ack(&done).await.expect("ack");
        }
        assert!(probe.keys("convoke.job.*").await.is_empty());
        bus.push(queues.iter().map(|queue| (queue.clone(), body("late"))).collect()).await.expect("push");
        assert_eq!(probe.keys("convoke.job.*").await.len(), queues.len());
        bus.close(&bus.ends(&queues).await.expect("ends")).await.expect("close");
        assert!(probe.keys("*").await.is_empty());
    }

    #[tokio::test]
    async fn no_key_of_a_job_is_left_once_it_is_finished_unless_more_came() {
        let server = RedisServer::start().await;
        let mut probe = Probe::connect(&server.url()).await;
        let bus = connect(&server.url()).await;
        let multiplex = bus.multiplex().await.expect("multiplex");
        let queues: Vec<String> = channels().of_jobs(&(0..3_000).map(job).collect::<Vec<_>>());
        multiplex.add(&queues).await.expect("add");
        bus.push(queues.iter().map(|queue| (queue.clone(), body("a"))).collect()).await.expect("push");
        let mut done = Vec::new();
        while done.len() < queues.len() {
            let batch = multiplex.next().await.expect("next");
            done.extend(batch.iter().map(|(queue, entries)| (queue.clone(), ids_read(entries))));
        }
        // The owner removes its claims, and with them the channels from its reader, before it finishes them.
        multiplex.remove(&queues).await.expect("remove");
        push(&bus, &queues[7], &["of a later run"]).await;
        multiplex.finish(&done).await.expect("finish");
        assert_eq!(probe.keys("*").await, [queues[7].clone()]);
        multiplex.add(&queues[7..8]).await.expect("add");
        let left = multiplex.next().await.expect("next");
        assert_eq!(left[0].1.iter().map(|entry| entry.body.clone()).collect::<Vec<_>>(), [body("of a later run")]);
    }

    /// If the name were removed with its pending entries, they would be lost.
    #[tokio::test]
    async fn a_consumer_that_is_dropped_leaves_its_name_only_with_pending_entries() {
        let server = RedisServer::start().await;
        let mut probe = Probe::connect(&server.url()).await;
        let bus = connect(&server.url()).await;
        push(&bus, "q", &["a", "b"]).await;
        let (done, busy) = (bus.consumer("q", "g", "done").await, bus.consumer("q", "g", "busy").await);
        let (done, busy) = (done.expect("consumer"), busy.expect("consumer"));
        let taken = done.take(1).await.expect("take");
        done.ack(&ids(&taken)).await.expect("ack");
        assert_eq!(texts(&busy.take(1).await.expect("take")), ["b"]);
        drop((done, busy));
        let patience = tokio::time::Instant::now() + Duration::from_secs(20);
        let names = ["XINFO", "CONSUMERS", "q", "g"];
        while probe.rows(&names).await != 1 {
            assert!(tokio::time::Instant::now() < patience, "the name of the one that was done is removed");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let heir = bus.consumer("q", "g", "heir").await.expect("consumer");
        assert_eq!(texts(&heir.take_over(Duration::ZERO, 9).await.expect("taken over")), ["b"]);
    }

    #[tokio::test]
    async fn an_entry_is_deleted_when_the_last_of_its_groups_is_done_with_it() {
        let server = RedisServer::start().await;
        let mut probe = Probe::connect(&server.url()).await;
        let bus = connect(&server.url()).await;
        let one = bus.consumer("q", "one", "c").await.expect("consumer");
        let two = bus.consumer("q", "two", "c").await.expect("consumer");
        push(&bus, "q", &["a", "b", "c"]).await;
        let of_one = one.take(9).await.expect("take");
        one.ack(&ids(&of_one)).await.expect("ack");
        assert_eq!(probe.number(&["XLEN", "q"]).await, 3, "the other group was given none");
        assert_eq!(bus.backlog("q", "one").await.expect("backlog"), 0);
        let of_two = two.take(2).await.expect("take");
        two.ack(&ids(&of_two[..1])).await.expect("ack");
        assert_eq!(probe.number(&["XLEN", "q"]).await, 2, "one is pending there, and one not given");
        assert_eq!(bus.backlog("q", "two").await.expect("backlog"), 1);
        let rest = two.take(9).await.expect("take");
        two.ack(&ids(&[of_two, rest].concat())).await.expect("ack");
        assert_eq!(probe.number(&["XLEN", "q"]).await, 0);
        assert_eq!(bus.backlog("q", "two").await.expect("backlog"), 0);
    }

    #[tokio::test]
    async fn what_a_stranger_acknowledges_without_deleting_waits_for_nobody_and_is_trimmed() {
        let server = RedisServer::start().await;
        let mut probe = Probe::connect(&server.url()).await;
        let bus = connect(&server.url()).await;
        let own = bus.consumer("q", "g", "own").await.expect("consumer");
        push(&bus, "q", &["a", "b", "c", "d", "e"]).await;
        let taken = own.take(4).await.expect("take");
        let backlog = async || bus.backlog("q", "g").await.expect("backlog");
        for stranger in [0, 2] {
            probe.ask(&["XACK", "q", "g", &taken[stranger].id]).await;
        }
        assert_eq!(backlog().await, 1, "two are acknowledged, two pending");
        // From here on Redis does not report the lag of the group: the last delivered entry is deleted.
        own.ack(&[taken[3].id.clone()]).await.expect("ack");
        assert_eq!(backlog().await, 1);
        bus.trim(&["q".into(), "no such queue".into()]).await.expect("trim");
        assert_eq!(probe.number(&["XLEN", "q"]).await, 3, "only what lies before the first that is pending goes");
        probe.ask(&["XACK", "q", "g", &taken[1].id]).await;
        let other = bus.consumer("q", "other", "c").await.expect("consumer");
        bus.trim(&["q".into()]).await.expect("trim");
        assert_eq!(probe.number(&["XLEN", "q"]).await, 3, "another group was given none of them");
        let rest = other.take(9).await.expect("take");
        assert_eq!(texts(&rest), ["b", "c", "e"]);
        for entry in &rest {
            probe.ask(&["XACK", "q", "other", &entry.id]).await;
        }
        bus.trim(&["q".into()]).await.expect("trim");
        assert_eq!((probe.number(&["XLEN", "q"]).await, backlog().await), (1, 1), "what nobody was given stays");
        assert_eq!(texts(&own.take(9).await.expect("take")), ["e"]);
        assert_eq!(backlog().await, 0);
    }

    #[tokio::test]
    async fn an_empty_queue_that_nobody_reads_is_forgotten_and_is_there_again_for_who_does() {
        let server = RedisServer::start().await;
        let mut probe = Probe::connect(&server.url()).await;
        let (here, there) = (connect(&server.url()).await, connect(&server.url()).await);
        let queues = ["q".to_owned(), "no such queue".to_owned()];
        let (one, two) = (
            here.consumer("q", "g", "one").await.expect("consumer"),
            there.consumer("q", "g", "two").await.expect("consumer"),
        );
        push(&here, "q", &["a"]).await;
        here.forget_unread(&queues, Duration::ZERO).await.expect("forget");
        let taken = one.take(1).await.expect("what nobody was given stays");
        here.forget_unread(&queues, Duration::ZERO).await.expect("forget");
        assert_eq!(probe.keys("*").await, ["q"], "so does what is pending");
        one.ack(&ids(&taken)).await.expect("ack");
        here.forget_unread(&queues, Duration::from_secs(600)).await.expect("forget");
        assert_eq!(probe.keys("*").await, ["q"], "and what was read lately");
        here.forget_unread(&queues, Duration::ZERO).await.expect("forget");
        assert!(probe.keys("*").await.is_empty());
        for consumer in [two, one] {
            assert_eq!(here.backlog("q", "g").await.expect("backlog"), 0);
            let (taken, ()) = tokio::join!(consumer.take(1), push(&here, "q", &["b"]));
            let taken = taken.expect("take");
            assert_eq!(texts(&taken), ["b"]);
            consumer.ack(&ids(&taken)).await.expect("ack");
            consumer.leave().await.expect("leave");
        }
        here.forget_unread(&queues, Duration::from_secs(600)).await.expect("forget");
        assert!(probe.keys("*").await.is_empty(), "those who left are no readers");
    }

    #[tokio::test]
    async fn who_reads_without_the_port_is_listed_as_such() {
        let server = RedisServer::start().await;
        let mut probe = Probe::connect(&server.url()).await;
        let bus = connect(&server.url()).await;
        let consumer = bus.consumer("q", "g", "ours").await.expect("consumer");
        push(&bus, "q", &["a", "b", "c"]).await;
        let _taken = consumer.take(1).await.expect("take");
        probe.ask(&["XREADGROUP", "GROUP", "g", "theirs", "COUNT", "2", "STREAMS", "q", ">"]).await;
        let found = bus.readers(&["q".into()], "g", Duration::from_secs(60)).await.expect("readers").remove(0);
        let found = found.expect("it has the group");
        let mut shown: Vec<_> = found.readers.iter().map(|reader| (reader.is_consumer, reader.pending)).collect();
        shown.sort_unstable();
        assert_eq!((shown, found.is_awaited), (vec![(false, 2), (true, 1)], false));
        assert!(found.readers.iter().any(|reader| reader.name == "theirs"));
        probe.ask(&["SET", "word", "no queue"]).await;
        let none = bus.readers(&["word".into()], "g", Duration::from_secs(60)).await.expect("readers");
        assert_eq!(none, [None], "a key that is no queue has no readers");
    }

    #[tokio::test]
    async fn while_somebody_blocks_a_queue_is_awaited_and_an_empty_one_is_kept() {
        use tokio::io::AsyncWriteExt;

        let server = RedisServer::start().await;
        let mut probe = Probe::connect(&server.url()).await;
        let bus = connect(&server.url()).await;
        bus.consumer("q", "g", "c").await.expect("consumer").leave().await.expect("leave");
        let queues = ["q".to_owned()];
        let awaited = async || {
            let found = bus.readers(&queues, "g", Duration::from_secs(60)).await.expect("readers").remove(0);
            found.is_some_and(|found| found.is_awaited)
        };
        assert!(!awaited().await);
        let address = server.url().strip_prefix("redis://").expect("an address").to_owned();
        let mut waiting = tokio::net::TcpStream::connect(address.trim_end_matches('/')).await.expect("connects");
        waiting.write_all(b"XREADGROUP GROUP g theirs BLOCK 0 STREAMS q >\r\n").await.expect("sent");
        while !awaited().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        bus.forget_unread(&queues, Duration::ZERO).await.expect("forget");
        assert_eq!(probe.keys("*").await, ["q"], "somebody may wait there");
        drop(waiting);
        while !probe.keys("*").await.is_empty() {
            bus.forget_unread(&queues, Duration::ZERO).await.expect("forget");
        }
    }

    #[tokio::test]
    async fn who_leaves_with_nothing_is_forgotten_by_the_server() {
        let server = RedisServer::start().await;
        let mut probe = Probe::connect(&server.url()).await;
        let bus = connect(&server.url()).await;
        let (one, two) = (
            bus.consumer("q", "g", "c1").await.expect("consumer"),
            bus.consumer("q", "g", "c2").await.expect("consumer"),
        );
        push(&bus, "q", &["a", "b"]).await;
        let taken = one.take(1).await.expect("take");
        two.take(1).await.expect("take");
        let consumers = async |probe: &mut Probe| match probe.ask(&["XINFO", "CONSUMERS", "q", "g"]).await {
            redis::Value::Array(list) => list.len(),
            other => panic!("{other:?}"),
        };
        assert_eq!(consumers(&mut probe).await, 2);
        one.ack(&ids(&taken)).await.expect("ack");
        one.leave().await.expect("leave");
        assert_eq!(consumers(&mut probe).await, 1);
        two.leave().await.expect("leave");
        assert_eq!(consumers(&mut probe).await, 1, "what it was given is not thrown away with it");
    }

    #[tokio::test]
    async fn what_is_given_too_often_is_set_aside_with_the_reason() {
        let server = RedisServer::start().await;
        let bus = connect(&server.url()).await.with_deliveries_max(3);
        push(&bus, "q", &["bad", "good"]).await;
        let first = bus.consumer("q", "g", "first").await.expect("consumer");
        let taken = first.take(2).await.expect("take");
        first.ack(&ids(&taken[1..])).await.expect("ack");
        first.leave().await.expect("leave");
        for deliveries in 2..=3 {
            let next = bus.consumer("q", "g", "next").await.expect("consumer");
            let taken = next.take_over(Duration::from_secs(600), 9).await.expect("take over");
            assert_eq!((texts(&taken), taken[0].deliveries), (vec!["bad"], deliveries));
            next.leave().await.expect("leave");
        }
        let last = bus.consumer("q", "g", "last").await.expect("consumer");
        assert!(last.take_over(Duration::ZERO, 9).await.expect("take over").is_empty());
        assert_eq!((bus.poisoned(), bus.backlog("q", "g").await.expect("backlog")), (1, 0));
        let shelf = bus.consumer(&channels().poison(), "look", "c").await.expect("consumer");
        let found = shelf.take(9).await.expect("take");
        let poison: convoke_core::jobs::wire::Poison = serde_json::from_slice(&found[0].body).expect("a message");
        assert_eq!((poison.channel.as_str(), poison.body.as_str()), ("q", "bad"));
        assert!(poison.reason.contains("4 times"), "{}", poison.reason);
    }

    #[tokio::test]
    async fn nonsense_does_not_fill_the_server_and_the_last_of_it_is_kept() {
        let server = RedisServer::start().await;
        let bus = connect(&server.url()).await;
        let numbers: Vec<String> = (0..25_000).map(|n| n.to_string()).collect();
        let numbers: Vec<&str> = numbers.iter().map(String::as_str).collect();
        let (shelf, queue) = (channels().poison(), "q");
        for queue in [shelf.as_str(), queue] {
            push(&bus, queue, &numbers).await;
        }
        let mut probe = Probe::connect(&server.url()).await;
        let kept = probe.number(&["XLEN", &shelf]).await;
        assert!((10_000..11_000).contains(&kept), "{kept}");
        assert_eq!(probe.number(&["XLEN", queue]).await, 25_000, "nothing else is ever trimmed");
        let last = format!("{:?}", probe.ask(&["XREVRANGE", &shelf, "+", "-", "COUNT", "1"]).await);
        assert!(last.contains("24999"), "{last}");
    }

    #[tokio::test]
    async fn many_idle_entries_are_taken_over_to_the_end() {
        let server = RedisServer::start().await;
        let bus = connect(&server.url()).await;
        let dead = bus.consumer("q", "g", "dead").await.expect("consumer");
        let heir = bus.consumer("q", "g", "heir").await.expect("consumer");
        let bodies: Vec<String> = (0..1_500).map(|n| n.to_string()).collect();
        push(&bus, "q", &bodies.iter().map(String::as_str).collect::<Vec<_>>()).await;
        // Its own entries come first, and do not block the others.
        assert_eq!(heir.take(700).await.expect("take").len(), 700);
        assert_eq!(dead.take(800).await.expect("take").len(), 800);
        dead.leave().await.expect("leave");
        assert_eq!(heir.take_over(Duration::from_secs(9), 750).await.expect("take over").len(), 750);
        assert_eq!(heir.take_over(Duration::from_secs(9), 750).await.expect("take over").len(), 50);
    }

    #[tokio::test]
    async fn what_a_stranger_adds_without_a_bell_is_found() {
        let server = RedisServer::start().await;
        let mut probe = Probe::connect(&server.url()).await;
        let bus = connect(&server.url()).await;
        let consumer = bus.consumer("q", "g", "c").await.expect("consumer");
        let adding = async {
            probe.ask(&["XADD", "q", "*", "data", "quiet"]).await;
            probe.ask(&["XADD", "q", "*", "other", "field"]).await;
        };
        let (taken, ()) = tokio::join!(consumer.take(1), adding);
        assert_eq!(texts(&taken.expect("take")), ["quiet"]);
        assert_eq!(texts(&consumer.take(1).await.expect("take")), [""], "unreadable, but not in the way");
    }

    #[tokio::test]
    async fn bells_of_strangers_and_garbage_do_no_harm() {
        let server = RedisServer::start().await;
        let mut probe = Probe::connect(&server.url()).await;
        let bus = connect(&server.url()).await;
        let multiplex = bus.multiplex().await.expect("multiplex");
        multiplex.add(&channels().of_jobs(&[job(1), job(2)])).await.expect("add");
        // A foreign key of a job's name must not prevent the others from being read.
        probe.ask(&["SET", &status(2), "not a stream"]).await;
        probe.ask(&["XADD", &channels().logs(job(1)), "*", "data", "line"]).await;
        for garbage in ["", "{", "[]", r#"{"v":2,"jobs":[]}"#, &"x".repeat(2 << 20)] {
            probe.ask(&["PUBLISH", &channels().bell(), garbage]).await;
        }
        probe.ask(&["PUBLISH", &channels().bell(), &format!(r#"{{"jobs":["{}"]}}"#, job(1))]).await;
        let (mut spoilt, mut read) = (Vec::new(), Vec::new());
        while read.is_empty() || spoilt.len() < 4 {
            for (queue, entries) in multiplex.next().await.expect("next") {
                if queue == channels().bell() { &mut spoilt } else { &mut read }
                    .extend(entries.into_iter().map(|entry| (queue.clone(), entry)));
            }
        }
        let bodies: Vec<&[u8]> = spoilt.iter().map(|(_, entry)| &entry.body[..]).collect();
        assert_eq!(bodies, [&b""[..], b"{", b"[]", br#"{"v":2,"jobs":[]}"#], "what could be set aside is handed on");
        let (queue, entry) = &read[0];
        assert_eq!((queue, &entry.body[..]), (&channels().logs(job(1)), &b"line"[..]));
        let done = [(status(2), vec![entry.id.clone()]), (channels().bell(), vec![String::new()])];
        multiplex.ack(&done).await.expect("passed over");
        let refused = multiplex.add(&["convoke.job.assigned".into()]).await;
        assert!(matches!(refused, Err(convoke_core::Error::Invalid(_))), "{refused:?}");
    }

    #[tokio::test]
    async fn tls_trusts_the_authority_that_it_is_told_of_and_no_other() {
        let server = RedisServer::builder().tls().start().await;
        let bus = connect(&server.url()).await;
        push(&bus, "q", &["a"]).await;
        let consumer = bus.consumer("q", "g", "c").await.expect("consumer");
        assert_eq!(texts(&consumer.take(1).await.expect("take")), ["a"]);
        let url = server.url();
        let without = url.split('?').next().expect("a URL");
        let error = try_connect(without).await.err().expect("an authority that nobody knows");
        assert!(matches!(error, convoke_core::Error::Unavailable { .. }), "{error}");
        let error = try_connect(&format!("{without}?ca=/nowhere.pem")).await.err().expect("no such file");
        assert!(error.to_string().starts_with("bus.url: "), "{error}");
    }

    #[tokio::test]
    async fn a_password_is_used_and_never_shown() {
        let server = RedisServer::builder().args(["--requirepass", "hunter2/:"]).start().await;
        let with = |password: &str| server.url().replace("://", &format!("://:{password}@"));
        connect(&with("hunter2%2F%3A")).await.ping().await.expect("ping");
        let error = try_connect(&with("hunter3")).await.err().expect("a wrong password").to_string();
        assert!(!error.contains("hunter"), "{error}");
        let error = try_connect(&server.url()).await.err().map(|error| error.to_string());
        assert!(error.is_some(), "without a password nothing goes");
    }
}
