//! Measures the limits of the machine itself, for comparison with the other figures.

use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::JobsArgs;
use super::enqueue::{job, repeat};
use super::wire::Target;
use crate::run::Run;

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
