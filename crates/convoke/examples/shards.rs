//! A worker that says which shards come and go, until Ctrl-C.
//!
//! `convoke serve` in one terminal, this in two others with different names:
//! `cargo run -p convoke --example shards -- tcp://127.0.0.1:5555 my-service worker-1 100`

use convoke::{Result, ShardWorker};

#[tokio::main]
async fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let mut next = |default: &str| args.next().unwrap_or_else(|| default.to_owned());
    let (url, service, worker) = (next("tcp://127.0.0.1:5555"), next("my-service"), next("worker-1"));
    let max_shards = next("100").parse().map_err(convoke::Error::permanent)?;

    let shards = ShardWorker::builder(&url, service, worker, max_shards).handoff(true).connect().await?;
    let leaving = shards.clone();
    tokio::spawn(async move {
        if tokio::signal::ctrl_c().await.is_ok() {
            leaving.leave().await;
        }
    });

    let mut changes = shards.changes();
    while let Some(change) = changes.next().await {
        // Whatever was done for those that went must have stopped before the next change is asked for.
        println!("version {}: {:?} came, {:?} went", change.version, change.added, change.removed);
    }
    Ok(())
}
