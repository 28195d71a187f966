//! A backend to measure: one that was named, else a private one that goes with the run, where its program is installed.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

const READY_TIMEOUT: Duration = Duration::from_secs(30);
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// Where Debian has the programs of PostgreSQL.
const POSTGRES_HOME: &str = "/usr/lib/postgresql";

pub struct Engine {
    url: String,
    process: Option<Child>,
    _files: Option<TempDir>,
}

impl Engine {
    pub fn url(&self) -> &str {
        &self.url
    }

    fn named(url: &str) -> Engine {
        Engine { url: url.to_owned(), process: None, _files: None }
    }

    /// Ends it in order, where it is ours: a PostgreSQL that is killed leaves memory behind.
    pub async fn stop(mut self) -> Result<()> {
        let Some(process) = &mut self.process else { return Ok(()) };
        let pid = process.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        kill_process(pid.with_context(|| format!("the server for {} has ended", self.url))?, Signal::INT)?;
        tokio::time::timeout(STOP_TIMEOUT, process.wait()).await.context("a server does not stop")??;
        Ok(())
    }

    pub async fn redis(url: Option<&str>) -> Result<Option<Engine>> {
        if url.is_some() || !is_installed("redis-server") {
            return Ok(url.map(Engine::named));
        }
        let (files, port) = (tempfile::tempdir()?, free_port()?);
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port", &port.to_string()]);
        command.arg("--dir").arg(files.path());
        Engine::start(command, format!("redis://127.0.0.1:{port}"), port, files).await.map(Some)
    }

    pub async fn etcd(url: Option<&str>) -> Result<Option<Engine>> {
        if !is_installed("etcdctl") {
            return Ok(None);
        }
        if url.is_some() || !is_installed("etcd") {
            return Ok(url.map(Engine::named));
        }
        let (files, port, peers) = (tempfile::tempdir()?, free_port()?, free_port()?);
        let (url, peers) = (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{peers}"));
        let mut command = Command::new("etcd");
        command.arg("--data-dir").arg(files.path().join("etcd"));
        command.args(["--listen-client-urls", &url, "--advertise-client-urls", &url, "--listen-peer-urls", &peers]);
        command.args(["--initial-advertise-peer-urls", &peers, "--initial-cluster", &format!("default={peers}")]);
        Engine::start(command, url, port, files).await.map(Some)
    }

    pub async fn postgres(url: Option<&str>) -> Result<Option<Engine>> {
        let Some(programs) = postgres_programs().filter(|_| url.is_none()) else { return Ok(url.map(Engine::named)) };
        let (files, port) = (tempfile::tempdir()?, free_port()?);
        let data = files.path().join("data");
        if is_root() {
            done(Command::new("chown").arg("postgres").arg(files.path())).await?;
        }
        let mut make = as_postgres(&programs.join("initdb"));
        done(make.args(["--auth", "trust", "--username", "postgres", "--pgdata"]).arg(&data)).await?;
        let mut command = as_postgres(&programs.join("postgres"));
        command.args(["-c", "listen_addresses=127.0.0.1", "-p", &port.to_string(), "-k"]).arg(files.path());
        command.arg("-D").arg(&data);
        let url = format!("postgres://postgres@127.0.0.1:{port}/postgres");
        Engine::start(command, url, port, files).await.map(Some)
    }

    async fn start(mut command: Command, url: String, port: u16, files: TempDir) -> Result<Engine> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        let process = command.spawn().with_context(|| format!("no server for {url} can be started"))?;
        let listening = async {
            while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
                tokio::time::sleep(LOOK_INTERVAL).await;
            }
        };
        tokio::time::timeout(READY_TIMEOUT, listening).await.with_context(|| format!("{url} does not get ready"))?;
        Ok(Engine { url, process: Some(process), _files: Some(files) })
    }
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Of the newest version, where several are installed.
fn postgres_programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir(POSTGRES_HOME).ok()?;
    let programs = versions.filter_map(|version| Some(version.ok()?.path().join("bin")));
    programs.filter(|programs| programs.join("initdb").is_file()).max()
}

/// The server refuses to run as root: there it runs as the user that its package has made.
fn as_postgres(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "postgres", "--regid", "postgres", "--clear-groups"]).arg(program);
    command
}

async fn done(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).current_dir("/").output().await?;
    if !output.status.success() {
        bail!("{:?}: {}", command.as_std().get_program(), String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
