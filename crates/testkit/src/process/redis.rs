//! A real redis-server of one's own: on a free port, in a temporary directory, gone with the test.
//!
//! It stores nothing on disk unless a test asks for it, so that a restart empties it. Sentinels watch it if a test
//! wants a failover, and it uses TLS with a certificate of an authority that was made for it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tempfile::TempDir;

use super::program::{Launch, Program, Signal, free_port};

/// Ports to try: another process may take a port after it was found free.
const PORTS_TRIED_MAX: usize = 5;

/// A server to start.
#[derive(Debug, Clone, Default)]
pub struct RedisBuilder {
    args: Vec<String>,
    tls: bool,
}

pub struct RedisServer {
    builder: RedisBuilder,
    port: u16,
    directory: TempDir,
    program: Program,
}

fn launch(binary: &str, directory: &Path, args: impl IntoIterator<Item = String>) -> Launch {
    Launch {
        name: binary.into(),
        binary: PathBuf::from(binary),
        args: args.into_iter().map(OsString::from).collect(),
        env: Vec::new(),
        directory: directory.to_owned(),
    }
}

impl RedisBuilder {
    /// More settings, as on its command line: `--appendonly yes`.
    pub fn args<A: Into<String>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Serves TLS only.
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    pub async fn start(self) -> RedisServer {
        let directory = TempDir::with_prefix("convoke-redis-").expect("a temporary directory");
        if self.tls {
            make_certificates(directory.path()).await;
        }
        for _ in 0..PORTS_TRIED_MAX {
            let port = free_port();
            if let Some(program) = self.launch(port, directory.path()).await {
                return RedisServer { builder: self, port, directory, program };
            }
        }
        panic!("redis-server did not start on any of {PORTS_TRIED_MAX} ports");
    }

    /// Returns `None` if it ended before it was ready.
    async fn launch(&self, port: u16, directory: &Path) -> Option<Program> {
        let mut args: Vec<String> = Vec::new();
        let mut set = |words: &[&str]| args.extend(words.iter().map(|word| (*word).to_owned()));
        let number = port.to_string();
        set(&["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", &directory.display().to_string()]);
        if self.tls {
            set(&["--port", "0", "--tls-port", &number, "--tls-auth-clients", "no"]);
            for (setting, file) in [("cert", "server.crt"), ("key", "server.key"), ("ca-cert", "ca.crt")] {
                set(&[&format!("--tls-{setting}-file"), &directory.join(file).display().to_string()]);
            }
        } else {
            set(&["--port", &number]);
        }
        args.extend(self.args.iter().cloned());
        let mut program = Program::start(&launch("redis-server", directory, args));
        let ready = |line: &str| line.contains("Ready to accept connections").then_some(());
        program.line("that it is ready", ready).await?;
        Some(program)
    }
}

impl RedisServer {
    pub fn builder() -> RedisBuilder {
        RedisBuilder::default()
    }

    pub async fn start() -> RedisServer {
        RedisBuilder::default().start().await
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// With TLS it names the authority to trust.
    pub fn url(&self) -> String {
        let port = self.port;
        if self.builder.tls {
            return format!("rediss://127.0.0.1:{port}?ca={}", self.directory.path().join("ca.crt").display());
        }
        format!("redis://127.0.0.1:{port}")
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Stops it as an operator would.
    pub async fn stop(&mut self) {
        self.program.signal(Signal::TERM);
        self.program.wait().await;
    }

    pub async fn kill(&mut self) {
        self.program.kill().await;
    }

    /// Kills it, if it runs, and starts it again at the same address, empty.
    pub async fn restart_empty(&mut self) {
        self.kill().await;
        for kept in ["dump.rdb", "appendonlydir", "appendonly.aof"].map(|name| self.directory.path().join(name)) {
            let _ = std::fs::remove_file(&kept);
            let _ = std::fs::remove_dir_all(&kept);
        }
        self.restart().await;
    }

    /// Starts it again at the same address, with its data.
    pub async fn restart(&mut self) {
        self.kill().await;
        let started = self.builder.launch(self.port, self.directory.path()).await;
        self.program = started.expect("its port is still its own");
    }

    /// Stops the process with a signal: it keeps its connections and does not respond.
    pub fn pause(&self) {
        self.program.signal(Signal::STOP);
    }

    pub fn resume(&self) {
        self.program.signal(Signal::CONT);
    }
}

/// A Sentinel that watches one master, which it calls `main`, and decides alone.
pub struct RedisSentinel {
    port: u16,
    _directory: TempDir,
    _program: Program,
}

impl RedisSentinel {
    /// Ready once it knows a replica, so that there is one to fail over to.
    pub async fn watch(master: &RedisServer) -> RedisSentinel {
        let directory = TempDir::with_prefix("convoke-sentinel-").expect("a temporary directory");
        let settings = directory.path().join("sentinel.conf");
        for _ in 0..PORTS_TRIED_MAX {
            let port = free_port();
            let text = format!(
                "port {port}\nbind 127.0.0.1\ndir {}\nsentinel monitor main 127.0.0.1 {} 1\n\
                 sentinel down-after-milliseconds main 500\nsentinel failover-timeout main 2000\n",
                directory.path().display(),
                master.port(),
            );
            std::fs::write(&settings, text).expect("its settings can be written");
            let args = [settings.display().to_string()];
            let mut program = Program::start(&launch("redis-sentinel", directory.path(), args));
            let replica = |line: &str| line.contains("+slave slave").then_some(());
            if program.line("that it knows a replica", replica).await.is_some() {
                return RedisSentinel { port, _directory: directory, _program: program };
            }
        }
        panic!("redis-sentinel did not start on any of {PORTS_TRIED_MAX} ports");
    }

    pub fn url(&self) -> String {
        format!("redis+sentinel://127.0.0.1:{}/main", self.port)
    }
}

/// An authority, and a certificate for 127.0.0.1 that it signed: `ca.crt`, `server.crt`, `server.key`.
async fn make_certificates(directory: &Path) {
    let subject = "subjectAltName=IP:127.0.0.1,DNS:localhost\nbasicConstraints=CA:FALSE\n";
    std::fs::write(directory.join("server.ext"), subject).expect("it can be written");
    let steps = [
        "req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.crt -days 2 -subj /CN=test-authority",
        "req -newkey rsa:2048 -nodes -keyout server.key -out server.csr -subj /CN=127.0.0.1",
        "x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out server.crt -days 2 -extfile server.ext",
    ];
    for step in steps {
        let mut command = tokio::process::Command::new("openssl");
        command.args(step.split(' ')).current_dir(directory).stdin(Stdio::null());
        let output = command.output().await.expect("openssl runs");
        assert!(output.status.success(), "openssl {step}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
