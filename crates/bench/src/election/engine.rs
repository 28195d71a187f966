//! A backend to measure: the named one, or else a private one for the run, if its program is installed.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Result, bail};
use tempfile::TempDir;
use tokio::process::Command;

use crate::Usage;
use crate::mesh::engines::{is_here, redis};
use crate::process::{Output, Process};

/// The directory of PostgreSQL's programs on Debian.
const POSTGRES_HOME: &str = "/usr/lib/postgresql";

pub struct Engine {
    url: String,
    /// Of a private one.
    process: Option<Process>,
    _files: Option<TempDir>,
}

impl Engine {
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Stops a private one cleanly: a PostgreSQL that is killed leaves shared memory behind.
    pub async fn stop(self) -> Result<()> {
        if let Some(process) = self.process {
            process.end().await?;
        }
        Ok(())
    }

    fn named(url: &str) -> Engine {
        Engine { url: url.to_owned(), process: None, _files: None }
    }

    fn private(url: String, process: Process, files: TempDir) -> Engine {
        Engine { url, process: Some(process), _files: Some(files) }
    }

    pub async fn redis(url: Option<&str>) -> Result<Option<Engine>> {
        if url.is_some() || !is_here("redis-server") {
            return Ok(url.map(Engine::named));
        }
        let files = tempfile::tempdir()?;
        let (process, url) = redis(files.path()).await?;
        Ok(Some(Engine::private(url, process, files)))
    }

    /// A backend that was named is not left out silently.
    pub fn check_etcd(url: Option<&str>) -> Result<(), Usage> {
        if url.is_none() || is_here("etcdctl") {
            return Ok(());
        }
        Err(Usage("--etcd: etcdctl is not on the PATH, and it is what is measured".into()))
    }

    pub async fn etcd(url: Option<&str>) -> Result<Option<Engine>> {
        Engine::check_etcd(url)?;
        if !is_here("etcdctl") {
            return Ok(None);
        }
        if url.is_some() || !is_here("etcd") {
            return Ok(url.map(Engine::named));
        }
        let (files, port, peers) = (tempfile::tempdir()?, free_port()?, free_port()?);
        let (url, peers) = (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{peers}"));
        let mut command = Command::new("etcd");
        command.arg("--data-dir").arg(files.path().join("etcd"));
        command.args(["--listen-client-urls", &url, "--advertise-client-urls", &url, "--listen-peer-urls", &peers]);
        command.args(["--initial-advertise-peer-urls", &peers, "--initial-cluster", &format!("default={peers}")]);
        let ready = |line: &str| line.contains("ready to serve client requests").then_some(());
        let (process, ()) = Process::start("etcd", command, Output::Error, ready).await?;
        Ok(Some(Engine::private(url, process, files)))
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
        let ready = |line: &str| line.contains("ready to accept connections").then_some(());
        let (process, ()) = Process::start("PostgreSQL", command, Output::Error, ready).await?;
        let url = format!("postgres://postgres@127.0.0.1:{port}/postgres");
        Ok(Some(Engine::private(url, process, files)))
    }
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns the directory of the newest version, if several are installed.
pub fn postgres_programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir(POSTGRES_HOME).ok()?;
    let programs = versions.filter_map(|version| Some(version.ok()?.path().join("bin")));
    programs.filter(|programs| programs.join("initdb").is_file()).max()
}

/// The server refuses to run as root: then it runs as the user that its package created.
pub fn as_postgres(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "postgres", "--regid", "postgres", "--clear-groups"]).arg(program);
    command
}

pub async fn done(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).current_dir("/").output().await?;
    if !output.status.success() {
        bail!("{:?}: {}", command.as_std().get_program(), String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

pub fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}
