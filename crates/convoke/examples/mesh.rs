//! Three processes that call each other.
//!
//! Start a Redis, then `cargo run -p convoke --example mesh -- redis://127.0.0.1`. The process starts itself twice more; all
//! three join one mesh. It asks each of them how it is, tells all of them something, kills one, and sees it go.

use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use convoke::mesh::MeshSettings;
use convoke::{Broadcast, HandlerError, InstanceId, Mesh, MeshError, Request};
use serde::{Deserialize, Serialize};

#[derive(Clone, Serialize, Deserialize)]
struct GetStatus {
    verbose: bool,
}

#[derive(Debug, Serialize, Deserialize)]
struct Status {
    process: u32,
    memory: Option<String>,
}

impl Request for GetStatus {
    const TYPE: &'static str = "getStatus";
    type Response = Status;
}

#[derive(Serialize, Deserialize)]
struct Divide {
    a: i64,
    b: i64,
}

impl Request for Divide {
    const TYPE: &'static str = "divide";
    type Response = i64;
}

#[derive(Serialize, Deserialize)]
struct CacheCleared {
    keys: Vec<String>,
}

impl Broadcast for CacheCleared {
    const TYPE: &'static str = "cacheCleared";
}

async fn status(request: GetStatus) -> Result<Status, HandlerError> {
    let memory = || std::fs::read_to_string("/proc/self/statm").ok();
    Ok(Status { process: std::process::id(), memory: request.verbose.then(memory).flatten() })
}

async fn divide(Divide { a, b }: Divide) -> Result<i64, HandlerError> {
    Ok(a.checked_div(b).ok_or("division by zero")?)
}

/// A mesh of its own for each run, with times so short that somebody who is killed is soon missed.
async fn join(url: &str, key: &str) -> Result<Mesh, MeshError> {
    let settings = MeshSettings {
        heartbeat_interval: Duration::from_millis(200),
        node_ttl: Duration::from_secs(1),
        leader_ttl: Duration::from_secs(2),
        leader_renew_interval: Duration::from_millis(500),
        leader_retry_delay: Duration::from_millis(500),
        ..MeshSettings::default()
    };
    let me = std::process::id();
    let mesh = Mesh::connect(url, key).await?.settings(settings).on(status).on(divide);
    mesh.on_broadcast(move |sender, reported: CacheCleared| async move {
        println!("process {me}: instance {sender} cleared {}", reported.keys.join(", "));
    })
    .on_node_gone(move |gone| async move { println!("process {me}: instance {gone} is gone; I clean up after it") })
    .start()
    .await
}

/// Another process of this program, which stays until its input is closed: so it goes with us in any case.
fn start_member(url: &str, key: &str) -> std::io::Result<Child> {
    Command::new(std::env::current_exe()?).args([url, key]).stdin(Stdio::piped()).spawn()
}

async fn be_member(url: &str, key: &str) -> Result<(), MeshError> {
    let mesh = join(url, key).await?;
    let input_closed = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    let _ = input_closed.await;
    mesh.stop().await;
    Ok(())
}

/// Waits until as many are there.
async fn gather(mesh: &Mesh, count: usize) -> Result<Vec<InstanceId>, MeshError> {
    loop {
        let nodes = mesh.nodes().await?;
        if nodes.len() == count {
            return Ok(nodes.into_iter().filter(|node| !node.is_self).map(|node| node.instance_id).collect());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().unwrap_or_else(|| "redis://127.0.0.1".into());
    if let Some(key) = arguments.next() {
        return Ok(be_member(&url, &key).await?);
    }
    let key = format!("example-{}", std::process::id());
    let mesh = join(&url, &key).await?;
    let mut members = [start_member(&url, &key)?, start_member(&url, &key)?];
    let others = gather(&mesh, 3).await?;
    println!("we are instance {}, the others are {others:?}", mesh.instance_id());

    for (instance, answer) in mesh.invoke_all(GetStatus { verbose: false }).await? {
        println!("instance {instance} is process {}", answer?.process);
    }
    println!("84 / 2 = {}", mesh.invoke(others[0], Divide { a: 84, b: 2 }).await?);
    match mesh.invoke(others[0], Divide { a: 1, b: 0 }).await {
        Err(error @ MeshError::Handler { .. }) => println!("{error}"),
        other => panic!("a division by zero gave {other:?}"),
    }
    let received = mesh.broadcast(CacheCleared { keys: vec!["users".into(), "orders".into()] }).await?;
    println!("{received} others were told");

    // Not asked to stop: killed. Nobody listens under its number any more, and a call says so at once.
    let victim = mesh.invoke_all(GetStatus { verbose: false }).await?;
    let process = members[0].id();
    let is_victim = |(id, answer): &(_, Result<Status, _>)| {
        answer.as_ref().is_ok_and(|status| status.process == process).then_some(*id)
    };
    let victim: InstanceId = victim.iter().find_map(is_victim).ok_or("it did not answer")?;
    members[0].kill()?;
    members[0].wait()?;
    match mesh.invoke(victim, GetStatus { verbose: true }).await {
        Err(error @ (MeshError::NoNode { .. } | MeshError::RequestTimeout { .. })) => println!("{error}"),
        other => panic!("a dead instance answered {other:?}"),
    }
    gather(&mesh, 2).await?;
    let (instance, status) = mesh.invoke_any(GetStatus { verbose: true }).await?;
    println!("instance {instance} goes on as process {}", status.process);

    drop(members[1].stdin.take());
    members[1].wait()?;
    gather(&mesh, 1).await?;
    mesh.stop().await;
    Ok(())
}
