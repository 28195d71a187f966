//! How fast the PostgreSQL store is here: a server of its own with durable settings, and what it spends of the processors.
//!
//! `cargo run --release -p convoke-adapters --example postgres_hot_path [quick]`
//!
//! `… postgres_hot_path costs [ROUNDS]`: only what PostgreSQL spends on insert, dispatch and end, batches of 500 and 1,000.
//! `… postgres_hot_path soak MINUTES [FINISHED]`: full load for so long, each minute compared with the first; before the
//! second half so many finished jobs are added.

use std::time::{Duration, Instant};

use convoke_adapters::postgres::PostgresStore;
use convoke_core::election::Fence;
use convoke_core::jobs::wire::Dispatch;
use convoke_core::jobs::{ExecutionStatus, JobSpec, NewJob, Outcome, RetrySettings, RunReport, Status};
use convoke_core::ports::store::*;
use convoke_core::{Epoch, ExecutionId, JobId, JobType, Json, QueueName, WorkerId};
use convoke_testkit::process::{Durability, Postgres};
use jiff::Timestamp;
use uuid::Uuid;

const BATCHES: [usize; 3] = [100, 500, 1_000];
const FINISHED: i64 = 1_000_000;

type Outcomes<T> = Result<T, Box<dyn std::error::Error>>;

fn new_job() -> NewJob {
    let mut spec = JobSpec::new(JobType::new("bench").expect("a name"));
    spec.template.args = Some(Json::of(&"x".repeat(98)).expect("JSON"));
    spec.into_job(JobId(Uuid::now_v7()), Timestamp::now(), &RetrySettings::default()).expect("valid")
}

fn jobs(count: usize) -> Vec<NewJob> {
    (0..count).map(|_| new_job()).collect()
}

fn order(limit: usize) -> DispatchOrder {
    DispatchOrder {
        now: Timestamp::now(),
        windows: vec![Window::new(QueueName::new("default").expect("a name"), limit)],
        executions: (0..limit).map(|_| ExecutionId(Uuid::now_v7())).collect(),
    }
}

fn finals(runs: &[Dispatch]) -> Vec<RunReport> {
    let worker = WorkerId::new("worker-1").expect("a name");
    let now = Timestamp::now();
    let end = |run: &Dispatch| {
        let mut report = RunReport::of(run.job_id, run.execution_id);
        report.worker = Some(worker.clone());
        report.started_at = Some(now);
        report.ended(now, Outcome::Completed { result: None }, 0.0)
    };
    runs.iter().map(end).collect()
}

/// Returns the processor time of a process and of those it started, also if they have ended: vacuum works in processes of
/// its own. Only on Linux; zero elsewhere.
fn used(pid: u32) -> Duration {
    // The parent, the ticks of the process, and those of its children that have ended.
    let ticks = |id: u32| -> Option<(u32, u64, u64)> {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let parent = fields.nth(1)?.parse().ok()?;
        let used: Vec<u64> = fields.skip(9).take(4).filter_map(|field| field.parse().ok()).collect();
        Some((parent, used.iter().take(2).sum(), used.iter().skip(2).sum()))
    };
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let of = |id: u32| match ticks(id) {
        Some((_, own, ended)) if id == pid => own + ended,
        Some((parent, own, _)) if parent == pid => own,
        _ => 0,
    };
    Duration::from_millis(ids.map(of).sum::<u64>() * 10)
}

struct Stopwatch {
    start: Instant,
    server: u32,
    server_used: Duration,
    own_used: Duration,
}

impl Stopwatch {
    fn start(server: u32) -> Self {
        Stopwatch { start: Instant::now(), server, server_used: used(server), own_used: used(std::process::id()) }
    }

    /// Prints the rate, and returns the microseconds of PostgreSQL for each.
    fn show(&self, what: &str, count: usize) -> f64 {
        let rate = count as f64 / self.start.elapsed().as_secs_f64();
        let each = |used: Duration, before: Duration| used.saturating_sub(before).as_secs_f64() * 1e6 / count as f64;
        let server = each(used(self.server), self.server_used);
        let own = each(used(std::process::id()), self.own_used);
        println!("{what:<44} {rate:>9.0}/s   {server:>5.1} us of PostgreSQL   {own:>5.1} us of ours each");
        server
    }
}

async fn phases(store: &PostgresStore, fence: Fence, server: u32, batch: usize, total: usize) -> Outcomes<f64> {
    let batches: Vec<Vec<NewJob>> = (0..total / batch).map(|_| jobs(batch)).collect();
    let watch = Stopwatch::start(server);
    for batch in batches {
        store.insert(batch).await?;
    }
    let inserted = watch.show(&format!("insert, batches of {batch}"), total);
    let orders: Vec<DispatchOrder> = (0..total / batch).map(|_| order(batch)).collect();
    let mut runs = Vec::with_capacity(total);
    let watch = Stopwatch::start(server);
    for order in orders {
        runs.extend(store.dispatch(fence, order).await?.runs);
    }
    let dispatched = watch.show(&format!("dispatch, batches of {batch}"), runs.len());
    let reports: Vec<Vec<RunReport>> = runs.chunks(batch).map(finals).collect();
    let watch = Stopwatch::start(server);
    for reports in reports {
        store.record(reports).await?;
    }
    let ended = watch.show(&format!("record completed, batches of {batch}"), runs.len());
    Ok(inserted + dispatched + ended)
}

/// Inserts, dispatches and records at once until `total` are done.
async fn all_at_once(store: &PostgresStore, fence: Fence, server: u32, batch: usize, total: usize) -> Outcomes<()> {
    let watch = Stopwatch::start(server);
    let inserting = store.clone();
    let inserter = tokio::spawn(async move {
        for _ in 0..total / batch {
            inserting.insert(jobs(batch)).await?;
        }
        Ok::<_, convoke_core::Error>(())
    });
    let (done, mut todo) = tokio::sync::mpsc::channel::<Vec<Dispatch>>(4);
    let recording = store.clone();
    let recorder = tokio::spawn(async move {
        while let Some(runs) = todo.recv().await {
            recording.record(finals(&runs)).await?;
        }
        Ok::<_, convoke_core::Error>(())
    });
    let mut dispatched = 0;
    while dispatched < total {
        let runs = store.dispatch(fence, order(batch)).await?.runs;
        if runs.is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
            continue;
        }
        dispatched += runs.len();
        done.send(runs).await?;
    }
    drop(done);
    inserter.await??;
    recorder.await??;
    watch.show(&format!("all three at once, batches of {batch}"), total);
    Ok(())
}

async fn single_producers(store: &PostgresStore, server: u32, producers: usize, each: usize) -> Outcomes<()> {
    let watch = Stopwatch::start(server);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..producers {
        let store = store.clone();
        tasks.spawn(async move {
            for _ in 0..each {
                store.insert(vec![new_job()]).await.expect("inserted");
            }
        });
    }
    tasks.join_all().await;
    watch.show(&format!("{producers} producers, one job at a time"), producers * each);
    Ok(())
}

async fn drain(store: &PostgresStore, fence: Fence) -> Outcomes<()> {
    loop {
        let runs = store.dispatch(fence, order(2_000)).await?.runs;
        if runs.is_empty() {
            return Ok(());
        }
        store.record(finals(&runs)).await?;
    }
}

async fn connect(url: &str) -> Outcomes<tokio_postgres::Client> {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// Jobs that ended long ago, as if this store had run them.
async fn add_finished(url: &str, finished: i64) -> Outcomes<()> {
    let client = connect(url).await?;
    let (completed, run_completed) = (Status::Completed.code(), ExecutionStatus::Completed.code());
    client
        .batch_execute(&format!(
            "with given as (
                 insert into convoke_jobs (id, due_at, created_at, queue_id, type_id, attempt, state, priority, document, args,
                                           execution_id, dispatched_at, started_at, completed_at, run_end, worker)
                 select gen_random_uuid(), n, n, 1, 1, 1, {completed}, 1, '{{\"v\":1,\"type\":\"bench\"}}', repeat('x', 100),
                        gen_random_uuid(), n, n, n, {run_completed}, 'worker-1'
                 from generate_series(1, {finished}) n
                 returning seq, completed_at
             ), ended as (
                 insert into convoke_completed (first_at, seqs)
                 select min(completed_at), array_agg(seq) from given group by seq >> 9
             )
             update convoke_counts set completed = completed + {finished}
             where (queue_id, slot) = (select queue_id, slot from convoke_counts where queue_id = 1 limit 1)"
        ))
        .await?;
    for tidying in ["vacuum analyze", "checkpoint"] {
        client.batch_execute(tidying).await?;
    }
    Ok(())
}

async fn hot_updates(url: &str) -> Outcomes<()> {
    let client = connect(url).await?;
    let statement = "select relname, n_tup_upd, n_tup_hot_upd, pg_relation_size(relid), pg_indexes_size(relid) \
                     from pg_stat_user_tables where n_tup_ins > 1000 or n_tup_upd > 1000 order by 1";
    for row in client.query(statement, &[]).await? {
        let (table, updates, hot): (String, i64, i64) = (row.get(0), row.get(1), row.get(2));
        let (heap, indexes): (i64, i64) = (row.get(3), row.get(4));
        let share = 100.0 * hot as f64 / updates.max(1) as f64;
        println!(
            "{table:<24} {updates:>9} updates, {share:>5.1} % HOT   {:>6} MiB and {:>6} MiB of indexes",
            heap >> 20,
            indexes >> 20
        );
    }
    Ok(())
}

async fn costs(store: &PostgresStore, fence: Fence, server: u32, rounds: usize) -> Outcomes<()> {
    for _ in 0..rounds {
        for batch in [500, 1_000] {
            let sum = phases(store, fence, server, batch, 40_000).await?;
            println!("{:<44} {sum:>27.1} us of PostgreSQL", format!("all three, batches of {batch}"));
        }
    }
    Ok(())
}

async fn soak(
    store: &PostgresStore,
    fence: Fence,
    server: u32,
    url: &str,
    minutes: u32,
    finished: i64,
) -> Outcomes<()> {
    const BATCH: usize = 1_000;
    let (mut first, mut total) = (None, 0);
    for minute in 0..minutes {
        if minute == minutes / 2 && finished > 0 {
            add_finished(url, finished).await?;
            println!("---- with {finished} more jobs finished");
        }
        let (begun, before, mut done) = (Instant::now(), used(server), 0);
        while begun.elapsed() < Duration::from_secs(60) {
            all_at_once(store, fence, server, BATCH, 100 * BATCH).await?;
            // As the leader does each second.
            store.promote(fence, Timestamp::now(), BATCH).await?;
            done += 100 * BATCH;
        }
        let rate = done as f64 / begun.elapsed().as_secs_f64();
        let of_first = rate / *first.get_or_insert(rate);
        let each = used(server).saturating_sub(before).as_secs_f64() * 1e6 / done as f64;
        total += done;
        println!(
            "minute {minute}: {rate:.0}/s, {of_first:.2} of the first, {each:.1} us of PostgreSQL each, {total} jobs in all"
        );
    }
    hot_updates(url).await
}

#[tokio::main]
async fn main() -> Outcomes<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: i64| arguments.get(at).map_or(Ok(default), |text| text.parse());
    let total = if arguments.is_empty() { 100_000 } else { 20_000 };
    let postgres = Postgres::start(Durability::Durable).await;
    let server = postgres.pid().ok_or("it runs")?;
    let url = postgres.create_database();
    let store = PostgresStore::connect(&url).await?;
    let fence = store.seal(Epoch(1)).await?;
    store.insert(jobs(1)).await?;
    drain(&store, fence).await?;
    match arguments.first().map(String::as_str) {
        Some("costs") => return costs(&store, fence, server, number(1, 1)?.try_into()?).await,
        Some("soak") => {
            return soak(&store, fence, server, &url, number(1, 4)?.try_into()?, number(2, FINISHED)?).await;
        }
        _ => {}
    }
    for finished in [0, FINISHED] {
        if finished > 0 {
            if total < 100_000 {
                break;
            }
            add_finished(&url, FINISHED).await?;
        }
        println!("---- with {finished} more jobs finished");
        for batch in BATCHES {
            phases(&store, fence, server, batch, total).await?;
        }
        for batch in BATCHES {
            all_at_once(&store, fence, server, batch, total).await?;
        }
        for producers in [1, 64] {
            single_producers(&store, server, producers, if producers == 1 { 1_000 } else { 500 }).await?;
        }
        drain(&store, fence).await?;
        hot_updates(&url).await?;
    }
    Ok(())
}
