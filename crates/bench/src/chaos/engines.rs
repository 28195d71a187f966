//! The private engines of the cluster, which can be killed and started again at the same address.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use rustix::process::Signal;
use tokio::process::Command;

use super::On;
use crate::election::engine::{as_postgres, done, free_port, is_root, postgres_programs};
use crate::mesh::engines::is_here;
use crate::process::{Output, Process};

/// How often an engine is started before that counts as a failure: its port may be in use for a moment.
const STARTS_MAX: usize = 5;

pub fn has_postgres() -> bool {
    postgres_programs().is_some()
}

pub fn has_redis() -> bool {
    is_here("redis-server")
}

/// The engines, by what they are for.
pub struct Engines {
    directory: PathBuf,
    pub postgres: Option<Server>,
    pub redis: Option<Server>,
}

/// An engine's process and how to start it.
pub struct Server {
    kind: Kind,
    port: u16,
    directory: PathBuf,
    process: Option<Process>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Postgres,
    Redis,
}

impl Engines {
    pub async fn start(on: On, directory: &Path) -> Result<Engines> {
        let mut engines = Engines { directory: directory.to_owned(), postgres: None, redis: None };
        if on != On::Sqlite {
            engines.postgres = Some(Server::start(Kind::Postgres, directory).await?);
        }
        if on == On::PostgresRedis {
            engines.redis = Some(Server::start(Kind::Redis, directory).await?);
        }
        Ok(engines)
    }

    pub fn store(&self) -> String {
        match &self.postgres {
            Some(server) => format!("postgres://postgres@127.0.0.1:{}/postgres?sslmode=disable", server.port),
            None => format!("sqlite:{}", self.directory.join("convoke.db").display()),
        }
    }

    pub fn bus(&self) -> Option<String> {
        self.redis.as_ref().map(|server| format!("redis://127.0.0.1:{}", server.port))
    }

    /// Ends them; a failure leaves nothing that could be done.
    pub async fn end(self) {
        for mut server in [self.redis, self.postgres].into_iter().flatten() {
            if let Some(process) = server.process.take() {
                // Fast: PostgreSQL closes the connections that are left.
                let _ = process.signal(Signal::INT);
                let _ = process.wait().await;
            }
        }
    }
}

impl Server {
    async fn start(kind: Kind, directory: &Path) -> Result<Server> {
        let directory = directory.join(if kind == Kind::Postgres { "postgres" } else { "redis" });
        std::fs::create_dir_all(&directory)?;
        let mut server = Server { kind, port: free_port()?, directory, process: None };
        if kind == Kind::Postgres {
            server.make_database().await?;
        }
        server.run().await?;
        Ok(server)
    }

    async fn make_database(&self) -> Result<()> {
        let programs = postgres_programs().context("PostgreSQL is not installed")?;
        if is_root() {
            // Another user's process must reach its directory.
            let parents = self.directory.parent().context("a directory")?;
            done(Command::new("chmod").arg("o+x").arg(parents)).await?;
            done(Command::new("chown").arg("postgres").arg(&self.directory)).await?;
        }
        let mut make = as_postgres(&programs.join("initdb"));
        make.args(["--auth", "trust", "--username", "postgres", "--pgdata"]).arg(self.directory.join("data"));
        done(&mut make).await
    }

    fn command(&self) -> Result<Command> {
        let port = self.port.to_string();
        Ok(match self.kind {
            Kind::Postgres => {
                let programs = postgres_programs().context("PostgreSQL is not installed")?;
                let mut command = as_postgres(&programs.join("postgres"));
                command.args(["-c", "listen_addresses=127.0.0.1", "-c", "max_connections=200", "-p", &port, "-k"]);
                command.arg(&self.directory).arg("-D").arg(self.directory.join("data"));
                command
            }
            Kind::Redis => {
                let mut command = Command::new("redis-server");
                command.args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir"]);
                command.arg(&self.directory);
                command
            }
        })
    }

    async fn run(&mut self) -> Result<()> {
        let mut failure = None;
        for _ in 0..STARTS_MAX {
            let mut command = self.command()?;
            // Signals of a terminal are for this process alone.
            command.current_dir("/").process_group(0);
            let started = match self.kind {
                Kind::Postgres => {
                    let ready = |line: &str| line.contains("ready to accept connections").then_some(());
                    Process::start("PostgreSQL", command, Output::Error, ready).await
                }
                Kind::Redis => {
                    let ready = |line: &str| line.contains("Ready to accept connections").then_some(());
                    Process::start("redis-server", command, Output::Standard, ready).await
                }
            };
            match started {
                Ok((process, ())) => {
                    self.process = Some(process);
                    return Ok(());
                }
                Err(error) => failure = Some(error),
            }
        }
        match failure {
            Some(error) => Err(error),
            None => bail!("an engine was not started"),
        }
    }

    /// Ends it without a chance to write anything, and starts it again. Redis is empty then.
    pub async fn restart(&mut self) -> Result<()> {
        if let Some(process) = self.process.take() {
            match self.kind {
                // An immediate shutdown: it recovers at the start, as after a crash.
                Kind::Postgres => {
                    process.signal(Signal::QUIT)?;
                    process.wait().await?;
                }
                Kind::Redis => process.kill().await?,
            }
        }
        self.run().await
    }
}
