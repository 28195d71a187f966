//! Enqueueing inside an application's own transaction.
#![cfg(feature = "postgres")]

use std::time::Duration;

use convoke_adapters::postgres::{PostgresStore, enqueue_in};
use convoke_core::jobs::schedule::Schedule;
use convoke_core::jobs::{JobSpec, NewJob, Priority, Status};
use convoke_core::ports::store::*;
use convoke_core::{Epoch, Error, ExecutionId, JobId, JobType, limits};
use convoke_testkit::conformance::store::schedules::{schedule, schedule_name, tick_job};
use convoke_testkit::conformance::store::stage;
use convoke_testkit::process::{SharedPostgres, eventually};
use jiff::Timestamp;
use tokio_postgres::Client;
use uuid::Uuid;

async fn fresh() -> (PostgresStore, Client, String) {
    let url = SharedPostgres::get().create_database();
    let store = PostgresStore::connect(&url).await.expect("connects");
    let application = connect(&url).await;
    (store, application, url)
}

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.expect("connects");
    tokio::spawn(connection);
    client
}

async fn enqueue(client: &impl tokio_postgres::GenericClient, call: &str) -> Result<JobId, tokio_postgres::Error> {
    let row = client.query_one(&format!("select convoke_enqueue({call})"), &[]).await?;
    row.try_get(0).map(JobId)
}

fn spec(job_type: &str) -> JobSpec {
    JobSpec::new(JobType::new(job_type).expect("a name"))
}

#[tokio::test]
async fn a_job_is_there_when_its_transaction_commits_and_never_was_when_it_does_not() {
    let (store, mut application, _) = fresh().await;
    let transaction = application.transaction().await.expect("begins");
    let lost = enqueue(&transaction, "'t', queue => 'elsewhere'").await.expect("enqueued");
    let also = enqueue_in(&transaction, &[spec("t"), spec("u")]).await.expect("enqueued");
    assert!(store.get(&[lost]).await.expect("get")[0].is_none(), "not yet");
    transaction.rollback().await.expect("rolls back");
    assert!(store.get(&[lost, also[0].id]).await.expect("get").iter().all(Option::is_none));
    assert!(store.queues().await.expect("queues").is_empty(), "nor is its queue");

    let transaction = application.transaction().await.expect("begins");
    let kept = enqueue(&transaction, "'t'").await.expect("enqueued");
    let also = enqueue_in(&transaction, &[spec("t")]).await.expect("enqueued");
    transaction.commit().await.expect("commits");
    let found = store.get(&[kept, also[0].id]).await.expect("get");
    assert!(found.iter().flatten().all(|job| job.status == Status::Pending) && found[0].is_some(), "{found:?}");
    let queue = store.queue(&stage::queue("default")).await.expect("queue").expect("there");
    assert_eq!(queue.counts.get(Status::Pending), 2, "counted");

    // It runs like any other; its count is merged meanwhile.
    let fence = store.seal(Epoch(1)).await.expect("seal");
    store.promote(fence, Timestamp::now(), 9).await.expect("promote");
    let windows = vec![Window::new(stage::queue("default"), 9)];
    let executions = (0..9).map(|_| ExecutionId(Uuid::now_v7())).collect();
    let order = DispatchOrder { now: Timestamp::now(), windows, executions };
    let result = store.dispatch(fence, order).await.expect("dispatch");
    assert_eq!((result.runs.len(), result.queues[0].pending), (2, 0));
    let folded = application.query_one("select count(*) from convoke_count_deltas", &[]).await.expect("counts");
    assert_eq!(folded.get::<_, i64>(0), 0);
}

#[tokio::test]
async fn everything_that_can_be_said_of_a_job_is_kept() {
    let (store, application, _) = fresh().await;
    let id = enqueue(
        &application,
        r#"'email.send', '{"to": "ä@b.c", "n": 1}', queue => 'email', priority => 'critical',
           delay => interval '1 hour', max_retries => 7, timeout => interval '30 seconds', correlation_id => 'c',
           unique_key => 'k', unique_for => interval '2 hours', id => '0198c0de-0000-7000-8000-0000000000ff'"#,
    )
    .await
    .expect("enqueued");
    let job = store.get(&[id]).await.expect("get").remove(0).expect("there");
    assert_eq!(job.id.to_string(), "0198c0de-0000-7000-8000-0000000000ff");
    assert_eq!(
        (job.definition.job_type.as_str(), job.definition.queue.as_str(), job.definition.priority),
        ("email.send", "email", Priority::Critical)
    );
    assert_eq!(
        job.definition.args.to::<serde_json::Value>().expect("JSON"),
        serde_json::json!({"to": "ä@b.c", "n": 1})
    );
    assert_eq!(
        (job.status, job.definition.max_retries, job.definition.timeout),
        (Status::Scheduled, 7, Some(Duration::from_secs(30)))
    );
    assert_eq!(
        (job.definition.correlation_id.as_deref(), job.definition.unique_key.as_deref()),
        (Some("c"), Some("k"))
    );
    assert_eq!(job.scheduled_at, Some(job.created_at + Duration::from_secs(3_600)));
    assert_eq!(job.definition.retry_policy, Default::default());
    let plain = enqueue(&application, "'t', args => null, run_at => now() - interval '1 day'").await.expect("enqueued");
    let job = store.get(&[plain]).await.expect("get").remove(0).expect("there");
    assert_eq!((job.definition.args.as_str(), job.status, job.scheduled_at), ("null", Status::Pending, None));
    assert_eq!(plain.0.get_version_num(), 7, "an id that sorts by its time");
    let made = plain.0.get_timestamp().expect("of version 7").to_unix().0;
    assert!(Timestamp::now().as_second().abs_diff(made as i64) < 3_600, "{plain}");
}

#[tokio::test]
async fn a_unique_key_and_an_id_name_the_first_job() {
    let (store, mut application, _) = fresh().await;
    let first = enqueue(&application, "'t', unique_key => 'k'").await.expect("enqueued");
    assert_eq!(enqueue(&application, "'t', unique_key => 'k'").await.expect("named"), first);
    let again = format!("'other', id => '{first}'");
    assert_eq!(enqueue(&application, &again).await.expect("named"), first);
    let keyed = spec("t").with(|job| job.unique_key = Some("k".into()));
    let fresh = spec("t").with(|job| job.unique_key = Some("fresh".into()));
    let transaction = application.transaction().await.expect("begins");
    let results = enqueue_in(&transaction, &[keyed, fresh.clone(), fresh]).await.expect("enqueued");
    transaction.commit().await.expect("commits");
    assert_eq!((results[0].id, results[0].created), (first, false));
    assert_eq!((results[1].created, results[2].created), (true, false));
    assert_eq!(results[1].id, results[2].id);
    store.cancel(&[first], None, Timestamp::now()).await.expect("cancel");
    assert_ne!(enqueue(&application, "'t', unique_key => 'k'").await.expect("enqueued"), first, "free again");
}

#[tokio::test]
async fn no_job_is_mistaken_for_the_holder_of_a_free_key() {
    let (store, application, _) = fresh().await;
    // Ids that the checks before the store accept.
    for id in [Uuid::nil(), Uuid::max()] {
        store.insert(vec![NewJob { id: JobId(id), ..stage::job(1) }]).await.expect("insert");
    }
    let keyed = |n: u64, key: &str| stage::job(n).with(|job| job.unique_key = Some(key.into()));
    let results = store.insert(vec![keyed(2, "a"), keyed(3, "b")]).await.expect("insert");
    assert!(results.iter().all(|result| result.created), "{results:?}");
    let made = enqueue(&application, "'t', unique_key => 'c'").await.expect("enqueued");
    assert!(!made.0.is_nil() && store.get(&[made]).await.expect("get")[0].is_some());
}

#[tokio::test]
async fn a_job_that_is_there_already_leaves_no_row_for_the_key_it_did_not_take() {
    const KEYS: &str = "select key from convoke_unique_keys";
    let (store, application, _) = fresh().await;
    store.insert(vec![stage::job(1)]).await.expect("insert");
    let again = stage::job(1).with(|job| job.unique_key = Some("other".into()));
    assert!(!store.insert(vec![again]).await.expect("insert")[0].created);
    let call = format!("'t', unique_key => 'another', id => '{}'", stage::job_id(1));
    assert_eq!(enqueue(&application, &call).await.expect("named"), stage::job_id(1));
    assert_eq!(application.query(KEYS, &[]).await.expect("keys").len(), 1, "for retention to delete");
    let fence = store.seal(Epoch(1)).await.expect("seal");
    let long_ago = Timestamp::UNIX_EPOCH + Duration::from_secs(1);
    let cutoffs = Cutoffs { completed: long_ago, cancelled: long_ago, dead: long_ago };
    store.expire(fence, cutoffs, 100).await.expect("expire");
    assert!(application.query(KEYS, &[]).await.expect("keys").is_empty());
    // A free key can be taken.
    let other = stage::job(2).with(|job| job.unique_key = Some("other".into()));
    assert!(store.insert(vec![other]).await.expect("insert")[0].created);
}

#[tokio::test]
async fn of_two_transactions_that_race_for_a_key_one_makes_the_job() {
    let (store, mut one, url) = fresh().await;
    let mut two = connect(&url).await;
    for commits in [true, false] {
        let key = format!("k{commits}");
        let call = format!("'t', unique_key => '{key}'");
        let first = one.transaction().await.expect("begins");
        let made = enqueue(&first, &call).await.expect("enqueued");
        let waiting = tokio::spawn(async move {
            let second = two.transaction().await.expect("begins");
            let result = enqueue(&second, &call).await.expect("enqueued");
            second.commit().await.expect("commits");
            (two, result)
        });
        // The second waits for the key.
        let admin = connect(&url).await;
        let lines = "select 1 from pg_stat_activity where wait_event_type = 'Lock' and query like '%convoke_enqueue%'";
        eventually("the second to wait", async || admin.query_opt(lines, &[]).await.expect("read")).await;
        if commits { first.commit().await } else { first.rollback().await }.expect("ends");
        let (back, result) = waiting.await.expect("no panic");
        two = back;
        assert_eq!(result == made, commits, "who comes second takes what the first has left");
        assert!(store.get(&[result]).await.expect("get")[0].is_some());
    }
    let queue = store.queue(&stage::queue("default")).await.expect("queue").expect("there");
    assert_eq!(queue.counts.get(Status::Pending), 2);
}

#[tokio::test]
async fn a_transaction_that_stays_open_keeps_nobody_from_enqueueing() {
    let (store, mut application, _) = fresh().await;
    store.insert(vec![stage::job(1)]).await.expect("insert");
    let open = application.transaction().await.expect("begins");
    enqueue(&open, "'t', queue => 'q'").await.expect("enqueued");
    enqueue(&open, "'t', queue => 'q', unique_key => 'mine'").await.expect("enqueued");
    for n in 2..5 {
        store.insert(vec![stage::job(n)]).await.expect("insert");
        let keyed = stage::job(n + 100).with(|job| job.unique_key = Some(n.to_string()));
        store.insert(vec![keyed]).await.expect("insert");
    }
    let fence = store.seal(Epoch(1)).await.expect("seal");
    store.promote(fence, Timestamp::now(), 9).await.expect("promote");
    // It is not known yet whether the key is taken; calls for other keys do not wait for it.
    let keyed = |n: u64, key: &str| stage::job(n).with(|job| job.unique_key = Some(key.into()));
    let (waits, passes) =
        tokio::join!(store.insert(vec![keyed(200, "mine")]), store.insert(vec![keyed(201, "another")]));
    assert!(matches!(waits, Err(Error::Unavailable { .. })), "{waits:?}");
    assert!(passes.expect("insert")[0].created);
    let counts = async || store.queue(&stage::queue("q")).await.expect("queue").expect("there").counts;
    assert_eq!(counts().await.get(Status::Pending), 8);
    open.commit().await.expect("commits");
    assert_eq!(counts().await.get(Status::Pending), 10);
}

fn keyed(key: String) -> NewJob {
    NewJob { id: JobId(Uuid::now_v7()), ..stage::job(1).with(|job| job.unique_key = Some(key)) }
}

/// The expected result of each concurrent call.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    Stored,
    Locked,
    Invalid,
}

#[tokio::test]
async fn a_key_that_an_open_transaction_holds_fails_alone_and_delays_no_other_call() {
    let (store, mut application, _) = fresh().await;
    store.insert(vec![stage::job(1)]).await.expect("insert");
    let open = application.transaction().await.expect("begins");
    enqueue(&open, "'t', queue => 'q', unique_key => 'mine'").await.expect("enqueued");
    enqueue(&open, "'t', queue => 'opened-there'").await.expect("enqueued");
    enqueue(&open, "'t', queue => 'q', id => '0198c0de-0000-7000-8000-0000000000ff'").await.expect("enqueued");
    let plain = |queue: String| NewJob {
        id: JobId(Uuid::now_v7()),
        ..stage::job(1).with(|job| job.queue = stage::queue(&queue))
    };
    let taken = JobId("0198c0de-0000-7000-8000-0000000000ff".parse().expect("an id"));
    let mut calls: Vec<(Fate, Vec<NewJob>)> = Vec::new();
    for n in 0..30 {
        calls.push((Fate::Locked, vec![keyed("mine".into())]));
        calls.push((Fate::Locked, vec![keyed(format!("a{n}")), keyed("mine".into())]));
        calls.push((Fate::Locked, vec![plain("opened-there".into())]));
        calls.push((Fate::Locked, vec![NewJob { id: taken, ..plain("q".into()) }]));
        calls.push((Fate::Stored, vec![keyed(format!("other-{n}"))]));
        calls.push((Fate::Stored, vec![keyed(format!("first-{n}")), keyed(format!("second-{n}"))]));
        calls.push((Fate::Stored, vec![plain(format!("new-{n}"))]));
        calls.push((Fate::Stored, vec![plain("q".into())]));
    }
    let mut running = tokio::task::JoinSet::new();
    for (fate, jobs) in calls {
        let store = store.clone();
        running.spawn(async move { (fate, store.insert(jobs).await) });
    }
    // The locked ones would take minutes, one after the other.
    let done =
        tokio::time::timeout(Duration::from_secs(60), running.join_all()).await.expect("no call waits for another");
    for (fate, result) in done {
        let is = match &result {
            Ok(results) if results.iter().all(|result| result.created) => Fate::Stored,
            Err(error) if error.is_locked() => Fate::Locked,
            _ => Fate::Invalid,
        };
        assert_eq!(is, fate, "{result:?}");
    }
    open.commit().await.expect("commits");
    let found = eventually("the key to be free", async || store.insert(vec![keyed("mine".into())]).await.ok()).await;
    assert!(!found[0].created, "the application's job has it");
}

#[tokio::test]
async fn a_schedule_whose_new_queue_is_locked_keeps_no_other_from_firing() {
    let (store, mut application, _) = fresh().await;
    let fence = store.seal(Epoch(1)).await.expect("seal");
    // The type of all jobs here is known: only a queue is new.
    store.insert(vec![stage::job(9)]).await.expect("insert");
    let mut ticks = Vec::new();
    for (n, name) in [(1, "locked"), (2, "free")] {
        store.put_schedule(Schedule { next_run_at: Some(stage::at(10)), ..schedule(name) }).await.expect("put");
        ticks.push(Tick {
            schedule: schedule_name(name),
            expected: stage::at(10),
            jobs: vec![tick_job(name, n, 10).with(|job| job.queue = stage::queue(name))],
            skip_overlap: false,
            next_run_at: Some(stage::at(20)),
        });
    }
    let open = application.transaction().await.expect("begins");
    enqueue(&open, "'t', queue => 'locked'").await.expect("enqueued");
    let ticked = store.tick(fence, ticks.clone()).await.expect("ticked");
    assert_eq!((ticked[0].moved, ticked[1].moved, ticked[1].made.len()), (false, true, 1));
    open.commit().await.expect("commits");
    let ticked = store.tick(fence, ticks).await.expect("ticked");
    assert_eq!((ticked[0].moved, ticked[0].made.len(), ticked[1].moved), (true, 1, false));
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_by_its_field() {
    let (store, application, _) = fresh().await;
    let (long, deep) = ("x".repeat(256), format!("{}{}", "[".repeat(65), "]".repeat(65)));
    let large = format!("[\"{}\"]", "x".repeat(limits::ARGS_BYTES_MAX));
    for (call, field) in [
        ("null".into(), "type"),
        ("''".into(), "type"),
        (format!("'{long}'"), "type"),
        ("E'a\\nb'".into(), "type"),
        ("U&'a\\0085b'".into(), "type"),
        ("'t', queue => ''".into(), "queue"),
        ("'t', priority => 'urgent'".into(), "priority"),
        ("'t', delay => interval '1 s', run_at => now()".into(), "run_at"),
        ("'t', delay => interval '-1 s'".into(), "delay"),
        ("'t', delay => interval '101 years'".into(), "delay"),
        ("'t', run_at => 'infinity'".into(), "run_at"),
        ("'t', timeout => interval '0'".into(), "timeout"),
        (format!("'t', max_retries => {}", limits::RETRIES_MAX + 1), "max_retries"),
        ("'t', max_retries => -1".into(), "max_retries"),
        ("'t', correlation_id => ''".into(), "correlation_id"),
        (format!("'t', unique_key => '{long}'"), "unique_key"),
        ("'t', unique_for => interval '1 s'".into(), "unique_for"),
        (format!("'t', id => '{}'", Uuid::nil()), "id"),
        (format!("'t', id => '{}'", Uuid::max()), "id"),
        (format!("'t', '{deep}'"), "args"),
        (format!("'t', '{large}'"), "args"),
        ("'t', '[1e400]'".into(), "args"),
    ] {
        let refused = enqueue(&application, &call).await.expect_err(field);
        let refusal = refused.as_db_error().expect("an error of the server");
        assert!(refusal.message().starts_with(&format!("{field}: expected")), "{field}: {}", refusal.message());
    }
    let fine = format!("'t', '[{}, \"{}\", 1.5e300]'", "[".repeat(63) + &"]".repeat(63), "9".repeat(400));
    enqueue(&application, &fine).await.expect("just within the limits");
    let both = JobSpec { delay: Some(Duration::ZERO), run_at: Some(Timestamp::now()), ..spec("t") };
    let refused = enqueue_in(&application, &[spec("t"), both]).await.expect_err("both");
    assert!(matches!(&refused, Error::Invalid(invalid) if invalid.field == "jobs[1].runAt"), "{refused}");
    for id in [Uuid::nil(), Uuid::max()] {
        let refused = enqueue_in(&application, &[JobSpec { id: Some(JobId(id)), ..spec("t") }]).await.expect_err("id");
        assert!(matches!(&refused, Error::Invalid(invalid) if invalid.field == "jobs[0].id"), "{refused}");
    }
    let nul = spec("t").with(|job| job.correlation_id = Some("\0".into()));
    assert!(matches!(enqueue_in(&application, &[nul]).await, Err(Error::Invalid(_))));
    assert!(enqueue_in(&application, &[]).await.expect("nothing").is_empty());
    assert_eq!(store.list(JobQuery { limit: 9, ..JobQuery::default() }).await.expect("list").jobs.len(), 1);
}

#[tokio::test]
async fn a_queue_too_many_is_refused_here_too() {
    let (store, application, _) = fresh().await;
    let fill =
        format!("insert into convoke_queues (name) select n::text from generate_series(1, {}) n", limits::QUEUES_MAX);
    application.batch_execute(&fill).await.expect("filled");
    enqueue(&application, "'t', queue => '1'").await.expect("one that is there");
    let refused = enqueue(&application, "'t', queue => 'one-more'").await.expect_err("too many");
    assert!(refused.as_db_error().expect("an error of the server").message().contains("10000 queues"), "{refused}");
    let other = spec("t").with(|job| job.queue = Some(stage::queue("one-more")));
    let refused = enqueue_in(&application, &[other]).await.expect_err("too many");
    assert!(matches!(&refused, Error::Invalid(invalid) if invalid.field == "queue"), "{refused}");
    assert!(store.queue(&stage::queue("one-more")).await.expect("queue").is_none());
}

#[tokio::test]
async fn an_application_of_another_search_path_names_the_schema() {
    let url = SharedPostgres::get().create_database();
    let store = PostgresStore::connect(&format!("{url}&schema=jobs")).await.expect("connects");
    let application = connect(&url).await;
    let row =
        application.query_one("select jobs.convoke_enqueue('t', unique_key => 'k')", &[]).await.expect("enqueued");
    let id = JobId(row.get(0));
    assert!(store.get(&[id]).await.expect("get")[0].is_some());
    application.batch_execute("set search_path = jobs").await.expect("set");
    assert!(enqueue_in(&application, &[spec("t")]).await.expect("enqueued")[0].created);
}
