//! How fast the SQLite store is here, against a bare loop over the same database in the same run.
//!
//! `cargo run --release -p convoke-adapters --example sqlite_hot_path [directory [quick]]`

use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Instant;

use convoke_adapters::sqlite::SqliteStore;
use convoke_core::election::Fence;
use convoke_core::jobs::wire::Dispatch;
use convoke_core::jobs::{JobSpec, NewJob, Outcome, RetrySettings, RunReport, Status};
use convoke_core::ports::store::*;
use convoke_core::{Epoch, ExecutionId, JobId, JobType, Json, QueueName, WorkerId};
use jiff::Timestamp;
use uuid::Uuid;

const BATCH: usize = 1_000;
const JOBS: usize = 200_000;

type Outcomes<T> = Result<T, Box<dyn std::error::Error>>;

fn new_job() -> NewJob {
    let mut spec = JobSpec::new(JobType::new("bench").expect("a name"));
    spec.template.args = Some(Json::of(&"x".repeat(98)).expect("JSON"));
    spec.into_job(JobId(Uuid::now_v7()), Timestamp::now(), &RetrySettings::default()).expect("valid")
}

fn batch() -> Vec<NewJob> {
    (0..BATCH).map(|_| new_job()).collect()
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

/// When something began, and what the writer's thread had used of a processor by then: on a machine that others use as
/// well, the second is the better measure.
struct Stopwatch {
    start: Instant,
    writer_ns: u64,
}

impl Stopwatch {
    fn start() -> Self {
        Stopwatch { start: Instant::now(), writer_ns: writer_ns() }
    }

    fn show(&self, what: &str, count: usize, bare: f64) {
        let rate = count as f64 / self.start.elapsed().as_secs_f64();
        let micros = (writer_ns() - self.writer_ns) as f64 / 1_000.0 / count as f64;
        println!("{what:<44} {rate:>10.0}/s   {:.2} of bare   {micros:.2} us of the writer each", rate / bare);
    }
}

/// Returns the processor time of the writer's thread on Linux; zero elsewhere.
fn writer_ns() -> u64 {
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else { return 0 };
    let read = |task: std::fs::DirEntry| {
        let name = std::fs::read_to_string(task.path().join("comm")).ok()?;
        let times = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        (name.trim() == "sqlite-writer").then(|| times.split(' ').next()?.parse::<u64>().ok())?
    };
    tasks.flatten().filter_map(read).sum()
}

/// A table of the same width with one index, written row by row in transactions of a batch: what SQLite itself can do.
fn bare_rate(path: &Path) -> Outcomes<f64> {
    let db = rusqlite::Connection::open(path)?;
    db.pragma_update(None, "journal_mode", "wal")?;
    db.pragma_update(None, "synchronous", "full")?;
    db.execute_batch("create table bare (seq integer primary key, id blob unique, due_at integer, args text)")?;
    let jobs: Vec<NewJob> = (0..JOBS).map(|_| new_job()).collect();
    let start = Instant::now();
    for chunk in jobs.chunks(BATCH) {
        db.execute_batch("begin immediate")?;
        let mut insert = db.prepare_cached("insert into bare (id, due_at, args) values (?1, ?2, ?3)")?;
        for job in chunk {
            insert.execute((job.id.0.as_bytes(), job.created_at.as_microsecond(), job.definition.args.as_str()))?;
        }
        db.execute_batch("commit")?;
    }
    let rate = JOBS as f64 / start.elapsed().as_secs_f64();
    println!("{:<44} {rate:>10.0}/s", "bare inserts, 1,000 a transaction");
    Ok(rate)
}

async fn phases(store: &SqliteStore, fence: Fence, bare: f64) -> Outcomes<()> {
    let batches: Vec<Vec<NewJob>> = (0..JOBS / BATCH).map(|_| batch()).collect();
    let watch = Stopwatch::start();
    for batch in batches {
        store.insert(batch).await?;
    }
    watch.show("insert, batches of 1,000", JOBS, bare);

    let orders: Vec<DispatchOrder> = (0..JOBS / BATCH).map(|_| order(BATCH)).collect();
    let mut runs = Vec::with_capacity(JOBS);
    let watch = Stopwatch::start();
    for order in orders {
        runs.extend(store.dispatch(fence, order).await?.runs);
    }
    watch.show("dispatch, batches of 1,000", runs.len(), bare);

    let reports: Vec<Vec<RunReport>> = runs.chunks(BATCH).map(finals).collect();
    let watch = Stopwatch::start();
    for reports in reports {
        store.record(reports).await?;
    }
    watch.show("record completed, batches of 1,000", JOBS, bare);
    Ok(())
}

/// Inserts, dispatches and records at once until `jobs` are done; jobs a second.
async fn all_at_once(store: &SqliteStore, fence: Fence, jobs: usize) -> Outcomes<f64> {
    let start = Instant::now();
    let inserting = store.clone();
    let inserter = tokio::spawn(async move {
        for _ in 0..jobs / BATCH {
            inserting.insert(batch()).await?;
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
    while dispatched < jobs {
        let runs = store.dispatch(fence, order(BATCH)).await?.runs;
        if runs.is_empty() {
            tokio::task::yield_now().await;
            continue;
        }
        dispatched += runs.len();
        done.send(runs).await?;
    }
    drop(done);
    inserter.await??;
    recorder.await??;
    Ok(jobs as f64 / start.elapsed().as_secs_f64())
}

async fn single_producers(store: &SqliteStore, producers: usize, bare: f64) -> Outcomes<()> {
    const EACH: usize = 2_000;
    let watch = Stopwatch::start();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..producers {
        let store = store.clone();
        tasks.spawn(async move {
            let mut slowest = std::time::Duration::ZERO;
            for _ in 0..EACH {
                let job = new_job();
                let asked = Instant::now();
                store.insert(vec![job]).await.expect("inserted");
                slowest = slowest.max(asked.elapsed());
            }
            slowest
        });
    }
    let slowest = tasks.join_all().await.into_iter().max().unwrap_or_default();
    watch.show(&format!("{producers} producers, one job at a time"), producers * EACH, bare);
    println!("{:<44} {slowest:>10.1?}", "  the slowest of them");
    Ok(())
}

async fn timed<T>(what: &str, verb: impl Future<Output = convoke_core::Result<T>>) -> Outcomes<T> {
    let start = Instant::now();
    let result = verb.await?;
    println!("{what:<44} {:>10.2?}", start.elapsed());
    Ok(result)
}

async fn lists(store: &SqliteStore) -> Outcomes<()> {
    let query = JobQuery { limit: 100, ..JobQuery::default() };
    let queue = Some(QueueName::new("default")?);
    let job_type = Some(JobType::new("bench")?);
    timed("list all", store.list(query.clone())).await?;
    timed("list of queue", store.list(JobQuery { queue: queue.clone(), ..query.clone() })).await?;
    timed("list of type", store.list(JobQuery { job_type, ..query.clone() })).await?;
    timed("list of correlation", store.list(JobQuery { correlation_id: Some("c".into()), ..query.clone() })).await?;
    for status in &Status::ALL[1..] {
        let query = JobQuery { statuses: vec![*status], ..query.clone() };
        timed(&format!("list of {}", status.as_str()), store.list(query.clone())).await?;
        let query = JobQuery { queue: queue.clone(), ..query };
        timed(&format!("list of {} of queue", status.as_str()), store.list(query)).await?;
    }
    timed("queues", store.queues()).await?;
    Ok(())
}

/// The store's cost per job with many pending against few.
async fn with_many_pending(store: &SqliteStore, fence: Fence) -> Outcomes<()> {
    let pending = |n: usize| async move {
        for _ in 0..n / BATCH {
            store.insert(batch()).await?;
        }
        Ok::<_, convoke_core::Error>(())
    };
    pending(10_000).await?;
    let few = all_at_once(store, fence, JOBS).await?;
    println!("{:<44} {few:>10.0}/s", "all three, 10,000 pending");
    pending(990_000).await?;
    let many = all_at_once(store, fence, JOBS).await?;
    println!("{:<44} {many:>10.0}/s   cost {:.2} x", "all three, 1,000,000 pending", few / many);
    Ok(())
}

#[tokio::main]
async fn main() -> Outcomes<()> {
    let directory = match std::env::args().nth(1) {
        Some(path) => tempfile::tempdir_in(PathBuf::from(path))?,
        None => tempfile::tempdir()?,
    };
    let bare = bare_rate(&directory.path().join("bare.db"))?;
    let store = SqliteStore::open(directory.path().join("store.db"))?;
    let fence = store.seal(Epoch(1)).await?;
    phases(&store, fence, bare).await?;
    let watch = Stopwatch::start();
    all_at_once(&store, fence, JOBS).await?;
    watch.show("all three at once, batches of 1,000", JOBS, bare);
    for producers in [1, 64, 1_000] {
        single_producers(&store, producers, bare).await?;
    }
    if std::env::args().nth(2).is_some() {
        return Ok(());
    }
    with_many_pending(&store, fence).await?;
    lists(&store).await?;
    Ok(())
}
