//! The PostgreSQL store on a faulty server, and with other clients beside it.
#![cfg(feature = "postgres")]

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use convoke_adapters::postgres::{PostgresLeases, PostgresStore};
use convoke_core::election::Fence;
use convoke_core::jobs::wire::Dispatch;
use convoke_core::jobs::{NewJob, Outcome, RunReport, Status};
use convoke_core::ports::Leases;
use convoke_core::ports::leases::Floor;
use convoke_core::ports::store::*;
use convoke_core::{Epoch, Error, ExecutionId, JobId};
use convoke_testkit::conformance::store::stage;
use convoke_testkit::process::{Durability, OpenTransaction, Postgres, SharedPostgres, eventually};
use jiff::Timestamp;
use uuid::Uuid;

async fn connect(url: &str) -> PostgresStore {
    PostgresStore::connect(url).await.expect("connects")
}

async fn client(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.expect("connects");
    tokio::spawn(connection);
    client
}

fn new_job(queue: &str) -> NewJob {
    let now = Timestamp::now();
    NewJob { id: JobId(Uuid::now_v7()), created_at: now, ..stage::job(1).with(|job| job.queue = stage::queue(queue)) }
}

fn order(queue: &str, limit: usize) -> DispatchOrder {
    DispatchOrder {
        now: Timestamp::now(),
        windows: vec![Window::new(stage::queue(queue), limit)],
        executions: (0..limit).map(|_| ExecutionId(Uuid::now_v7())).collect(),
    }
}

fn completed(run: &Dispatch) -> RunReport {
    RunReport::of(run.job_id, run.execution_id).ended(Timestamp::now(), Outcome::Completed { result: None }, 0.0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_survives_a_server_that_is_restarted_in_the_middle_of_commits() {
    let mut postgres = Postgres::start(Durability::Durable).await;
    let url = postgres.create_database();
    let store = connect(&url).await;
    let (acknowledged, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let mut producers = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (store, count, stop) = (store.clone(), Arc::clone(&acknowledged), Arc::clone(&stop));
        producers.spawn(async move {
            let (mut done, mut doubtful) = (Vec::new(), 0);
            while !stop.load(Ordering::Relaxed) {
                let job = new_job("q");
                match store.insert(vec![job.clone()]).await {
                    Ok(results) => {
                        assert!(results[0].created);
                        done.push(job.id);
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(Error::Unknown { .. }) => doubtful += 1,
                    Err(error) => {
                        assert!(error.is_transient(), "{error}");
                        tokio::task::yield_now().await;
                    }
                }
            }
            (done, doubtful)
        });
    }
    for _ in 0..2 {
        let before = acknowledged.load(Ordering::Relaxed);
        eventually("inserts", async || (acknowledged.load(Ordering::Relaxed) > before + 200).then_some(())).await;
        postgres.restart_immediate().await;
    }
    let healed = acknowledged.load(Ordering::Relaxed);
    eventually("healing", async || (acknowledged.load(Ordering::Relaxed) > healed + 200).then_some(())).await;
    stop.store(true, Ordering::Relaxed);
    let reported = producers.join_all().await;
    let done: Vec<JobId> = reported.iter().flat_map(|(done, _)| done).copied().collect();
    let doubtful: usize = reported.iter().map(|(_, doubtful)| doubtful).sum();
    for ids in done.chunks(1_000) {
        let found = store.get(ids).await.expect("healed");
        assert!(found.iter().all(Option::is_some), "an acknowledged job is gone");
    }
    let pending = store.queue(&stage::queue("q")).await.expect("queue").expect("there").counts.get(Status::Pending);
    let (least, most) = (done.len() as u64, (done.len() + doubtful) as u64);
    assert!((least..=most).contains(&pending), "{least} were acknowledged, {doubtful} doubtful, {pending} are there");
}

#[tokio::test]
async fn a_server_that_is_away_is_unavailable_and_everything_heals_when_it_is_back() {
    let mut postgres = Postgres::start(Durability::Fast).await;
    let url = postgres.create_database();
    let store = connect(&url).await;
    let leases = store.leases();
    let fence = store.seal(Epoch(1)).await.expect("seal");
    store.insert(vec![new_job("q")]).await.expect("insert");
    let run = store.dispatch(fence, order("q", 1)).await.expect("dispatch").runs.remove(0);
    postgres.kill().await;
    // The first call may find the broken connection by using it: then its outcome is unknown.
    assert!(store.insert(vec![new_job("q")]).await.expect_err("away").is_transient());
    assert!(matches!(store.insert(vec![new_job("q")]).await, Err(Error::Unavailable { .. })));
    assert!(store.record(vec![completed(&run)]).await.expect_err("away").is_transient());
    assert!(matches!(store.queues().await, Err(Error::Unavailable { .. })));
    assert!(matches!(store.ping().await, Err(Error::Unavailable { .. })));
    assert!(leases.read("ns").await.expect_err("away").is_transient());
    let refused = PostgresStore::connect(&url).await.expect_err("away").to_string();
    assert!(refused.contains("Connection refused"), "{refused}");
    postgres.start_again().await;
    store.ping().await.expect("it is back");
    leases.ping().await.expect("it is back");
    store.insert(vec![new_job("q")]).await.expect("it is back");
    let recorded = store.record(vec![completed(&run)]).await.expect("it is back");
    assert!(matches!(recorded[0], Recorded::Applied(_) | Recorded::Stale), "{recorded:?}");
    assert_eq!(store.dispatch(fence, order("q", 9)).await.expect("it is back").queues[0].pending, 0);
}

#[tokio::test]
async fn nodes_that_start_at_the_same_time_migrate_once() {
    let url = SharedPostgres::get().create_database();
    for url in [url.clone(), format!("{url}&schema=jobs"), format!("{url}&options=-csearch_path%3Dpublic")] {
        let mut starts = tokio::task::JoinSet::new();
        for _ in 0..5 {
            let url = url.clone();
            starts.spawn(async move { connect(&url).await });
        }
        let stores = starts.join_all().await;
        stores[0].insert(vec![new_job("q")]).await.expect("insert");
        assert_eq!(stores[4].queues().await.expect("queues").len(), 1, "they share one store");
    }
    let client = client(&url).await;
    for schema in ["public", "jobs"] {
        let count = format!("select count(*), max(version)::bigint from {schema}.convoke_migrations");
        let row = client.query_one(&count, &[]).await.expect("there");
        assert_eq!(row.get::<_, i64>(0), row.get::<_, i64>(1), "each migration once in {schema}");
    }
}

#[tokio::test]
async fn a_database_of_a_newer_version_is_refused() {
    let url = SharedPostgres::get().create_database();
    drop(connect(&url).await);
    let admin = client(&url).await;
    admin.batch_execute("insert into convoke_migrations (version) values (99)").await.expect("written");
    let refused = PostgresStore::connect(&url).await.expect_err("newer");
    assert!(matches!(&refused, Error::Conflict(message) if message.contains("newer")), "{refused}");
    let refused = PostgresLeases::connect(&url).await.expect_err("newer");
    assert!(matches!(refused, Error::Conflict(_)), "{refused}");
}

#[tokio::test]
async fn a_wrong_url_is_told_by_its_field_and_without_its_password() {
    let url = SharedPostgres::get().create_database();
    let (base, _) = url.split_once("@").expect("a user");
    let rest = url.strip_prefix(base).expect("its rest");
    let nowhere = rest.split('/').next().expect("a host");
    for url in [
        format!("postgres://postgres:secret{nowhere}/no_such_database"),
        format!("postgres://nobody:secret{rest}"),
        format!("postgres://postgres:secret{rest}&sslmode=sometimes"),
    ] {
        let refused = PostgresStore::connect(&url).await.expect_err("wrong");
        assert!(matches!(&refused, Error::Invalid(invalid) if invalid.field == "store.url"), "{refused:?}");
        assert!(!format!("{refused:?}").contains("secret"), "{refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_three_stores_on_one_database_none_hinders_another_and_the_counts_are_exact() {
    let url = SharedPostgres::get().create_database();
    let stores = [connect(&url).await, connect(&url).await, connect(&url).await];
    let fence = stores[0].seal(Epoch(1)).await.expect("seal");
    const EACH: usize = 600;
    let mut work = tokio::task::JoinSet::new();
    for (number, store) in stores.iter().cloned().enumerate() {
        work.spawn(async move { insert_many(&store, number, EACH).await });
    }
    let (runs, todo) = tokio::sync::mpsc::channel::<Vec<Dispatch>>(16);
    let todo = Arc::new(tokio::sync::Mutex::new(todo));
    for store in &stores {
        let (store, todo) = (store.clone(), Arc::clone(&todo));
        work.spawn(async move {
            while let Some(runs) = { todo.lock().await.recv().await } {
                end_all(&store, &runs).await;
            }
        });
    }
    let total = 3 * EACH;
    let given = dispatch_all(&stores, fence, total, runs).await;
    work.join_all().await;
    assert_eq!(given.len(), total, "each job ran once");
    for store in &stores {
        let queues = store.queues().await.expect("queues");
        let count = |status| queues.iter().map(|queue| queue.counts.get(status)).sum::<u64>();
        assert_eq!(count(Status::Completed) + count(Status::Failed), total as u64);
        assert!(queues.iter().all(|queue| queue.counts.in_flight() == 0 && queue.oldest_pending_at.is_none()));
        assert_eq!(count(Status::Pending) + count(Status::Scheduled), 0);
        assert_eq!(count(Status::Failed), total as u64 / 4, "those that were asked to");
    }
    let admin = client(&url).await;
    let left = "select (select count(*) from convoke_waiting) + (select count(*) from convoke_runs)";
    assert_eq!(admin.query_one(left, &[]).await.expect("counts").get::<_, i64>(0), 0);
}

const QUEUES: [&str; 3] = ["a", "b", "c"];

async fn insert_many(store: &PostgresStore, number: usize, count: usize) {
    for n in 0..count / 10 {
        let jobs: Vec<_> = (0..10).map(|k| new_job(QUEUES[(n + k + number) % 3])).collect();
        // An insert waits briefly for a queue that another transaction creates at the same moment, and must then be
        // retried.
        let inserted = loop {
            match store.insert(jobs.clone()).await {
                Err(Error::Unavailable { .. }) => {}
                other => break other.expect("insert"),
            }
        };
        assert_eq!(inserted.len(), 10);
    }
}

/// Every fourth fails permanently, the others complete; one in ten reports its start before.
async fn end_all(store: &PostgresStore, runs: &[Dispatch]) {
    let now = Timestamp::now();
    let mut reports = Vec::new();
    for run in runs {
        if run.execution_id.0.as_u128() % 10 == 0 {
            reports.push(RunReport { started_at: Some(now), ..RunReport::of(run.job_id, run.execution_id) });
        }
        let fails = run.input.max_retries == 0;
        let outcome = if fails { stage::failed_for_good("x") } else { stage::completed() };
        reports.push(RunReport::of(run.job_id, run.execution_id).ended(now, outcome, 0.0));
    }
    let results = store.record(reports).await.expect("record");
    assert!(results.iter().all(|result| matches!(result, Recorded::Applied(_))), "{results:?}");
}

async fn dispatch_all(
    stores: &[PostgresStore; 3],
    fence: Fence,
    total: usize,
    runs: tokio::sync::mpsc::Sender<Vec<Dispatch>>,
) -> HashSet<JobId> {
    let mut given = HashSet::new();
    let mut count = 0usize;
    while given.len() < total {
        for (store, queue) in stores.iter().zip(QUEUES) {
            let mut taken = store.dispatch(fence, order(queue, 40)).await.expect("dispatch").runs;
            for run in &mut taken {
                assert!(given.insert(run.job_id), "{} was dispatched twice", run.job_id);
                // Encodes the expected end: no retry means that it fails.
                count += 1;
                run.input.max_retries = u32::from(!count.is_multiple_of(4));
            }
            if !taken.is_empty() {
                runs.send(taken).await.expect("somebody ends them");
            }
        }
        tokio::task::yield_now().await;
    }
    given
}

#[tokio::test]
async fn one_leader_of_two_dispatches_and_the_former_is_refused_in_the_middle_of_it() {
    let url = SharedPostgres::get().create_database();
    let (old, new) = (connect(&url).await, connect(&url).await);
    let former = old.seal(Epoch(1)).await.expect("seal");
    old.insert((0..500).map(|_| new_job("q")).collect()).await.expect("insert");
    let dispatching = tokio::spawn(async move {
        let mut given = Vec::new();
        loop {
            match old.dispatch(former, order("q", 2)).await {
                Ok(result) => given.extend(result.runs.into_iter().map(|run| run.job_id)),
                Err(Error::Fenced { .. }) => return given,
                Err(error) => panic!("{error}"),
            }
        }
    });
    let fence = new.seal(Epoch(2)).await.expect("seal");
    let later: Vec<_> = new.dispatch(fence, order("q", 500)).await.expect("dispatch").runs;
    let before = dispatching.await.expect("fenced in the end");
    let all: HashSet<JobId> = before.iter().copied().chain(later.iter().map(|run| run.job_id)).collect();
    assert_eq!((before.len() + later.len(), all.len()), (500, 500), "each job once, none lost");
}

#[tokio::test]
async fn a_call_that_is_refused_does_not_fail_those_that_waited_with_it() {
    let url = SharedPostgres::get().create_database();
    let store = connect(&url).await;
    store.insert(vec![new_job("q")]).await.expect("insert");
    let admin = client(&url).await;
    // A row that the server itself rejects, beside others in one statement.
    admin
        .batch_execute("alter table convoke_jobs add constraint no_seven check (keys is distinct from array['c:7'])")
        .await
        .expect("altered");
    let calls = (0..32).map(|n| {
        let (store, job) = (store.clone(), new_job("q").with(|job| job.correlation_id = Some(n.to_string())));
        tokio::spawn(async move { store.insert(vec![job]).await })
    });
    let calls: Vec<_> = calls.collect();
    for (n, call) in calls.into_iter().enumerate() {
        let result = call.await.expect("no panic");
        assert_eq!(result.is_err(), n == 7, "{n}: {result:?}");
    }
    assert_eq!(store.queue(&stage::queue("q")).await.expect("queue").expect("there").counts.get(Status::Pending), 32);
}

#[tokio::test]
async fn texts_that_the_server_cannot_keep_are_refused_or_mended() {
    let url = SharedPostgres::get().create_database();
    let store = connect(&url).await;
    let fence = store.seal(Epoch(1)).await.expect("seal");
    for job in [
        new_job("q").with(|job| job.correlation_id = Some("a\0b".into())),
        new_job("q").with(|job| job.unique_key = Some("a\0b".into())),
    ] {
        stage::assert_invalid(store.insert(vec![job]).await);
    }
    let nobody = JobQuery { correlation_id: Some("\0".into()), limit: 9, ..JobQuery::default() };
    assert!(store.list(nobody).await.expect("list").jobs.is_empty());
    stage::assert_invalid(store.leases().enroll("n\0", "m", std::time::Duration::from_secs(9)).await);
    let last = new_job("q").with(|job| job.max_retries = 0);
    store.insert(vec![last]).await.expect("insert");
    let run = store.dispatch(fence, order("q", 1)).await.expect("dispatch").runs.remove(0);
    let failed = || {
        let failed = RunReport::of(run.job_id, run.execution_id).ended(stage::at(1), stage::failed("a\0b"), 0.0);
        RunReport { logs: vec![stage::log("\0")], ..failed }
    };
    assert!(matches!(store.record(vec![failed()]).await.expect("record")[0], Recorded::Applied(_)));
    assert_eq!(store.record(vec![failed()]).await.expect("record"), [Recorded::Duplicate], "known again");
    let job = store.get(&[run.job_id]).await.expect("get").remove(0).expect("there");
    assert_eq!(job.error.as_deref(), Some("a\u{fffd}b"));
    let cancelled = store.cancel(&[run.job_id], Some("\0"), stage::at(2)).await.expect("cancel");
    assert!(matches!(cancelled[0], Cancelled::Before(_)));
}

/// A certificate for `localhost`, signed by itself, in `directory`.
fn make_certificate(directory: &std::path::Path, name: &str) {
    let made = std::process::Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"])
        .args(["-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE"])
        .args(["-keyout", &format!("{name}.key"), "-out", &format!("{name}.crt")])
        .current_dir(directory)
        .output()
        .expect("openssl runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

/// Copies a file with the owner that the server runs as.
fn hand_over(from: &std::path::Path, to: &std::path::Path, like: &std::path::Path) {
    std::fs::copy(from, to).expect("copied");
    let done = |command: &mut std::process::Command| assert!(command.status().expect("runs").success());
    done(std::process::Command::new("chown").arg(format!("--reference={}", like.display())).arg(to));
    done(std::process::Command::new("chmod").arg("600").arg(to));
}

#[tokio::test]
async fn a_server_is_trusted_as_far_as_the_url_says() {
    let mut postgres = Postgres::start(Durability::Fast).await;
    let url = postgres.create_database();
    let directory = tempfile::tempdir().expect("a directory");
    for name in ["server", "stranger"] {
        make_certificate(directory.path(), name);
    }
    for name in ["server.crt", "server.key"] {
        hand_over(&directory.path().join(name), &postgres.data().join(name), &postgres.data());
    }
    client(&url).await.batch_execute("alter system set ssl = on").await.expect("set");
    postgres.restart_immediate().await;
    let (base, _) = url.split_once('?').expect("a query");
    let at = |host: &str, query: String| format!("{}?{query}", base.replace("127.0.0.1", host));
    let root = |name: &str| format!("sslrootcert={}", directory.path().join(name).display());
    for (fine, url) in [
        (true, at("127.0.0.1", "sslmode=disable".into())),
        (true, at("127.0.0.1", "sslmode=prefer".into())),
        (true, at("127.0.0.1", "sslmode=require".into())),
        (true, at("127.0.0.1", format!("sslmode=verify-ca&{}", root("server.crt")))),
        (true, at("localhost", format!("sslmode=verify-full&{}", root("server.crt")))),
        (false, at("127.0.0.1", format!("sslmode=verify-full&{}", root("server.crt")))),
        (false, at("localhost", format!("sslmode=verify-full&{}", root("stranger.crt")))),
        (false, at("127.0.0.1", format!("sslmode=require&{}", root("stranger.crt")))),
        (false, at("localhost", "sslmode=verify-full".into())),
        (false, at("localhost", format!("sslmode=verify-full&{}", root("nothing.crt")))),
    ] {
        let result = PostgresLeases::connect(&url).await;
        assert_eq!(result.is_ok(), fine, "{url}: {result:?}");
        if let Ok(leases) = result {
            leases.ping().await.expect("ping");
        }
    }
    let admin = client(&at("127.0.0.1", "sslmode=disable".into())).await;
    let store = connect(&at("127.0.0.1", "sslmode=require".into())).await;
    store.ping().await.expect("ping");
    let encrypted = "select count(*) from pg_stat_ssl s join pg_stat_activity a using (pid) \
                     where s.ssl and a.application_name = 'convoke'";
    assert!(admin.query_one(encrypted, &[]).await.expect("counts").get::<_, i64>(0) > 0);
}

const TTL: std::time::Duration = std::time::Duration::from_secs(60);

#[tokio::test]
async fn a_flood_of_lists_keeps_no_other_request_and_no_duty_from_a_connection() {
    let url = SharedPostgres::get().create_database();
    let store = connect(&url).await;
    let clients = store.for_clients().expect("connections for clients");
    let leases = store.leases();
    let lease = leases.elect("ns", "n", TTL, Floor::UNKNOWN).await.expect("elected");
    let fence = store.seal(Epoch(1)).await.expect("seal");
    let known = new_job("q");
    clients.insert(vec![known.clone()]).await.expect("insert");
    // Lists wait for this table, and nothing below does.
    let slow = OpenTransaction::begin(&url, "lock table convoke_ended in access exclusive mode").await;
    let mut lists = tokio::task::JoinSet::new();
    for _ in 0..64 {
        let (clients, query) =
            (Arc::clone(&clients), JobQuery { statuses: vec![Status::Failed], ..JobQuery::default() });
        lists.spawn(async move { clients.list(query).await });
    }
    eventually("lists that wait", async || (slow.waiting_sessions().await >= 2).then_some(())).await;
    // Requests of clients, then the duties of leader and followers.
    assert!(clients.get(&[known.id]).await.expect("get")[0].is_some());
    assert_eq!(clients.queues().await.expect("queues").len(), 1);
    clients.insert(vec![new_job("new")]).await.expect("insert");
    let patch = convoke_core::jobs::QueuePatch { paused: Some(true), ..Default::default() };
    clients.configure(&stage::queue("q"), patch).await.expect("configure");
    store.promote(fence, Timestamp::now(), 9).await.expect("promote");
    store.in_flight(InFlightFilter::default(), None, 9).await.expect("in flight");
    store.queues().await.expect("queues");
    store.remove_workers(Some(fence), &[stage::worker("w")]).await.expect("remove");
    assert_eq!(store.dispatch(fence, order("new", 9)).await.expect("dispatch").runs.len(), 1);
    leases.renew("ns", "n", lease.epoch, TTL).await.expect("renewed");
    assert!(lists.try_join_next().is_none(), "the lists still wait");
    slow.rollback().await;
    for page in lists.join_all().await {
        assert!(page.expect("listed").jobs.is_empty());
    }
}

#[tokio::test]
async fn requests_that_wait_for_a_lock_keep_no_duty_from_a_connection() {
    let url = SharedPostgres::get().create_database();
    let store = connect(&url).await;
    let clients = store.for_clients().expect("connections for clients");
    let fence = store.seal(Epoch(1)).await.expect("seal");
    clients.insert(vec![new_job("q")]).await.expect("insert");
    let slow = OpenTransaction::begin(&url, "select 1 from convoke_queues where name = 'q' for update").await;
    let mut writes = tokio::task::JoinSet::new();
    for _ in 0..64 {
        let clients = Arc::clone(&clients);
        let patch = convoke_core::jobs::QueuePatch { paused: Some(true), ..Default::default() };
        writes.spawn(async move { clients.configure(&stage::queue("q"), patch).await });
    }
    eventually("writes that wait", async || (slow.waiting_sessions().await >= 2).then_some(())).await;
    assert_eq!(clients.queues().await.expect("queues").len(), 1);
    store.remove_workers(Some(fence), &[stage::worker("w")]).await.expect("remove");
    store.workers().await.expect("workers");
    slow.rollback().await;
    writes.join_all().await;
}
