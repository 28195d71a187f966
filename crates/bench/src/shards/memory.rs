//! Measures the memory of a worker in the coordinator that it is connected to, from outside.

use anyhow::{Context as _, Result};
use futures_util::future::try_join_all;

use super::load;
use crate::child::{Child, Engines};

/// Connections that are set up together.
const AT_ONCE: usize = 500;

/// Returns the growth of a private server's resident memory for each of `workers`, in KB.
pub async fn per_worker(workers: u32) -> Result<f64> {
    let dir = tempfile::tempdir()?;
    let engines = Engines { store: Some("memory:".into()), ..Engines::default() };
    let child = Child::start(dir.path(), &engines, "tcp://127.0.0.1:0").await?;
    let address = child.shards.clone().context("the server does not print where it listens for shard workers")?;
    let before = child.memory()?.now_mb;
    let mut connected = Vec::new();
    for begin in (0..workers).step_by(AT_ONCE) {
        let some = (begin..workers).take(AT_ONCE).map(|number| load::connected(&address, number, workers));
        connected.extend(try_join_all(some).await?);
    }
    let grown_mb = child.memory()?.now_mb - before;
    drop(connected);
    child.stop().await?;
    Ok(grown_mb * 1_024.0 / f64::from(workers))
}
