//! The servers that a measurement runs on, and the processes on the other side.

use std::net::TcpListener;
use std::path::Path;

use anyhow::Result;
use tokio::process::Command;

use super::KEY;
use crate::Usage;
use crate::process::{Output, Process, ourselves};

/// Ports to try: another process may take a port after it was found free.
const PORTS_TRIED_MAX: usize = 5;
/// Keys that a Redis scans per request: others may use it.
const SCANNED: usize = 1_000;

/// Returns whether a program can be started by its name.
pub fn is_here(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|directory| directory.join(program).is_file())
}

/// Starts a private Redis without persistence, and returns its address.
pub async fn redis(directory: &Path) -> Result<(Process, String)> {
    if !is_here("redis-server") {
        let message = "redis-server is not on the PATH: install it, or name a Redis with --redis";
        return Err(Usage(message.into()).into());
    }
    let mut tried = 0;
    loop {
        tried += 1;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
        let mut command = Command::new("redis-server");
        command.args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir"]);
        command.arg(directory);
        let ready = |line: &str| line.contains("Ready to accept connections").then_some(());
        match Process::start("redis-server", command, Output::Standard, ready).await {
            Ok((process, ())) => return Ok((process, format!("redis://127.0.0.1:{port}"))),
            Err(_) if tried < PORTS_TRIED_MAX => {}
            Err(error) => return Err(error),
        }
    }
}

/// Starts a private NATS, and returns its address.
pub async fn nats() -> Result<(Process, String)> {
    let mut command = Command::new("nats-server");
    command.args(["--addr", "127.0.0.1", "--port", "-1"]);
    let address = |line: &str| Some(line.split_once("Listening for client connections on ")?.1.trim().to_owned());
    Process::start("nats-server", command, Output::Error, address).await
}

/// Starts an instance of the mesh as a user would, and returns its number.
pub async fn instance(url: &str, prefix: &str) -> Result<(Process, u64)> {
    let mut command = ourselves()?;
    command.args(["mesh", "serve", KEY, "--redis", url, "--prefix", prefix]);
    let number = |line: &str| line.strip_prefix("instance ")?.split(' ').next()?.parse().ok();
    Process::start("the other instance", command, Output::Standard, number).await
}

/// Removes the keys of a measurement from a Redis that is not our own: all that begin with its prefix.
pub async fn forget(url: &str, prefix: &str) -> Result<()> {
    let mut connection = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
    let mut cursor = 0_u64;
    loop {
        let mut scan = redis::cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(format!("{prefix}:*")).arg("COUNT").arg(SCANNED);
        let (next, keys): (u64, Vec<String>) = scan.query_async(&mut connection).await?;
        if !keys.is_empty() {
            redis::cmd("DEL").arg(keys).exec_async(&mut connection).await?;
        }
        cursor = next;
        if cursor == 0 {
            return Ok(());
        }
    }
}

/// Starts the replying process of a peer without a mesh.
pub async fn replier(kind: &str, address: &str, prefix: &str) -> Result<Process> {
    let mut command = ourselves()?;
    command.args(["bench", "reply", kind, address, prefix]);
    let ready = |line: &str| (line == "ready").then_some(());
    Ok(Process::start("the replying peer", command, Output::Standard, ready).await?.0)
}
