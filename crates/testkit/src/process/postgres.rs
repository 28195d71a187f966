//! A real PostgreSQL server: private to a test, or shared by all tests of a run.
//!
//! A private one can be stopped in every way a server can stop. A shared one saves starting it; each test has a database of
//! its own in it. `initdb` runs once in a run of tests: every server's data directory is a copy of its result. A watcher
//! stops the shared server and removes the directory of the run once the run is over, however it ended.
//!
//! The server refuses to run as root: there it runs as the user `postgres`, which its package has made.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::{Pid, kill_process};
use tempfile::TempDir;

use super::program::{Launch, Program, Signal, free_port, is_alive};
use super::waiting::eventually;

/// How often a start that met a port in use, or the remains of a killed server, is tried again.
const STARTS_MAX: u32 = 50;
const START_PAUSE: Duration = Duration::from_millis(100);
/// How long a server may take to leave on its own when its handle is dropped.
const FAREWELL: Duration = Duration::from_secs(5);

const SUPERUSER: &str = "postgres";

/// Whether what is committed survives the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// As by default: a commit is on the disk.
    Durable,
    /// `fsync` is off: a commit survives the server's death, not the machine's.
    Fast,
}

/// A server of one's own.
pub struct Postgres {
    program: Option<Program>,
    directory: TempDir,
    port: u16,
    durability: Durability,
    environment: Vec<(String, String)>,
}

impl Postgres {
    pub async fn start(durability: Durability) -> Postgres {
        Self::start_with(durability, |_| Vec::new()).await
    }

    /// Starts one whose environment has these variables as well; `prepare` is given the data directory before anything runs in it.
    pub async fn start_with(durability: Durability, prepare: impl FnOnce(&Path) -> Vec<(String, String)>) -> Postgres {
        let directory = tempfile::tempdir().expect("a directory");
        RunDirectory::get().copy_template(directory.path());
        let environment = prepare(&directory.path().join("data"));
        let mut postgres = Postgres { program: None, directory, port: 0, durability, environment };
        postgres.start_again().await;
        postgres
    }

    pub fn url(&self) -> String {
        url(self.port, SUPERUSER)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL of a database that is new and empty.
    pub fn create_database(&self) -> String {
        create_database(self.port)
    }

    pub fn pid(&self) -> Option<u32> {
        self.program.as_ref().map(Program::pid)
    }

    /// The lines of its log so far.
    pub fn printed(&self) -> Vec<String> {
        self.program.as_ref().map(Program::printed).unwrap_or_default()
    }

    /// The data directory; a test may read it, not change it.
    pub fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// As `pg_ctl -m immediate restart`: no goodbye to anybody, the log is replayed.
    pub async fn restart_immediate(&mut self) {
        self.leave(Signal::QUIT).await;
        self.start_again().await;
    }

    /// As `pg_ctl -m fast stop`.
    pub async fn stop(&mut self) {
        self.leave(Signal::INT).await;
    }

    /// The server is killed; its sessions notice and end.
    pub async fn kill(&mut self) {
        self.leave(Signal::KILL).await;
    }

    /// The server and all its sessions are killed at one moment, as by the loss of power.
    pub async fn kill_all(&mut self) {
        // Stopped first: otherwise sessions would notice the end of the server and write something more.
        self.pause();
        let sessions = self.pid().map(children).unwrap_or_default();
        for session in &sessions {
            let _ = kill_process(*session, Signal::KILL);
        }
        self.leave(Signal::KILL).await;
        for session in sessions {
            let pid = session.as_raw_nonzero().get().unsigned_abs();
            eventually("the end of a session", || async { (!is_alive(pid)).then_some(()) }).await;
        }
    }

    async fn leave(&mut self, signal: Signal) {
        if let Some(mut program) = self.program.take() {
            program.signal(signal);
            program.wait().await;
        }
    }

    /// On the same port, with the same data, where it was stopped or killed.
    pub async fn start_again(&mut self) {
        for _ in 0..STARTS_MAX {
            if self.port == 0 {
                self.port = free_port();
            }
            let mut program = Program::start(&Launch {
                env: self.environment.clone(),
                ..launch(self.directory.path(), self.port, self.durability)
            });
            let ready = |line: &str| line.contains("ready to accept connections").then_some(());
            if program.line("PostgreSQL being ready", ready).await.is_some() {
                self.program = Some(program);
                return;
            }
            tokio::time::sleep(START_PAUSE).await;
        }
        panic!("PostgreSQL does not start on port {}", self.port);
    }

    /// Stops it and all its sessions where they are: connections stay open without a response.
    pub fn pause(&self) {
        self.signal_all(Signal::STOP);
    }

    pub fn resume(&self) {
        self.signal_all(Signal::CONT);
    }

    fn signal_all(&self, signal: Signal) {
        let Some(program) = &self.program else { return };
        program.signal(signal);
        for child in children(program.pid()) {
            let _ = kill_process(child, signal);
        }
    }
}

impl Drop for Postgres {
    /// Lets it remove what it has in shared memory, which a killed one leaves behind.
    fn drop(&mut self) {
        self.resume();
        let Some(program) = &mut self.program else { return };
        program.signal(Signal::QUIT);
        let started = std::time::Instant::now();
        while !program.has_ended() && started.elapsed() < FAREWELL {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The server that all tests of a run share. Not durable.
pub struct SharedPostgres {
    port: u16,
}

impl SharedPostgres {
    /// Starts it where it is the first to ask.
    pub fn get() -> SharedPostgres {
        static PORT: OnceLock<u16> = OnceLock::new();
        SharedPostgres { port: *PORT.get_or_init(find_or_start) }
    }

    pub fn create_database(&self) -> String {
        create_database(self.port)
    }

    /// A new database that is a copy of the one called `name`. The first test of the run that asks for it creates that one,
    /// and `prepare` fills it; no connection to it may be left.
    pub fn create_database_like<F: Future<Output = ()>>(
        &self,
        name: &str,
        prepare: impl FnOnce(String) -> F + Send,
    ) -> String {
        let directory = RunDirectory::get().path.join("server");
        let is_prepared = directory.join(name);
        {
            let _lock = lock(&directory);
            if !is_prepared.exists() {
                let prepared = create(self.port, name, "template1");
                // On a runtime of its own, so that connections end with it.
                std::thread::scope(|scope| {
                    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                    scope.spawn(move || runtime.expect("a runtime").block_on(prepare(prepared)));
                });
                File::create(&is_prepared).expect("a file");
            }
        }
        create_database_from(self.port, name)
    }
}

/// A connection with an open transaction, as an application may leave one.
pub struct OpenTransaction {
    client: tokio_postgres::Client,
}

impl OpenTransaction {
    /// Begins one and runs `sql` in it.
    pub async fn begin(url: &str, sql: &str) -> OpenTransaction {
        let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.expect("connects");
        tokio::spawn(connection);
        client.batch_execute(&format!("begin; {sql}")).await.expect("runs in the transaction");
        OpenTransaction { client }
    }

    /// Returns how many sessions of this database wait for a lock.
    pub async fn waiting_sessions(&self) -> i64 {
        let count =
            "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
        // A transaction reads the statistics once, unless they are cleared.
        self.client.batch_execute("select pg_stat_clear_snapshot()").await.expect("cleared");
        self.client.query_one(count, &[]).await.expect("counted").get(0)
    }

    pub async fn rollback(self) {
        self.client.batch_execute("rollback").await.expect("rolls back");
    }
}

/// The directory that the processes of one run of tests share. Removed by a watcher.
struct RunDirectory {
    path: PathBuf,
    /// The process whose end is the end of the run.
    watched: i32,
}

impl RunDirectory {
    fn get() -> RunDirectory {
        let own = rustix::process::getpid().as_raw_nonzero().get();
        // A runner that gives each test a process sets a variable, and outlives them all.
        let (run, watched) = match (std::env::var("NEXTEST_RUN_ID"), rustix::process::getppid()) {
            (Ok(run), Some(parent)) => (run, parent.as_raw_nonzero().get()),
            _ => (own.to_string(), own),
        };
        let path = std::env::temp_dir().join(format!("convoke-postgres-{run}"));
        std::fs::create_dir_all(&path).expect("a directory");
        RunDirectory { path, watched }
    }

    /// Makes `directory/data` a new cluster, owned by the user that runs the server.
    fn copy_template(&self, directory: &Path) {
        give_to_superuser(directory);
        let template = self.path.join("template");
        {
            let _lock = lock(&self.path);
            if !template.is_dir() {
                // Renamed when it is whole: half a template is none.
                let making = self.path.join("making");
                give_to_superuser(&self.path);
                make_cluster(&making);
                std::fs::rename(&making, &template).expect("renamed");
                self.watch();
            }
        }
        let mut copy = Command::new("cp");
        copy.args(["-a", "--reflink=auto"]).arg(&template).arg(directory.join("data"));
        let copied = copy.output().expect("cp runs");
        assert!(copied.status.success(), "a copy of a cluster: {}", String::from_utf8_lossy(&copied.stderr));
    }

    /// Starts the process that waits for the end of the run, stops the shared server and removes the directory.
    #[allow(clippy::zombie_processes, reason = "it outlives this process; its next parent waits for it")]
    fn watch(&self) {
        let watch = "while kill -0 \"$1\" 2>/dev/null; do sleep 0.5; done; \
                     if read -r server 2>/dev/null <\"$2/server/data/postmaster.pid\"; then \
                     kill -QUIT \"$server\"; while kill -0 \"$server\" 2>/dev/null; do sleep 0.2; done; fi; \
                     rm -rf \"$2\"";
        let mut watcher = Command::new("/bin/sh");
        watcher.args(["-c", watch, "watch", &self.watched.to_string()]).arg(&self.path);
        watcher.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        std::os::unix::process::CommandExt::process_group(&mut watcher, 0);
        watcher.spawn().expect("a shell");
    }
}

/// Waits until no other process, nor thread, has the lock of this directory. It is free again when the file is closed.
fn lock(directory: &Path) -> File {
    let lock = File::create(directory.join("lock")).expect("a file");
    lock.lock().expect("a lock");
    lock
}

/// Processes of one run agree that one of them starts the server.
fn find_or_start() -> u16 {
    let run = RunDirectory::get();
    let server = run.path.join("server");
    let _ = std::fs::create_dir(&server);
    let _lock = lock(&server);
    let port_file = server.join("port");
    if let Some(port) = std::fs::read_to_string(&port_file).ok().and_then(|text| text.parse().ok()) {
        return port;
    }
    run.copy_template(&server);
    let port = start_detached(&server);
    std::fs::write(&port_file, port.to_string()).expect("a file");
    port
}

/// Starts a server that outlives this process; the watcher of the run ends it.
#[allow(clippy::zombie_processes, reason = "it outlives this process; its next parent waits for it")]
fn start_detached(directory: &Path) -> u16 {
    for _ in 0..STARTS_MAX {
        let port = free_port();
        let launch = launch(directory, port, Durability::Fast);
        let log = File::create(directory.join("log")).expect("a file");
        let mut server = Command::new(&launch.binary);
        server.args(&launch.args).current_dir(directory).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        std::os::unix::process::CommandExt::process_group(&mut server, 0);
        let mut server = server.spawn().expect("PostgreSQL starts");
        let is_ready = || {
            let log = std::fs::read_to_string(directory.join("log")).unwrap_or_default();
            log.contains("ready to accept connections")
        };
        while !is_ready() && server.try_wait().expect("a child of ours").is_none() {
            std::thread::sleep(Duration::from_millis(10));
        }
        if is_ready() {
            return port;
        }
    }
    panic!("PostgreSQL does not start: {}", std::fs::read_to_string(directory.join("log")).unwrap_or_default());
}

fn url(port: u16, database: &str) -> String {
    format!("postgres://{SUPERUSER}@127.0.0.1:{port}/{database}?sslmode=disable")
}

fn create_database(port: u16) -> String {
    create_database_from(port, "template1")
}

fn create_database_from(port: u16, template: &str) -> String {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let name = format!("test_{}_{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
    create(port, &name, template)
}

/// Creates the database `name` as a copy of `template`. Its URL.
fn create(port: u16, name: &str, template: &str) -> String {
    let made = Command::new(binary("psql"))
        .args(["-qX", "-h", "127.0.0.1", "-p", &port.to_string(), "-U", SUPERUSER, "-d", SUPERUSER, "-c"])
        .arg(format!("create database {name} template {template}"))
        .output()
        .expect("psql runs");
    assert!(made.status.success(), "a database: {}", String::from_utf8_lossy(&made.stderr));
    url(port, name)
}

/// Returns the path of a program of PostgreSQL: from the variable, from the newest package, or on the path.
fn binary(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut packaged: Vec<PathBuf> = versions.map(|version| version.path().join("bin")).collect();
    packaged.sort();
    packaged.reverse();
    places.splice(0..0, packaged);
    places.splice(0..0, std::env::var_os("CONVOKE_TEST_POSTGRES_BIN").map(PathBuf::from));
    let found = places.into_iter().map(|place| place.join(name)).find(|path| path.is_file());
    found.unwrap_or_else(|| {
        panic!("{name} of PostgreSQL is not installed; CONVOKE_TEST_POSTGRES_BIN can name its directory")
    })
}

/// A program and its arguments, as the user that may run it.
fn unprivileged(program: PathBuf, args: Vec<OsString>) -> (PathBuf, Vec<OsString>) {
    if !rustix::process::getuid().is_root() {
        return (program, args);
    }
    let dropped = ["--reuid", SUPERUSER, "--regid", SUPERUSER, "--clear-groups", "--"].map(OsString::from);
    let args = dropped.into_iter().chain([program.into_os_string()]).chain(args).collect();
    ("setpriv".into(), args)
}

fn give_to_superuser(directory: &Path) {
    if rustix::process::getuid().is_root() {
        let given = Command::new("chown").arg(SUPERUSER).arg(directory).status().expect("chown runs");
        assert!(given.success(), "the directory is given to the user {SUPERUSER}");
    }
}

/// Runs `initdb`. Short segments of the log keep copies small.
fn make_cluster(data: &Path) {
    let args =
        ["--no-sync", "--auth=trust", "--encoding=UTF8", "--locale=C", "--wal-segsize=1", "--username", SUPERUSER];
    let mut args: Vec<OsString> = args.into_iter().map(OsString::from).collect();
    args.extend(["--pgdata".into(), data.into()]);
    let (program, args) = unprivileged(binary("initdb"), args);
    let directory = data.parent().expect("it is in a directory");
    let made = Command::new(program).args(args).current_dir(directory).output().expect("initdb runs");
    assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
}

fn launch(directory: &Path, port: u16, durability: Durability) -> Launch {
    let mut args: Vec<OsString> = vec!["-D".into(), directory.join("data").into()];
    let sockets = directory.display().to_string();
    // A commit is still written before it is acknowledged: what a killed server had is there, what a dead machine had is not.
    let fast = ["fsync=off", "full_page_writes=off", "max_wal_size=4GB"];
    let settings = [
        format!("port={port}"),
        "listen_addresses=127.0.0.1".into(),
        format!("unix_socket_directories={sockets}"),
        "max_connections=300".into(),
        "shared_buffers=32MB".into(),
    ];
    let fast = fast.iter().filter(|_| durability == Durability::Fast).map(ToString::to_string);
    for setting in settings.into_iter().chain(fast) {
        args.extend(["-c".into(), setting.into()]);
    }
    let (binary, args) = unprivileged(binary("postgres"), args);
    Launch { name: "postgres".into(), binary, args, env: Vec::new(), directory: directory.to_owned() }
}

/// The processes that `pid` has started.
fn children(pid: u32) -> Vec<Pid> {
    let parent = |id: i32| -> Option<u32> {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        // Behind the name, which is in brackets and may hold anything: the state, then the parent.
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
    };
    let ids = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = ids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    ids.filter(|id| parent(*id) == Some(pid)).filter_map(Pid::from_raw).collect()
}
