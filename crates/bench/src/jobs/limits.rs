//! Measures the limits of the machine itself, for comparison with the other figures.

use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::JobsArgs;
use super::enqueue::{job, repeat};
use super::wire::Target;
use crate::run::Run;

/// The pause between two flushes of a [`FlushProbe`]: rare enough to delay nobody, and no multiple of the usual pause
/// between two jobs.
const FLUSH_INTERVAL: Duration = Duration::from_millis(17);

/// Small writes to one file, each made durable before the next: the limit of durable transactions without grouping.
pub fn fsyncs(dir: &Path, quick: bool) -> Result<f64> {
    let mut file = std::fs::File::create(dir.join("fsync"))?;
    let limit = Duration::from_millis(if quick { 200 } else { 1_500 });
    let (page, started, mut count) = ([7u8; 4096], Instant::now(), 0u32);
    while started.elapsed() < limit {
        file.write_all(&page)?;
        file.sync_data()?;
        count += 1;
    }
    Ok(f64::from(count) / started.elapsed().as_secs_f64())
}

/// Flushes one block now and then beside another measurement, and takes the time of each.
pub struct FlushProbe {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<Vec<u32>>>,
}

impl FlushProbe {
    /// Writes into a file of its own in `dir`.
    pub fn start(dir: &Path) -> Result<FlushProbe> {
        let mut file = std::fs::File::create(dir.join("flushes"))?;
        let stop = Arc::<AtomicBool>::default();
        let stopped = stop.clone();
        let thread = std::thread::Builder::new().name("bench-flushes".into()).spawn(move || {
            let (block, mut flushes_us) = ([7u8; 4096], Vec::new());
            while !stopped.load(Ordering::Relaxed) {
                std::thread::sleep(FLUSH_INTERVAL);
                let started = Instant::now();
                file.write_all(&block)?;
                file.sync_data()?;
                flushes_us.push(u32::try_from(started.elapsed().as_micros()).unwrap_or(u32::MAX));
            }
            Ok(flushes_us)
        })?;
        Ok(FlushProbe { stop, thread })
    }

    /// Returns the times in microseconds, sorted.
    pub fn stop(self) -> Result<Vec<u32>> {
        self.stop.store(true, Ordering::Relaxed);
        let Ok(flushes) = self.thread.join() else { anyhow::bail!("the thread that flushes panicked") };
        let mut flushes_us = flushes?;
        flushes_us.sort_unstable();
        Ok(flushes_us)
    }
}

/// The client of the single enqueue against a server that only sends a fixed response.
pub async fn echoes(args: &JobsArgs) -> Result<Run> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let url = format!("http://{}", listener.local_addr()?);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let server = std::thread::spawn(move || -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            tokio::select! {
                served = serve(listener) => served,
                _ = stopped => Ok(()),
            }
        })
    });
    let target = Target::parse(&url, None).map_err(anyhow::Error::msg)?;
    let request = target.request("POST", "/", &job("bench-echo", 0));
    let run = repeat(&target, request, args.jobs() / 2, u64::from(args.connections)).await;
    drop(stop);
    match server.join() {
        Ok(served) => served?,
        Err(_) => anyhow::bail!("the echo server panicked"),
    }
    run
}

async fn serve(listener: tokio::net::TcpListener) -> Result<()> {
    loop {
        let (mut stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(async move {
            let mut request = [0; 4096];
            // Requests are smaller than a segment, so that one read is one request.
            while stream.read(&mut request).await.is_ok_and(|read| read > 0) {
                if stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await.is_err() {
                    return;
                }
            }
        });
    }
}
