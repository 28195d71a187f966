//! The plans of the busy statements: they use the indexes that are meant for them, however many jobs have ended; and
//! the end of a run writes no index of the jobs.
#![cfg(feature = "postgres")]

use convoke_adapters::postgres::{PostgresStore, plans};
use convoke_core::jobs::listing::{ENTRIES_READ_MAX, ROWS_READ_MAX};
use convoke_core::jobs::{NewJob, Outcome, RunReport, Status};
use convoke_core::ports::store::*;
use convoke_core::{Epoch, ExecutionId, JobId, JobType};
use convoke_testkit::conformance::store::stage;
use convoke_testkit::process::{SharedPostgres, eventually};
use convoke_testkit::scale::Scaled;
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
            windows: vec![Window::new(stage::queue("q"), 500)],
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

const DOCUMENT: &str = r#"{"v":1,"type":"t"}"#;

async fn add_ended(client: &Client, count: usize) {
    let sql = format!(
        "with given as (
             insert into convoke_jobs (id, due_at, created_at, queue_id, type_id, state, priority, document, args, completed_at)
             select gen_random_uuid(), n, n, 1, 1, {ended}, 1, '{DOCUMENT}', '1', n from generate_series(1, {count}) n
             returning seq, completed_at
         )
         insert into convoke_completed (first_at, seqs) select min(completed_at), array_agg(seq) from given group by seq >> 9",
        ended = Status::Completed.code()
    );
    client.batch_execute(&sql).await.expect("filled");
    client.batch_execute("analyze").await.expect("analysed");
}

/// The settings of a busy connection.
const BUSY: &str = "set jit = off; set enable_seqscan = off; set plan_cache_mode = force_generic_plan; \
                    set enable_bitmapscan = off; set enable_hashjoin = off; set enable_mergejoin = off";

async fn plan(client: &Client, sql: &str, arguments: &str) -> String {
    client.batch_execute(&format!("deallocate all; prepare busy as {sql}")).await.expect("prepared");
    let arguments = if arguments.is_empty() { String::new() } else { format!("({arguments})") };
    let rows = client.query(&format!("explain execute busy{arguments}"), &[]).await.expect("explained");
    rows.iter().map(|row| format!("{}\n", row.get::<_, String>(0))).collect()
}

/// A statement, its arguments, and what its plan must contain, so many times.
type Busy = (&'static str, String, Vec<(&'static str, usize)>);

fn busy() -> [Busy; 15] {
    let ids = "array[gen_random_uuid()], array[gen_random_uuid()]";
    let texts = "array[null]::text[]";
    let common = format!("{ids}, '{{1}}', {texts}, {texts}, '{{1}}', {texts}, '{{1}}'");
    let ends = vec![
        ("Index Cond: (id = ", 1),
        ("Index Cond: (seq = r", 1),
        ("TID Cond: (ctid = s", 1),
        ("TID Cond: (ctid = o", 1),
    ];
    let flight = ("using convoke_flights_pkey", 1);
    [
        (
            "dispatch",
            "1, '{q}', '{100}', '{null}', array[gen_random_uuid()], 1, 1::smallint, '{1}', 1, '{1}', '{n}'".to_owned(),
            // One range, twice; then the rows by their place.
            vec![
                ("using convoke_waiting_pending", 2),
                ("AND (rank >= ", 2),
                ("TID Cond: (ctid = p", 1),
                ("Index Cond: (seq = ", 1),
            ],
        ),
        (
            "complete",
            format!("{common}, {texts}, '{{f}}', '{{f}}', 1::smallint"),
            vec![("Index Cond: (id = ", 1), flight, ("TID Cond: (ctid = s", 1)],
        ),
        (
            "give_rows",
            "array[gen_random_uuid()]".to_owned(),
            vec![("Index Cond: (id = ", 1), flight, ("TID Cond: (ctid = s", 1)],
        ),
        (
            "update_run",
            format!("{common}, '{{1}}', '{{1}}', '{{f}}', '{{1}}', '{{1}}'"),
            vec![("Index Cond: (id = s", 1), ("TID Cond: (ctid = ", 1)],
        ),
        ("finish", format!("{common}, '{{6}}', '{{1}}', {texts}, {texts}, '{{1}}', '{{f}}'"), ends.clone()),
        ("again", format!("{common}, '{{1}}', '{{1}}', '{{1}}', {texts}, '{{1}}', '{{1}}'"), ends),
        (
            "runs_to_record",
            "array[gen_random_uuid()]".to_owned(),
            vec![("Index Cond: (id = ANY", 1), ("Index Cond: (seq = r.seq)", 1)],
        ),
        (
            "cancel",
            "array[gen_random_uuid()], 1, null".to_owned(),
            vec![
                ("using convoke_waiting_pkey", 1),
                flight,
                ("using convoke_runs_pkey", 1),
                ("Index Cond: (seq = ", 1),
                ("TID Cond: (ctid = ", 2),
            ],
        ),
        (
            "delete_jobs",
            "'{1}', 1, '{1}'".to_owned(),
            vec![("using convoke_job_keys_pkey", 1), ("Index Cond: ((key = ", 1)],
        ),
        (
            // A list by a search key.
            "walk",
            "9, 1000, null, null, '{c:a,t:b}', null, 101, 0, 0, 9".to_owned(),
            vec![
                ("Backward using convoke_job_keys_pkey", 1),
                ("Index Cond: ((key = ($5)[1]) AND (seq < $1) AND (seq >= $8))", 1),
                ("Index Cond: (seq = k.seq)", 1),
            ],
        ),
        (
            // A list by type: by its own index, however many of the newer jobs are of another type.
            "walk_type",
            "9, 1000, null, '{1}', '{}', null, 101, 0, 0, 9".to_owned(),
            vec![
                ("Backward using convoke_jobs_of_type", 1),
                ("Index Cond: ((ROW(type_id, seq) < ROW(", 1),
                ("Sort", 0),
            ],
        ),
        (
            "walk_queue",
            "9, 1000, 1, null, '{}', null, 101, 0, 0, 9".to_owned(),
            vec![
                ("Backward using convoke_jobs_of_queue", 1),
                ("Index Cond: ((ROW(queue_id, seq) < ROW(", 1),
                ("Sort", 0),
            ],
        ),
        (
            "types",
            "9, 1000, null, '{1}', '{}', null, 101, 0, 0, 9".to_owned(),
            vec![("Backward using convoke_jobs_of_type", 1), ("Index Cond: ((ROW(type_id, seq) < ROW(", 1)],
        ),
        (
            // A list by the time of creation.
            "first_created",
            "1000".to_owned(),
            vec![("using convoke_jobs_pkey", 3), ("Index Cond: ((seq >= (search_1.low + ", 1)],
        ),
        (
            // A list of ended jobs by type or time.
            "finished",
            "'{6}', '{1}', 9, 100, '{1}', true, 0, 0, 9, 51".to_owned(),
            vec![("Index Cond: (seq = e_1.seq)", 1), ("AND (seq < $3) AND (seq >= $7))", 1)],
        ),
    ]
}

#[tokio::test]
async fn busy_statements_go_by_their_indexes_whatever_the_server_thinks_of_the_tables() {
    let url = SharedPostgres::get().create_database();
    let store = PostgresStore::connect(&url).await.expect("connects");
    let client = connect(&url).await;
    client.batch_execute(BUSY).await.expect("set");
    // Without statistics; known to be empty; with some waiting jobs; with many ended ones.
    for step in 0..4 {
        match step {
            0 => {}
            1 => client.batch_execute("vacuum analyze").await.expect("analysed"),
            2 => drop(store.insert(new_jobs(100)).await.expect("insert")),
            _ => add_ended(&client, 100_000).await,
        }
        for (file, arguments, seen) in busy() {
            let plan = plan(&client, &plans::of(file), &arguments).await;
            for (what, times) in seen {
                assert_eq!(plan.matches(what).count(), times, "{what} at step {step}:\n{plan}");
            }
            for table in ["jobs", "runs", "waiting", "flights"] {
                assert!(!plan.contains(&format!("Seq Scan on convoke_{table}")), "at step {step}:\n{plan}");
            }
        }
    }
}

/// Statements by which duties search for runs in flight, and the index that each must use.
fn duties() -> Vec<(String, &'static str, Vec<&'static str>)> {
    let none = InFlightFilter::default;
    let now = Some(Timestamp::UNIX_EPOCH);
    let (worker, owner) = (Some(stage::worker("w7")), Some(stage::node("n7")));
    vec![
        (
            plans::in_flight(&InFlightFilter { worker, ..none() }),
            "'00000000-0000-0000-0000-000000000000', 'w7', null, null, null, false, '{}', 1000, false",
            vec!["using convoke_runs_of_worker", "Index Cond: ((ROW(worker, id) >= ROW("],
        ),
        (
            plans::in_flight(&InFlightFilter { owner, ..none() }),
            "'00000000-0000-0000-0000-000000000000', null, 'n7', null, null, false, '{}', 1000, false",
            vec!["using convoke_runs_of_owner", "Index Cond: ((ROW(owner, id) >= ROW("],
        ),
        (
            plans::in_flight(&InFlightFilter { moving: true, ..none() }),
            "'00000000-0000-0000-0000-000000000000', null, null, null, null, true, '{}', 1000, false",
            vec!["using convoke_runs_moving"],
        ),
        (
            plans::in_flight(&InFlightFilter { unclaimed_before: now, ..none() }),
            "'00000000-0000-0000-0000-000000000000', null, null, 1000000, null, false, '{}', 1000, false",
            vec!["using convoke_runs_unheld"],
        ),
        (
            plans::in_flight(&InFlightFilter { without_worker: true, ..none() }),
            "'00000000-0000-0000-0000-000000000000', null, null, null, null, false, array[gen_random_uuid()], 1000, true",
            vec!["using convoke_runs_unheld"],
        ),
        (
            plans::in_flight(&InFlightFilter { unowned_before: now, ..none() }),
            "'00000000-0000-0000-0000-000000000000', null, null, null, 1000000, false, '{}', 1000, false",
            vec!["using convoke_runs_unheld"],
        ),
        (
            plans::of("holders"),
            "",
            vec!["using convoke_runs_of_worker", "using convoke_runs_of_owner", "using convoke_flights_of_owner"],
        ),
    ]
}

#[tokio::test]
async fn duties_find_the_runs_of_a_worker_or_an_owner_by_index_whatever_the_server_thinks_of_the_table() {
    let url = SharedPostgres::get().create_database();
    drop(PostgresStore::connect(&url).await.expect("connects"));
    let client = connect(&url).await;
    // The settings of a pool.
    let settings = "set jit = off; set enable_seqscan = off; set enable_bitmapscan = off";
    client.batch_execute(settings).await.expect("set");
    for step in 0..3 {
        match step {
            0 => {}
            1 => client.batch_execute("vacuum analyze").await.expect("analysed"),
            _ => add_runs(&client, 50_000).await,
        }
        for mode in ["force_generic_plan", "force_custom_plan"] {
            client.batch_execute(&format!("set plan_cache_mode = {mode}")).await.expect("set");
            for (sql, arguments, seen) in duties() {
                let plan = plan(&client, &sql, arguments).await;
                for what in seen {
                    assert!(plan.contains(what), "{what} at step {step}, {mode}:\n{plan}");
                }
                for unwanted in ["convoke_runs_pkey", "Sort"] {
                    assert!(!plan.contains(unwanted), "{unwanted} at step {step}, {mode}:\n{plan}");
                }
            }
        }
    }
}

/// Adds runs in flight: half of one worker and one owner, the rest of many.
async fn add_runs(client: &Client, count: usize) {
    let sql = format!(
        "insert into convoke_runs (id, execution_id, seq, due_at, dispatched_at, log_seq, queue_id, attempt, worker, owner,
                                   ownership)
         select gen_random_uuid(), gen_random_uuid(), n, n, n, 0, 1, 1,
                'w' || case when n % 2 = 0 then 0 else n % 100 end, 'n' || case when n % 2 = 0 then 0 else n % 10 end,
                case when n % 1000 = 0 then 2 else 1 end
         from generate_series(1, {count}) n"
    );
    client.batch_execute(&sql).await.expect("added");
    client.batch_execute("vacuum analyze").await.expect("analysed");
}

#[tokio::test]
async fn the_end_of_a_run_touches_no_index_of_the_jobs() {
    let url = SharedPostgres::get().create_database();
    let store = PostgresStore::connect(&url).await.expect("connects");
    let fence = store.seal(Epoch(1)).await.expect("seal");
    let count = Scaled { quick: 3_000, full: 10_000 }.get();
    run_through(&store, fence, count).await;
    let client = connect(&url).await;
    // Statistics are reported with a delay.
    let sql = "select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relname = 'convoke_jobs'";
    let (updates, hot) = eventually("statistics", async || {
        let row = client.query_one(sql, &[]).await.expect("a row");
        let (updates, hot): (i64, i64) = (row.get(0), row.get(1));
        (updates >= count as i64).then_some((updates, hot))
    })
    .await;
    println!("{hot} of {updates} updates of jobs were HOT");
    assert_eq!(updates, count as i64, "a job's row is updated once");
    assert!(hot * 10 >= updates * 9, "only {hot} of {updates} updates were HOT");
}

/// Adds jobs that a list reads: newer than all stored ones.
async fn add_jobs(client: &Client, queue: &str, job_type: &str, state: Status, count: usize) {
    let (has_ended, is_scheduled, state) = (!state.is_live(), state == Status::Scheduled, state.code());
    let completed = Status::Completed.code();
    let document = format!(r#"{{"v":1,"type":"{job_type}","queue":"{queue}"}}"#);
    let sql = format!(
        "insert into convoke_queues (name) values ('{queue}') on conflict do nothing;
         insert into convoke_types (name) values ('{job_type}') on conflict do nothing;
         with given as (
             insert into convoke_jobs (id, due_at, created_at, queue_id, type_id, state, priority, document, args, completed_at)
             select gen_random_uuid(), n, n, q.id, t.id, {state}, 1, '{document}', '1', case when {has_ended} then n end
             from generate_series(1, {count}) n
             join convoke_queues q on q.name = '{queue}'
             join convoke_types t on t.name = '{job_type}'
             returning seq, pack, due_at, completed_at, queue_id, state
         ), waiting as (
             insert into convoke_waiting (pack, due_at, rank, queue_id, first, priority, scheduled, seqs, ranks, args_bytes)
             select pack, due_at, due_at, queue_id, 0, 1, {is_scheduled}, array[seq], array[due_at], '{{1}}'
             from given
             where not {has_ended}
         ), completed as (
             insert into convoke_completed (first_at, seqs)
             select min(completed_at), array_agg(seq) from given where state = {completed} group by seq >> 9
         )
         insert into convoke_ended (seq, completed_at, queue_id, state)
         select seq, completed_at, queue_id, state from given where {has_ended} and state <> {completed}"
    );
    client.batch_execute(&sql).await.expect("added");
}

/// Returns how many rows of the tables, and entries of their indexes, have been read so far, by table. Waits until all
/// other sessions have ended: a session reports its statistics at its end.
async fn rows_read(client: &Client) -> Vec<(String, i64)> {
    let others = "select count(*) from pg_stat_activity
                  where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'";
    eventually("the other sessions to end", async || {
        (client.query_one(others, &[]).await.expect("counted").get::<_, i64>(0) == 0).then_some(())
    })
    .await;
    // What this session has read before counts as read before.
    client.batch_execute("select pg_stat_force_next_flush()").await.expect("flushed");
    let sql = "select t.relname::text, t.seq_tup_read + coalesce(sum(i.idx_tup_read), 0)::bigint
               from pg_stat_user_tables t
               left join pg_stat_user_indexes i on i.relid = t.relid
               where t.relname like 'convoke_%'
               group by t.relid, t.relname, t.seq_tup_read
               order by 1";
    client.query(sql, &[]).await.expect("read").iter().map(|row| (row.get(0), row.get(1))).collect()
}

/// Returns the first page of a list by a store of its own, and the most rows of one table that it read.
async fn first_page(url: &str, client: &Client, query: &JobQuery) -> (JobPage, i64) {
    let before = rows_read(client).await;
    let store = PostgresStore::connect(url).await.expect("connects");
    let page = store.list(JobQuery { limit: 100, ..query.clone() }).await.expect("listed");
    drop(store);
    let after = rows_read(client).await;
    let most = before.iter().zip(&after).map(|((_, before), (_, after))| after - before).max();
    (page, most.expect("there are tables"))
}

/// How many rows of one table a page may read: about [`ROWS_READ_MAX`] jobs, and as many to choose the path; or
/// [`ENTRIES_READ_MAX`] index entries, twice.
const READ_MAX: i64 = 2 * ENTRIES_READ_MAX as i64 + 1_000;

#[tokio::test]
async fn a_list_reads_a_bounded_number_of_rows_and_finds_few_jobs_behind_many() {
    let url = SharedPostgres::get().create_database();
    drop(PostgresStore::connect(&url).await.expect("connects"));
    let client = connect(&url).await;
    add_jobs(&client, "q", "t", Status::Completed, 5).await;
    add_jobs(&client, "q", "t", Status::Cancelled, 4).await;
    add_jobs(&client, "other", "rare", Status::Scheduled, 3).await;
    add_jobs(&client, "q", "t", Status::Pending, 60_000).await;
    // More ranges of ended jobs than are read side by side.
    for n in 0..70 {
        add_jobs(&client, &format!("q{n}"), "u", Status::Failed, 1).await;
    }
    client.batch_execute("vacuum analyze").await.expect("analysed");
    let by = |statuses: &[Status]| JobQuery { statuses: statuses.to_vec(), ..JobQuery::default() };
    let of_type =
        |name: &str, query: JobQuery| JobQuery { job_type: Some(JobType::new(name).expect("a name")), ..query };
    let in_queue = |name: &str, query: JobQuery| JobQuery { queue: Some(stage::queue(name)), ..query };
    for (query, expected) in [
        (by(&[Status::Completed]), 5),
        (by(&[Status::Completed, Status::Cancelled]), 9),
        (by(&[Status::Completed, Status::Running]), 5),
        (by(&[Status::Scheduled]), 3),
        (by(&[Status::Failed]), 70),
        (by(&[Status::Pending]), 100),
        (in_queue("q", by(&[Status::Completed])), 5),
        (in_queue("other", by(&[Status::Completed])), 0),
        (of_type("t", by(&[Status::Completed])), 5),
        (of_type("rare", by(&[])), 3),
        (in_queue("q", of_type("rare", by(&[]))), 0),
    ] {
        let (page, read) = first_page(&url, &client, &query).await;
        assert_eq!((page.jobs.len(), page.next_cursor.is_some()), (expected, expected == 100), "{query:?}");
        assert!(read <= READ_MAX, "{read} rows of one table for {query:?}");
    }
}

#[tokio::test]
async fn a_list_that_must_walk_past_many_jobs_ends_its_pages_early_and_misses_none() {
    let url = SharedPostgres::get().create_database();
    drop(PostgresStore::connect(&url).await.expect("connects"));
    let client = connect(&url).await;
    add_jobs(&client, "q", "t", Status::Completed, ENTRIES_READ_MAX + 1).await;
    add_jobs(&client, "q", "t", Status::Pending, 6 * ROWS_READ_MAX).await;
    client.batch_execute("vacuum analyze").await.expect("analysed");
    let mut query = JobQuery { statuses: vec![Status::Completed], ..JobQuery::default() };
    let (page, read) = first_page(&url, &client, &query).await;
    assert!(page.jobs.is_empty() && page.next_cursor.is_some(), "it ends early");
    assert!(read <= READ_MAX, "{read} rows of one table");
    let store = PostgresStore::connect(&url).await.expect("connects");
    query.limit = 1_000;
    let (mut found, mut pages, mut empty) = (0, 0, 0);
    loop {
        let page = store.list(query.clone()).await.expect("listed");
        found += page.jobs.len();
        pages += 1;
        empty += usize::from(page.jobs.is_empty());
        query.cursor = page.next_cursor;
        if query.cursor.is_none() {
            break;
        }
    }
    assert_eq!(found, ENTRIES_READ_MAX + 1);
    assert_eq!(
        (empty, pages),
        (6, 6 + ENTRIES_READ_MAX.div_ceil(1_000) + 1),
        "six that found nothing, then a thousand each"
    );
}

#[tokio::test]
async fn a_count_reads_a_bounded_number_of_rows_and_goes_on_from_there() {
    let url = SharedPostgres::get().create_database();
    drop(PostgresStore::connect(&url).await.expect("connects"));
    let client = connect(&url).await;
    add_jobs(&client, "q", "t", Status::Completed, 3 * ROWS_READ_MAX).await;
    add_jobs(&client, "q", "u", Status::Pending, 2 * ROWS_READ_MAX).await;
    add_jobs(&client, "q", "u", Status::Failed, 10).await;
    client.batch_execute("vacuum analyze").await.expect("analysed");
    let of_type = |name: &str, statuses: &[Status]| JobQuery {
        job_type: Some(JobType::new(name).expect("a name")),
        statuses: statuses.to_vec(),
        limit: ROWS_READ_MAX,
        ..JobQuery::default()
    };
    let ended = [Status::Completed, Status::Failed, Status::TimedOut, Status::Cancelled];
    let live = Status::ALL.into_iter().filter(|status| status.is_live()).collect::<Vec<_>>();
    // Down an index: the rows of a part, and as many to choose the path.
    let walked = 2 * ROWS_READ_MAX as i64 + 1_000;
    for (query, expected, part_max) in [
        (of_type("t", &ended), 3 * ROWS_READ_MAX, walked),
        (of_type("u", &ended), 10, walked),
        (of_type("u", &ended[1..]), 10, walked),
        (of_type("u", &live), 2 * ROWS_READ_MAX, READ_MAX),
    ] {
        let before = rows_read(&client).await;
        let store = PostgresStore::connect(&url).await.expect("connects");
        let (mut query, mut counted, mut parts) = (query, 0, 0);
        loop {
            let count = store.count(query.clone()).await.expect("counted");
            (counted, parts) = (counted + count.jobs, parts + 1);
            query.cursor = count.next_cursor;
            if query.cursor.is_none() {
                break;
            }
        }
        drop(store);
        let after = rows_read(&client).await;
        let most = before.iter().zip(&after).map(|((_, before), (_, after))| after - before).max();
        assert!(
            most.is_some_and(|most| most <= parts * part_max),
            "{most:?} rows of a table in {parts} parts: {query:?}"
        );
        assert_eq!(counted, expected as u64, "{query:?}");
    }
}
