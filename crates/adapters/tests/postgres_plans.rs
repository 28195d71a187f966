//! How the server goes about the busy statements: by the indexes that are meant for them, however much has ended; and an end
//! of a run writes no index of the jobs.
#![cfg(feature = "postgres")]

use convoke_adapters::postgres::PostgresStore;
use convoke_core::jobs::{NewJob, Outcome, RunReport};
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

fn new_jobs(count: usize) -> Vec<NewJob> {
    (0..count).map(|_| NewJob { id: JobId(Uuid::now_v7()), ..stage::job(1) }).collect()
}

/// Runs `count` jobs to their end in batches.
async fn run_through(store: &PostgresStore, fence: convoke_core::election::Fence, count: usize) {
    for _ in 0..count / 500 {
        store.insert(new_jobs(500)).await.expect("insert");
        let order = DispatchOrder {
            now: Timestamp::now(),
            windows: vec![Window { queue: stage::queue("q"), limit: 500, metered: false }],
            executions: (0..500).map(|_| ExecutionId(Uuid::now_v7())).collect(),
        };
        let runs = store.dispatch(fence, order).await.expect("dispatch").runs;
        assert_eq!(runs.len(), 500);
        let end = |run: &convoke_core::jobs::wire::Dispatch| {
            let report = RunReport { worker: Some(stage::worker("w")), ..RunReport::of(run.job_id, run.execution_id) };
            report.ended(Timestamp::now(), Outcome::Completed { result: None }, 0.0)
        };
        store.record(runs.iter().map(end).collect()).await.expect("record");
    }
}

async fn add_ended(client: &Client, count: usize) {
    let sql = format!(
        "with given as (
             insert into convoke_jobs (id, due_at, created_at, retry_initial, retry_multiplier, retry_max, queue_id,
                                       type_id, max_retries, state, priority, retry_jitter, args, completed_at)
             select gen_random_uuid(), n, n, 1, 2.0, 1, 1, 1, 3, 5, 1, 0, '1', n from generate_series(1, {count}) n
             returning seq, completed_at
         )
         insert into convoke_ended (seq, completed_at, queue_id, state) select seq, completed_at, 1, 5 from given"
    );
    client.batch_execute(&sql).await.expect("filled");
    client.batch_execute("analyze").await.expect("analysed");
}

/// The settings of a busy connection.
const BUSY: &str = "set jit = off; set enable_seqscan = off; set plan_cache_mode = force_generic_plan; \
                    set enable_bitmapscan = off; set enable_hashjoin = off; set enable_mergejoin = off";

async fn plan(client: &Client, sql: &str, arguments: &str) -> String {
    client.batch_execute(&format!("deallocate all; prepare busy as {sql}")).await.expect("prepared");
    let rows = client.query(&format!("explain execute busy({arguments})"), &[]).await.expect("explained");
    rows.iter().map(|row| format!("{}\n", row.get::<_, String>(0))).collect()
}

/// A statement, its arguments, and what it must be seen to do, so many times.
type Busy = (&'static str, String, Vec<(&'static str, usize)>);

fn busy() -> [Busy; 6] {
    let ids = "array[gen_random_uuid()], array[gen_random_uuid()]";
    let texts = "array[null]::text[]";
    [
        (
            include_str!("../src/postgres/sql/dispatch.sql"),
            "1, '{1}', '{100}', '{f}', array[gen_random_uuid()], 1, 1::smallint, '{1}', '{1}', '{1}', '{1}'".to_owned(),
            // A range for each priority; then the rows where they are.
            vec![
                ("using convoke_waiting_pending", 4),
                ("Index Cond: ((queue_id = w_2.queue_id) AND (priority = ", 4),
                ("AND (due_at >= w_2.floor_", 4),
                ("TID Cond: (ctid = ANY", 1),
                ("Index Cond: (seq = gone.seq)", 1),
            ],
        ),
        (
            include_str!("../src/postgres/sql/complete.sql"),
            format!(
                "{ids}, '{{1}}', {texts}, {texts}, {texts}, '{{f}}', '{{1}}', '{{1}}', {texts}, '{{f}}', 1::smallint"
            ),
            vec![
                ("Index Cond: (id = s", 1),
                ("Index Cond: (seq = r", 1),
                ("TID Cond: (ctid = s", 1),
                ("TID Cond: (ctid = o", 1),
            ],
        ),
        (
            include_str!("../src/postgres/sql/note.sql"),
            format!("{ids}, {texts}, {texts}, '{{1}}', '{{1}}', '{{1}}', '{{1}}', {texts}, '{{f}}', '{{1}}'"),
            vec![("Index Cond: (id = s", 1), ("TID Cond: (ctid = ", 1)],
        ),
        (
            include_str!("../src/postgres/sql/finish.sql"),
            format!(
                "{ids}, '{{6}}', '{{1}}', {texts}, {texts}, '{{1}}', '{{1}}', {texts}, {texts}, '{{1}}', {texts}, '{{f}}', '{{1}}'"
            ),
            vec![
                ("Index Cond: (id = s", 1),
                ("Index Cond: (seq = r", 1),
                ("TID Cond: (ctid = s", 1),
                ("TID Cond: (ctid = o", 1),
            ],
        ),
        (
            include_str!("../src/postgres/sql/again.sql"),
            format!("{ids}, '{{1}}', '{{1}}', '{{1}}', {texts}, '{{1}}', '{{1}}', '{{1}}', {texts}, '{{1}}'"),
            vec![
                ("Index Cond: (id = s", 1),
                ("Index Cond: (seq = r", 1),
                ("TID Cond: (ctid = s", 1),
                ("TID Cond: (ctid = o", 1),
            ],
        ),
        (
            include_str!("../src/postgres/sql/runs_to_record.sql"),
            "array[gen_random_uuid()]".to_owned(),
            vec![("Index Cond: (id = ANY", 1), ("Index Cond: (seq = r.seq)", 1)],
        ),
    ]
}

#[tokio::test]
async fn busy_statements_go_by_their_indexes_whatever_the_server_thinks_of_the_tables() {
    let url = SharedPostgres::get().create_database();
    let store = PostgresStore::connect(&url).await.expect("connects");
    let client = connect(&url).await;
    client.batch_execute(BUSY).await.expect("set");
    // Never looked at; known to be empty; with some jobs that wait; with many that have ended.
    for step in 0..4 {
        match step {
            0 => {}
            1 => client.batch_execute("vacuum analyze").await.expect("analysed"),
            2 => drop(store.insert(new_jobs(100)).await.expect("insert")),
            _ => add_ended(&client, 100_000).await,
        }
        for (sql, arguments, seen) in busy() {
            let plan = plan(&client, sql, &arguments).await;
            for (what, times) in seen {
                assert_eq!(plan.matches(what).count(), times, "{what} at step {step}:\n{plan}");
            }
            for table in ["jobs", "runs", "waiting", "ended"] {
                assert!(!plan.contains(&format!("Seq Scan on convoke_{table}")), "at step {step}:\n{plan}");
            }
        }
    }
}

#[tokio::test]
async fn the_end_of_a_run_touches_no_index_of_the_jobs() {
    let url = SharedPostgres::get().create_database();
    let store = PostgresStore::connect(&url).await.expect("connects");
    let fence = store.seal(Epoch(1)).await.expect("seal");
    run_through(&store, fence, 10_000).await;
    let client = connect(&url).await;
    // Statistics are told some time after the fact.
    let sql = "select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relname = 'convoke_jobs'";
    let (updates, hot) = eventually("statistics", async || {
        let row = client.query_one(sql, &[]).await.expect("told");
        let (updates, hot): (i64, i64) = (row.get(0), row.get(1));
        (updates >= 10_000).then_some((updates, hot))
    })
    .await;
    println!("{hot} of {updates} updates of jobs were HOT");
    assert_eq!(updates, 10_000, "a job's row is updated once");
    assert!(hot * 10 >= updates * 9, "only {hot} of {updates} updates were HOT");
}
