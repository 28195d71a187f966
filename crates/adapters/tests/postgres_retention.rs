//! Retention on PostgreSQL beside other transactions.
#![cfg(feature = "postgres")]

use std::time::Duration;

use convoke_adapters::postgres::PostgresStore;
use convoke_core::jobs::{NewJob, Outcome, RunReport, Status};
use convoke_core::ports::store::*;
use convoke_core::{Epoch, ExecutionId, JobId};
use convoke_testkit::conformance::store::stage;
use convoke_testkit::process::{SharedPostgres, eventually};
use jiff::Timestamp;
use tokio_postgres::Client;
use uuid::Uuid;

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.expect("connects");
    tokio::spawn(connection);
    client
}

/// Waits until a statement that contains `text` waits for a lock.
async fn blocked(admin: &Client, text: &str) {
    let waits = "select 1 from pg_stat_activity where wait_event_type = 'Lock' and query like '%' || $1 || '%'";
    eventually("a statement to wait", async || admin.query_opt(waits, &[&text]).await.expect("read")).await;
}

fn keyed(age: Duration, reserved: Duration) -> NewJob {
    let created_at = Timestamp::now() - age;
    NewJob {
        id: JobId(Uuid::now_v7()),
        unique_until: Some(created_at + reserved),
        created_at,
        ..stage::job(1).with(|job| job.unique_key = Some("k".into()))
    }
}

#[tokio::test]
async fn a_key_that_was_just_taken_again_is_not_deleted_with_its_last_holder() {
    let url = SharedPostgres::get().create_database();
    let store = PostgresStore::connect(&url).await.expect("connects");
    let (mut application, admin) = (connect(&url).await, connect(&url).await);
    let fence = store.seal(Epoch(1)).await.expect("seal");
    let minute = Duration::from_secs(60);
    let first = keyed(60 * minute, 10 * minute);
    let first_id = first.id;
    store.insert(vec![first]).await.expect("insert");
    let windows = vec![Window::new(stage::queue("q"), 1)];
    let order = DispatchOrder { now: Timestamp::now(), windows, executions: vec![ExecutionId(Uuid::now_v7())] };
    let run = store.dispatch(fence, order).await.expect("dispatch").runs.remove(0);
    let outcome = Outcome::Completed { result: None };
    let ended = RunReport::of(run.job_id, run.execution_id).ended(Timestamp::now() - 50 * minute, outcome, 0.0);
    store.record(vec![ended]).await.expect("record");

    let transaction = application.transaction().await.expect("begins");
    let call = "select convoke_enqueue('t', unique_key => 'k')";
    let second = JobId(transaction.query_one(call, &[]).await.expect("enqueued").get(0));
    assert_ne!(second, first_id, "the reservation had run out");
    let expiring = tokio::spawn({
        let store = store.clone();
        let cutoff = Timestamp::now() - minute;
        async move { store.expire(fence, Cutoffs { completed: cutoff, cancelled: cutoff, dead: cutoff }, 100).await }
    });
    blocked(&admin, "delete from convoke_unique_keys").await;
    transaction.commit().await.expect("commits");
    expiring.await.expect("no panic").expect("expire");

    let again = store.insert(vec![keyed(Duration::ZERO, minute)]).await.expect("insert").remove(0);
    assert_eq!((again.id, again.created), (second, false), "one live job has the key");
}

#[tokio::test]
async fn search_keys_go_with_their_job_and_a_job_without_any_has_none() {
    let url = SharedPostgres::get().create_database();
    let store = PostgresStore::connect(&url).await.expect("connects");
    let admin = connect(&url).await;
    let fence = store.seal(Epoch(1)).await.expect("seal");
    let correlated = |n: u64, id: &str| stage::job(n).with(|job| job.correlation_id = Some(id.into()));
    // Through the function with all checks, which opens the queue; then through the fast lane.
    store.insert(vec![correlated(1, "a"), stage::job(2)]).await.expect("insert");
    store.insert(vec![correlated(3, "a"), correlated(4, "b \"\\,{}"), stage::job(5)]).await.expect("insert");
    let left = async || -> Vec<(String, i64)> {
        let rows = admin.query("select key, seq from convoke_job_keys order by seq", &[]).await.expect("read");
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    };
    let keys: Vec<String> = left().await.into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, ["c:a", "c:a", "c:b \"\\,{}"]);
    let list = async |id: &str, limit| {
        let query = JobQuery { correlation_id: Some(id.into()), limit, ..JobQuery::default() };
        store.list(query).await.expect("list")
    };
    let page = list("a", 1).await;
    assert_eq!((page.jobs[0].id, page.next_cursor.is_some()), (stage::job_id(3), true), "newest first");
    assert_eq!(list("b \"\\,{}", 9).await.jobs.len(), 1);
    // Ended jobs: cancelled ones expire, failed ones are purged.
    store.cancel(&[stage::job_id(1), stage::job_id(4)], None, stage::at(10)).await.expect("cancel");
    let cutoff = stage::at(1_000);
    store.expire(fence, Cutoffs { completed: cutoff, cancelled: cutoff, dead: cutoff }, 100).await.expect("expire");
    assert_eq!(left().await.len(), 1);
    let order = DispatchOrder {
        now: stage::at(20),
        windows: vec![Window::new(stage::queue("q"), 9)],
        executions: (0..9).map(|_| ExecutionId(Uuid::now_v7())).collect(),
    };
    let runs = store.dispatch(fence, order).await.expect("dispatch").runs;
    let run = runs.iter().find(|run| run.job_id == stage::job_id(3)).expect("it runs");
    let failed = RunReport::of(run.job_id, run.execution_id).ended(stage::at(30), stage::failed_for_good("x"), 0.0);
    store.record(vec![failed]).await.expect("record");
    assert_eq!(store.purge(&[stage::job_id(3)], &[Status::Failed]).await.expect("purge"), 1);
    assert!(left().await.is_empty());
}
