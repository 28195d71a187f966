//! Three processes that call each other.
//!
//! Start a Redis, then `cargo run -p convoke --example mesh`. It starts itself three times; each is an instance, asks every
//! other how it is, tells all to clear a cache, and leaves. `MESH_REDIS_HOST` and `MESH_REDIS_PORT` name another Redis.

use std::process::Stdio;
use std::time::{Duration, Instant};

use convoke::{Broadcast, Mesh, MeshContext, MeshError, Request};
use serde::{Deserialize, Serialize};
use tokio::process::Command;

const INSTANCES: usize = 3;

#[derive(Serialize, Deserialize)]
struct GetStatus {
    verbose: bool,
}

#[derive(Debug, Serialize, Deserialize)]
struct Status {
    process: u32,
    uptime_ms: u64,
    note: Option<String>,
}

impl Request for GetStatus {
    const TYPE: &'static str = "getStatus";
    type Response = Status;
}

#[derive(Debug, Serialize, Deserialize)]
struct ClearCache {
    keys: Vec<String>,
}

impl Broadcast for ClearCache {
    const TYPE: &'static str = "clearCache";
}

async fn instance() -> Result<(), MeshError> {
    let started = Instant::now();
    let mesh = Mesh::from_env("example")
        .await?
        .on_with(move |cx: MeshContext, request: GetStatus| async move {
            let uptime_ms = started.elapsed().as_millis() as u64;
            let note = request.verbose.then(|| format!("asked by instance {}", cx.caller()));
            Ok(Status { process: std::process::id(), uptime_ms, note })
        })
        .on_broadcast(|from, ClearCache { keys }| async move { println!("instance {from} says: clear {keys:?}") })
        .start()
        .await?;
    let me = mesh.instance_id();
    println!("instance {me} is process {}", std::process::id());

    // The others may take a moment.
    while mesh.nodes().await?.len() < INSTANCES {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for node in mesh.nodes().await?.into_iter().filter(|node| !node.is_self) {
        let status = mesh.invoke(node.instance_id, GetStatus { verbose: true }).await?;
        println!("instance {me} hears from instance {} on {}: {status:?}", node.instance_id, node.hostname);
    }
    let others = mesh.broadcast_to_others(ClearCache { keys: vec![format!("from-{me}")] }).await?;
    println!("instance {me} told {others} others");

    // So that the others are answered too.
    tokio::time::sleep(Duration::from_secs(1)).await;
    mesh.stop().await;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    if std::env::args().nth(1).as_deref() == Some("instance") {
        return Ok(instance().await?);
    }
    let myself = std::env::current_exe()?;
    let start = || Command::new(&myself).arg("instance").stdin(Stdio::null()).kill_on_drop(true).spawn();
    let mut children = (0..INSTANCES).map(|_| start()).collect::<Result<Vec<_>, _>>()?;
    for child in &mut children {
        let status = child.wait().await?;
        if !status.success() {
            return Err(format!("an instance ended with {status}").into());
        }
    }
    Ok(())
}
