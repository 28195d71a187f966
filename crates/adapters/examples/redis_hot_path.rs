//! How fast the Redis bus is on the way that every job takes, on a redis-server of its own.
//!
//! Three parts, each printed with jobs a second and what Redis itself spent on a job:
//! - jobs' channels: a worker's events to the owner and their acknowledgement, with so many other jobs owned besides;
//! - a queue: pushed, taken and acknowledged by two consumers;
//! - both together, as a job lives: dispatched, assigned, claimed, run, recorded.
//!
//! `cargo run --release -p convoke-adapters --example redis_hot_path [JOBS]`

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use bytes::Bytes;
use convoke_adapters::redis::RedisBus;
use convoke_core::JobId;
use convoke_core::jobs::channels::Channels;
use convoke_core::ports::{Bus, Consumer, Multiplex};
use convoke_testkit::process::RedisServer;

const BATCH: usize = 100;
/// Jobs under way at once, in batches.
const WINDOW: usize = 10;

fn channels() -> Channels {
    Channels::new("convoke")
}

fn job(n: usize) -> JobId {
    JobId(uuid::Uuid::from_u128(0x0198_c0de_0000_7000_8000_0000_0000_0000 + n as u128))
}

fn event() -> Bytes {
    Bytes::from(format!(r#"{{"v":1,"jobId":"{}","executionId":"{}","kind":"completed"}}"#, job(1), job(2)))
}

async fn spent_us(probe: &mut redis::aio::MultiplexedConnection) -> f64 {
    let info: String = redis::cmd("INFO").arg("cpu").query_async(probe).await.expect("INFO");
    let seconds = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|text| text.trim().parse::<f64>().ok()).unwrap_or(0.0)
    };
    (seconds("used_cpu_user:") + seconds("used_cpu_sys:")) * 1e6
}

/// Times `run`, which does `jobs` jobs.
async fn measure(what: &str, server: &RedisServer, jobs: usize, run: impl Future<Output = ()>) {
    let client = redis::Client::open(server.url()).expect("a URL");
    let mut probe = client.get_multiplexed_async_connection().await.expect("connects");
    let (before, started) = (spent_us(&mut probe).await, Instant::now());
    run.await;
    let (rate, redis) = (jobs as f64 / started.elapsed().as_secs_f64(), spent_us(&mut probe).await - before);
    println!("{what:<44} {rate:>9.0} jobs/s   Redis {:>5.1} µs/job", redis / jobs as f64);
}

/// Reads and acknowledges until `jobs` events have come; reports each batch.
async fn own(multiplex: &dyn Multiplex, jobs: usize, mut recorded: impl AsyncFnMut(usize)) {
    let mut seen = 0;
    while seen < jobs {
        let batch = multiplex.next().await.expect("next");
        let count = batch.len();
        let (names, done): (Vec<String>, Vec<_>) = batch
            .into_iter()
            .map(|(queue, entries)| {
                (queue.clone(), (queue, entries.into_iter().map(|entry| entry.id).collect::<Vec<_>>()))
            })
            .unzip();
        multiplex.remove(&names).await.expect("remove");
        multiplex.ack(&done).await.expect("ack");
        seen += count;
        recorded(count).await;
    }
}

async fn jobs_channels(server: &RedisServer, jobs: usize, owned: usize) {
    let (worker, node) = (connect(server).await, connect(server).await);
    let multiplex = node.multiplex().await.expect("multiplex");
    let others: Vec<JobId> = (0..owned).map(|n| job(1_000_000_000 + n)).collect();
    multiplex.add(&channels().of_jobs(&others)).await.expect("add");
    let free = Arc::new(tokio::sync::Semaphore::new(BATCH * WINDOW));
    let working = async {
        for part in (0..jobs).collect::<Vec<_>>().chunks(BATCH) {
            let permits = free.acquire_many(part.len() as u32).await.expect("never closed");
            permits.forget();
            let names: Vec<String> = part.iter().map(|n| channels().status(job(*n))).collect();
            multiplex.add(&names).await.expect("add");
            worker.push(names.into_iter().map(|name| (name, event())).collect()).await.expect("push");
        }
    };
    let owning = own(&*multiplex, jobs, async |count| free.add_permits(count));
    measure(&format!("jobs' channels, {owned} others owned"), server, jobs, async {
        tokio::join!(working, owning);
    })
    .await;
}

async fn take_all(consumer: &dyn Consumer, left: &AtomicUsize, done: &tokio::sync::Notify) {
    loop {
        let taken = tokio::select! {
            taken = consumer.take(BATCH) => taken.expect("take"),
            () = done.notified() => return,
        };
        let ids: Vec<String> = taken.into_iter().map(|entry| entry.id).collect();
        consumer.ack(&ids).await.expect("ack");
        if left.fetch_sub(ids.len(), Ordering::SeqCst) == ids.len() {
            done.notify_waiters();
            return;
        }
    }
}

async fn queue(server: &RedisServer, jobs: usize) {
    let (leader, worker) = (connect(server).await, connect(server).await);
    let one = worker.consumer("convoke.job.dispatch.q", "workers", "one").await.expect("consumer");
    let two = worker.consumer("convoke.job.dispatch.q", "workers", "two").await.expect("consumer");
    let (left, done) = (AtomicUsize::new(jobs), tokio::sync::Notify::new());
    let pushing = async {
        for part in (0..jobs).collect::<Vec<_>>().chunks(BATCH) {
            let entries = part.iter().map(|_| ("convoke.job.dispatch.q".to_owned(), event())).collect();
            leader.push(entries).await.expect("push");
        }
    };
    measure("a queue: push, take, ack", server, jobs, async {
        tokio::join!(pushing, take_all(&*one, &left, &done), take_all(&*two, &left, &done));
    })
    .await;
}

/// Dispatched in batches, one entry a job, with one entry of `job.assigned` for each batch.
async fn whole(server: &RedisServer, jobs: usize, owned: usize) {
    let (leader, worker, node) = (connect(server).await, connect(server).await, connect(server).await);
    let multiplex = node.multiplex().await.expect("multiplex");
    let others: Vec<JobId> = (0..owned).map(|n| job(1_000_000_000 + n)).collect();
    multiplex.add(&channels().of_jobs(&others)).await.expect("add");
    let fetch = worker.consumer("convoke.job.dispatch.w", "workers", "w").await.expect("consumer");
    let claim = node.consumer(&channels().assigned(), "coordinators", "n").await.expect("consumer");
    let free = Arc::new(tokio::sync::Semaphore::new(BATCH * WINDOW));
    let leading = async {
        for part in (0..jobs).collect::<Vec<_>>().chunks(BATCH) {
            free.acquire_many(part.len() as u32).await.expect("never closed").forget();
            let number = |n: &usize| Bytes::from(n.to_string());
            let all = part.iter().map(|n| n.to_string()).collect::<Vec<_>>().join(" ");
            let runs = part.iter().map(|n| ("convoke.job.dispatch.w".to_owned(), number(n)));
            let entries = runs.chain([(channels().assigned(), Bytes::from(all))]).collect();
            leader.push(entries).await.expect("push");
        }
    };
    let text = |body: &Bytes| String::from_utf8_lossy(body).into_owned();
    let working = async {
        let mut seen = 0;
        while seen < jobs {
            let taken = fetch.take(BATCH).await.expect("take");
            seen += taken.len();
            let ids: Vec<String> = taken.iter().map(|entry| entry.id.clone()).collect();
            let number = |body: &Bytes| text(body).parse().expect("a number");
            let events = taken.iter().map(|entry| (channels().status(job(number(&entry.body))), event())).collect();
            let (pushed, acked) = tokio::join!(worker.push(events), fetch.ack(&ids));
            pushed.and(acked).expect("push and ack");
        }
    };
    let claiming = async {
        let mut seen = 0;
        while seen < jobs {
            for entry in claim.take(BATCH).await.expect("take") {
                let numbers = text(&entry.body);
                let claimed: Vec<JobId> = numbers.split(' ').map(|n| job(n.parse().expect("a number"))).collect();
                seen += claimed.len();
                multiplex.add(&channels().of_jobs(&claimed)).await.expect("add");
                claim.ack(&[entry.id]).await.expect("ack");
            }
        }
    };
    let owning = own(&*multiplex, jobs, async |count| free.add_permits(count));
    measure(&format!("a job's whole way, {owned} others owned"), server, jobs, async {
        tokio::join!(leading, working, claiming, owning);
    })
    .await;
}

async fn connect(server: &RedisServer) -> RedisBus {
    RedisBus::connect(&server.url(), channels()).await.expect("connects")
}

#[tokio::main]
async fn main() {
    let jobs = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(200_000);
    for owned in [100, 1_000, 10_000] {
        jobs_channels(&RedisServer::start().await, jobs, owned).await;
    }
    queue(&RedisServer::start().await, jobs).await;
    for owned in [100, 1_000, 10_000] {
        whole(&RedisServer::start().await, jobs, owned).await;
    }
}
