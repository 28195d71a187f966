//! An instance on Node.js, in a process of its own, which reads its operations line by line.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use convoke_testkit::process::PATIENCE;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::{mpsc, oneshot};

const FILES: [(&str, &str); 3] = [
    ("package.json", include_str!("node/package.json")),
    ("mesh.mjs", include_str!("node/mesh.mjs")),
    ("peer.mjs", include_str!("node/peer.mjs")),
];

type Waiting = Arc<Mutex<HashMap<u64, oneshot::Sender<Value>>>>;

pub struct Peer {
    child: Child,
    stdin: tokio::sync::Mutex<ChildStdin>,
    last: AtomicU64,
    waiting: Waiting,
    events: tokio::sync::Mutex<mpsc::UnboundedReceiver<Value>>,
    pub id: u64,
}

/// A directory with the peer's sources and what they import. `None` where there is no Node.js here.
pub async fn installed() -> Option<PathBuf> {
    let is_there = |program: &str| {
        let found = std::process::Command::new(program).arg("--version").stdout(Stdio::null()).status();
        found.is_ok_and(|status| status.success())
    };
    if !is_there("node") || !is_there("npm") {
        return None;
    }
    tokio::task::spawn_blocking(install).await.expect("no panic").into()
}

fn install() -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mesh-peer");
    std::fs::create_dir_all(&directory).expect("a directory under target");
    // Tests run side by side, in processes of their own: one installs, the others wait.
    let lock = std::fs::File::create(directory.join("lock")).expect("a file under target");
    lock.lock().expect("a lock");
    for (name, text) in FILES {
        let path = directory.join(name);
        if std::fs::read_to_string(&path).ok().as_deref() != Some(text) {
            std::fs::write(&path, text).expect("a file under target");
            if name == "package.json" {
                let _ = std::fs::remove_dir_all(directory.join("node_modules"));
            }
        }
    }
    if !directory.join("node_modules/ioredis/package.json").exists() {
        let mut npm = std::process::Command::new("npm");
        npm.args(["install", "--no-audit", "--no-fund", "--no-package-lock"]).current_dir(&directory);
        let output = npm.output().expect("npm runs");
        assert!(output.status.success(), "npm install: {}", String::from_utf8_lossy(&output.stderr));
    }
    directory
}

impl Peer {
    /// Started and registered. `options` are those of the existing system.
    pub async fn start(directory: &Path, port: u16, key: &str, options: Value) -> Peer {
        let mut settings = json!({"key": key, "port": port});
        let fields = settings.as_object_mut().expect("an object");
        fields.extend(options.as_object().expect("an object").clone());
        let mut child = Command::new("node")
            .arg("peer.mjs")
            .arg(settings.to_string())
            .current_dir(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("node starts");
        let stdin = child.stdin.take().expect("piped");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let (waiting, (received, events)) = (Waiting::default(), mpsc::unbounded_channel());
        let pending = waiting.clone();
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                let message: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{line}: {error}"));
                let waiter = message["id"].as_u64().and_then(|id| pending.lock().remove(&id));
                match waiter {
                    Some(waiter) => drop(waiter.send(message)),
                    None => drop(received.send(message)),
                }
            }
        });
        let stdin = tokio::sync::Mutex::new(stdin);
        let (last, events) = (AtomicU64::new(0), tokio::sync::Mutex::new(events));
        let mut peer = Peer { child, stdin, last, waiting, events, id: 0 };
        peer.id = peer.event("started").await["instanceId"].as_u64().expect("a number");
        peer
    }

    /// Returns the operation's result: the whole line.
    pub async fn order(&self, op: &str, fields: Value) -> Value {
        let id = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let mut order = json!({"id": id, "op": op});
        order.as_object_mut().expect("an object").extend(fields.as_object().expect("an object").clone());
        let (waiter, response) = oneshot::channel();
        self.waiting.lock().insert(id, waiter);
        let line = format!("{order}\n");
        self.stdin.lock().await.write_all(line.as_bytes()).await.expect("the peer reads");
        let response = tokio::time::timeout(Duration::from_secs(120), response).await;
        response.expect("the peer responds").expect("the peer lives")
    }

    pub async fn invoke(&self, to: u64, request_type: &str, data: Value) -> Value {
        self.order("invoke", json!({"to": to, "type": request_type, "data": data})).await
    }

    /// The next event of a kind; others are passed over.
    pub async fn event(&self, kind: &str) -> Value {
        let mut events = self.events.lock().await;
        let wanted = async {
            loop {
                let event = events.recv().await.expect("the peer lives");
                if event["event"] == kind {
                    return event;
                }
            }
        };
        tokio::time::timeout(PATIENCE, wanted).await.unwrap_or_else(|_| panic!("the peer reported no {kind}"))
    }

    pub async fn kill(mut self) {
        self.child.kill().await.expect("a process of ours");
    }

    pub async fn stop(mut self) {
        self.order("stop", json!({})).await;
        self.child.wait().await.expect("a process of ours");
    }
}
