//! A coordinator: `convoke serve` on a store of its own.
//!
//! Started on port 0, it prints where it listens; that is also how a test knows that a restarted one is ready. The store
//! outlives its processes and is removed with the handle.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use tempfile::TempDir;

use super::cli::Cli;
use super::http::{Http, HttpResponse};
use super::program::{Launch, Program, Signal};
use super::waiting::{eventually, wait_for_value};

/// A node to start, with its settings.
#[derive(Debug, Clone)]
pub struct NodeBuilder {
    binary: PathBuf,
    directory: Arc<TempDir>,
    store: Option<String>,
    args: Vec<String>,
    env: Vec<(String, String)>,
    wrapper: Option<(PathBuf, Vec<String>)>,
    token: Option<String>,
}

pub struct Node {
    builder: NodeBuilder,
    program: Program,
    http: Http,
}

impl NodeBuilder {
    /// `binary` is the caller's `env!("CARGO_BIN_EXE_convoke")`. Timings are short: what takes half a minute in
    /// production takes a second here.
    pub fn new(binary: impl Into<PathBuf>) -> Self {
        let directory = TempDir::with_prefix("convoke-").expect("a temporary directory");
        let builder = NodeBuilder {
            binary: binary.into(),
            directory: Arc::new(directory),
            store: None,
            args: Vec::new(),
            env: Vec::new(),
            wrapper: None,
            token: None,
        };
        builder
            .set("worker.heartbeat_interval", "200ms")
            .set("worker.stale_after", "3s")
            .set("cluster.heartbeat_interval", "200ms")
            .set("cluster.dead_node_timeout", "1s")
            .set("cluster.lease_duration", "2s")
            .set("cluster.renew_interval", "500ms")
            .set("cluster.orphan_check_interval", "500ms")
            .set("channels.cleanup_delay", "200ms")
            .set("channels.scan_interval", "200ms")
            .set("retry.initial_delay", "20ms")
            .set("retry.max_delay", "100ms")
    }

    /// Sets a configuration key by its environment variable; the last setting of a key counts.
    pub fn set(self, key: &str, value: &str) -> Self {
        let name = format!("CONVOKE_{}", key.to_uppercase().replace('.', "__"));
        self.env(&name, value)
    }

    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.retain(|(known, _)| known != name);
        self.env.push((name.into(), value.into()));
        self
    }

    pub fn args<A: Into<String>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    pub fn store(mut self, url: &str) -> Self {
        self.store = Some(url.into());
        self
    }

    /// The token with which the tests' own requests are made.
    pub fn token(mut self, token: &str) -> Self {
        self.token = Some(token.into());
        self
    }

    /// Runs `program args… convoke serve …` instead, as `unshare` or `strace` are used.
    pub fn wrapped<A: Into<String>>(mut self, program: impl Into<PathBuf>, args: impl IntoIterator<Item = A>) -> Self {
        self.wrapper = Some((program.into(), args.into_iter().map(Into::into).collect()));
        self
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub fn store_path(&self) -> PathBuf {
        self.directory.path().join("convoke.db")
    }

    fn store_url(&self) -> String {
        self.store.clone().unwrap_or_else(|| format!("sqlite:{}", self.store_path().display()))
    }

    fn launch(&self) -> Launch {
        let mut args = Vec::new();
        let mut program = self.binary.clone();
        if let Some((wrapper, before)) = &self.wrapper {
            args.extend(before.iter().map(Into::into));
            args.push(self.binary.clone().into_os_string());
            program = wrapper.clone();
        }
        args.push("serve".into());
        if !self.args.iter().any(|arg| arg == "--http") {
            args.extend(["--http".into(), "127.0.0.1:0".into()]);
        }
        args.extend(["--store".into(), self.store_url().into()]);
        // Many servers run at once here, and all would listen at the same default address.
        let is_address = |name: &str| name == "CONVOKE_SHARDS__BIND" || name.starts_with("SHARD_COORDINATOR_");
        if !self.args.iter().any(|arg| arg == "--shards") && !self.env.iter().any(|(name, _)| is_address(name)) {
            args.extend(["--shards".into(), "off".into()]);
        }
        args.extend(self.args.iter().map(Into::into));
        let id = self.args.iter().skip_while(|arg| *arg != "--node-id").nth(1);
        Launch {
            name: id.map_or_else(|| "convoke serve".into(), |id| format!("convoke serve, {id}")),
            binary: program,
            args,
            env: self.env.clone(),
            directory: self.directory.path().to_owned(),
        }
    }

    /// Only starts the process: for those that must refuse to, or are killed before they are ready.
    pub fn spawn(&self) -> Program {
        Program::start(&self.launch())
    }

    /// Starts it and waits until it is ready.
    pub async fn start(self) -> Node {
        let mut program = self.spawn();
        let address = ready(&mut program).await;
        let mut http = Http::new(address);
        if let Some(token) = &self.token {
            http = http.with_token(token);
        }
        let node = Node { builder: self, program, http };
        node.wait_until_ready().await;
        node
    }

    pub fn cli(&self) -> Cli {
        Cli { binary: self.binary.clone(), directory: self.directory.path().to_owned(), server: None, env: Vec::new() }
    }
}

/// Returns the address that it prints: `api http://127.0.0.1:PORT` among its ready lines.
async fn ready(program: &mut Program) -> SocketAddr {
    let address = program.line("the ready line with the API's address", api_address).await;
    address.unwrap_or_else(|| panic!("convoke serve ended before it was ready:\n{}", program.printed().join("\n")))
}

fn api_address(line: &str) -> Option<SocketAddr> {
    let mut words = line.split_whitespace().skip_while(|word| word.trim_end_matches(':') != "api");
    words.next()?;
    let url = words.next()?.strip_prefix("http://")?;
    url.trim_end_matches('/').parse().ok()
}

impl Node {
    pub fn builder(binary: impl Into<PathBuf>) -> NodeBuilder {
        NodeBuilder::new(binary)
    }

    pub fn http(&self) -> &Http {
        &self.http
    }

    pub fn settings(&self) -> &NodeBuilder {
        &self.builder
    }

    pub fn program(&mut self) -> &mut Program {
        &mut self.program
    }

    /// All that it has printed so far, both streams.
    pub fn printed(&self) -> Vec<String> {
        self.program.printed()
    }

    pub fn pid(&self) -> u32 {
        self.program.pid()
    }

    pub fn signal(&self, signal: Signal) {
        self.program.signal(signal);
    }

    /// SIGKILL: nothing is flushed, nothing is published.
    pub async fn kill(&mut self) {
        self.program.kill().await;
    }

    /// Starts it again on the same store, on another port; clones of [`Node::http`] follow.
    pub async fn restart(&mut self) {
        self.kill().await;
        self.program = self.builder.spawn();
        let address = ready(&mut self.program).await;
        self.http.moved(address);
        self.wait_until_ready().await;
    }

    /// The same with other settings.
    pub async fn restart_with(&mut self, change: impl FnOnce(NodeBuilder) -> NodeBuilder) {
        self.builder = change(self.builder.clone());
        self.restart().await;
    }

    pub async fn wait_until_ready(&self) {
        let ask = || async { self.http.get("/readyz").await.map(|response| response.status).unwrap_or(0) };
        wait_for_value("GET /readyz", 200, ask).await;
    }

    /// The command line against this server.
    pub fn cli(&self) -> Cli {
        Cli { server: Some(self.http.url()), ..self.builder.cli() }
    }

    /// Another process of the same binary, such as a worker, with this server's address in its environment.
    pub fn start_process<A: Into<std::ffi::OsString>>(&self, name: &str, args: impl IntoIterator<Item = A>) -> Program {
        Program::start(&Launch {
            name: name.into(),
            binary: self.builder.binary.clone(),
            args: args.into_iter().map(Into::into).collect(),
            env: vec![("CONVOKE_SERVER".into(), self.http.url())],
            directory: self.builder.directory.path().to_owned(),
        })
    }

    /// `convoke worker run --queue QUEUE --exec COMMAND`.
    pub fn exec_worker(&self, queue: &str, command: &str) -> Program {
        self.start_process("convoke worker run", ["worker", "run", "--queue", queue, "--exec", command])
    }

    /// Any program, with this server's address in its environment.
    pub fn start_program(&self, binary: &str, args: &[&str]) -> Program {
        Program::start(&Launch {
            name: binary.into(),
            binary: binary.into(),
            args: args.iter().map(Into::into).collect(),
            env: vec![("CONVOKE_SERVER".into(), self.http.url())],
            directory: self.builder.directory.path().to_owned(),
        })
    }

    /// Enqueues one job and returns the response.
    pub async fn enqueue(&self, spec: Value) -> HttpResponse {
        self.http.post("/v1/jobs", spec).await.expect("a response")
    }

    /// Enqueues one job that must be taken; its id.
    pub async fn enqueued(&self, spec: Value) -> String {
        let job = self.enqueue(spec).await.expect(201);
        job["id"].as_str().expect("a job has an id").to_owned()
    }

    pub async fn job(&self, id: &str) -> Value {
        self.http.get(&format!("/v1/jobs/{id}")).await.expect("a response").expect(200)
    }

    pub async fn history(&self, id: &str) -> Vec<Value> {
        let response = self.http.get(&format!("/v1/jobs/{id}/history")).await.expect("a response").expect(200);
        response["executions"].as_array().expect("executions").clone()
    }

    /// The job once it is in one of these states.
    pub async fn job_when(&self, id: &str, statuses: &[&str]) -> Value {
        let what = format!("job {id} to be one of {statuses:?}");
        eventually(&what, || async {
            let job = self.job(id).await;
            statuses.iter().any(|status| job["status"] == *status).then_some(job)
        })
        .await
    }

    /// All of a list that is given in pages.
    pub async fn all(&self, path: &str, field: &str) -> Vec<Value> {
        self.http.all(path, field).await
    }

    /// The value of a metric, summed over its series that have all of `labels`.
    pub async fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        self.http.metric(name, labels).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_found_in_the_ready_lines() {
        let expected = Some("127.0.0.1:4711".parse().expect("an address"));
        for line in ["api http://127.0.0.1:4711", "  api        http://127.0.0.1:4711/", "api: http://127.0.0.1:4711"] {
            assert_eq!(api_address(line), expected, "{line}");
        }
        for line in ["dashboard http://127.0.0.1:4711", "api", "rapid http://127.0.0.1:1", "api https"] {
            assert_eq!(api_address(line), None, "{line}");
        }
    }
}
